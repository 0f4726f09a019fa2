"""What other engines do to a table, and what that means for its rows.

Some operations change no row: every check must hold as if they had not happened. Others concern keys that no import uses, so
that what must be there is known exactly. A last one deletes imported rows of some keys: those may be gone afterwards."""

from dataclasses import dataclass, field

import numpy as np
import polars as pl

# Keys from here on belong to the other engines.
FIRST_KEY = 1_000_000
KEYS = 200
MOST_ROWS = 20
# Imported rows of these keys may be deleted by another engine.
GIVEN_EVERY, GIVEN_REST = 40, 39
TOUCHED_EVERY = 10

OPTIMIZE, VACUUM, TOUCH = "optimize", "vacuum", "touch"
APPEND, MERGE, UPDATE, TAKE, DELETE = "append", "merge", "update", "take", "delete"
HARMLESS = (OPTIMIZE, VACUUM, TOUCH)
OF_ROWS = (APPEND, MERGE, UPDATE, TAKE, DELETE)

Rows = dict[int, str]
"""By key the cell `w` that names the row."""


@dataclass(frozen=True, slots=True)
class Operation:
    """`rows` are added or changed, `keys` are deleted; `rest` says which rows are touched."""

    kind: str
    rows: Rows = field(default_factory=dict)
    keys: tuple[int, ...] = ()
    rest: int = 0

    def after(self, before: Rows) -> Rows:
        """The other engines' rows after the operation."""
        match self.kind:
            case "append" | "merge":
                return {**before, **self.rows}
            case "update":
                return {key: self.rows.get(key, named) for key, named in before.items()}
            case "take":
                return {key: named for key, named in before.items() if key not in self.keys}
        return dict(before)


def choose(rng: np.random.Generator, number: int, present: Rows, *, of_rows: bool) -> Operation:
    """The next operation, for a table that holds these rows of ours. `number` is part of what new rows say."""
    kinds = (*HARMLESS, *OF_ROWS) if of_rows else HARMLESS
    kind = str(rng.choice(kinds))
    if kind in HARMLESS or kind == DELETE:
        return Operation(kind, rest=int(rng.integers(TOUCHED_EVERY)))
    free = [key for key in range(FIRST_KEY, FIRST_KEY + KEYS) if key not in present]
    # An append of a key that is there would make it twice.
    pool = {APPEND: free, MERGE: [*free[:MOST_ROWS], *present], UPDATE: list(present), TAKE: list(present)}[kind]
    if not pool:
        return Operation(OPTIMIZE)
    count = int(rng.integers(1, min(MOST_ROWS, len(pool)) + 1))
    keys = tuple(sorted(int(key) for key in rng.choice(pool, count, replace=False)))
    if kind == TAKE:
        return Operation(kind, keys=keys)
    return Operation(kind, {key: f"foreign {number} {key}" for key in keys})


def is_ours() -> pl.Expr:
    """Of rows with a column `k`: those of the other engines."""
    return pl.col("k") >= FIRST_KEY


def is_given() -> pl.Expr:
    return pl.col("k") % GIVEN_EVERY == GIVEN_REST


def named_by_key(rows: Rows) -> str:
    """An SQL expression for the new `w` of each key."""
    whens = " ".join(f"WHEN {key} THEN '{named}'" for key, named in rows.items())
    return f"CASE k {whens} ELSE w END"
