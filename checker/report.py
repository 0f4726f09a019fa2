"""The report of a run: findings and figures in; a table of checks, the quotas, and the one line of a release out."""

import math
from dataclasses import dataclass

from checker.figures import Figures
from checker.findings import Findings
from checker.nemesis import KILLED

PER_MINUTES = 30.0
KILLS_EACH, IMPORTS, ROWS, SCHEMA_CHANGES = 8, 300, 1_000_000, 20
BROKEN_TABLES, ATTACKS, FOREIGN_WRITES = 5, 10, 60
CONCURRENT_SHARE = 0.30


@dataclass(frozen=True, slots=True)
class Quota:
    """A run without enough load and faults proves nothing, so it is red too."""

    name: str
    wanted: float
    reached: float

    @property
    def is_met(self) -> bool:
        return self.reached >= self.wanted


def quotas(figures: Figures) -> list[Quota]:
    """What is wanted of thirty minutes, in proportion; the share of keys does not depend on the time."""
    share = figures.minutes / PER_MINUTES
    others = FOREIGN_WRITES if figures.has_other_writers else 0
    wanted = [
        Quota(f"kills of the {part} under load", math.ceil(KILLS_EACH * share), figures.kills.get(part, 0))
        for part in KILLED
    ]
    return [
        *wanted,
        Quota("imports", math.ceil(IMPORTS * share), figures.imports),
        Quota("rows", math.ceil(ROWS * share), figures.rows),
        Quota("schema changes", math.ceil(SCHEMA_CHANGES * share), figures.schema_changes),
        Quota("broken tables", math.ceil(BROKEN_TABLES * share), figures.broken_tables),
        Quota("attacks of a client app", math.ceil(ATTACKS * share), figures.attacks),
        Quota(
            "commits of other engines",
            math.ceil(others * share),
            figures.foreign_writes,
        ),
        Quota("share of keys written by concurrent imports", CONCURRENT_SHARE, round(figures.concurrent_share, 3)),
    ]


def report(findings: list[Findings], figures: Figures, mutants: tuple[int, int] | None) -> str:
    lines = [_check_line(found) for found in findings]
    lines += [witness for found in findings for witness in (f"  {found.check}: {text}" for text in found.witnesses)]
    lines += [f"{'ok ' if q.is_met else 'LOW'} {q.name}: {q.reached:,g} of {q.wanted:,g}" for q in quotas(figures)]
    return "\n".join([*lines, release_line(findings, figures, mutants)])


def _check_line(found: Findings) -> str:
    word = "green" if found.is_green else "RED" if found.violations else "EMPTY"
    counts = f"{found.comparisons:>12,} comparisons {found.violations:>8,} violations"
    return f"{found.check:4}{found.promise:16}{word:6}{counts}" + (f"  ({found.note})" if found.note else "")


def release_line(findings: list[Findings], figures: Figures, mutants: tuple[int, int] | None) -> str:
    total = sum(figures.faults.values())
    by_id = " ".join(f"{name}×{times}" for name, times in figures.faults.items())
    bound = f"{min(1.0, 3 / total):.3f}" if total else "none"
    caught = f"{mutants[0]}/{mutants[1]}" if mutants else "not run"
    p50, p99, worst = figures.recovery
    return " · ".join(
        [
            "runs 1",
            f"hours {figures.minutes / 60:.2f}",
            f"rows {figures.rows:,}",
            f"faults {total} ({by_id})",
            "failpoints: see make faults",
            f"info ops {figures.unknown} (unresolved {figures.unresolved})",
            f"{findings[0].check}..{findings[-1].check} violations {sum(found.violations for found in findings)}",
            f"95% bound {bound}",
            f"mutants {caught}",
            f"recovery {p50:.1f}/{p99:.1f}/{worst:.1f} s",
            f"END latency {figures.end_latency[0]:.2f}/{figures.end_latency[1]:.2f} s",
            f"replayed rows {figures.replayed_percent:.1f} %",
            f"longest stall {figures.longest_stall:.1f} s",
        ]
    )


def is_green(findings: list[Findings], figures: Figures, *, with_quotas: bool) -> bool:
    return all(found.is_green for found in findings) and (not with_quotas or all(q.is_met for q in quotas(figures)))
