"""K3: a key is there once; without a key each row of each import is there once; a rejected row is kept once."""

import polars as pl

from checker.findings import Findings
from checker.model import TABLE, Model


def check(model: Model) -> Findings:
    found = Findings("K3", "duplicate")
    keyless = pl.DataFrame(
        model.dump.run.get("keyless", []), schema={"tenant": pl.String, "table": pl.String}, orient="row"
    )
    for reader in model.dump.readers:
        stored = model.stored(reader)
        keyed = stored.join(keyless, on=TABLE, how="anti")
        _once(keyed, [*TABLE, "k"], found, "a key twice")
        _once(stored, [*TABLE, "_import", "_row"], found, "a row twice")
        _once(stored, ["w"], found, "a sent row twice")
    _once(model.dump.rejected, ["import", "row"], found, "a rejected row twice")
    snapshots = {each["snapshot"]: (each["tenant"], each["table"]) for each in model.dump.snapshots}
    of_keyed = [number for number, place in snapshots.items() if list(place) not in model.dump.run.get("keyless", [])]
    seen = model.dump.seen_rows.filter(pl.col("snapshot").is_in(of_keyed))
    _once(seen, ["snapshot", "k"], found, "a key twice in a reading during the run")
    return found


def _once(frame: pl.DataFrame, identity: list[str], found: Findings, what: str) -> None:
    twice = frame.group_by(identity).len().filter(pl.col("len") > 1)
    found.none_of(twice, frame.height, what)
