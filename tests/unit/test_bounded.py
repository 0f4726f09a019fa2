"""A bounded process has nothing of the platform but its job, and the kernel ends it where its bounds are."""

import os
import signal
import socket
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import orjson
import pytest

from millrace.bounded.child import BoundedChild, Nursery
from millrace.bounded.limits import MIB, CpuBound, bound_process, how_many_fit

HERE = "tests.unit.test_bounded"


# These run in the process.


def tell(link: Connection, job: Any) -> None:
    handles = sorted(int(name) for name in os.listdir("/proc/self/fd"))
    links = [name for number in handles if (name := _link(number)) is not None]
    network = sorted(os.listdir("/sys/class/net")) if job else []
    known = {"environment": dict(os.environ), "links": links, "network": network, "job": job}
    exec_environment = Path("/proc/self/environ").read_bytes().decode()
    link.send_bytes(orjson.dumps({**known, "exec": exec_environment}))


def _link(number: int) -> str | None:
    try:
        return os.readlink(f"/proc/self/fd/{number}")
    except OSError:
        return None


def connect(link: Connection, port: int) -> None:
    try:
        socket.create_connection(("127.0.0.1", port), 2).close()
        link.send_bytes(b"connected")
    except OSError as error:
        link.send_bytes(type(error).__name__.encode())


def take_memory(link: Connection, most: int) -> None:
    bound_process(most)
    try:
        link.send_bytes(b"%d" % len(bytearray(2 * most)))
    except MemoryError:
        link.send_bytes(b"MemoryError")


def write_file(link: Connection, path: str) -> None:
    bound_process(64 * MIB, 1000)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        Path(path).write_bytes(bytes(2000))
        link.send_bytes(b"written")
    except OSError as error:
        link.send_bytes(os.strerror(error.errno or 0).encode())


def compute(link: Connection, job: Any) -> None:
    CpuBound(1, 1).grant(0)
    while True:
        pass


def echo(link: Connection, job: Any) -> None:
    link.send_bytes(link.recv_bytes())


# And these here.


def answer(function: str, job: Any = None) -> bytes:
    child = BoundedChild(f"{HERE}:{function}", job)
    try:
        assert child.link.poll(60)
        return child.link.recv_bytes(MIB)
    finally:
        child.end()


def test_it_has_no_secret_and_no_descriptor_of_the_platform(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MILLRACE_SECRET_ACME_DB", "hush")
    with (tmp_path / "open").open("wb") as file:
        os.set_inheritable(file.fileno(), True)
        told = orjson.loads(answer("tell", {"some": "job"}))
    assert "hush" not in str(told)
    assert not [name for name in told["environment"] if name.startswith("MILLRACE")]
    assert str(tmp_path) not in str(told["links"])
    assert len([name for name in told["links"] if name.startswith("socket:")]) == 1
    assert told["job"] == {"some": "job"}


def test_it_reaches_no_network_where_the_kernel_allows_that() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        said = answer("connect", listening.getsockname()[1])
    namespaces = Path("/proc/sys/user/max_net_namespaces")
    if said == b"connected":
        pytest.skip(f"no network namespaces here: {namespaces.read_text() if namespaces.exists() else ''}")
    assert said in (b"OSError", b"ConnectionRefusedError")


def test_memory_time_and_files_are_bounded(tmp_path: Path) -> None:
    assert answer("take_memory", 64 * MIB) == b"MemoryError"
    assert answer("write_file", str(tmp_path / "file")) == b"File too large"
    child = BoundedChild(f"{HERE}:compute", None)
    with pytest.raises(EOFError):
        child.link.recv_bytes()
    assert child.ended() == -signal.SIGXCPU
    child.end()


def test_a_process_is_killed_when_it_is_no_longer_wanted() -> None:
    child = BoundedChild(f"{HERE}:compute", None)
    child.end()
    # The next one is forked all the same.
    assert orjson.loads(answer("tell"))["job"] is None


def test_a_nursery_that_was_killed_is_started_again() -> None:
    nursery = Nursery()
    try:
        link, told, handle = nursery.fork(f"{HERE}:echo")
        assert nursery._process is not None
        nursery._process.kill()
        nursery._process.wait()
        again, told_again, handle_again = nursery.fork(f"{HERE}:echo")
        again.send_bytes(b"\x80\x04N.")
        again.send_bytes(b"hello")
        assert again.recv_bytes() == b"hello"
        for one in (link, told, again, told_again):
            one.close()
        for number in (handle, handle_again):
            os.close(number)
    finally:
        nursery.close()


def test_as_many_fit_as_the_machine_has_memory_for() -> None:
    assert how_many_fit(1 << 60) == 2
    assert how_many_fit(16 * MIB) > how_many_fit(512 * MIB) > 2
