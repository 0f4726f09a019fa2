"""The commands `k8s render` and `k8s apply`: agreements from files or from the platform in, manifests or outcomes out."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from millrace.cli.declarations import read_declarations
from millrace.cli.printing import print_json, printable
from millrace.cli.session import EXIT_FAILED, Session
from millrace.client import Millrace
from millrace.k8s.access import find_access
from millrace.k8s.apply import Orders, Outcome, apply
from millrace.k8s.cluster import Cluster
from millrace.k8s.names import cell_selector
from millrace.k8s.render import Rendered, render_all, stopped
from millrace.k8s.yaml_text import to_yaml
from millrace.model.agreement import Agreement, parse_agreement
from millrace.model.documents import refuse_doubts
from millrace.model.errors import Invalid
from millrace.settings import Settings

KUSTOMIZATION = "kustomization.yaml"


@dataclass(frozen=True, slots=True)
class Source:
    """Where agreements come from: files, else the platform."""

    files: tuple[Path, ...]
    everyone: bool
    strict: bool

    def __post_init__(self) -> None:
        if self.files and self.everyone:
            raise typer.BadParameter("-f names agreements, --all takes every one: give only one of them.")


def render(session: Session, source: Source, out: Path | None) -> None:
    tenants = _rendered(session, source)
    if out is not None:
        _write(tenants, out)
        print(f"{sum(1 for one in tenants if one.manifests)} tenants written to {out}", file=sys.stderr)
    elif session.json:
        for tenant in tenants:
            for manifest in tenant.manifests:
                print_json(manifest)
    else:
        sys.stdout.write(to_yaml(manifest for tenant in tenants for manifest in tenant.manifests))


def apply_to(session: Session, source: Source, context: str | None, options: dict[str, bool]) -> int:
    settings = Settings()
    tenants = _rendered(session, source)
    orders = Orders(everyone=not source.files, **options)
    if orders.prune and not tenants:
        # More likely the wrong platform than one that has lost all of its tenants.
        raise Invalid(
            "The platform has no tenants: pruning would remove every client app of the cluster.",
            remedy=f"See which platform is asked; else: kubectl delete namespace -l {cell_selector(settings.k8s.cell)}",
        )
    failed = False
    with Cluster(find_access(context), dry_run=orders.dry_run) as cluster:
        for outcome in apply(cluster, tenants, settings.k8s.cell, orders):
            failed |= outcome.what in ("refused", "skipped")
            _say(session, outcome, orders.dry_run)
    return EXIT_FAILED if failed else 0


def _rendered(session: Session, source: Source) -> list[Rendered]:
    tenants = render_all(_agreements(session, source), Settings().k8s)
    for tenant in tenants:
        for note in tenant.notes:
            if source.strict:
                raise Invalid(f"{tenant.names.tenant}: {note}.", remedy="Change the agreement, or leave out --strict.")
            print(f"{tenant.names.tenant}: {note}", file=sys.stderr)
    return tenants


def _agreements(session: Session, source: Source) -> Iterator[Agreement]:
    for document, leaving in _documents(session, source):
        agreement, doubts = parse_agreement(document)
        if source.strict:
            refuse_doubts(doubts)
        for doubt in doubts:
            print(printable(f"{agreement.tenant}: {doubt}"), file=sys.stderr)
        yield stopped(agreement) if leaving else agreement


def _documents(session: Session, source: Source) -> Iterator[tuple[dict[str, Any], bool]]:
    """Each agreement, and whether its tenant is leaving."""
    if source.files:
        found = [one for one in read_declarations(list(source.files)) if one.table is None]
        if not found:
            raise Invalid("There is no agreement in what -f names.", remedy="An agreement has `client`.")
        yield from ((one.document, False) for one in found)
        return
    with Millrace.from_home(session.home) as connection:
        for tenant in connection.tenants.list():
            agreement = connection.tenants.show(tenant["name"])["agreement"]
            yield {"client": tenant["name"], **agreement}, "deleted_at" in tenant


def _write(tenants: list[Rendered], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    files = {f"{one.names.namespace}.yaml": to_yaml(one.manifests) for one in tenants if one.manifests}
    for name, text in files.items():
        (folder / name).write_text(text)
    listed = {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization", "resources": sorted(files)}
    (folder / KUSTOMIZATION).write_text(to_yaml([listed]))


def _say(session: Session, outcome: Outcome, dry_run: bool) -> None:
    if session.json:
        told = {"tenant": outcome.tenant, "kind": outcome.key.kind, "namespace": outcome.key.namespace}
        told |= {"name": outcome.key.name, "outcome": outcome.what, "reason": outcome.reason, "remedy": outcome.remedy}
        print_json({**told, "dry_run": dry_run})
        return
    why = f": {outcome.reason}" if outcome.reason else ""
    print(printable(f"{outcome.key} {outcome.what}{' (dry run)' if dry_run else ''}{why} {outcome.remedy}".rstrip()))
