"""What a file must bring: keys alone to delete, former names, marks of deleted rows, unknown columns to keep."""

import io
from pathlib import Path
from tempfile import gettempdir
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from millrace.formats.cut import CutPiece, UploadOptions, open_cutter
from millrace.model.errors import Invalid
from millrace.model.table import Definition
from tests.support.chunks import column, table

INNER = {"type": "record", "name": "r", "fields": [column("now", "int", aliases=["then"])]}
FIELDS = [column("id", "int", aliases=["old_id"]), column("v", "string"), column("r", ["null", INNER])]


def keyed(*more: dict[str, Any], **settings: Any) -> Definition:
    return table(*FIELDS, *more, key=("id",), **settings)


def cut(definition: Definition, body: bytes, file_type: str, **options: Any) -> list[CutPiece]:
    cutter = open_cutter(definition, UploadOptions(file_type=file_type, **options), spool_dir=Path(gettempdir()))
    return [*cutter.feed(body), *cutter.finish()]


def header(definition: Definition, names: str, **options: Any) -> tuple[str, ...]:
    (found,) = cut(definition, f"{names}\n1\n".encode(), "csv", header=True, **options)
    assert found.layout is not None
    return found.layout.columns


def parquet(**columns: Any) -> bytes:
    out = io.BytesIO()
    pq.write_table(pa.table(columns), out)
    return out.getvalue()


def container(*fields: dict[str, Any]) -> bytes:
    out = io.BytesIO()
    fastavro.writer(out, {"type": "record", "name": "w", "fields": list(fields)}, [])
    return out.getvalue()


def arrow_names(found: list[CutPiece]) -> list[str]:
    return list(pa.ipc.open_stream(found[0].body).schema.names)


def test_a_file_of_keys_needs_nothing_but_the_key() -> None:
    definition = keyed()
    assert header(definition, "id", deletes=True) == ("id",)
    assert header(definition, "strange,old_id,v", deletes=True) == ("strange", "old_id", "v")
    assert arrow_names(cut(definition, parquet(id=[1], x=[2]), "parquet", deletes=True)) == ["id"]
    assert cut(definition, container(column("id", "int"), column("x", "string")), "avro", deletes=True)
    for body, kind in ((b"v\nx\n", "csv"), (parquet(v=["x"]), "parquet"), (container(column("v", "string")), "avro")):
        with pytest.raises(Invalid, match="lacks the column 'id'"):
            cut(definition, body, kind, header=True, deletes=True)


def test_only_key_columns_are_checked_in_a_file_of_keys() -> None:
    definition = keyed()
    assert cut(definition, parquet(id=[1], v=[{"a": 1}]), "parquet", deletes=True)
    with pytest.raises(Invalid, match="'id' is struct"):
        cut(definition, parquet(id=[{"a": 1}]), "parquet", deletes=True)


def test_a_file_of_keys_without_a_header_has_them_in_the_order_of_the_key() -> None:
    definition = table(column("a", "int"), column("v", "int"), column("b", "int"), key=("b", "a"))
    (found,) = cut(definition, b"1,2\n", "csv", header=False, deletes=True)
    assert found.layout is not None
    assert found.layout.columns == ("b", "a")


def test_former_names_are_known() -> None:
    definition = keyed()
    assert header(definition, "old_id,v") == ("old_id", "v")
    then = pa.array([{"then": 1}])
    assert arrow_names(cut(definition, parquet(old_id=[1], v=["x"], r=then), "parquet")) == ["old_id", "v", "r"]
    assert cut(definition, container(column("old_id", "int"), column("v", "string")), "avro")
    with pytest.raises(Invalid, match="has the column 'old_id', which the table does not know"):
        header(definition, "old_id,v,id")
    with pytest.raises(Invalid, match="more than once"):
        header(definition, "old_id,v,old_id")
    with pytest.raises(Invalid, match="writes column 'id' as string"):
        cut(definition, container(column("old_id", "string"), column("v", "string")), "avro")


def test_inner_fields_of_other_types_are_refused_at_once() -> None:
    with pytest.raises(Invalid, match="'r' is struct"):
        cut(keyed(), parquet(id=[1], v=["x"], r=pa.array([{"then": [1]}])), "parquet")


def test_the_mark_of_deleted_rows_is_known() -> None:
    definition = keyed()
    assert header(definition, "id,v,_deleted") == ("id", "v", "_deleted")
    names = arrow_names(cut(definition, parquet(id=[1], v=["x"], _deleted=[True]), "parquet"))
    assert names == ["id", "v", "_deleted"]
    assert cut(definition, container(*FIELDS[:2], column("_deleted", "boolean")), "avro")
    with pytest.raises(Invalid, match="names the column '_deleted' more than once"):
        header(definition, "id,v,_deleted,_deleted")


def test_unknown_columns_travel_where_they_are_rescued() -> None:
    definition = keyed(unknown_fields="rescue")
    assert header(definition, "x,id,v") == ("x", "id", "v")
    assert arrow_names(cut(definition, parquet(x=[1], id=[1], v=["x"]), "parquet")) == ["id", "v", "x"]
    assert arrow_names(cut(keyed(unknown_fields="ignore"), parquet(x=[1], id=[1], v=["x"]), "parquet")) == ["id", "v"]
    with pytest.raises(Invalid, match="names the column 'x' more than once"):
        header(definition, "x,id,v,x")


def test_a_file_without_a_header_does_not_hold_the_rescue_column() -> None:
    (found,) = cut(keyed(unknown_fields="rescue"), b"1,a,\n", "csv", header=False)
    assert found.layout is not None
    assert found.layout.columns == ("id", "v", "r")


def test_a_column_with_nothing_to_fill_in_is_missed() -> None:
    definition = table(column("id", "int"), column("x", "int", default=None))
    with pytest.raises(Invalid, match="lacks the column 'x'"):
        header(definition, "id")


def test_a_columns_title_in_files_is_matched_in_every_format_and_named_in_refusals() -> None:
    definition = table(column("id", "int", header="Order_no"), column("v", "string"), key=("id",))
    assert header(definition, "v,Order_no") == ("v", "Order_no")
    assert header(definition, "v,id") == ("v", "id")
    assert header(definition, "Order_no", deletes=True) == ("Order_no",)
    assert arrow_names(cut(definition, parquet(Order_no=[1], v=["x"]), "parquet")) == ["Order_no", "v"]
    assert cut(definition, container(column("Order_no", "int"), column("v", "string")), "avro")
    with pytest.raises(Invalid, match="lacks the column 'id'") as refused:
        header(definition, "v")
    assert "The table's columns are 'Order_no', 'v'" in refused.value.remedy
