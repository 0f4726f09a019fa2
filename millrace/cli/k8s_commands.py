"""millrace k8s …: each command's name, arguments and help."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from millrace.cli.lazy import LazyModule

if TYPE_CHECKING:
    from millrace.cli import clusters
else:
    clusters = LazyModule("millrace.cli.clusters")

EVERYWHERE = "With every command: --home FOLDER, --json (for programs), --debug (tracebacks)."
app = typer.Typer(
    help="Client apps on Kubernetes, as the agreements say.",
    no_args_is_help=True,
    epilog=EVERYWHERE,
    rich_markup_mode=None,
)
Files = Annotated[
    list[Path] | None,
    typer.Option("--file", "-f", help="Agreements: files or folders, YAML or JSON.", show_default=False),
]
Everyone = Annotated[bool, typer.Option("--all", help="The agreements of all tenants of the platform; the default.")]
Strict = Annotated[bool, typer.Option("--strict", help="Refuse what can hardly be meant or cannot be done as agreed.")]


@app.command("render", epilog=EVERYWHERE)
def render_command(
    context: typer.Context,
    file: Files = None,
    everyone: Everyone = False,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="A folder: a file for each tenant, and a kustomization.", show_default=False),
    ] = None,
    strict: Strict = False,
) -> None:
    """Print the manifests that the agreements come to.

    Needs no cluster; with -f it needs no platform either."""
    clusters.render(context.obj, clusters.Source(tuple(file or ()), everyone, strict), out)


@app.command("apply", epilog=EVERYWHERE)
def apply_command(
    context: typer.Context,
    file: Files = None,
    everyone: Everyone = False,
    cluster: Annotated[
        str | None, typer.Option("--context", help="Of the kubeconfig. Default: its current one.", show_default=False)
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
    if volumes and not prune:
        raise typer.BadParameter("--volumes needs --prune.")
    options = {"prune": prune, "with_data": volumes, "force": force_conflicts, "dry_run": dry_run}
    source = clusters.Source(tuple(file or ()), everyone, strict)
    raise typer.Exit(clusters.apply_to(context.obj, source, cluster, options))
