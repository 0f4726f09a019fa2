"""An import waits for the sinks of the definition it was admitted under, whatever becomes of the table's; its end says what
a sink refused."""

from dataclasses import replace

from millrace.account.counting import has_settled
from millrace.model.imports import Counts
from millrace.model.ops.imports import SettleImport
from millrace.model.ops.tables import DropTable, NoteSink, TruncateTable, WaiveSink
from millrace.model.sinks import ERROR_STORE
from tests.support.control import TableLog, refusal

MIRROR = {"kind": "postgres", "name": "mirror", "host": "h", "database": "d", "user": "u"}


def test_an_import_waits_for_the_sinks_it_was_admitted_under() -> None:
    log = TableLog()
    log.define(sinks=["delta"])
    log.begin("imp_before")
    log.define(sinks=["delta", MIRROR])
    log.begin("imp_between")
    log.define(sinks=["delta"])
    log.begin("imp_after")
    waits = {name: log.imported(f"imp_{name}").sinks for name in ("before", "between", "after")}
    assert waits == {"before": ("delta",), "between": ("delta", "mirror"), "after": ("delta",)}


def test_a_sink_that_was_removed_can_still_be_given_up() -> None:
    log = TableLog()
    log.define(sinks=["delta", MIRROR])
    log.begin("imp_1")
    log.define(sinks=["delta"])
    assert log.apply(WaiveSink, "notes", sink="mirror").result.waived == ("imp_1",)
    assert log.imported("imp_1").sinks == ("delta",)
    assert refusal(log.apply(WaiveSink, "notes", sink="mirror")) == "no_sink"
    drained = log.apply(WaiveSink, "notes", sink="mirror", is_draining=True)
    assert drained.result.waived == (), "what is parked for a sink that is not required"


def test_an_end_says_how_many_rows_a_sink_refused() -> None:
    log = TableLog()
    log.define(sinks=["delta", MIRROR])
    log.begin("imp_1")
    log.end("imp_1")
    counts = Counts(chunks=1, read=10, accepted=10)
    body = {"counts": counts, "durable": {"delta": 1, "mirror": 1}, "refused": {"mirror": 3}}
    log.apply(SettleImport, "imp_1", **body)
    told = log.events("import.completed")[-1].data["sinks"]
    assert told["mirror"] == {"durable_chunks": 1, "parked_chunks": 0, "refused_rows": 3}
    assert told["delta"]["refused_rows"] == 0
    assert log.imported("imp_1").options["refused"] == {"mirror": 3}


def test_what_is_seen_of_a_sink_is_told_in_the_order_of_the_log() -> None:
    log = TableLog()
    log.define()
    log.apply(NoteSink, "notes", sink="mirror", what="parked", data={"reason": "away"})
    event = log.events("sink.parked")[-1]
    assert (event.subject, event.data) == ("acme/notes", {"sink": "mirror", "reason": "away"})


def test_rejected_rows_that_cannot_be_kept_are_given_up_by_imports_with_rows() -> None:
    log = TableLog()
    log.define(sinks=["delta"])
    log.begin("imp_1")
    log.end("imp_1")
    log.apply(TruncateTable, "notes")
    assert log.apply(WaiveSink, "notes", sink=ERROR_STORE).result.waived == ("imp_1",)
    imported = log.imported("imp_1")
    assert (imported.sinks, imported.options["waived"]) == (("delta",), [ERROR_STORE])
    judged = replace(imported, counts=Counts(chunks=1, read=2, accepted=1, rejected=1), durable={"delta": 1})
    announced = replace(judged, announced={"chunks": 1})
    assert has_settled(announced, {}, lambda: 1)
    assert not has_settled(replace(announced, options={}), {}, lambda: 1)


def test_what_waits_for_a_table_that_was_dropped_can_be_given_up() -> None:
    log = TableLog()
    log.define(sinks=["delta"])
    log.begin("imp_1")
    log.apply(DropTable, "notes")
    assert refusal(log.apply(WaiveSink, "notes", sink="delta")) == "no_table"
    assert log.apply(WaiveSink, "notes", sink="delta", is_draining=True).result.waived == ("imp_1",)
