"""Tenants that are deleted, refuse what is new, and come back while their grace lasts."""

import pytest

from millrace.model.imports import COMPLETED
from millrace.model.ops.tables import DefineTable
from millrace.model.ops.tenants import DefineTenant, DeleteTenant, RestoreTenant
from tests.support.control import TableLog, declared, refusal

GRACE = 86_400


@pytest.fixture
def log() -> TableLog:
    made = TableLog()
    made.define()
    made.begin("imp_1")
    made.end("imp_1")
    made.apply(DeleteTenant, "acme", grace_seconds=GRACE)
    return made


def test_a_deleted_tenant_begins_nothing_and_ends_what_is_under_way(log: TableLog) -> None:
    assert "tenant.deleted" in log.told
    assert refusal(log.begin("imp_2")) == "tenant_deleted"
    assert refusal(log.apply(DefineTable, "others", declaration=declared("others"))) == "tenant_deleted"
    assert refusal(log.apply(DefineTenant, "acme", agreement={"client": "acme"})) == "tenant_deleted"
    log.settle("imp_1")
    assert log.imported("imp_1").state == COMPLETED


def test_restored_within_its_grace_everything_is_as_it_was(log: TableLog) -> None:
    revision = log.store.tenants["acme"].revision
    log.now_us += (GRACE - 1) * 1_000_000
    assert log.apply(RestoreTenant, "acme").result.changed
    assert log.begin("imp_2").refusal is None
    assert log.store.tenants["acme"].revision == revision


def test_behind_its_grace_it_cannot_be_restored(log: TableLog) -> None:
    log.now_us += GRACE * 1_000_000
    assert refusal(log.apply(RestoreTenant, "acme")) == "grace_over"


def test_deleted_again_the_first_grace_stays(log: TableLog) -> None:
    until = log.store.tenants["acme"].erase_us
    log.now_us += 1_000_000
    assert not log.apply(DeleteTenant, "acme", grace_seconds=GRACE).result.changed
    assert log.store.tenants["acme"].erase_us == until
