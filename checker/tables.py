"""The tables of a run: declarations in; what the clients know of each table's shape, and the keys they write, out."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from checker.shapes import DEFAULT, FIRST_SHAPE, Shape

TENANTS = ("soak-a", "soak-b", "soak-c")
KEYS = 2000
SKEW = 0.7


@dataclass
class Table:
    """`known` is the last shape that the platform has acknowledged; `wanted` one that was asked for without an answer."""

    tenant: str
    name: str
    share: float
    policies: dict[str, Any] = field(default_factory=dict)
    keyed: bool = True
    known: Shape = FIRST_SHAPE
    wanted: Shape | None = None

    @property
    def path(self) -> str:
        return f"/v1/tenants/{self.tenant}/tables/{self.name}"

    @property
    def place(self) -> tuple[str, str]:
        return self.tenant, self.name

    @property
    def is_exclusive(self) -> bool:
        return self.policies.get("concurrency") == "exclusive"

    @property
    def is_atomic(self) -> bool:
        return self.policies.get("publish") == "atomic"

    def document(self, shape: Shape) -> dict[str, Any]:
        said = {"table": self.name, "schema": shape.to_avro(self.name), "primary_key": ["k"] if self.keyed else []}
        return {**said, "csv": {"header": True}, **self.policies}


def plan_tables() -> list[Table]:
    """The same names and the same keys for every tenant, so that whatever leaks is seen."""
    a, b, c = TENANTS
    exclusive, atomic, rewriting = {"concurrency": "exclusive"}, {"publish": "atomic"}, {"deletion_vectors": "never"}
    return [
        Table(a, "orders", 0.2),
        Table(b, "orders", 0.15, rewriting),
        Table(c, "orders", 0.15),
        Table(a, "ledger", 0.1, exclusive),
        Table(c, "ledger", 0.05, {**exclusive, **rewriting}),
        Table(a, "trail", 0.1, keyed=False),
        Table(b, "trail", 0.1, keyed=False),
        Table(a, "vault", 0.08, atomic),
        Table(b, "stage", 0.07),
    ]


TRUNCATED = "stage"


def next_shape(table: Table, rng: np.random.Generator, refused: set[str]) -> Shape:
    """A change of shape: a widened column, or one more column."""
    if table.wanted is not None:
        return table.wanted
    if not table.known.is_wide and "widen" not in refused and rng.random() < 0.4:
        return table.known.widened()
    with_default = "default" not in refused and rng.random() < 0.4
    return table.known.with_next(default=DEFAULT if with_default else None)


def zipf_keys(rng: np.random.Generator, count: int) -> npt.NDArray[np.int64]:
    """Keys of a small space, some much more often than others."""
    weights = 1.0 / (np.arange(KEYS) + 5.0) ** SKEW
    return rng.choice(KEYS, count, p=weights / weights.sum()).astype(np.int64)
