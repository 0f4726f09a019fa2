"""Ops about tenants."""

from dataclasses import dataclass, field
from typing import Any, ClassVar

from millrace.model.ops.base import Need, Op, op_kind
from millrace.model.ops.codec import ALWAYS, BESIDE
from millrace.model.ops.results import Result


@dataclass(frozen=True, slots=True)
class TenantDefined(Result):
    tenant: str
    revision: int
    changed: bool
    rules_changed: bool = False


@dataclass(frozen=True, slots=True)
class TenantDeleted(Result):
    tenant: str
    deleted_at: str | None
    restorable_until: str | None
    changed: bool


@dataclass(frozen=True, slots=True)
class TenantRestored(Result):
    tenant: str
    changed: bool


@dataclass(frozen=True, slots=True)
class TenantErased(Result):
    tenant: str
    erased: bool = field(default=True, init=False, metadata=ALWAYS)


@dataclass(frozen=True, slots=True)
class AppNoted(Result):
    run: str


@op_kind("define_tenant")
class DefineTenant(Op[TenantDefined]):
    agreement: dict[str, Any]
    NEEDS: ClassVar[frozenset[Need]] = frozenset({Need.TWIN})


@op_kind("delete_tenant")
class DeleteTenant(Op[TenantDeleted]):
    grace_seconds: int


@op_kind("restore_tenant")
class RestoreTenant(Op[TenantRestored]):
    pass


@op_kind("erase_tenant")
class EraseTenant(Op[TenantErased]):
    """`now`: without waiting for the end of the grace."""

    now: bool = False
    NEEDS: ClassVar[frozenset[Need]] = frozenset({Need.UNSETTLED})


@op_kind("note_app")
class NoteApp(Op[AppNoted]):
    """`what` happened to a run of the tenant's client app: the last word of the event's type."""

    run: str = field(metadata=BESIDE)
    what: str
    data: dict[str, Any]
    SUBJECT: ClassVar[str] = "run"
    IS_ASKED_FOR: ClassVar[bool] = False
