"""How often a delivery is tried: at once, then after pauses that double up to a longest one, until its event is too old."""

import random
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pace:
    first_pause: float = 2.0
    longest_pause: float = 3600.0
    oldest: float = 3 * 86400.0
    """Seconds after which an event that could not be delivered is given up."""

    def pause(self, attempts: int, retry_after: float | None = None, chance: float | None = None) -> float:
        """Seconds until the next attempt after so many; spread by half, so that those who failed together come apart.

        A target may ask for a longer pause, but not for one beyond the longest."""
        whole = min(self.first_pause * 2.0 ** min(attempts - 1, 60), self.longest_pause)
        spread = whole * (0.5 + 0.5 * (random.random() if chance is None else chance))
        return max(spread, min(retry_after or 0.0, self.longest_pause))

    def is_too_old(self, age_seconds: float) -> bool:
        return age_seconds > self.oldest
