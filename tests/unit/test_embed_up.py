"""`millrace up` without its children: where it says that it is, and where its server listens."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from millrace.embed import up
from millrace.embed.ports import free_ports
from millrace.embed.process import Child, Launch

started: list[Child] = []


class NoSupervisor:
    def __init__(self, children: list[Child], *_: object) -> None:
        started[:] = children

    def run(self, ready: Callable[[], None]) -> None:
        ready()


@pytest.fixture(autouse=True)
def nothing_starts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    # Put back afterwards: `run_up` sets it for its children.
    monkeypatch.setenv("MILLRACE_HOME", str(tmp_path))
    monkeypatch.setenv("MILLRACE_KAFKA__BOOTSTRAP_SERVERS", "elsewhere:9092")
    monkeypatch.setattr(up, "Supervisor", NoSupervisor)
    monkeypatch.setattr(up, "jar_folder", lambda name: tmp_path)
    monkeypatch.setattr(up, "find_java", lambda: SimpleNamespace(home=tmp_path))


@pytest.mark.parametrize(("host", "written"), [("::1", "[::1]"), ("127.0.0.1", "127.0.0.1")])
def test_an_address_of_either_kind_is_said_as_a_url(
    host: str, written: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (port,) = free_ports(1)
    up.run_up(tmp_path, port, host)
    url = f"http://{written}:{port}"
    assert capsys.readouterr().out == f"ready {url}\n"
    assert json.loads((tmp_path / "client.json").read_text())["url"] == url
    (server,) = [child.launch for child in started if child.name == "server"]
    assert server.argv[-2:] == (host, str(port))


def test_with_a_certificate_the_server_and_the_home_s_clients_speak_tls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("MILLRACE_API__TLS_CERT", "MILLRACE_API__TLS_KEY"):
        # Put back afterwards: `run_up` sets them for its children.
        monkeypatch.setenv(name, "")
    (port,) = free_ports(1)
    up.run_up(tmp_path, port, None, Path("server.crt"), Path("server.key"))
    written = json.loads((tmp_path / "client.json").read_text())
    assert written["url"] == f"https://127.0.0.1:{port}"
    assert written["certificate"] == os.environ["MILLRACE_API__TLS_CERT"] == str(Path("server.crt").absolute())
    assert os.environ["MILLRACE_API__TLS_KEY"] == str(Path("server.key").absolute())
    (server,) = [child.launch for child in started if child.name == "server"]
    assert server.argv[-2:] == ("127.0.0.1", str(port))


def test_the_embedded_broker_gives_its_passwords_to_those_who_speak_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not to the managers, which start the tenants' programs."""
    monkeypatch.delenv("MILLRACE_KAFKA__BOOTSTRAP_SERVERS")
    kafka = SimpleNamespace(child=Child(Launch("kafka", (), tmp_path)), bootstrap_servers="127.0.0.1:9")
    monkeypatch.setattr(up, "prepare_broker", lambda *_, **__: kafka)
    up.run_up(tmp_path, 0)
    told = {child.name: child.launch.env.get("MILLRACE_KAFKA__PASSWORDS") for child in started}
    folder = str(tmp_path / "kafka-passwords")
    assert told == {"kafka": None, "data-plane": folder, "server": folder, "managers": None}


def test_an_external_cluster_has_the_operators_settings_alone(tmp_path: Path) -> None:
    up.run_up(tmp_path, 0)
    assert [child.name for child in started if "MILLRACE_KAFKA__PASSWORDS" in child.launch.env] == []
