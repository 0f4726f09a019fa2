"""A table as declared, and the immutable definition that chunks name."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from typing import Any

from millrace.model.budget import NO_BUDGET, Budget
from millrace.model.column_writing import with_writing
from millrace.model.columns import RESCUED, Column, parse_columns
from millrace.model.rules import Rule
from millrace.model.rules_in_force import in_force
from millrace.model.sinks import DELTA, SinkTarget
from millrace.model.written import WrittenDefaults

# What happens to a later line that equals the header. The first is the default.
SKIP_HEADER, REJECT_HEADER = "skip", "reject"
REPEATED_HEADER = (SKIP_HEADER, REJECT_HEADER)


@dataclass(frozen=True, slots=True)
class CsvDialect:
    """How a tenant's CSV is written. `null_text` is the unquoted cell that means null. `repeated_header`: what happens to a
    later line that equals the header. `skip_lines`: how many lines may stand before the header; blank ones do not
    count."""

    header: bool = False
    delimiter: str = ","
    quote: str = '"'
    null_text: str = ""
    encoding: str = "utf-8"
    repeated_header: str = SKIP_HEADER
    skip_lines: int = 0


@dataclass(frozen=True, slots=True)
class TableDeclaration:
    """`sinks` are the names of the required `targets`: an import ends when it is durable in all of them. `written` is None
    if neither the table nor a column says how values are written; then attributes of the schema's fields have no meaning."""

    name: str
    schema: dict[str, Any]
    primary_key: tuple[str, ...] = ()
    file_type: str = "csv"
    csv: CsvDialect = CsvDialect()
    max_file_bytes: int | None = None
    sinks: tuple[str, ...] = ("delta",)
    unknown_fields: str = "reject"
    deletion_vectors: str = "auto"
    key_space: str | None = None
    title: str = ""
    concurrency: str = "concurrent"
    on_error: str = "reject_row"
    budget: Budget = NO_BUDGET
    publish: str = "rolling"
    compatibility: str = "backward"
    targets: tuple[SinkTarget, ...] = (DELTA,)
    partition_key: tuple[str, ...] = ()
    rules: tuple[Rule, ...] = ()
    written: WrittenDefaults | None = None
    keep_raw_days: int | None = None
    change_feed: bool = False

    def to_dict(self) -> dict[str, Any]:
        values = {**asdict(self), "budget": self.budget.to_dict()}
        # Left out if nothing is said: definitions from before these words existed must keep their fingerprints.
        rules = values.pop("rules")
        del values["written"]
        if self.keep_raw_days is None:
            del values["keep_raw_days"]
        if not self.change_feed:
            del values["change_feed"]
        if self.csv.repeated_header == SKIP_HEADER:
            del values["csv"]["repeated_header"]
        if not self.csv.skip_lines:
            del values["csv"]["skip_lines"]
        said = {} if self.written is None else {"written": self.written.to_dict()}
        return {**values, **({"rules": rules} if rules else {}), **said}

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> "TableDeclaration":
        values = dict(data)
        values["csv"] = CsvDialect(**values["csv"])
        values["primary_key"] = tuple(values["primary_key"])
        values["sinks"] = tuple(values["sinks"])
        values["budget"] = Budget(**values.get("budget", {}))
        values["partition_key"] = tuple(values.get("partition_key", ()))
        if "targets" in values:
            values["targets"] = tuple(SinkTarget(**target) for target in values["targets"])
        values["rules"] = tuple(Rule.from_dict(rule) for rule in values.get("rules", ()))
        if "written" in values:
            values["written"] = WrittenDefaults.from_dict(values["written"])
        return TableDeclaration(**values)


@dataclass(frozen=True, slots=True)
class Definition:
    """What a chunk is judged by. Immutable, named by its fingerprint, and published before the first chunk that names it.

    `previous` is the fingerprint of the previous revision of the same generation. A generation begins empty: rows of versions
    up to its `floor` belong to earlier generations. `agreed` are the rules of the tenant's agreement at that time, `rules`
    all rules in force."""

    tenant: str
    table: TableDeclaration
    revision: int
    fingerprint: str
    columns: tuple[Column, ...] = field(compare=False)
    generation: int = 1
    floor: int = 0
    previous: str | None = None
    agreed: tuple[Rule, ...] = ()
    rules: tuple[Rule, ...] = field(default=(), compare=False)

    @property
    def age(self) -> tuple[int, int]:
        """Orders the definitions of a table, oldest first."""
        return self.generation, self.revision

    def to_json(self) -> bytes:
        return json.dumps(
            {
                "tenant": self.tenant,
                "revision": self.revision,
                "table": self.table.to_dict(),
                "generation": self.generation,
                "floor": self.floor,
                "previous": self.previous,
                **({"agreed": [asdict(rule) for rule in self.agreed]} if self.agreed else {}),
            },
            sort_keys=True,
            separators=(",", ":"),
        ).encode()

    # Definitions are immutable and few are in use. Parsing one for each chunk would cost more than judging the chunk.
    @staticmethod
    @lru_cache(maxsize=4096)
    def from_json(body: bytes) -> "Definition":
        data = json.loads(body)
        declaration = TableDeclaration.from_dict(data["table"])
        lineage = {name: data[name] for name in ("generation", "floor", "previous") if name in data}
        agreed = tuple(Rule.from_dict(rule) for rule in data.get("agreed", ()))
        return define(data["tenant"], declaration, data["revision"], **lineage, agreed=agreed)


def define(
    tenant: str,
    table: TableDeclaration,
    revision: int,
    generation: int = 1,
    floor: int = 0,
    previous: str | None = None,
    agreed: tuple[Rule, ...] = (),
) -> Definition:
    columns = parse_columns(table.schema)
    if table.written is not None:
        columns = with_writing(columns, table.schema, table.written)
    if table.unknown_fields == "rescue":
        columns = (*columns, RESCUED)
    rules = in_force(agreed, table.rules)
    unnamed = Definition(tenant, table, revision, "", columns, generation, floor, previous, agreed, rules)
    return replace(unnamed, fingerprint=hashlib.sha256(unnamed.to_json()).hexdigest()[:32])
