"""K19: what other engines wrote into a table is there as they left it, each row once; the table goes on."""

from collections import defaultdict

from checker.dump import Document
from checker.findings import Findings
from checker.foreign.deeds import is_ours
from checker.foreign.rounds import DONE
from checker.model import Model

Rows = dict[int, str]


def check(model: Model) -> Findings:
    found = Findings("K19", "other writers")
    last: dict[str, Rows] = defaultdict(dict)
    for deed in model.dump.foreign:
        _deed(deed, last, found)
    for reader in model.dump.readers:
        for (tenant, table), frame in model.dump.whole(reader).items():
            ours = frame.filter(is_ours()).select("k", "w")
            expected = sorted(last[f"{tenant}/{table}"].items())
            found.that(
                sorted(ours.iter_rows()) == expected,
                f"{reader} reads {ours.height} rows of other engines in {tenant}/{table}, not the {len(expected)} they left",
            )
    return found


def _deed(deed: Document, last: dict[str, Rows], found: Findings) -> None:
    """A deed that was done has its effect; one that failed may have it."""
    what = f"{deed['deed']} of {deed['target']} by {deed['engine']} at {deed['t_wall']:.0f}"
    before, after = _rows(deed["before"]), _rows(deed["after"])
    found.that(before == last[deed["target"]], f"rows of other engines changed before the {what}")
    found.that("unreadable" not in deed, f"cannot be read after the {what}: {deed.get('unreadable')}")
    if "found" not in deed:
        return
    seen = last[deed["target"]] = _rows(deed["found"])
    allowed = (after,) if deed["outcome"] == DONE else (before, after)
    found.that(seen in allowed, f"the {what} left {len(seen)} rows, not {len(after)}")


def _rows(said: Document) -> Rows:
    """JSON knows texts as keys alone."""
    return {int(key): str(named) for key, named in said.items()}
