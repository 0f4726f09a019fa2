"""The file sink at its files: exactly-once names, manifests that are true, folders, formats, paths, failures."""

import hashlib
import json
import threading
from collections.abc import Callable
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import fastavro
import polars as pl
import pyarrow as pa
import pytest

from millrace.declare.table import parse_table
from millrace.model.errors import Invalid, Unavailable
from millrace.model.sinks import Fault, SinkFailed, SinkTarget
from millrace.model.table import Definition, define
from millrace.sink.connector import Rows, Work
from millrace.sink.files.settings import FilesSettings
from millrace.sink.files.sink import FilesSink
from millrace.sink.registry import refuse_unable
from tests.support.file_sinks import bucket_target
from tests.support.reading_back import read_back
from tests.support.sink_context import sink_context

FIELDS = [
    {"name": "id", "type": "long"},
    {"name": "land", "type": ["null", "string"]},
    {"name": "day", "type": ["null", {"type": "int", "logicalType": "date"}]},
]
AT = 1_700_000_000_000_000  # 2023-11-14T22:13:20Z


def document(**more: Any) -> dict[str, Any]:
    return {"schema": {"type": "record", "name": "notes", "fields": FIELDS}, **more}


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MILLRACE_FILES_ROOT", str(tmp_path / "out"))
    return tmp_path / "out"


def files_sink(target: SinkTarget) -> FilesSink:
    return FilesSink(FilesSettings.of(target), sink_context())


@pytest.fixture
def opened(root: Path) -> Callable[..., FilesSink]:
    def open_sink(**settings: Any) -> FilesSink:
        return files_sink(SinkTarget("export", "files", True, {"path": root.as_uri(), **settings}))

    return open_sink


def table_of(sink: FilesSink) -> Definition:
    table = define("acme", parse_table(document()), 1)
    sink.prepare(table, {table.fingerprint: table}.__getitem__)
    return table


def rows(*chunks: tuple[int, list[Any]], import_id: str = "imp_1") -> Rows:
    """Chunk numbers with the lands of their rows; a chunk's version is its number after AT."""
    lands = [(number, land) for number, found in chunks for land in found]
    batch = pa.RecordBatch.from_pydict(
        {
            "id": pa.array(range(len(lands)), pa.int64()),
            "land": pa.array([land for _, land in lands], pa.string()),
            "day": pa.array([19_675] * len(lands), pa.int32()).cast(pa.date32()),
            "_version": pa.array([AT + number for number, _ in lands], pa.int64()),
            "_import": pa.array([import_id] * len(lands)),
            "_row": pa.array(range(1, len(lands) + 1), pa.int64()),
            "_deleted": pa.array([False] * len(lands)),
        }
    )
    numbers = [number for number, _ in chunks]
    return Rows(
        tuple(f"{import_id}/{number}" for number in numbers), tuple(AT + n for n in numbers), lambda: iter([batch])
    )


def data_files(root: Path) -> list[str]:
    folder = root / "acme" / "notes"
    found = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    return sorted(str(path) for path in found if not str(path).startswith("_"))


def lands(sink: FilesSink, table: Definition) -> list[Any]:
    return sorted(read_back(sink, table)["land"].to_pylist())


def on_disk(root: Path) -> list[Any]:
    return sorted(pl.read_parquet(root / "acme/notes/**/*.parquet", hive_partitioning=False)["land"])


def test_chunks_that_come_again_in_other_groups_are_written_once(root: Path, opened: Callable[..., FilesSink]) -> None:
    sink = opened()
    table = table_of(sink)
    sink.write(Work(table, [rows((0, ["a"]), (1, ["b"]))]))
    before = {path: (root / "acme/notes" / path).read_bytes() for path in data_files(root)}
    for again in ([(0, ["a"]), (1, ["b"])], [(0, ["a"])], [(1, ["b"]), (2, ["c"])], [(2, ["c"]), (0, ["a"])]):
        opened().write(Work(table, [rows(*again)]))
    assert lands(sink, table) == ["a", "b", "c"]
    assert before.items() <= {path: (root / "acme/notes" / path).read_bytes() for path in data_files(root)}.items()
    assert len(data_files(root)) == 2


