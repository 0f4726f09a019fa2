"""Rejected rows by their reasons: those of one rule, and those whose bytes were kept whole."""

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from millrace.lake.errors_table import SINK_RULE

# Of these rows only the beginning was kept; of what a sink refused nothing.
CUT_SHORT = ("row_too_long", "undecodable", "unclosed_quote")


def with_rule(rows: pa.RecordBatch, rule: str) -> pa.RecordBatch:
    """Rows with the rule among their reasons."""
    return rows.filter(_has_rule(rows["reasons"], lambda rules: pc.equal(rules, rule)))


def kept_whole(rows: pa.RecordBatch) -> pa.RecordBatch:
    return rows.filter(pc.invert(_has_rule(rows["reasons"], _is_cut_short)))


def _is_cut_short(rules: pa.Array) -> pa.Array:
    return pc.or_(pc.is_in(rules, pa.array(CUT_SHORT)), pc.starts_with(rules, SINK_RULE))


def _has_rule(reasons: pa.Array, is_meant: Callable[[pa.Array], pa.Array]) -> pa.Array:
    hits = is_meant(reasons.flatten().field("rule"))
    rows = pc.unique(pc.list_parent_indices(reasons).filter(hits))
    return pc.is_in(pa.array(range(len(reasons)), pa.int64()), rows.cast(pa.int64()))
