"""Raw chunks that a table keeps: once each, in the order of their versions, until retention deletes their days."""

from datetime import UTC, datetime
from pathlib import Path

from sqlalchemy import insert, update

from millrace.api.jobs.retention import let_go
from millrace.api.routes.whatif import _latest_imports
from millrace.declare.table import parse_table
from millrace.exchange.home import Home
from millrace.exchange.mailboxes import Exchange, open_exchange
from millrace.exchange.raw_chunks import RawChunks
from millrace.model.names import new_id
from millrace.model.ops.imports import BeginImport
from millrace.model.ops.tables import DefineTable, DropTable
from millrace.model.ops.tenants import DefineTenant
from millrace.model.table import define
from millrace.settings import Settings
from millrace.sink.context import SinkContext
from millrace.store import tables as t
from millrace.store.engine import ControlStore
from millrace.store.records import known_import
from tests.support.platform import record
from tests.support.whole_app import TOKEN, whole_app

DAY = 86_400_000_000
NOON = int(datetime(2026, 11, 16, 12, tzinfo=UTC).timestamp() * 1_000_000)


def kept(root: Path) -> RawChunks:
    return RawChunks(Home(root))


def bodies(chunks: RawChunks, since: int, table: str = "notes") -> list[bytes]:
    return [path.read_bytes() for path in chunks.since("acme", table, since)]


def test_chunks_come_in_the_order_of_their_versions_since_a_moment(tmp_path: Path) -> None:
    chunks = kept(tmp_path)
    for number, version in enumerate((NOON, NOON - DAY, NOON + 1, NOON - 5 * DAY)):
        chunks.keep("acme", "notes", "imp_1", number, version, str(version).encode())
    assert bodies(chunks, NOON - DAY) == [str(version).encode() for version in (NOON - DAY, NOON, NOON + 1)]
    assert bodies(chunks, NOON + 1) == [str(NOON + 1).encode()]
    assert bodies(chunks, NOON + 2) == bodies(chunks, 0, "others") == []


def test_a_chunk_that_is_judged_again_is_kept_once_as_it_came_first(tmp_path: Path) -> None:
    chunks = kept(tmp_path)
    for body in (b"first", b"again"):
        chunks.keep("acme", "notes", "imp_1", 0, NOON, body)
    chunks.keep("acme", "notes", "imp_2", 0, NOON, b"another import")
    assert sorted(bodies(chunks, 0)) == [b"another import", b"first"]


def test_names_of_imports_never_leave_the_folder(tmp_path: Path) -> None:
    chunks = kept(tmp_path)
    chunks.keep("acme", "notes", "../../../escaped", 0, NOON, b"held")
    assert bodies(chunks, 0) == [b"held"]
    assert all(path.is_relative_to(tmp_path / "raw" / "acme" / "notes") for path in tmp_path.rglob("*.chunk"))


def with_tables(tmp_path: Path, **days: int | None) -> tuple[Exchange, ControlStore, SinkContext]:
    exchange, store = open_exchange(tmp_path), ControlStore(f"sqlite:///{tmp_path / 'control.db'}")
    with store.write() as connection:
        connection.execute(
            insert(t.tenants).values(name="acme", folded_name="acme", agreement={}, partition=0, revision=1)
        )
        for name, kept_days in days.items():
            said = {} if kept_days is None else {"keep_raw_days": kept_days}
            definition = define("acme", parse_table({**record(name, ("id", "long")), **said}), 1)
            row = {
                "tenant": "acme", "name": name, "folded_name": name, "definition": definition.to_json().decode(),
                "last_version": 0, "defined_us": 0, "floor": 0, "open_imports": 0, "dropped_us": None,
                "is_purged": False,
            }  # fmt: skip
            connection.execute(insert(t.tables).values(row))
    return exchange, store, SinkContext.of(Settings(home=tmp_path), exchange.places)


def test_chunks_are_deleted_after_their_days_and_where_nobody_keeps_them(tmp_path: Path) -> None:
    exchange, store, context = with_tables(tmp_path, notes=2, forgetful=None)
    chunks = exchange.raw_chunks
    for table in ("notes", "forgetful", "dropped"):
        for age in (0, 2, 4):
            chunks.keep("acme", table, "imp_1", age, NOON - age * DAY, b"%d" % age)
    let_go(store, exchange, context, NOON)
    assert [bodies(chunks, 0, table) for table in ("notes", "forgetful", "dropped")] == [[b"2", b"0"], [], []]
    store.close()


def test_kept_chunks_count_as_storage_and_go_with_their_tenant(tmp_path: Path) -> None:
    exchange = open_exchange(tmp_path)
    exchange.raw_chunks.keep("acme", "notes", "imp_1", 0, NOON, b"x" * 5000)
    assert exchange.tenant_files.stored_bytes("acme") >= 5000
    exchange.tenant_files.remove("acme")
    assert bodies(exchange.raw_chunks, 0) == []


def test_a_table_that_was_declared_again_does_not_show_what_came_before(tmp_path: Path) -> None:
    document = {**record("notes", ("id", "long"), key=("id",)), "keep_raw_days": 3}
    define_it = DefineTable("acme", "notes", declaration=parse_table(document).to_dict())
    begin = BeginImport("acme", "notes", id=new_id("imp"))
    with whole_app(tmp_path) as (platform, client):
        for op in (DefineTenant("acme", agreement={}), define_it):
            platform.apply(op)
        with platform.store.write() as connection:
            connection.execute(update(t.imports).values(state="completed"))
            connection.execute(update(t.tables).values(open_imports=0))
        platform.apply(begin)
        with platform.store.write() as connection:
            ended = {"state": "completed", "announced": {"chunks": 7}}
            connection.execute(update(t.imports).where(t.imports.c.id == begin.id).values(ended))
            connection.execute(update(t.tables).values(open_imports=0))
        version = known_import(platform.store, begin.id).first_version
        platform.exchange.raw_chunks.keep("acme", "notes", begin.id, 0, version, b"a row of the former table")
        assert _latest_imports(platform.store, "acme", "notes", 9)[0] == [begin.id], (
            "changes of the table bring no rows"
        )

        platform.apply(DropTable("acme", "notes"))
        platform.apply(define_it.asked_as(new_id("op")))
        path = "/v1/tenants/acme/tables/notes/validate"
        headers = {"Authorization": f"Bearer {TOKEN}"}
        report = client.post(path, params={"since": "2020-01-01T00:00:00Z"}, headers=headers).json()
        assert (report["chunks"], report["missing_chunks"]) == (0, 0), report
        assert _latest_imports(platform.store, "acme", "notes", 9)[0] == []