class Breaking:
    """A store whose n-th file is never finished, as if the process had died there."""

    def __init__(self, store: Any, survives: int) -> None:
        self._store, self._left = store, survives

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def put_stream(self, name: str, body: Any, size: int) -> None:
        if self._left == 0:
            raise ConnectionResetError("gone")
        self._left -= 1
        self._store.put_stream(name, body, size)


@pytest.mark.parametrize("survives", range(5))
def test_a_crash_anywhere_leaves_nothing_twice_and_nothing_out(
    survives: int, root: Path, opened: Callable[..., FilesSink]
) -> None:
    sink = opened(partition_by=["land"])
    table = table_of(sink)
    crashing = opened(partition_by=["land"])
    crashing._store = Breaking(crashing._store, survives)
    with pytest.raises(ConnectionResetError):
        crashing.write(Work(table, [rows((0, ["a", "b"]), (1, ["b", "c"]))], ended=[("imp_1", ("imp_1/0", "imp_1/1"))]))
    for again in ([(1, ["b", "c"])], [(0, ["a", "b"]), (1, ["b", "c"])]):
        opened(partition_by=["land"]).write(Work(table, [rows(*again)]))
    assert lands(sink, table) == ["a", "b", "b", "c"]
    assert on_disk(root) == ["a", "b", "b", "c"], "whoever reads the folder sees the same"


def test_a_manifest_appears_when_all_of_an_import_is_there(root: Path, opened: Callable[..., FilesSink]) -> None:
    sink = opened(format="jsonl", layout="time", window="hour", partition_by=["land"])
    table = table_of(sink)
    manifest = root / "acme/notes/_manifests/imp_1.json"
    sink.write(Work(table, [rows((0, ["a", "b", None]))]))
    assert not manifest.exists()
    sink.write(Work(table, [], ended=[("imp_1", ("imp_1/0", "imp_1/3"))]))
    assert not manifest.exists(), "chunk 3 is still on its way"
    opened(format="jsonl", layout="time", window="hour", partition_by=["land"]).write(Work(table, [rows((3, ["b"]))]))
    told = json.loads(manifest.read_text())
    assert (told["import"], told["rows"], len(told["files"])) == ("imp_1", 4, 4)
    for file in told["files"]:
        body = (root / "acme/notes" / file["path"]).read_bytes()
        assert (file["bytes"], file["sha256"]) == (len(body), hashlib.sha256(body).hexdigest())
        assert file["rows"] == len(body.splitlines())
        assert all(json.loads(line)["land"] == file["partition"]["land"] for line in body.splitlines())
    assert sorted({version for file in told["files"] for version in (file["first_version"], file["last_version"])}) == [
        AT,
        AT + 3,
    ]
    assert {file["path"] for file in told["files"]} == set(data_files(root))


def test_a_truncation_takes_files_and_manifests_with_it(root: Path, opened: Callable[..., FilesSink]) -> None:
    sink = opened()
    table = table_of(sink)
    sink.write(Work(table, [rows((0, ["a"]))], ended=[("imp_1", ("imp_1/0",))]))
    sink.write(Work(table, [rows((7, ["b"]), import_id="imp_2")], ended=[("imp_2", ("imp_2/7",))]))
    sink.write(Work(table, [], floor=AT + 5))
    sink.write(Work(table, [rows((0, ["a"]))]))
    assert lands(sink, table) == ["b"]
    assert [path.name for path in (root / "acme/notes/_manifests").iterdir()] == ["imp_2.json"]
    assert len(data_files(root)) == 1


