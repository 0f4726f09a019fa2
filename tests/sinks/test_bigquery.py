"""The BigQuery sink at its requests, with the real client: what the service does that its emulator does not."""

import inspect
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import google.api_core.exceptions as api
import google.auth.exceptions as auth
import google.resumable_media
import pytest
import requests
from google.resumable_media import InvalidResponse

from millrace.declare.table import parse_table
from millrace.model.changes import AddColumn, RenameColumn
from millrace.model.columns import parse_columns
from millrace.model.errors import Invalid
from millrace.model.sinks import Fault, SinkFailed, SinkTarget
from millrace.model.table import Definition
from millrace.sink.bigquery.ddl import alter, create, dataset_name, merge, physical, quoted
from millrace.sink.bigquery.settings import BigQuerySettings
from millrace.sink.bigquery.sink import BigQuerySink
from millrace.sink.connector import Work
from millrace.sink.registry import refuse_private, refuse_unable
from tests.sinks.test_contract import ID, TEXT, definition, known, rows
from tests.support.bigquery_recorded import Recorded, recorded_bigquery
from tests.support.file_sinks import service_account_key
from tests.support.sink_context import no_secret, sink_context


def opened(target: SinkTarget, secret: Callable[[str], str] = no_secret) -> BigQuerySink:
    return BigQuerySink(BigQuerySettings.of(target), sink_context(secret))


@pytest.fixture
def service() -> Iterator[Recorded]:
    with recorded_bigquery() as recorded:
        yield recorded


@pytest.fixture
def sink(service: Recorded) -> Iterator[BigQuerySink]:
    settings = {"project": "p", "endpoint": service.url}
    found = opened(SinkTarget("warehouse", "bigquery", True, settings))
    yield found
    found.close()


@pytest.fixture
def table(sink: BigQuerySink) -> Definition:
    one = definition([ID, TEXT])
    sink.prepare(one, known(one))
    return one


def merges(service: Recorded) -> list[str]:
    return [statement for statement in service.statements if statement.startswith("MERGE")]


def work(table: Definition, text: str = "a") -> Work:
    return Work(table, [rows(table, [(1, text, 7, False), (2, "b", 7, False)])])


def test_a_load_whose_merge_did_not_happen_is_not_made_again(
    sink: BigQuerySink, service: Recorded, table: Definition
) -> None:
    # The MERGE, not the load: the path of an upload goes on otherwise.
    service.refusals.append(("POST", "/projects/p/jobs?pretty", 403, "quotaExceeded"))
    with pytest.raises(api.Forbidden) as met:
        sink.write(work(table))
    assert sink.classify(met.value) is Fault.SINK
    sink.write(work(table))
    assert len(service.loads) == 1
    assert len(merges(service)) == 1
    assert not [name for name in service.tables if "staging" in name], "what was staged is gone"


def test_rows_that_come_again_when_their_staging_table_is_gone_are_loaded_under_another_id(
    sink: BigQuerySink, service: Recorded, table: Definition
) -> None:
    sink.write(work(table))
    sink.write(work(table))
    assert len(set(service.loads)) == 2
    assert len(merges(service)) == 2
    assert service.loads[1].startswith(service.loads[0])


def test_other_rows_are_another_load(sink: BigQuerySink, service: Recorded, table: Definition) -> None:
    sink.write(work(table))
    sink.write(work(table, "c"))
    assert not service.loads[1].startswith(service.loads[0])


def test_rows_that_a_load_job_refuses_are_their_own_fault(
    sink: BigQuerySink, service: Recorded, table: Definition
) -> None:
    service.bad_text = "bad"
    for _ in range(2):
        with pytest.raises(SinkFailed, match="no such text") as met:
            sink.write(work(table, "bad"))
        assert sink.classify(met.value) is Fault.ROW
    assert merges(service) == []
    sink.write(work(table))
    assert len(merges(service)) == 1


def test_a_floor_is_told_only_when_the_rows_are_gone(sink: BigQuerySink, service: Recorded, table: Definition) -> None:
    service.refusals.append(("PATCH", "/tables/", 403, "quotaExceeded"))
    with pytest.raises(api.Forbidden):
        sink.write(Work(table, [], floor=9))
    sink.write(Work(table, [], floor=9))
    sink.write(Work(table, [], floor=9))
    deletes = [statement for statement in service.statements if statement.startswith("DELETE")]
    assert len(deletes) == 2
    assert service.tables["_millrace_notes"]["labels"]["millrace_floor"] == "9"
    sink.write(work(table))
    assert merges(service) == [], "rows below the floor stay away"


def test_a_table_whose_making_was_interrupted_is_made_anew(service: Recorded) -> None:
    settings = {"project": "p", "endpoint": service.url}
    one = definition([ID, TEXT])
    service.refusals.append(("PATCH", "/tables/", 403, "quotaExceeded"))
    for _ in range(2):
        sink = opened(SinkTarget("warehouse", "bigquery", True, settings))
        try:
            sink.prepare(one, known(one))
        except api.Forbidden:
            assert "labels" not in service.tables["_millrace_notes"]
    assert service.tables["_millrace_notes"]["labels"]["millrace_definition"] == one.fingerprint
    service.tables["_millrace_notes"] |= {"labels": {}, "numRows": "5"}
    with pytest.raises(SinkFailed, match="has rows"):
        opened(SinkTarget("warehouse", "bigquery", True, settings)).prepare(one, known(one))


