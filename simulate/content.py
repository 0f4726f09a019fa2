"""What tables and files are made of here: declarations, rows, chunks, and the judgement of a row."""

from base64 import b64decode, b64encode
from collections.abc import Iterable
from functools import cache
from random import Random
from typing import Any, NamedTuple

from pyroaring import BitMap64

from millrace.declare.table import parse_table
from millrace.model.chunk import ROWS
from millrace.model.table import Definition

KEYS = 6
TABLES = (("acme", "orders"), ("acme", "notes"), ("bolt", "orders"))
# Every table has the first sink; the second may be declared, may be down, and may be given up.
LAKE, MIRROR = "delta", "mirror"
PARTITION_OF = {"acme": 0, "bolt": 1}


class Row(NamedTuple):
    """`bad`: no definition takes it. `extra`: taken where the table has the column of that name."""

    key: int
    value: int
    bad: bool = False
    extra: bool = False
    deletes: bool = False


class Chunk(NamedTuple):
    import_id: str
    number: int
    version: int
    definition: str
    rows: tuple[Row, ...] = ()
    numbers: tuple[int, ...] = ()
    checksum: int = 0
    kind: str = ROWS
    publish: str = "rolling"
    deletes: bool = False


class Judgement(NamedTuple):
    accepted: tuple[tuple[int, Row], ...]
    rejected: tuple[int, ...]


class Policy(NamedTuple):
    """A declaration, in the few words that matter here."""

    keyed: bool = True
    concurrency: str = "concurrent"
    publish: str = "rolling"
    max_rejected: int | None = None
    max_percent: int | None = None
    extra: bool = False
    mirrored: bool = False


@cache
def declared(table: str, policy: Policy) -> dict[str, Any]:
    """The body of a define op; shared, so nobody may change it."""
    fields: list[dict[str, Any]] = [{"name": "key", "type": "long"}, {"name": "value", "type": "long"}]
    if policy.extra:
        fields.append({"name": "extra", "type": ["null", "long"], "default": None})
    document = {
        "schema": {"type": "record", "name": table, "fields": fields},
        "primary_key": ["key"] if policy.keyed else [],
        "concurrency": policy.concurrency,
        "publish": policy.publish,
        "max_rejected": policy.max_rejected,
        "max_rejected_percent": policy.max_percent,
        "max_rejected_min_rows": 4,
        "sinks": [LAKE, MIRROR] if policy.mirrored else [LAKE],
    }
    return parse_table(document).to_dict()


def some_policy(chance: Random, extra: float) -> Policy:
    return Policy(
        keyed=chance.random() < 0.85,
        concurrency="exclusive" if chance.random() < 0.3 else "concurrent",
        publish="atomic" if chance.random() < 0.25 else "rolling",
        max_rejected=chance.randrange(3) if chance.random() < 0.2 else None,
        max_percent=30 if chance.random() < 0.1 else None,
        extra=chance.random() < extra,
        mirrored=chance.random() < 0.2,
    )


def some_rows(chance: Random, most: int, *, bad: float, deletes: bool = False) -> tuple[Row, ...]:
    """Few keys, so that imports meet on them."""
    return tuple(
        Row(
            chance.randrange(KEYS),
            chance.randrange(1000),
            chance.random() < bad,
            chance.random() < 0.25,
            not deletes and chance.random() < 0.15,
        )
        for _ in range(chance.randint(1, most))
    )


def bitmap_of(encoded: str) -> BitMap64:
    """Row numbers as they stand in an op."""
    return BitMap64.deserialize(b64decode(encoded))


def encoded(numbers: Iterable[int]) -> str:
    return b64encode(BitMap64(numbers).serialize()).decode()


def judge(chunk: Chunk, definition: Definition) -> Judgement:
    """A pure function of the chunk and its definition, as the design demands."""
    has_extra = definition.columns[-1].name == "extra"
    keyed = bool(definition.table.primary_key)
    accepted, rejected = [], []
    for number, row in zip(chunk.numbers, chunk.rows, strict=True):
        if row.bad or (row.extra and not has_extra) or ((row.deletes or chunk.deletes) and not keyed):
            rejected.append(number)
        else:
            accepted.append((number, row._replace(deletes=row.deletes or chunk.deletes)))
    return Judgement(tuple(accepted), tuple(rejected))