def test_what_was_there_before_the_sink_was_is_kept_once_and_may_be_truncated(
    root: Path, opened: Callable[..., FilesSink]
) -> None:
    """A back-fill's chunks have no import, or no version, of their own; its rows have."""
    sink = opened()
    table = table_of(sink)
    old = rows((0, ["a"]), (7, ["b"]), (8, ["c"]))
    of_file = Rows(("backfill-abc/0",), (0,), old.open)
    of_versions = Rows(("backfill@1", "imp_9/8"), (AT, AT + 8), rows((0, ["d"]), (8, ["e"]), import_id="imp_5").open)
    for one in (of_file, of_file, of_versions, of_versions):
        sink.write(Work(table, [one]))
    assert lands(sink, table) == ["a", "b", "c", "d", "e"]
    for again in ([], [of_file]):
        sink.write(Work(table, again, floor=AT + 5))
        assert lands(sink, table) == on_disk(root) == ["b", "c", "e"]


def test_chunks_of_which_no_row_is_left_are_there_all_the_same(root: Path, opened: Callable[..., FilesSink]) -> None:
    sink = opened()
    table = table_of(sink)
    beaten = Rows(("imp_1/0",), (AT,), lambda: iter([]))
    sink.write(Work(table, [beaten], ended=[("imp_1", ("imp_1/0",))]))
    assert json.loads((root / "acme/notes/_manifests/imp_1.json").read_text())["rows"] == 0


def test_rows_that_keep_the_version_of_another_import_are_told_apart(opened: Callable[..., FilesSink]) -> None:
    sink = opened()
    table = table_of(sink)
    first, replayed = rows((0, ["a"])), rows((0, ["b"]), import_id="imp_2")
    both = Rows((*first.chunks, *replayed.chunks), (AT, AT), lambda: iter([*first.open(), *replayed.open()]))
    for one in (first, both, replayed):
        sink.write(Work(table, [one]))
    assert lands(sink, table) == ["a", "b"]


def test_folders_say_when_and_what(root: Path, opened: Callable[..., FilesSink]) -> None:
    sink = opened(layout="time", window="hour", partition_by=["land", "day"])
    table = table_of(sink)
    sink.write(Work(table, [rows((0, ["DE", None, "../../up", "ü" * 200]))]))
    folders = sorted(path.rpartition("/")[0] for path in data_files(root))
    assert all(
        folder.startswith("date=2023-11-14/hour=22/") and folder.endswith("day=2023-11-14") for folder in folders
    )
    middle = [folder.split("/")[2] for folder in folders]
    assert middle[2:] == ["land=DE", "land=__HIVE_DEFAULT_PARTITION__"]
    assert middle[1] == "land=..%2F..%2Fup"
    assert middle[0].startswith("land=%C3%BC")
    frame = pl.read_parquet(root / "acme/notes/**/*.parquet", hive_partitioning=False)
    assert sorted(frame["land"].drop_nulls()) == sorted(["DE", "../../up", "ü" * 200])


def test_any_avro_reader_reads_the_files(root: Path, opened: Callable[..., FilesSink]) -> None:
    sink = opened(format="avro")
    table = table_of(sink)
    sink.write(Work(table, [rows((0, ["a", None]))]))
    with (root / "acme/notes" / data_files(root)[0]).open("rb") as file:
        found = list(fastavro.reader(file))
    assert [(row["land"], row["_version"]) for row in found] == [("a", AT), (None, AT)]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"path": "file:///etc"}, "not below"),
        ({"path": "hdfs://name/x"}, "webhdfs"),
        ({"path": "s3://bucket/x"}, "access_key"),
        ({"path": "gs://bucket/x"}, "credentials"),
        ({"path": "s3://bucket/../other", "access_key": "env:A", "secret_key": "env:B"}, "cannot be read"),
        ({"partition_by": ["nowhere"]}, "no column"),
        ({"format": "orc"}, "parquet, avro"),
    ],
)
def test_what_cannot_work_is_refused_when_it_is_declared(root: Path, settings: dict[str, Any], said: str) -> None:
    target = {"kind": "files", "path": root.as_uri(), **settings}
    with pytest.raises(Invalid, match=said):
        refuse_unable(parse_table(document(sinks=["delta", target])), sink_context())


