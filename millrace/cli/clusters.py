"""The group `k8s`: client apps on Kubernetes. What renders and applies is imported on use; it takes long."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from millrace.cli.printing import answer, print_json, printable
from millrace.cli.session import EXIT_FAILED, CommandSession
from millrace.model.errors import Invalid

if TYPE_CHECKING:
    from millrace.k8s.apply import Outcome

Files = Annotated[list[Path] | None, typer.Option("--file", "-f", help="Agreements: files or folders, YAML or JSON.")]
Everyone = Annotated[bool, typer.Option("--all", help="The agreements of all tenants of the platform; the default.")]
Strict = Annotated[bool, typer.Option("--strict", help="Refuse what can hardly be meant or cannot be done as agreed.")]
app = typer.Typer(help="Client apps on Kubernetes, as the agreements say.")


@app.command("render")
def render(
    session: CommandSession,
    file: Files = None,
    everyone: Everyone = False,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="A folder: a file for each tenant, and a kustomization.")
    ] = None,
    strict: Strict = False,
) -> None:
    """Print the manifests that the agreements come to.

    Needs no cluster; with -f it needs no platform either."""
    from millrace.cli.manifests import rendered, write_manifests  # noqa: PLC0415
    from millrace.k8s.yaml_text import to_yaml  # noqa: PLC0415

    tenants = rendered(session, file, everyone, strict)
    manifests = (manifest for tenant in tenants for manifest in tenant.manifests)
    if out is not None:
        print(f"{write_manifests(tenants, out)} tenants written to {out}", file=sys.stderr)
    elif session.json:
        for manifest in manifests:
            print_json(manifest)
    else:
        sys.stdout.write(to_yaml(manifests))


@app.command("apply")
def apply_command(
    session: CommandSession,
    file: Files = None,
    everyone: Everyone = False,
    cluster: Annotated[
        str | None, typer.Option("--context", help="Of the kubeconfig. Default: its current one.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Let the cluster judge it all, and change nothing.")
    ] = False,
    prune: Annotated[
        bool, typer.Option("--prune", help="Remove what no agreement asks for; with -f only of the tenants named.")
    ] = False,
    volumes: Annotated[
        bool, typer.Option("--volumes", help="With --prune: also volumes and namespaces, and so the files in them.")
    ] = False,
    force_conflicts: Annotated[
        bool, typer.Option("--force-conflicts", help="Take over fields that others have set.")
    ] = False,
    strict: Strict = False,
) -> None:
    """Make the cluster run the client apps as agreed.

    By server-side apply: what others have set is not overwritten unless you say so."""
    from millrace.cli.manifests import rendered  # noqa: PLC0415
    from millrace.k8s.access import find_access  # noqa: PLC0415
    from millrace.k8s.apply import Orders, apply  # noqa: PLC0415
    from millrace.k8s.cluster import KubernetesCluster  # noqa: PLC0415
    from millrace.k8s.names import cell_selector  # noqa: PLC0415
    from millrace.settings import Settings  # noqa: PLC0415

    if volumes and not prune:
        raise typer.BadParameter("--volumes needs --prune.")
    cell = Settings().k8s.cell
    tenants = rendered(session, file, everyone, strict)
    if prune and not tenants:
        # More likely the wrong platform than one that has lost all of its tenants.
        raise Invalid(
            "The platform has no tenants: pruning would remove every client app of the cluster.",
            remedy=f"See which platform is asked; else: kubectl delete namespace -l {cell_selector(cell)}",
        )
    orders = Orders(everyone=not file, prune=prune, with_data=volumes, force=force_conflicts, dry_run=dry_run)
    failed = False
    with KubernetesCluster(find_access(cluster), dry_run=dry_run) as connected:
        for outcome in apply(connected, tenants, cell, orders):
            failed |= outcome.what in ("refused", "skipped")
            _report(session, outcome, dry_run)
    raise typer.Exit(EXIT_FAILED if failed else 0)


def _report(session: CommandSession, outcome: "Outcome", dry_run: bool) -> None:
    key = outcome.key
    document = {"tenant": outcome.tenant, "kind": key.kind, "namespace": key.namespace, "name": key.name}
    document |= {"outcome": outcome.what, "reason": outcome.reason, "remedy": outcome.remedy}
    why = f": {outcome.reason}" if outcome.reason else ""
    line = f"{key} {outcome.what}{' (dry run)' if dry_run else ''}{why} {outcome.remedy}".rstrip()
    answer(session, {**document, "dry_run": dry_run}, printable(line))
