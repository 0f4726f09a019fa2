"""When a delivery is retried: at once, then after pauses that double up to a maximum, until its event is too old."""

import random
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    first_pause: float = 2.0
    longest_pause: float = 3600.0
    oldest: float = 3 * 86400.0
    """Seconds after which an undelivered event is given up."""

    def pause(self, attempts: int, retry_after: float | None = None, chance: float | None = None) -> float:
        """Seconds until the next attempt. They vary randomly by half, so that deliveries that failed together are spread.

        A target may ask for a longer pause, up to the maximum."""
        whole = min(self.first_pause * 2.0 ** min(attempts - 1, 60), self.longest_pause)
        spread = whole * (0.5 + 0.5 * (random.random() if chance is None else chance))
        return max(spread, min(retry_after or 0.0, self.longest_pause))

    def is_too_old(self, age_seconds: float) -> bool:
        return age_seconds > self.oldest
