"""Quality reports of a table's imports in, the trend of each rule out."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, select

from millrace.model.imports import ALTER, APPEND, TERMINAL, TRUNCATE, Counts
from millrace.model.moments import iso
from millrace.model.quality import BROKEN, summary
from millrace.store import tables as t

# Shares closer to each other than this, in percent of rows, go neither way.
STEADY_PERCENT = 0.1


def past_reports(connection: Connection, tenant: str, table: str, last: int) -> list[dict[str, Any]]:
    """The newest first. Streamed rows come in too many small imports to list them one by one."""
    chosen = (t.imports.c.tenant == tenant, t.imports.c.table_name == table, t.imports.c.state.in_(TERMINAL))
    wanted = select(t.imports).where(*chosen, t.imports.c.kind.not_in((ALTER, TRUNCATE, APPEND)))
    rows = connection.execute(wanted.order_by(t.imports.c.ended_us.desc()).limit(last))
    return [_item(row) for row in rows]


def _item(row: Any) -> dict[str, Any]:
    report = row.options.get("quality")
    rows = Counts(**row.counts).rows
    about = {"import": row.id, "state": row.state, "ended_at": iso(row.ended_us), "rows": rows}
    return {**about, "report": None if report is None else summary(report)}


def trend(items: Sequence[dict[str, Any]]) -> dict[str, Any]:
    series: dict[str, list[dict[str, Any]]] = {}
    for item in items:
        for rule in (item["report"] or {"rules": []})["rules"]:
            series.setdefault(rule["name"], []).append(rule)
    return {"items": list(items), "rules": [_of_rule(name, results) for name, results in series.items()]}


def _of_rule(name: str, results: list[dict[str, Any]]) -> dict[str, Any]:
    """`results` begins with the newest."""
    shares = [100 * one["broken"] / one["of"] for one in results if one.get("of")]
    broken = sum(one["verdict"] == BROKEN for one in results)
    newest = results[0]
    shown = {
        "name": name,
        "kind": newest["kind"],
        "action": newest["action"],
        "imports": len(results),
        "broken": broken,
    }
    if not shares:
        return {**shown, "latest_percent": None, "mean_percent": None, "goes": "unknown"}
    mean = sum(shares) / len(shares)
    return {**shown, "latest_percent": round(shares[0], 3), "mean_percent": round(mean, 3), "goes": _direction(shares)}


def _direction(shares: list[float]) -> str:
    """The newer half against the older."""
    half = len(shares) // 2
    if half == 0:
        return "unknown"
    newer, older = sum(shares[:half]) / half, sum(shares[-half:]) / half
    if abs(newer - older) < STEADY_PERCENT:
        return "steady"
    return "worse" if newer > older else "better"
