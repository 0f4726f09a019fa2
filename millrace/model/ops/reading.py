"""Records of the log in, ops out."""

from typing import Any

from millrace.model.errors import Corrupt
from millrace.model.ops.base import KINDS, Op, Unreadable
from millrace.model.ops.codec import decode


def decode_op(data: object) -> Op[Any]:
    """Raises Corrupt for what is not an op of a known kind with fields of the right types."""
    op_id, kind, tenant, subject, body = _outer(data)
    cls = KINDS.get(kind)
    if cls is None:
        raise Corrupt(f"Unknown op {kind!r}.")
    return decode(cls, body, {cls.SUBJECT: subject, "tenant": tenant, "id": op_id})


def read_op(data: object) -> Op[Any]:
    """The same for a record of the log: what names itself an op but cannot be read becomes `Unreadable`."""
    try:
        return decode_op(data)
    except Corrupt as error:
        op_id, kind, tenant, subject, body = _outer(data)
        span = body.get("span")
        joins = span if isinstance(span, str) else None
        code = "malformed_op" if kind in KINDS else "invalid"
        return Unreadable(tenant, kind, subject, code, error.message, joins, id=op_id)


def _outer(data: object) -> tuple[str, str, str, str, dict[str, Any]]:
    if isinstance(data, dict):
        outer = data.get("id"), data.get("kind"), data.get("tenant"), data.get("subject"), data.get("body")
        if tuple(map(type, outer)) == (str, str, str, str, dict):
            return outer  # type: ignore[return-value]
    raise Corrupt(f"{data!r:.100} is not an op.")
