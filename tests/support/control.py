"""A table log without a broker: ops in, what they led to out; the state between them is kept in dictionaries."""

from base64 import b64encode
from dataclasses import replace
from typing import Any

from pyroaring import BitMap64

from millrace.control.state import Announce, Close, Effect, OpOutcome, Send, Span, StoreDefinition, Table
from millrace.control.step import step
from millrace.declare.table import parse_table
from millrace.model.budget import NO_BUDGET, Budget
from millrace.model.chunk import ChunkHeader
from millrace.model.imports import LOAD, Counts, Import
from millrace.model.ops import Applied, Op, read_op
from millrace.model.ops.imports import BeginImport, EndImport, SettledOp, SettleImport
from millrace.model.ops.rows import Append
from millrace.model.ops.tables import DefineTable, TableDefined
from millrace.model.ops.tenants import DefineTenant
from simulate.memory import Memory, MemoryTransaction

NOON = 1_700_000_000_000_000
COUNTS = Counts(chunks=1, read=10, accepted=9, rejected=1)
ONE_CHUNK = {"chunks": 1, "rows": 10, "bytes": 99}


def declared(name: str = "notes", **changes: Any) -> dict[str, Any]:
    fields = [{"name": "id", "type": "long"}, *changes.pop("more", [])]
    document = {"schema": {"type": "record", "name": name, "fields": fields}, "primary_key": ["id"], **changes}
    return parse_table(document).to_dict()


def rows(*numbers: int) -> str:
    """Row numbers as an op names them."""
    return b64encode(BitMap64(numbers).serialize()).decode()


class TableLog:
    """`apply` answers with the op's own answer; `last` is all that it led to, `effects` all that ever happened."""

    def __init__(self, tenant: str = "acme") -> None:
        self.tenant = tenant
        self.store = Memory()
        self.now_us = NOON
        self.effects: list[Effect] = []
        self.last: OpOutcome
        self._ids = 0
        self.apply(DefineTenant, tenant, agreement={})

    def apply(self, kind: type[Op[Any]], subject: str = "notes", *, op_id: str = "", **fields: Any) -> Applied:
        """An op of the kind, about the subject."""
        about = (self.tenant,) if kind.SUBJECT == "tenant" else (self.tenant, subject)
        return self.take(kind(*about, id=op_id, **fields))

    def read(self, kind: str, subject: str, body: dict[str, Any]) -> Applied:
        """A record of the log, whatever it says."""
        return self.take(read_op({"id": "", "kind": kind, "tenant": self.tenant, "subject": subject, "body": body}))

    def take(self, op: Op[Any]) -> Applied:
        self._ids += 1
        op = op if op.id else op.asked_as(f"op_no{self._ids}")
        transaction = MemoryTransaction(self.store.fork(), {})
        before = transaction.load(op)
        self.last = step(before, op, self.now_us, 1)
        transaction.save(before, self.last.state, self.now_us)
        self.store = transaction.store
        self.store.requests |= {answer.op_id: answer for answer in self.last.answers}
        self.effects += [effect for _, effect in self.last.effects]
        return self.last.answers[0]

    def define(self, name: str = "notes", **changes: Any) -> Applied:
        """Declares a table and lets the change reach its sinks."""
        more = {key: changes.pop(key) for key in ("new_generation", "wait") if key in changes}
        answer = self.apply(DefineTable, name, declaration=declared(name, **changes), **more)
        if isinstance(answer.result, TableDefined) and answer.result.import_id is not None:
            self.settle(answer.result.import_id, read=0, accepted=0, rejected=0)
        return answer

    def begin(self, op_id: str, table: str = "notes", kind: str = LOAD, **fields: Any) -> Applied:
        return self.apply(BeginImport, table, import_kind=kind, **fields, op_id=op_id)

    def end(self, import_id: str, **announced: int) -> Applied:
        return self.apply(EndImport, import_id, **{**ONE_CHUNK, **announced})

    def settle(
        self, import_id: str, kind: type[SettledOp] = SettleImport, budget: Budget = NO_BUDGET, **counts: int
    ) -> Applied:
        return self.apply(kind, import_id, counts=replace(COUNTS, **counts), durable={"delta": 1}, budget=budget)

    def load(self, op_id: str, table: str = "notes", **body: Any) -> Applied:
        """A whole import, from its beginning to its end."""
        begun = self.begin(op_id, table, **body)
        self.end(op_id)
        self.settle(op_id)
        return begun

    def append(self, op_id: str, first: int, last: int, sender: str = "s", **body: Any) -> Applied:
        count = last - first + 1
        sent = {"rows": count, "plain_bytes": count, "checksum": 7, "payload": "cm93cw==", **body}
        return self.apply(Append, "notes", **sent, senders={sender: (first, last)}, op_id=op_id)

    def table(self, name: str = "notes") -> Table:
        return self.store.tables[self.tenant, name]

    def imported(self, import_id: str) -> Import:
        return self.store.imports[import_id]

    def span(self, name: str) -> Span:
        return self.store.spans[self.tenant, name]

    def final(self, op_id: str) -> Applied:
        """What an op has been told last."""
        return self.store.requests[op_id]

    @property
    def told(self) -> list[str]:
        return [effect.type for effect in self.effects if isinstance(effect, Announce)]

    def events(self, kind: str) -> list[Announce]:
        return [effect for effect in self.effects if isinstance(effect, Announce) and effect.type == kind]

    def sent(self) -> list[ChunkHeader]:
        return [effect.header for _, effect in self.last.effects if isinstance(effect, Send)]

    def closed(self) -> list[str]:
        return [effect.import_id for _, effect in self.last.effects if isinstance(effect, Close)]

    def published(self) -> list[str]:
        return [effect.definition.fingerprint for _, effect in self.last.effects if isinstance(effect, StoreDefinition)]


def refusal(answer: Applied) -> str | None:
    return answer.refusal.code if answer.refusal else None
