"""Ops: the entries of the table log. Their place in the log is their order; their append time is the clock."""

from dataclasses import asdict, dataclass
from typing import Any

DEFINE_TENANT = "define_tenant"
DEFINE_TABLE = "define_table"
BEGIN_IMPORT = "begin_import"
END_IMPORT = "end_import"
CANCEL_IMPORT = "cancel_import"
EXPIRE_IMPORT = "expire_import"
FAIL_IMPORT = "fail_import"
SETTLE_IMPORT = "settle_import"


@dataclass(frozen=True, slots=True)
class Op:
    """`subject` is the table for definitions and begin_import, the import for everything about an import."""

    id: str
    kind: str
    tenant: str
    subject: str
    body: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_dict(data: dict[str, Any]) -> "Op":
        return Op(**data)


@dataclass(frozen=True, slots=True)
class Applied:
    """What became of an op: refused if `refusal` is set (code, message, remedy)."""

    op_id: str
    result: dict[str, Any]
    refusal: dict[str, str] | None = None
