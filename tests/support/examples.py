"""How many examples Hypothesis tries: the same few in each `make test`, many with new seeds in `make test-all`."""

from typing import Any

from hypothesis import HealthCheck, settings

STEADY, RANDOM = "steady", "random"
# `make test` takes this part of the examples.
PART = 3


def register_profiles() -> None:
    """Nothing depends on the speed of the machine, and no run depends on an earlier one."""
    common: dict[str, Any] = {"deadline": None, "database": None, "suppress_health_check": [HealthCheck.too_slow]}
    settings.register_profile(STEADY, derandomize=True, max_examples=100 // PART, **common)
    settings.register_profile(RANDOM, derandomize=False, max_examples=100, print_blob=True, **common)
    settings.load_profile(STEADY)


def is_thorough() -> bool:
    return settings.get_current_profile_name() == RANDOM


def examples(count: int, **more: Any) -> settings:
    """So many with `make test-all`, a part of them with `make test`."""
    return settings(max_examples=count if is_thorough() else count // PART, **more)
