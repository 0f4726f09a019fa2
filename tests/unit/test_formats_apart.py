"""All decoders of a server together are bounded, and no tenant has all of them."""

import io
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from millrace.bounded import limits
from millrace.declare.table import parse_table
from millrace.formats import apart
from millrace.formats.cut import UploadOptions, open_cutter
from millrace.model.errors import Invalid, Overloaded
from millrace.model.table import define
from tests.support.hostile_files import COLUMNS, DECLARATION, _avro_file, normal_parquet

DEFINITION = define("acme", parse_table({**DECLARATION, "file_type": "parquet"}), 1)


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Two decoders fit; one of each tenant."""
    monkeypatch.setattr(limits, "SHARE_OF_MEMORY", 0.0)
    monkeypatch.setattr(apart, "PATIENCE_SECONDS", 0.2)
    apart._turns_for.cache_clear()
    yield
    apart._turns_for.cache_clear()


def opened(tenant: str, spool: Path) -> apart.Cutter:
    definition = define(tenant, DEFINITION.table, 1)
    return apart.open_apart(definition, UploadOptions(file_name="f"), spool_dir=spool)


def begun(tenant: str, spool: Path) -> apart.Cutter:
    cutter = opened(tenant, spool)
    list(cutter.feed(normal_parquet()))
    return cutter


def test_a_tenant_does_not_have_all_decoders_and_all_together_have_so_many(tmp_path: Path) -> None:
    first = begun("acme", tmp_path)
    with pytest.raises(Overloaded, match="acme has 1 decoders running") as refused:
        begun("acme", tmp_path)
    assert refused.value.retry_seconds >= 1
    second = begun("calm", tmp_path)
    with pytest.raises(Overloaded, match="All 2 decoders"):
        begun("third", tmp_path)
    first.close()
    third = begun("third", tmp_path)
    assert sum(cut.rows for cut in third.finish()) == 100
    assert sum(cut.rows for cut in second.finish()) == 100
    begun("calm", tmp_path).close()


def test_whoever_waits_gets_the_decoder_that_is_given_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apart, "PATIENCE_SECONDS", 30.0)
    first, waiting = begun("acme", tmp_path), opened("acme", tmp_path)
    timer = threading.Timer(0.3, first.close)
    timer.start()
    list(waiting.feed(normal_parquet()))
    assert sum(cut.rows for cut in waiting.finish()) == 100
    timer.join()


def test_a_reason_names_no_address_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Libraries quote objects that they cannot read."""

    def fail(*_: object) -> None:
        raise ValueError(f"unexpected {object()!r} in {io.BytesIO()!r}")

    monkeypatch.setattr("millrace.formats.avro_types.held_type", fail)
    definition = define("acme", parse_table({**DECLARATION, "file_type": "avro"}), 1)
    cutter = open_cutter(definition, UploadOptions(), spool_dir=tmp_path)
    with pytest.raises(Invalid, match=r"is not valid: unexpected object in _io\.BytesIO"):
        list(cutter.feed(_avro_file({"type": "record", "name": "notes", "fields": COLUMNS[:1]}, (1, b"\2"))))
