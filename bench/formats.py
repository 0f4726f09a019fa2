"""Dates and numbers as people write them against ISO dates and points: the same rows through the judge, chunk by chunk."""

import random
import re
import time
from datetime import datetime, timedelta
from typing import Any

from bench.figure import Figure, at_most
from millrace.declare.table import parse_table
from millrace.formats.cut import UploadOptions, open_cutter
from millrace.model.chunk import ChunkHeader
from millrace.model.table import Definition, define
from millrace.validate.judge import judge

ROWS, ROUNDS, MOST = 60_000, 15, 1.5
_DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}
_STAMP = {"type": "long", "logicalType": "timestamp-micros"}
FIELDS: list[dict[str, Any]] = [
    {"name": "id", "type": "long"},
    {"name": "customer", "type": "string"},
    {"name": "ordered", "type": {"type": "int", "logicalType": "date"}},
    {"name": "placed", "type": _STAMP},
    {"name": "shipped", "type": ["null", _STAMP]},
    {"name": "price", "type": _DECIMAL},
    {"name": "discount", "type": _DECIMAL},
    {"name": "weight", "type": "double"},
    {"name": "note", "type": ["null", "string"]},
]
GERMAN = {"date_format": "dd.MM.yyyy", "timestamp_format": "dd.MM.yyyy HH:mm:ss", "decimal_separator": ","}
WAYS: dict[str, dict[str, Any]] = {
    "iso": {},
    "german": {"csv": {"delimiter": ";"}, "written": GERMAN},
    "german with thousands": {"csv": {"delimiter": ";"}, "written": {**GERMAN, "thousands_separator": "."}},
    "german, any digits": {
        "csv": {"delimiter": ";"},
        "written": {**GERMAN, "date_format": "d.M.yyyy", "timestamp_format": "d.M.yyyy H:mm:ss"},
    },
    "german in Berlin": {"csv": {"delimiter": ";"}, "written": {**GERMAN, "time_zone": "Europe/Berlin"}},
}


def run() -> list[Figure]:
    chunks = {way: _chunks(_definition(words), _text(way)) for way, words in WAYS.items()}
    best: dict[str, float] = {}
    # The ways take turns, so that a busy moment of the machine does not hit only one.
    for _ in range(ROUNDS):
        for way, (definition, cut) in chunks.items():
            taken = _seconds(definition, cut)
            best[way] = min(taken, best.get(way, taken))
    note = f"iso: {best['iso'] / ROWS * 1e9:.0f} ns a row"
    return [at_most(f"formats: {way}", best[way] / best["iso"], "× iso", MOST, note) for way in WAYS if way != "iso"]


def _definition(words: dict[str, Any]) -> Definition:
    schema = {"type": "record", "name": "orders", "fields": FIELDS}
    return define("bench", parse_table({"schema": schema, "primary_key": ["id"], **words}), 1)


def _text(way: str) -> bytes:
    """The same rows, written in each way."""
    dice = random.Random(7)
    is_german = way != "iso"
    day, clock = ("%d.%m.%Y", "%d.%m.%Y %H:%M:%S") if is_german else ("%Y-%m-%d", "%Y-%m-%d %H:%M:%S")
    delimiter = ";" if is_german else ","
    lines = [delimiter.join(field["name"] for field in FIELDS)]
    for number in range(ROWS):
        placed = datetime(2019, 1, 1, 12) + timedelta(seconds=dice.randrange(150_000_000))
        placed = placed.replace(hour=4 + placed.hour % 20)
        numbers = [f"{dice.randrange(1, 5_000_000) / 100:,.2f}" for _ in range(2)] + [f"{dice.random() * 90:.3f}"]
        moments = [placed.strftime(day), placed.strftime(clock), "" if number % 5 else placed.strftime(clock)]
        if way == "german, any digits":
            moments = [re.sub(r"(?<![0-9:])0(?=[0-9])", "", one) for one in moments]
        cells = [str(number), f"customer {dice.randrange(9999)}", *moments]
        cells += [*(_number(one, way) for one in numbers), "left at door"]
        lines.append(delimiter.join(cells))
    return ("\n".join(lines) + "\n").encode()


def _number(text: str, way: str) -> str:
    if way == "iso":
        return text.replace(",", "")
    thousands = "." if "thousands" in way else ""
    return text.replace(",", "\0").replace(".", ",").replace("\0", thousands)


def _chunks(definition: Definition, text: bytes) -> tuple[Definition, list[tuple[ChunkHeader, bytes]]]:
    cutter = open_cutter(definition, UploadOptions())
    cuts = [*cutter.feed(text), *cutter.finish()]
    return definition, [
        (
            ChunkHeader(
                "imp_bench", number, number + 1, definition.fingerprint, cut.encoding, cut.first_row, cut.first_line,
                cut.rows, len(cut.body), 0, cut.layout,
            ),
            cut.body,
        )
        for number, cut in enumerate(cuts)
    ]  # fmt: skip


def _seconds(definition: Definition, chunks: list[tuple[ChunkHeader, bytes]]) -> float:
    # Of the processor, because the judge waits for nothing: other work on the machine does not count.
    begun = time.process_time()
    accepted = sum(judge(header, body, definition).verdict.accepted for header, body in chunks)
    taken = time.process_time() - begun
    if accepted != ROWS:
        raise RuntimeError(f"{accepted:,} of {ROWS:,} rows were accepted.")
    return taken
