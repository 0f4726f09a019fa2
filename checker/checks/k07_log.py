"""K7: every reading of a topic agrees on what stands where, and every chunk that was announced was there to be read."""

import json
from collections import defaultdict

import polars as pl

from checker.findings import Findings
from checker.model import Model
from checker.oplog import FULL_READS, RAW_INPUT, TAIL, topic_of

PLACE = ["topic", "partition", "offset"]
TRIMMED = ("raw-input", "validated-input", "import-error", "progress")


def check(model: Model) -> Findings:
    found = Findings("K7", "log agrees")
    _readings_agree(model, found)
    _chunks_are_there(model, found)
    return found


def _readings_agree(model: Model, found: Findings) -> None:
    records = model.dump.records
    digests = records.group_by(PLACE).agg(pl.col("digest").n_unique().alias("values"), pl.len().alias("readings"))
    found.none_of(digests.filter(pl.col("values") > 1), digests.height, "two readings, two values")
    tail, first, second = (
        records.filter(pl.col("reader") == reader).select(PLACE).unique() for reader in (TAIL, *FULL_READS)
    )
    for earlier, later in ((tail, first), (first, second)):
        kept = _within(earlier, later, with_end=False)
        found.none_of(kept.join(later, on=PLACE, how="anti"), kept.height, "gone from a later reading")
        known = _within(later, earlier, with_end=True)
        found.none_of(known.join(earlier, on=PLACE, how="anti"), known.height, "an earlier reading passed over it")
    found.that(first.height > 0, "nothing was read from the topics")


def _within(one: pl.DataFrame, other: pl.DataFrame, *, with_end: bool) -> pl.DataFrame:
    """What the other reading could have: topics are trimmed from their beginning, and grow at their end."""
    bounds = other.group_by("topic", "partition").agg(
        pl.col("offset").min().alias("start"), pl.col("offset").max().alias("end")
    )
    known = one.join(bounds, on=["topic", "partition"], how="left")
    trimmed = pl.any_horizontal(pl.col("topic").str.ends_with(name) for name in TRIMMED)
    begun = ~trimmed | (pl.col("offset") >= pl.col("start"))
    return known.filter(begun & (pl.col("offset") <= pl.col("end") if with_end else pl.lit(True))).select(PLACE)


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