def test_the_merge_is_guarded_by_the_version() -> None:
    keyed, keyless = definition([ID, TEXT]), definition([ID, TEXT], key=())
    said = merge("p.d.t", "p.d.s", keyed)
    assert "ON there.`id` = new.`id` WHEN MATCHED AND new.`_version` > there.`_version` THEN UPDATE" in said
    assert "`_deleted` = new.`_deleted`" in said
    said = merge("p.d.t", "p.d.s", keyless)
    assert "there.`_import` = new.`_import` AND there.`_version` = new.`_version` AND there.`_row` = new.`_row`" in said
    assert "UPDATE" not in said
    assert create("p.d.t", keyed).endswith("CLUSTER BY `id`")


def test_an_interrupted_change_is_taken_up_where_it_ended() -> None:
    words, city = parse_columns(
        {
            "type": "record",
            "name": "r",
            "fields": [{"name": "words", "type": "string"}, {"name": "city", "type": "string", "default": 'a"\n\\'}],
        }
    )
    changes = [RenameColumn("text", words.name), AddColumn(city)]
    whole = list(alter("p.d.t", ["id", "text"], changes))
    assert whole[0] == "ALTER TABLE `p.d.t` RENAME COLUMN `text` TO `words`"
    assert whole[2] == 'UPDATE `p.d.t` SET `city` = CAST("a\\"\\n\\\\" AS STRING) WHERE `city` IS NULL'
    assert list(alter("p.d.t", ["id", "words"], changes)) == whole[1:]


def test_names_are_never_shared_and_never_break_out() -> None:
    assert dataset_name("m", "a_b") == "m_a_b"
    assert dataset_name("m", "a-b") not in ("m_a_b", dataset_name("m", "a-b-"))
    odd = ["a b", "a_b", "a`b", "ä", "_PARTITIONTIME", "_change_type", "x" * 255, "select"]
    assert len({physical(name) for name in odd}) == len(odd)
    assert all(quoted(name).count("`") == 2 and physical(name).isascii() for name in odd)
    with pytest.raises(Invalid):
        opened(SinkTarget("w", "bigquery", True, {"project": "p", "dataset": "x`.y", "endpoint": "http://a"}), str)


def test_credentials_are_the_tenant_s_own_and_private_endpoints_the_operator_s_to_allow() -> None:
    with pytest.raises(Invalid, match="credentials"):
        opened(SinkTarget("w", "bigquery", True, {"project": "p"}))
    schema = {"type": "record", "name": "notes", "fields": [ID]}
    for settings, said in (({}, "credentials"), ({"credentials": "env:X", "dataset": "a.b"}, "dataset")):
        sinks = [{"kind": "bigquery", "project": "p", **settings}]
        with pytest.raises(Invalid, match=said):
            refuse_unable(parse_table({"schema": schema, "sinks": sinks}), sink_context())
    inside = SinkTarget("w", "bigquery", True, {"project": "p", "endpoint": "http://169.254.169.254"})
    with pytest.raises(Invalid, match="not a public address"):
        refuse_private(BigQuerySettings.of(inside), replace(sink_context(), allowed=()))


def test_tokens_are_signed_here_and_asked_of_nobody(service: Recorded) -> None:
    """The key file names a place to ask for tokens where nobody answers."""
    settings = {"project": "p", "endpoint": service.url, "credentials": "env:X"}
    one = definition([ID, TEXT])
    sink = opened(SinkTarget("w", "bigquery", True, settings), lambda _: service_account_key())
    sink.prepare(one, known(one))
    assert "_millrace_notes" in service.tables
    sink.close()
    with pytest.raises(Invalid, match="key file") as met:
        opened(SinkTarget("w", "bigquery", True, settings), lambda _: '{"private_key": "hush"}')
    assert "hush" not in str(met.value)


def _errors(module: Any) -> list[type[BaseException]]:
    found = [one for _, one in inspect.getmembers(module, inspect.isclass)]
    return [one for one in found if issubclass(one, Exception) and not issubclass(one, Warning)]


def test_every_error_has_a_reach(sink: BigQuerySink) -> None:
    foreign = [*_errors(api), *_errors(auth), *_errors(requests.exceptions), *_errors(google.resumable_media)]
    for kind in [*foreign, OSError, TimeoutError, ValueError]:
        fault = sink.classify(kind.__new__(kind))
        assert fault in (Fault.TABLE, Fault.SINK), kind
        if issubclass(kind, api.ServerError | auth.GoogleAuthError | requests.RequestException | InvalidResponse):
            assert fault is Fault.SINK, kind
    assert sink.classify(api.TooManyRequests("")) is Fault.SINK
    assert sink.classify(api.Forbidden("")) is Fault.SINK
    assert sink.classify(api.BadRequest("")) is Fault.TABLE
    assert sink.classify(api.RetryError("", None)) is Fault.SINK
