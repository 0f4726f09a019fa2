"""A token bucket that may run into debt: amounts and moments in, seconds to wait out. The clock is the caller's."""


class Bucket:
    """Holds one second's worth at most, and at least one. Taking is never refused: debt says how long to wait."""

    def __init__(self, rate: float, now: float) -> None:
        self.rate = rate
        self._room = max(rate, 1.0)
        self._level = self._room
        self._at = now

    def debt_seconds(self, now: float, amount: float = 0.0) -> float:
        """How long until so much can be taken without running into debt, 0 if now; at most a full bucket is waited for."""
        missing = min(amount, self._room) - self._filled(now)
        if missing <= 0:
            return 0.0
        return missing / self.rate if self.rate > 0 else float("inf")

    def take(self, now: float, amount: float) -> None:
        self._level, self._at = self._filled(now) - amount, now

    def _filled(self, now: float) -> float:
        return min(self._room, self._level + max(0.0, now - self._at) * self.rate)
