"""Runs the benches named, or all of a group, one after the other; exits 1 if a figure misses its target.

`python -m bench [NAME…]` is the core's group; `python -m bench log [NAME…]` the table log's, `tenants` the tenants',
`sinks` the sinks'. The figures of benches that were named take the place of their last ones in the group's report."""

import json
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench import (
    change_feed,
    demo,
    durability,
    end_to_end,
    formats,
    growth,
    log_ops,
    log_streaming,
    memory_5gb,
    million_rejects,
    mouse_behind_whale,
    partitions,
    sinks_cassandra,
    sinks_dead,
    sinks_pairs,
    sinks_postgres,
    sinks_workers,
    small_idle,
    tenants_broken_table,
    tenants_encrypted,
    tenants_fair,
    tenants_followers,
    tenants_hostile,
    tenants_k8s,
    tenants_many,
    tenants_noisy,
    tenants_stall,
    tenants_stream,
    thousand_tables,
    up,
    update_50k,
    update_all,
)
from bench.figure import Figure, failed
from bench.platform import BUILD
from millrace.cli.printing import print_table

Benches = dict[str, Callable[[], list[Figure]]]
CORE: Benches = {
    "up": up.run,
    "small_idle": small_idle.run,
    "end_to_end": end_to_end.run,
    "update_all": update_all.run,
    "update_50k": update_50k.run,
    "mouse_behind_whale": mouse_behind_whale.run,
    "partitions": partitions.run,
    "thousand_tables": thousand_tables.run,
    "million_rejects": million_rejects.run,
    "formats": formats.run,
    "memory_5gb": memory_5gb.run,
    "growth": growth.run,
    "durability": durability.run,
    "change_feed": change_feed.run,
    "demo": demo.run,
}
LOG: Benches = {"ops": log_ops.run, "streaming": log_streaming.run}
TENANTS: Benches = {
    "k8s": tenants_k8s.run,
    "stream": tenants_stream.run,
    "fair": tenants_fair.run,
    "many": tenants_many.run,
    "encrypted": tenants_encrypted.run,
    "hostile": tenants_hostile.run,
    "broken_table": tenants_broken_table.run,
    "followers": tenants_followers.run,
    "noisy": tenants_noisy.run,
    "stall": tenants_stall.run,
}
SINKS: Benches = {
    "postgres": sinks_postgres.run,
    "cassandra": sinks_cassandra.run,
    "pairs": sinks_pairs.run,
    "dead": sinks_dead.run,
    "workers": sinks_workers.run,
}
GROUPS = {
    "log": (LOG, "bench-log.json"),
    "tenants": (TENANTS, "bench-tenants.json"),
    "sinks": (SINKS, "bench-sinks.json"),
}


def main(words: list[str]) -> int:
    in_group = bool(words) and words[0] in GROUPS
    benches, report = GROUPS[words[0]] if in_group else (CORE, "bench.json")
    names = words[1:] if in_group else words
    unknown = [name for name in names if name not in benches]
    if unknown:
        print(f"There is no bench {unknown[0]!r}; there are {', '.join(benches)}.", file=sys.stderr)
        return 2
    figures: list[Figure] = []
    BUILD.mkdir(exist_ok=True)
    reported = _reported(BUILD / report) if names else {}
    for name in names or benches:
        print(f"{name} …", file=sys.stderr, flush=True)
        measured = _figures(name, benches[name])
        figures += measured
        reported[name] = [{"bench": name, **figure.as_json()} for figure in measured]
        in_order = [entry for bench in benches for entry in reported.get(bench, ())]
        (BUILD / report).write_text(json.dumps(in_order, indent=2) + "\n")
    rows = [(f.name, f.value, f.unit, f.target, "yes" if f.ok else "NO", f.note) for f in figures]
    print_table(("figure", "value", "unit", "target", "met", "note"), rows)
    return 0 if all(figure.ok for figure in figures) else 1


def _reported(path: Path) -> dict[str, list[dict[str, Any]]]:
    """By bench, what the last runs have found."""
    found: dict[str, list[dict[str, Any]]] = {}
    for entry in json.loads(path.read_text()) if path.exists() else ():
        found.setdefault(entry.get("bench", ""), []).append(entry)
    return found


def _figures(name: str, bench: Callable[[], list[Figure]]) -> list[Figure]:
    """What went wrong in one bench must not cost the figures of the others."""
    try:
        return bench()
    except Exception as error:
        traceback.print_exc()
        return [failed(name, str(error))]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
