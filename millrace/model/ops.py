"""Ops: the entries of the table log. Their place in the log is their order; their append time is the clock."""

from dataclasses import dataclass
from typing import Any

from millrace.model.errors import Corrupt

DEFINE_TENANT = "define_tenant"
DELETE_TENANT = "delete_tenant"
RESTORE_TENANT = "restore_tenant"
ERASE_TENANT = "erase_tenant"

DEFINE_TABLE = "define_table"
TRUNCATE_TABLE = "truncate_table"
DROP_TABLE = "drop_table"
WAIVE_SINK = "waive_sink"
NOTE_SINK = "note_sink"
RESTORE_TABLE = "restore_table"
PURGE_TABLE = "purge_table"
BEGIN_IMPORT = "begin_import"
APPEND = "append"
OPEN_STREAM = "open_stream"
REPLAY_ERRORS = "replay_errors"
DISCARD_ERRORS = "discard_errors"

END_IMPORT = "end_import"
CANCEL_IMPORT = "cancel_import"
EXPIRE_IMPORT = "expire_import"
FAIL_IMPORT = "fail_import"
STOP_IMPORT = "stop_import"
PUBLISH_IMPORT = "publish_import"
SETTLE_IMPORT = "settle_import"
HOLD_IMPORT = "hold_import"
RELEASE_IMPORT = "release_import"

BEGIN_SPAN = "begin_span"
END_SPAN = "end_span"
ABORT_SPAN = "abort_span"
EXPIRE_SPAN = "expire_span"

ABOUT_TABLES = (
    DEFINE_TABLE, TRUNCATE_TABLE, DROP_TABLE, WAIVE_SINK, NOTE_SINK, RESTORE_TABLE, PURGE_TABLE, BEGIN_IMPORT, APPEND,
    OPEN_STREAM, REPLAY_ERRORS, DISCARD_ERRORS,
)  # fmt: skip
ABOUT_IMPORTS = (
    END_IMPORT, CANCEL_IMPORT, EXPIRE_IMPORT, FAIL_IMPORT, STOP_IMPORT, PUBLISH_IMPORT, SETTLE_IMPORT, HOLD_IMPORT,
    RELEASE_IMPORT,
)  # fmt: skip
ABOUT_SPANS = (BEGIN_SPAN, END_SPAN, ABORT_SPAN, EXPIRE_SPAN)


@dataclass(frozen=True, slots=True)
class Op:
    """`subject` is what the op is about: a tenant, a table, an import or a span. `body["span"]` names the span it joins."""

    id: str
    kind: str
    tenant: str
    subject: str
    body: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        return {"id": self.id, "kind": self.kind, "tenant": self.tenant, "subject": self.subject, "body": self.body}

    @staticmethod
    def from_dict(data: object) -> "Op":
        """Raises Corrupt for what is not an op, or names something by anything but a name."""
        try:
            op = Op(**data)  # type: ignore[arg-type]
        except TypeError as error:
            raise Corrupt(f"{data!r:.100} is not an op.") from error
        named = (op.id, op.kind, op.tenant, op.subject)
        if not all(isinstance(name, str) for name in named) or not isinstance(op.body, dict):
            raise Corrupt(f"{data!r:.100} is not an op.")
        if not all(isinstance(op.body.get(name), str | None) for name in ("of", "span", "idempotency_key", "key")):
            raise Corrupt(f"Op {op.id} names what it is about in a way that is not understood.")
        if not isinstance(op.body.get("streams", {}), dict):
            raise Corrupt(f"Op {op.id} has no streams that are understood.")
        return op


@dataclass(frozen=True, slots=True)
class Applied:
    """What became of an op: refused if `refusal` is set (code, message, remedy)."""

    op_id: str
    result: dict[str, Any]
    refusal: dict[str, str] | None = None
