"""Ops: the entries of the table log, a class for each kind in a module for each subject; and what became of an op."""

from millrace.model.ops import imports, rows, spans, tables, tenants
from millrace.model.ops.base import KINDS, Op
from millrace.model.ops.reading import read_op
from millrace.model.ops.results import Applied

__all__ = ["KINDS", "Applied", "Op", "imports", "read_op", "rows", "spans", "tables", "tenants"]
