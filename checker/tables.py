"""The tables of a run: tenants in, declarations and what the clients know of each table's shape out."""

import threading
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
    policies: dict[str, Any]
    share: float
    keyed: bool = True
    known: Shape = FIRST_SHAPE
    wanted: Shape | None = None
    defining: threading.Lock = field(default_factory=threading.Lock)

    @property
    def path(self) -> str:
        return f"/v1/tenants/{self.tenant}/tables/{self.name}"

    def document(self, shape: Shape) -> dict[str, Any]:
        key = ["k"] if self.keyed else []
        return {
            "table": self.name,
            "schema": shape.to_avro(self.name),
            "primary_key": key,
            "csv": {"header": True},
            **self.policies,
        }


def plan_tables() -> list[Table]:
    """The same names and the same keys for every tenant, so that whatever leaks is seen."""
    tables = []
    for number, tenant in enumerate(TENANTS):
        vectors = {"deletion_vectors": "never"} if number == 1 else {}
        tables += [
            Table(tenant, "orders", {}, 0.5),
            Table(tenant, "ledger", {"concurrency": "exclusive", **vectors}, 0.25),
            Table(tenant, "trail", {}, 0.25, keyed=False),
        ]
    return tables


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