def test_a_folder_is_open_only_where_the_operator_says_so(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = {"kind": "files", "path": root.as_uri()}
    refuse_unable(parse_table(document(sinks=[target])), sink_context())
    root.mkdir()
    (root / "link").symlink_to("/etc")
    target["path"] += "/link"
    with pytest.raises(Invalid, match="not below"):
        refuse_unable(parse_table(document(sinks=[target])), sink_context())
    monkeypatch.delenv("MILLRACE_FILES_ROOT")
    with pytest.raises(Invalid, match="MILLRACE_FILES_ROOT"):
        refuse_unable(parse_table(document(sinks=[target])), sink_context())


def test_no_local_path_leads_into_another_tenant_s_folder(root: Path) -> None:
    target = SinkTarget("export", "files", True, {"path": f"{root.as_uri()}/globex/events"})
    sink = files_sink(target)
    sink.write(Work(table_of(sink), [rows((0, ["a"]))]))
    assert [path.name for path in root.iterdir()] == ["acme"]
    assert (root / "acme" / "globex" / "events" / "notes" / "_millrace").is_dir()


def test_a_table_with_a_key_must_ask_for_a_changelog(root: Path) -> None:
    target = {"kind": "files", "path": root.as_uri()}
    with pytest.raises(Invalid, match="mode: changelog"):
        refuse_unable(parse_table(document(sinks=[target], primary_key=["id"])), sink_context())
    refuse_unable(parse_table(document(sinks=[{**target, "mode": "changelog"}], primary_key=["id"])), sink_context())


@pytest.mark.parametrize(
    "settings",
    [
        {"path": "webhdfs://127.0.0.1:9870/x"},
        {"path": "s3://b/x", "endpoint": "http://169.254.169.254", "access_key": "env:A", "secret_key": "env:B"},
    ],
)
def test_private_addresses_are_the_operator_s_to_allow(settings: dict[str, Any]) -> None:
    target = SinkTarget("export", "files", True, settings)
    with pytest.raises(Invalid, match="not a public address"):
        FilesSink(FilesSettings.of(target), replace(sink_context(lambda _: "x"), allowed=())).check()


def test_a_bucket_that_is_not_there_is_the_sink_s_fault(request: pytest.FixtureRequest) -> None:
    target = bucket_target(request)
    target.settings["path"] = "s3://no-such-bucket/exports"
    sink = files_sink(target)
    with pytest.raises(OSError, match=r"(?i)bucket") as met:
        sink.check()
    assert sink.classify(met.value) is Fault.SINK


def test_every_error_has_a_reach_and_none_is_a_row_s(opened: Callable[..., FilesSink]) -> None:
    sink = opened()
    errors = [one for one in vars(pa.lib).values() if isinstance(one, type) and issubclass(one, Exception)]
    for kind in [*errors, OSError, ConnectionError, PermissionError, MemoryError, ValueError, KeyError]:
        fault = sink.classify(kind.__new__(kind))
        assert fault in (Fault.TABLE, Fault.SINK), kind
        if issubclass(kind, OSError):
            assert fault is Fault.SINK, kind
    assert sink.classify(pa.ArrowInvalid("")) is Fault.TABLE
    assert sink.classify(Unavailable("")) is Fault.SINK
    assert sink.classify(SinkFailed("", Fault.TABLE)) is Fault.TABLE


def test_a_store_cannot_send_us_elsewhere() -> None:
    """Neither by a redirect nor by the region that it says a bucket is in."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            asked.append(self.path)
            self.send_response(307)
            self.send_header("Location", f"http://127.0.0.1:{self.server.server_port}/metadata")  # type: ignore[attr-defined]
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            settings = {
                "endpoint": f"http://127.0.0.1:{server.server_port}",
                "access_key": "env:A",
                "secret_key": "env:B",
            }
            target = SinkTarget("export", "files", True, {"path": "s3://bucket/x", **settings})
            sink = FilesSink(FilesSettings.of(target), sink_context(lambda _: "x"))
            with pytest.raises(OSError, match="307") as met:
                sink.check()
        finally:
            server.shutdown()
            thread.join(10)
    assert sink.classify(met.value) is Fault.SINK
    assert len(asked) == 1
    assert asked[0].startswith("/bucket/x/")
