"""`millrace up` without its children: where it says that it is, and where its server listens."""

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from millrace.embed import up
from millrace.embed.ports import free_ports
from millrace.embed.process import Child, Launch
from millrace.embed.supervisor import Event, Happening

started: list[Child] = []


class NoSupervisor:
    def __init__(self, children: list[Child], _policy: object, tell: Callable[[Event], None]) -> None:
        started[:] = children
        self._tell = tell

    def run(self, ready: Callable[[], None]) -> None:
        for what in (Happening.STARTED, Happening.READY):
            self._tell(Event("server", what))
        ready()
        for what in (Happening.DIED, Happening.STOPPING, Happening.STOPPED):
            self._tell(Event("server", what, exit_code=-9, retry_seconds=0.2))


@pytest.fixture(autouse=True)
def nothing_starts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    # Put back afterwards: `run_up` sets it for its children.
    monkeypatch.setenv("MILLRACE_HOME", str(tmp_path))
    monkeypatch.setenv("MILLRACE_KAFKA__BOOTSTRAP_SERVERS", "elsewhere:9092")
    monkeypatch.setattr(up, "Supervisor", NoSupervisor)
    monkeypatch.setattr(up, "jar_folder", lambda name: tmp_path)
    monkeypatch.setattr(up, "find_java", lambda: SimpleNamespace(home=tmp_path))


def test_each_step_of_starting_and_stopping_is_a_line_with_its_seconds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    up.run_up(tmp_path, 0)
    said = capsys.readouterr()
    assert re.sub(r"\d+\.\d s", "0.1 s", said.err).splitlines() == [
        "data-plane: preparing Spark's jars",
        "server: starting",
        "server: ready after 0.1 s",
        "everything is ready after 0.1 s",
        "server died (code -9); starting it again in 0.1 s",
        "server: stopping",
        "server: stopped after 0.1 s",
    ]
    assert len(said.out.splitlines()) == 1, "scripts wait for `ready URL`"


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
