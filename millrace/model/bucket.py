"""A token bucket that may have debt: amounts and times in, seconds to wait out. The caller has the clock."""


class Bucket:
    """Holds at most the tokens of one second, and at least one. Taking is never refused; debt is waiting time."""

    def __init__(self, rate: float, now: float) -> None:
        self.rate = rate
        self._room = max(rate, 1.0)
        self._level = self._room
        self._at = now

    def debt_seconds(self, now: float, amount: float = 0.0) -> float:
        """The time until the amount can be taken without debt; 0 if now. The wait is at most that for a full bucket."""
        missing = min(amount, self._room) - self._filled(now)
        if missing <= 0:
            return 0.0
        return missing / self.rate if self.rate > 0 else float("inf")

    def take(self, now: float, amount: float) -> None:
        self._level, self._at = self._filled(now) - amount, now

    def _filled(self, now: float) -> float:
        return min(self._room, self._level + max(0.0, now - self._at) * self.rate)
