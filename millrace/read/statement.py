"""Checks a user's statement: DuckDB's parse tree in, the tables it names out.

Refuses all but one SELECT over readable tables, CTEs and a few pure table functions. This is the first of two walls. The
second is a DuckDB without access to files and network, so one gap in either wall opens nothing."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from millrace.model.errors import Invalid, Refused

TABLE_FUNCTIONS = frozenset({"range", "generate_series", "unnest", "json_each", "json_tree"})
QUERY_NODES = frozenset({"SELECT_NODE", "SET_OPERATION_NODE", "RECURSIVE_CTE_NODE", "CTE_NODE"})
SOURCES = frozenset({"BASE_TABLE", "SUBQUERY", "JOIN", "TABLE_FUNCTION", "EMPTY", "EXPRESSION_LIST", "PIVOT"})
# These functions run or bind text as SQL, show settings, view texts or file names, keep state, or waste time.
FUNCTIONS_OFF = frozenset(
    {
        "json_serialize_sql", "json_serialize_plan", "json_deserialize_sql", "json_execute_serialized_sql",
        "current_setting", "getvariable", "getenv", "get_block_size", "current_query", "write_log",
        "nextval", "currval", "setval", "setseed", "sleep_ms", "pg_sleep", "pg_get_viewdef", "pg_get_expr",
        "pg_get_constraintdef", "obj_description", "col_description", "shobj_description", "stats", "vector_type",
        "current_connection_id", "current_query_id", "current_transaction_id", "txid_current", "index_key",
    }
)  # fmt: skip
INTERNAL_PREFIX = "__internal"
# DuckDB has catalogs or reserved schemas of these names, so a view "name"."table" is ambiguous or impossible.
CLOSED_SCHEMAS = frozenset({"temp", "system", "memory", "pg_catalog", "information_schema"})

Name = tuple[str, str]
Path = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TableUse:
    """A table's spelling in the statement, and the readable table that it means."""

    spelled: Path
    table: Name


@dataclass(slots=True)
class _Walk:
    readable: frozenset[Name]
    uses: dict[Path, TableUse] = field(default_factory=dict)

    def visit(self, node: Any, scope: frozenset[str]) -> None:
        if isinstance(node, list):
            for item in node:
                self.visit(item, scope)
        elif isinstance(node, dict):
            self._visit_object(node, scope)

    def _visit_object(self, node: dict[str, Any], scope: frozenset[str]) -> None:
        kind = node.get("type")
        if "class" in node:
            _refuse_expression(node)
        elif isinstance(kind, str) and kind.endswith("_NODE"):
            if kind not in QUERY_NODES:
                raise _off(f"{kind.removesuffix('_QUERY_NODE')} inside a query", "Only SELECT is; nothing is written.")
            scope = self._visit_ctes(node, scope)
        elif "alias" in node and "sample" in node:
            self._visit_source(node, scope)
        for key, value in node.items():
            if key != "cte_map":
                self.visit(value, scope)

    def _visit_ctes(self, node: dict[str, Any], scope: frozenset[str]) -> frozenset[str]:
        """A CTE is visible to later CTEs and to the query, and to itself if it is recursive."""
        if node["type"] == "RECURSIVE_CTE_NODE":
            scope |= {str(node["cte_name"]).lower()}
        for entry in node["cte_map"]["map"]:
            self.visit(entry["value"], scope)
            scope |= {str(entry["key"]).lower()}
        return scope

    def _visit_source(self, node: dict[str, Any], scope: frozenset[str]) -> None:
        kind = node["type"]
        if kind not in SOURCES:
            raise _off(f"{kind} as a source", "Select from tables, CTEs, VALUES and sub-queries.")
        if kind == "TABLE_FUNCTION":
            _refuse_table_function(node["function"])
        if kind == "BASE_TABLE":
            path = tuple(str(part) for part in node["qualified_name"]["path"])
            if len(path) == 1 and path[0].lower() in scope:
                return
            self.uses[path] = TableUse(path, meant_table(path, self.readable))


def tables_used(tree: dict[str, Any], readable: Iterable[Name]) -> tuple[TableUse, ...]:
    """The readable tables that a parsed statement names, one entry per spelling."""
    if tree["error"]:
        raise _off("This statement", "Send one SELECT (WITH is fine).")
    if len(tree["statements"]) != 1:
        raise _off(f"A text of {len(tree['statements'])} statements", "Send one SELECT.")
    if tree["statements"][0]["named_param_map"]:
        raise _off("A parameter ($1, ?)", "Write the value into the query.")
    walk = _Walk(frozenset(readable))
    walk.visit(tree["statements"][0]["node"], frozenset())
    uses = tuple(walk.uses.values())
    _refuse_names_that_differ_by_case(uses)
    return uses


def meant_table(path: Path, readable: frozenset[Name]) -> Name:
    """SQL names ignore case, ours do not: the exact spelling wins, else a single match. The tenant may be left out."""
    if len(path) > 2:
        raise _unknown(path, readable)
    candidates = [name for name in readable if _folded(name[-len(path) :]) == _folded(path)]
    exact = [name for name in candidates if name[-len(path) :] == path]
    for found in (exact, candidates):
        if len(found) == 1:
            if len(path) == 2 and path[0].lower() in CLOSED_SCHEMAS:
                raise _off(f"The schema name {path[0]!r}", f"Name the table without its tenant: {found[0][1]}.")
            return found[0]
    if candidates:
        spelled = ", ".join(sorted(_shown(name) for name in candidates)[:5])
        raise Invalid(
            f"{_shown(path)} may be any of {spelled}.", remedy='Write "tenant"."table".', code="query_ambiguous"
        )
    raise _unknown(path, readable)


def _refuse_names_that_differ_by_case(uses: tuple[TableUse, ...]) -> None:
    meant: dict[Path, Name] = {}
    for use in uses:
        # A bare name becomes a view of the schema "main".
        folded = _folded(use.spelled if len(use.spelled) == 2 else ("main", *use.spelled))
        if meant.setdefault(folded, use.table) != use.table:
            raise Invalid(
                f"The query uses {_shown(meant[folded])} and {_shown(use.table)}, which SQL takes for the same name.",
                remedy="Query them one after the other.",
                code="query_ambiguous",
            )


def _refuse_expression(node: dict[str, Any]) -> None:
    name = str(node.get("function_name", "")).lower()
    if name in FUNCTIONS_OFF or name.startswith(INTERNAL_PREFIX):
        raise _off(f"The function {name}", "Leave it out.")


def _refuse_table_function(function: dict[str, Any]) -> None:
    path = [str(part).lower() for part in function["qualified_name"]["path"]]
    if len(path) != 1 or path[0] not in TABLE_FUNCTIONS:
        raise _off(f"The table function {'.'.join(path)}", f"Available: {', '.join(sorted(TABLE_FUNCTIONS))}.")


def _unknown(path: Path, readable: frozenset[Name]) -> Refused:
    known = ", ".join(sorted(_shown(name) for name in readable)[:10]) or "none"
    return Invalid(f"There is no table {_shown(path)}.", remedy=f"Tables you can read: {known}.", code="query_no_table")


def _off(what: str, remedy: str) -> Refused:
    return Invalid(f"{what} is not available in queries.", remedy=remedy, code="query_refused")


def _folded(path: Path) -> Path:
    return tuple(part.lower() for part in path)


def _shown(path: Path) -> str:
    return ".".join(part if len(part) <= 63 else part[:63] + "…" for part in path)
