"""K7: every reading of a topic agrees on what stands where, and every chunk that was announced was there to be read."""

import json
from collections import defaultdict

import polars as pl

from checker.findings import Findings
from checker.model import Model
from checker.oplog import FULL_READS, RAW_INPUT, TAIL, topic_of

PLACE = ["topic", "partition", "offset"]


def check(model: Model) -> Findings:
    found = Findings("K7", "log agrees")
    _readings_agree(model, found)
    _chunks_are_there(model, found)
    return found


def _readings_agree(model: Model, found: Findings) -> None:
    records = model.dump.records
    digests = records.group_by(PLACE).agg(pl.col("digest").n_unique().alias("values"), pl.len().alias("readings"))
    found.none_of(digests.filter(pl.col("values") > 1), digests.height, "two readings, two values")
    first, second = (records.filter(pl.col("reader") == reader).select(PLACE).unique() for reader in FULL_READS)
    for one, other in ((first, second), (second, first)):
        found.none_of(one.join(other, on=PLACE, how="anti"), one.height, "only one of two full readings has it")
    found.that(first.height > 0, "nothing was read from the topics")


def _chunks_are_there(model: Model, found: Findings) -> None:
    stamps = [json.loads(text) for text in topic_of(model.dump.records, TAIL, RAW_INPUT)["text"] if text]
    numbers: dict[str, set[int]] = defaultdict(set)
    checksums: dict[tuple[str, int], set[int]] = defaultdict(set)
    for stamp in stamps:
        if "import_id" in stamp:
            numbers[stamp["import_id"]].add(stamp["number"])
            checksums[stamp["import_id"], stamp["number"]].add(stamp["checksum"])
    for import_id, chunks in model.chunks.items():
        if import_id in model.imports:
            lacking = set(range(chunks)) - numbers[import_id]
            found.that(not lacking, f"chunks {sorted(lacking)[:5]} of {import_id} are not in the topic")
    for (import_id, number), sums in checksums.items():
        found.that(len(sums) == 1, f"chunk {number} of {import_id} is there with different bytes")
