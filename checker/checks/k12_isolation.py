"""K12: no canary of a tenant is anywhere in another's place: tables, rejected rows, topics, answers, logs."""

import json

import polars as pl

from checker.findings import Findings
from checker.model import Model
from checker.oplog import EVENTS, RAW_INPUT, TABLE_OPS


def check(model: Model) -> Findings:
    found = Findings("K12", "isolation")
    _tables(model, found)
    _rejected(model, found)
    _topics(model, found)
    _answers(model, found)
    return found


def _tables(model: Model, found: Findings) -> None:
    for reader in model.dump.readers:
        stored = model.stored(reader)
        owners = stored.with_columns(pl.col("canary").replace_strict(model.dump.canaries, default=None).alias("owner"))
        foreign = owners.filter(pl.col("owner").is_not_null() & (pl.col("owner") != pl.col("tenant")))
        found.none_of(foreign.select("tenant", "table", "w"), stored.height, "another tenant's row")


def _rejected(model: Model, found: Findings) -> None:
    kept = model.dump.rejected
    for canary, owner in model.dump.canaries.items():
        others = kept.filter(pl.col("tenant") != owner)
        foreign = others.filter(pl.col("raw").bin.contains(canary.encode()))
        found.none_of(foreign.select("tenant", "table", "import", "row"), others.height, f"a rejected row of {owner}")


def _topics(model: Model, found: Findings) -> None:
    """A record belongs to the tenant of its import, its op or its key; only its own canary may be in it."""
    owners = {imported.id: imported.tenant for imported in model.imports.values()}
    records = model.dump.records.filter(pl.col("reader") == "tail")
    found.comparisons += records.height
    for topic, key, text, seen in (
        records.filter(pl.col("seen").list.len() > 0).select("topic", "key", "text", "seen").iter_rows()
    ):
        owner = _owner(topic, key, text, owners)
        foreign = [tenant for tenant in seen if tenant != owner]
        found.that(not foreign, f"canaries of {foreign} in a record of {owner} on {topic}")


def _owner(topic: str, key: str, text: str, owners: dict[str, str]) -> str | None:
    if topic.endswith(RAW_INPUT):
        return owners.get(json.loads(text).get("import_id", ""))
    if topic.endswith(TABLE_OPS):
        return str(json.loads(text)["tenant"])
    return key if topic.endswith(EVENTS) else key.partition("/")[0]


def _answers(model: Model, found: Findings) -> None:
    """What a tenant's token was shown; and what stands in logs, which belong to nobody."""
    for line in model.dump.history:
        shown = line.get("seen")
        if shown is not None and line.get("tenant"):
            foreign = [tenant for tenant in shown if tenant != line["tenant"]]
            found.that(not foreign, f"an answer to {line['tenant']} ({line['f']}) shows {foreign}")
    for sighting in model.dump.sightings:
        foreign = [tenant for tenant in sighting["seen"] if tenant != sighting["tenant"]]
        found.that(not foreign, f"canaries of {foreign} in {sighting['place']}")
