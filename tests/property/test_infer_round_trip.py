"""What `infer` proposes for a file is a declaration that `apply` takes and by which every row of the file passes, but for a
few bad cells in columns that have a type otherwise."""

import csv
import gzip
import io
import json
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import yaml
import zstandard
from hypothesis import assume, event, example, given
from hypothesis import strategies as st

from millrace.cli.inferring import _written
from millrace.declare.table import parse_table
from millrace.formats.cut import UploadOptions
from millrace.infer.proposing import Proposal, propose
from millrace.infer.tolerance import tolerated
from millrace.infer.trial import Bounds, TrialRun, try_file
from millrace.model.errors import Refused
from millrace.model.table import define
from tests.support.examples import examples

MANY = examples(60)
# What is wrong with a row whatever its table declares.
UNMENDABLE = {"columns", "unclosed_quote", "json", "row_too_long", "undecodable"}


def inferred(body: bytes, name: str = "orders.csv") -> tuple[Proposal, TrialRun]:
    """The proposal, written as a file and read again as `apply` does, and the same file judged by it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(body)
        proposal = propose(path)
        document = yaml.safe_load(_written(proposal, path, as_json=False))
        assert document == proposal.document
        definition = define("t", parse_table(document), 1)
        return proposal, try_file([body], definition, UploadOptions(), Bounds())


def proposed(body: bytes, name: str) -> tuple[Proposal, TrialRun] | None:
    """The same, or nothing for a file of which no table can hold any column."""
    try:
        return inferred(body, name)
    except Refused as refused:
        if "no column" not in refused.message:
            raise
        return None


def few_fail(trial: TrialRun) -> bool:
    """Whether nothing fails but what no declaration mends, and single cells."""
    allowed = tolerated(trial.tally.read)
    return all(reason.rule in UNMENDABLE or reason.rows <= allowed for reason in trial.tally.reasons)


def packed(body: bytes, how: str) -> bytes:
    return {"gzip": gzip.compress, "zstd": zstandard.compress}.get(how, lambda plain: plain)(body)


# Python's writer leaves a lone CR unquoted, which ends a row.
word = st.text(st.characters(codec="latin-1", exclude_characters="\0\r"), max_size=8)
anything = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8)
digits = st.integers(-(10**25), 10**25).map(str)
CELLS: dict[str, st.SearchStrategy[str]] = {
    "int": st.integers(-(2**31), 2**31 - 1).map(str),
    "long": st.integers(-(2**63), 2**63 - 1).map(str),
    "digits": digits,
    "padded": st.integers(0, 999).map(lambda number: f"{number:05d}"),
    "money": st.decimals(-(10**6), 10**6, places=2).map(str),
    "precise": st.decimals(-(10**6), 10**6, places=20).map(str),
    "double": st.floats().map(repr),
    "boolean": st.sampled_from(["true", "false", "yes", "NO", "1", "0", "t"]),
    "date": st.dates().map(str),
    "time": st.times().map(str),
    "timestamp": st.datetimes().map(str),
    "uuid": st.uuids().map(str),
    "word": word,
    "mixed": digits | st.sampled_from(["", " 7 ", "+5", "0x1f", "1e5", "1e400", ".5", "5.", "NA", "NULL", "\\N", "-"]),
}


@st.composite
def csv_files(draw: st.DrawFn) -> tuple[bytes, int, int]:
    """A file, its rows with the first one, and its columns."""
    kinds = draw(st.lists(st.sampled_from(sorted(CELLS)), min_size=1, max_size=6))
    nothing = draw(st.sampled_from(["", "NULL", "\\N", "NA"]))
    columns = [CELLS[kind] | st.just(nothing) if draw(st.booleans()) else CELLS[kind] for kind in kinds]
    rows = draw(st.lists(st.tuples(*columns), max_size=25))
    if draw(st.booleans()) or not rows:
        names = st.sampled_from(["id", "order_id", "name", "a b", "Größe", "x", "y", "ID", "_row", ""]) | word
        rows.insert(0, tuple(draw(st.lists(names, min_size=len(kinds), max_size=len(kinds)))))
    out = io.StringIO()
    style = draw(st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC]))
    writer = csv.writer(
        out,
        delimiter=draw(st.sampled_from(",;\t|")),
        quotechar=draw(st.sampled_from('""\'')),
        quoting=style,
        lineterminator=draw(st.sampled_from(["\n", "\r\n"])),
    )
    writer.writerows(rows)
    encoding = draw(st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "latin-1"]))
    assume(len(out.getvalue().strip()) > 0)
    return packed(out.getvalue().encode(encoding), draw(st.sampled_from(["", "gzip", "zstd"]))), len(rows), len(kinds)


@MANY
@given(csv_files())
@example((b"'\n'\n", 1, 1))
@example((b"id\r\n'\r\n'\r\n", 2, 1))
@example((b"',\n',\n", 1, 2))
def test_every_row_of_a_csv_file_passes_by_its_own_proposal(file: tuple[bytes, int, int]) -> None:
    body, rows, columns = file
    proposal, trial = inferred(body)
    assert few_fail(trial), (proposal.document, trial.report())
    assert proposal.checked.failed == trial.tally.failed
    dialect = proposal.document["csv"]
    found = len(proposal.document["schema"]["fields"]) + len(proposal.checked.draft.left_out)
    event(f"header {dialect['header']}, as written {found == columns}")
    if found == columns and dialect["quote"] == '"':
        assert trial.tally.read + trial.tally.repeated_headers == rows - dialect["header"] - dialect.get(
            "skip_lines", 0
        )


@MANY
@given(st.lists(st.lists(anything, min_size=2, max_size=2), min_size=1, max_size=20))
def test_text_of_any_kind_passes(rows: list[list[str]]) -> None:
    out = io.StringIO()
    csv.writer(out).writerows([["id", "text"], *rows])
    proposal, trial = inferred(out.getvalue().encode())
    assert few_fail(trial), (proposal.document, trial.report())
    assert trial.tally.read + trial.tally.repeated_headers == len(rows)


@MANY
@given(st.binary(max_size=300) | st.text("ab1,;|\t\"'\n\r-.{}[]: ", max_size=200).map(str.encode))
def test_whatever_the_bytes_are_there_is_a_proposal_or_a_refusal(body: bytes) -> None:
    try:
        proposal, trial = inferred(body)
    except Refused:
        return
    assert few_fail(trial), (proposal.document, trial.report())


scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(10**40), 10**40)
    | st.floats(allow_nan=False, allow_infinity=False)
    | anything
    | st.dates().map(str)
    | st.datetimes().map(str)
    | st.just("a\0b")
)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(anything, inner, max_size=3), max_leaves=5
)
fields = st.sampled_from(["id", "a", "b", "B", "c", "_row", ""])


@MANY
@given(st.lists(st.dictionaries(fields, values, max_size=5), min_size=1, max_size=20), st.sampled_from(["", "gzip"]))
@example([{"id": {"\x85": None}}], "")
@example([{"id": {"a\n\x85b": "\u2028"}}], "")
def test_every_json_object_passes_by_its_own_proposal(objects: list[dict[str, Any]], how: str) -> None:
    body = "\n".join(json.dumps(each) for each in objects).encode()
    found = proposed(packed(body, how), "orders.jsonl")
    if found is None:
        return
    proposal, trial = found
    assert few_fail(trial), (proposal.document, trial.report())
    assert trial.tally.read == len(objects)


kinds_of_json = st.sampled_from(
    [st.integers(-5, 5), st.floats(-1, 1), anything, st.booleans(), st.lists(st.integers(0, 9), max_size=3)]
)


@MANY
@given(st.data())
def test_fields_of_one_kind_are_all_kept(data: st.DataObject) -> None:
    kinds = {name: data.draw(kinds_of_json) for name in ("a", "b", "c")}
    objects = data.draw(st.lists(st.fixed_dictionaries({}, optional=kinds), min_size=1, max_size=10))
    assume(any(objects))
    proposal, trial = inferred("\n".join(map(json.dumps, objects)).encode(), "orders.jsonl")
    assert trial.tally.failed == 0, (proposal.document, trial.report())
    assert not proposal.checked.draft.left_out
    assert "unknown_fields" not in proposal.document


ARROW: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.int8(), st.integers(-128, 127)),
    (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    (pa.uint32(), st.integers(0, 2**32 - 1)),
    (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    (pa.uint64(), st.integers(0, 2**64 - 1)),
    (pa.float32(), st.floats(width=32)),
    (pa.float64(), st.floats()),
    (pa.bool_(), st.booleans()),
    (pa.string(), anything | st.just("a\0b")),
    (pa.large_string(), anything),
    (pa.binary(), st.binary(max_size=5)),
    (pa.binary(3), st.binary(min_size=3, max_size=3)),
    (pa.date32(), st.dates()),
    (
        pa.timestamp("ms"),
        st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1)).map(lambda at: at.replace(microsecond=0)),
    ),
    (pa.timestamp("us", "UTC"), st.datetimes(timezones=st.just(UTC))),
    (pa.timestamp("ns"), st.integers(-(10**18), 10**18)),
    (pa.time32("ms"), st.times().map(lambda at: at.replace(microsecond=0))),
    (pa.time64("us"), st.times()),
    (pa.time64("ns"), st.integers(0, 86_399_999_999_999)),
    (pa.duration("s"), st.timedeltas()),
    (pa.decimal128(12, 3), st.decimals(-(10**8), 10**8, places=3)),
    (pa.decimal256(60, 2), st.decimals(-(10**8), 10**8, places=2)),
    (pa.list_(pa.int32()), st.lists(st.integers(0, 9), max_size=3)),
    (pa.struct([("x", pa.int64()), ("y", pa.string())]), st.fixed_dictionaries({"x": st.none(), "y": anything})),
    (
        pa.map_(pa.string(), pa.int64()),
        st.dictionaries(st.sampled_from("ab"), st.integers(0, 9)).map(lambda d: [*d.items()]),
    ),
    (pa.null(), st.none()),
]


@st.composite
def arrow_tables(draw: st.DrawFn) -> pa.Table:
    rows = draw(st.integers(0, 20))
    columns = {}
    for number in range(draw(st.integers(1, 5))):
        kind, cells = draw(st.sampled_from(ARROW))
        if draw(st.booleans()):
            cells |= st.none()
        columns[f"c{number}"] = pa.array(draw(st.lists(cells, min_size=rows, max_size=rows)), kind)
    return pa.table(columns)


@MANY
@given(arrow_tables(), st.booleans())
def test_every_row_of_a_parquet_file_passes_by_its_own_proposal(table: pa.Table, dictionaries: bool) -> None:
    out = io.BytesIO()
    pq.write_table(table, out, use_dictionary=dictionaries, row_group_size=7)
    found = proposed(out.getvalue(), "orders.parquet")
    if found is None:
        return
    proposal, trial = found
    assert trial.tally.failed == 0, (proposal.document, trial.report())
    assert trial.tally.read == table.num_rows


YEARS = datetime(1, 1, 2), datetime(9999, 12, 30)
AVRO: list[tuple[Any, st.SearchStrategy[Any]]] = [
    ("int", st.integers(-(2**31), 2**31 - 1)),
    ("long", st.integers(-(2**63), 2**63 - 1)),
    ("float", st.floats(width=32)),
    ("double", st.floats()),
    ("boolean", st.booleans()),
    ("string", anything),
    ("bytes", st.binary(max_size=5)),
    (["null", "string"], st.none() | anything),
    (["null", "int", "string"], st.none() | anything),
    ({"type": "enum", "name": "e", "symbols": ["x", "y"]}, st.sampled_from("xy")),
    ({"type": "fixed", "name": "f", "size": 2}, st.binary(min_size=2, max_size=2)),
    ({"type": "int", "logicalType": "date"}, st.dates()),
    ({"type": "long", "logicalType": "timestamp-micros"}, st.datetimes(*YEARS, timezones=st.just(UTC))),
    ({"type": "long", "logicalType": "local-timestamp-micros"}, st.datetimes(*YEARS)),
    ({"type": "int", "logicalType": "time-millis"}, st.times().map(lambda at: at.replace(microsecond=0))),
    ({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}, st.decimals(-(10**6), 10**6, places=2)),
    ({"type": "string", "logicalType": "uuid"}, st.uuids()),
    ({"type": "array", "items": ["null", "long"]}, st.lists(st.none() | st.integers(0, 9), max_size=3)),
    ({"type": "map", "values": "string"}, st.dictionaries(st.sampled_from("ab"), anything)),
    ({"type": "record", "name": "r", "fields": [{"name": "x", "type": "int"}]}, st.just({"x": 7})),
]  # fmt: skip


@MANY
@given(st.data(), st.sampled_from(["null", "deflate"]))
def test_every_row_of_an_avro_file_passes_by_its_own_proposal(data: st.DataObject, codec: str) -> None:
    chosen = data.draw(st.lists(st.sampled_from(AVRO), min_size=1, max_size=5, unique_by=lambda each: str(each[0])))
    schema = {
        "type": "record",
        "name": "orders",
        "fields": [{"name": f"c{number}", "type": kind} for number, (kind, _) in enumerate(chosen)],
    }
    row = st.fixed_dictionaries({f"c{number}": cells for number, (_, cells) in enumerate(chosen)})
    records = data.draw(st.lists(row, max_size=20))
    out = io.BytesIO()
    fastavro.writer(out, schema, records, codec=codec, sync_interval=100)
    found = proposed(out.getvalue(), "orders.avro")
    if found is None:
        return
    proposal, trial = found
    assert trial.tally.failed == 0, (proposal.document, trial.report())
    assert trial.tally.read == len(records)
