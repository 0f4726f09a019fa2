"""A tenant's admin applies a folder with the agreement in it: as it is, that changes nothing; changed, it is refused by the
name of the field."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from millrace.cli.main import app
from millrace.client import Millrace
from tests.support.small_server import TOKEN, SmallServer
from tests.support.whole_app import served_app

AGREEMENT = "client: acme\nquotas: {rows_per_day: 1000}\n"
TABLE = "schema: {type: record, name: notes, fields: [{name: id, type: long}]}\n"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[SmallServer]:
    with served_app(tmp_path / "home") as server:
        yield server


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "acme"
    folder.mkdir()
    (folder / "agreement.yaml").write_text(AGREEMENT)
    (folder / "notes.yaml").write_text(TABLE)
    return folder


def apply(server: SmallServer, folder: Path, monkeypatch: pytest.MonkeyPatch, token: str) -> Any:
    monkeypatch.setenv("MILLRACE_URL", server.url)
    monkeypatch.setenv("MILLRACE_TOKEN", token)
    return CliRunner().invoke(app, ["apply", "-f", str(folder)])


def admin_of(server: SmallServer, tenant: str) -> str:
    with Millrace(server.url, TOKEN) as platform:
        return str(platform.tokens.create("boss", tenant=tenant, role="admin")["token"])


def test_an_unchanged_agreement_is_no_obstacle(
    server: SmallServer, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert apply(server, folder, monkeypatch, TOKEN).exit_code == 0
    admin = admin_of(server, "acme")
    (folder / "notes.yaml").write_text(TABLE.replace("{name: id, type: long}", "{name: id, type: long, doc: key}"))
    done = apply(server, folder, monkeypatch, admin)
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith("tenant acme unchanged\ntable acme/notes changed\n")


def test_a_changed_agreement_is_refused_by_the_name_of_its_field(
    server: SmallServer, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert apply(server, folder, monkeypatch, TOKEN).exit_code == 0
    admin = admin_of(server, "acme")
    (folder / "agreement.yaml").write_text(AGREEMENT.replace("1000", "1000000"))
    done = apply(server, folder, monkeypatch, admin)
    assert done.exit_code == 1
    assert (
        "Only an operator changes an agreement. This one changes quotas.rows_per_day: 1000 -> 1000000." in done.stderr
    )
    with Millrace(server.url, TOKEN) as platform:
        assert platform.tenants.show("acme")["agreement"]["quotas"]["rows_per_day"] == 1000


def test_nobody_but_an_operator_declares_a_tenant_or_touches_another(
    server: SmallServer, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert apply(server, folder, monkeypatch, TOKEN).exit_code == 0
    admin = admin_of(server, "acme")
    for name in ("umbrella", "globex"):
        (folder / "agreement.yaml").write_text(f"client: {name}\n")
        done = apply(server, folder, monkeypatch, admin)
        assert done.exit_code == 1
        assert "There is no tenant" in done.stderr
