"""Agreements from files or from the platform in, Kubernetes manifests out."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from millrace.cli.declarations import read_declarations
from millrace.cli.printing import printable
from millrace.cli.session import CommandSession
from millrace.k8s.render import Rendered, render_all, stopped
from millrace.k8s.yaml_text import to_yaml
from millrace.model.agreement import Agreement, parse_agreement
from millrace.model.documents import refuse_warnings
from millrace.model.errors import Invalid
from millrace.settings import Settings

KUSTOMIZATION = "kustomization.yaml"


def rendered(session: CommandSession, files: list[Path] | None, everyone: bool, strict: bool) -> list[Rendered]:
    """What the agreements in the files come to, else those of the platform."""
    if files and everyone:
        raise typer.BadParameter("-f names agreements, --all takes every one: give only one of them.")
    tenants = render_all(_agreements(session, files, strict), Settings().k8s)
    for tenant in tenants:
        for note in tenant.notes:
            if strict:
                raise Invalid(f"{tenant.names.tenant}: {note}.", remedy="Change the agreement, or leave out --strict.")
            print(f"{tenant.names.tenant}: {note}", file=sys.stderr)
    return tenants


def _agreements(session: CommandSession, files: list[Path] | None, strict: bool) -> Iterator[Agreement]:
    for document, leaving in _documents(session, files):
        agreement, warnings = parse_agreement(document)
        if strict:
            refuse_warnings(warnings)
        for warning in warnings:
            print(printable(f"{agreement.tenant}: {warning}"), file=sys.stderr)
        yield stopped(agreement) if leaving else agreement


def _documents(session: CommandSession, files: list[Path] | None) -> Iterator[tuple[dict[str, Any], bool]]:
    """Each agreement, and whether its tenant is leaving."""
    if files:
        found = [each for each in read_declarations(files) if each.table is None]
        if not found:
            raise Invalid("There is no agreement in what -f names.", remedy="An agreement has `client`.")
        yield from ((each.document, False) for each in found)
        return
    for tenant in session.platform.tenants.list():
        agreement = session.platform.tenants.show(tenant["name"])["agreement"]
        yield {"client": tenant["name"], **agreement}, "deleted_at" in tenant


def write_manifests(tenants: list[Rendered], folder: Path) -> int:
    """A file for each tenant, and a kustomization that lists them; how many tenants."""
    folder.mkdir(parents=True, exist_ok=True)
    files = {f"{each.names.namespace}.yaml": to_yaml(each.manifests) for each in tenants if each.manifests}
    for name, text in files.items():
        (folder / name).write_text(text)
    listed = {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization", "resources": sorted(files)}
    (folder / KUSTOMIZATION).write_text(to_yaml([listed]))
    return len(files)
