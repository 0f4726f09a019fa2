"""K19: what other engines wrote into a table is there as they left it, each row once; the table goes on."""

from collections import defaultdict

from checker.dump import Document
from checker.findings import Findings
from checker.foreign.operations import is_ours
from checker.foreign.rounds import DONE
from checker.model import Model

Rows = dict[int, str]


def check(model: Model) -> Findings:
    found = Findings("K19", "other writers")
    last: dict[str, Rows] = defaultdict(dict)
    for operation in model.dump.foreign:
        _operation(operation, last, found)
    for reader in model.dump.readers:
        for (tenant, table), frame in model.dump.whole(reader).items():
            ours = frame.filter(is_ours()).select("k", "w")
            expected = sorted(last[f"{tenant}/{table}"].items())
            found.that(
                sorted(ours.iter_rows()) == expected,
                f"{reader} reads {ours.height} rows of other engines in {tenant}/{table}, not the {len(expected)} they left",
            )
    return found


def _operation(operation: Document, last: dict[str, Rows], found: Findings) -> None:
    """An operation that was done has its effect; one that failed may have it."""
    what = f"{operation['operation']} of {operation['target']} by {operation['engine']} at {operation['t_wall']:.0f}"
    before, after = _rows(operation["before"]), _rows(operation["after"])
    found.that(before == last[operation["target"]], f"rows of other engines changed before the {what}")
    found.that("unreadable" not in operation, f"cannot be read after the {what}: {operation.get('unreadable')}")
    if "found" not in operation:
        return
    seen = last[operation["target"]] = _rows(operation["found"])
    allowed = (after,) if operation["outcome"] == DONE else (before, after)
    found.that(seen in allowed, f"the {what} left {len(seen)} rows, not {len(after)}")


def _rows(said: Document) -> Rows:
    """JSON knows texts as keys alone."""
    return {int(key): str(named) for key, named in said.items()}
