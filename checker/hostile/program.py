"""The client app of a hostile tenant: what to try in, as JSON in its first argument; a line of JSON for each attack out, with
what it reached of others. Runs inside the confinement, so it uses only the standard library."""

import json
import os
import signal
import socket
import stat
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

Plan = dict[str, Any]
Attack = Callable[[Path, Plan], list[str]]
MEGABYTE = b"x" * (1 << 20)
LEVELS, FORKS, SPARSE_BYTES = 24, 400, 12 << 20
DEEP_NAME = "." + "d" * 250
TABLE = "out/readings"


def main() -> None:
    plan: Plan = json.loads(sys.argv[1])
    own = Path(os.environ["SOURCE_PATH"]) / os.environ["CLIENT_ID"]
    begun, number = time.monotonic(), 0
    while True:
        # What it left when it was ended must not count again.
        clear(own)
        for name, attack in ATTACKS.items():
            if name == "fill" and time.monotonic() - begun < plan["seconds"]:
                continue
            number += 1
            with suppress(OSError):
                provide(own, number)
            print(json.dumps({"attack": name, "reached": attempted(attack, own, plan)}), flush=True)
            time.sleep(0.3)


def attempted(attack: Attack, own: Path, plan: Plan) -> list[str]:
    try:
        return attack(own, plan)
    except OSError:
        return []


def provide(own: Path, number: int) -> None:
    """A file that may be imported, among everything else."""
    table = own / TABLE
    table.mkdir(exist_ok=True)
    if number % 5 == 1:
        (table / f".{number}").write_text(f"k,w\n{number},own\n")
        (table / f".{number}").rename(table / f"{number}.csv")


def clear(own: Path) -> None:
    for folder in ("in", "out", "log"):
        for path in (own / folder).iterdir():
            with suppress(OSError):
                remove(path)


def remove(path: Path) -> None:
    if stat.S_ISDIR(path.lstat().st_mode):
        for inner in path.iterdir():
            remove(inner)
        path.rmdir()
    else:
        path.unlink()


def links(own: Path, plan: Plan) -> list[str]:
    """In every place where the platform looks: a table's folder, files, inputs, logs."""
    reached = []
    for number, target in enumerate((*plan["secret"], *plan["elsewhere"])):
        for place in (f"{TABLE}/{number}.csv", f"out/{number}.csv", f"in/{number}.csv", f"log/{number}.log"):
            with suppress(OSError):
                (own / place).symlink_to(target)
                if target in plan["secret"]:
                    reached += opened(own / place)
    with suppress(OSError):
        (own / TABLE).rename(own / "out" / ".aside")
    for target in plan["elsewhere"]:
        with suppress(OSError):
            (own / TABLE).symlink_to(target)
            time.sleep(0.05)
            (own / TABLE).unlink()
    return reached


def look(own: Path, plan: Plan) -> list[str]:
    reached = [said for path in plan["secret"] for said in opened(Path(path))]
    for path in plan["secret"]:
        with suppress(OSError):
            Path(path).write_text("hostile")
            reached.append(f"write {path}")
    return reached


def opened(path: Path) -> list[str]:
    with suppress(OSError):
        os.listdir(path) if path.is_dir() else path.read_bytes()
        return [f"{path} -> {os.path.realpath(path)}"] if path.exists() else []
    return []


def network(own: Path, plan: Plan) -> list[str]:
    reached = []
    for host, port in plan["ports"]:
        with suppress(OSError), socket.create_connection((host, port), 1):
            reached.append(f"connect {host}:{port}")
    return reached


def odd_files(own: Path, plan: Plan) -> list[str]:
    for number, place in enumerate((TABLE, "out", "in", "log")):
        with suppress(OSError):
            os.mkfifo(own / place / f"fifo{number}.csv")
        with suppress(OSError), socket.socket(socket.AF_UNIX) as unix:
            unix.bind(str(own / place / f"socket{number}.csv"))
        with suppress(OSError):
            (own / place / f"folder{number}.csv").mkdir()
    return []


def deep(own: Path, plan: Plan) -> list[str]:
    """Deeper than a path can say."""
    here = os.open(own / "out", os.O_RDONLY)
    for _ in range(LEVELS):
        with suppress(FileExistsError):
            os.mkdir(DEEP_NAME, dir_fd=here)
        below = os.open(DEEP_NAME, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    return []


def sparse(own: Path, plan: Plan) -> list[str]:
    """Large without using the disk; one is finished like any file, one is far larger than allowed."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    for name, size in (("large", SPARSE_BYTES), ("huge", 1 << 50)):
        with suppress(OSError):
            with (own / TABLE / f".{name}").open("wb") as file:
                os.ftruncate(file.fileno(), size)
            (own / TABLE / f".{name}").rename(own / TABLE / f"{name}.csv")
    return []


def forks(own: Path, plan: Plan) -> list[str]:
    children = []
    with suppress(OSError):
        for _ in range(FORKS):
            child = os.fork()
            if child == 0:
                time.sleep(30)
                os._exit(0)
            children.append(child)
    for child in children:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    return ["more processes than allowed"] if len(children) == FORKS else []


def signals(own: Path, plan: Plan) -> list[str]:
    reached = []
    for process in plan["processes"]:
        with suppress(OSError):
            os.kill(process, signal.SIGKILL)
            reached.append(f"kill {process}")
    return reached


def names(own: Path, plan: Plan) -> list[str]:
    """Its own folders cannot be replaced from inside."""
    reached = []
    for name in ("in", "out", "log"):
        with suppress(OSError):
            (own / name).rename(own / f"{name}.aside")
            (own / name).symlink_to(plan["elsewhere"][0])
            reached.append(f"replaced {name}")
    return reached


def fill(own: Path, plan: Plan) -> list[str]:
    """It is ended while it does this."""
    for number in range(plan["fill_mb"]):
        with (own / "out" / f".fill{number // 16}").open("ab") as file:
            file.write(MEGABYTE)
    time.sleep(10)
    return ["more disk than allowed"]


ATTACKS: dict[str, Attack] = {
    "links": links, "look": look, "network": network, "odd files": odd_files, "deep": deep, "sparse": sparse,
    "forks": forks, "signals": signals, "names": names, "fill": fill,
}  # fmt: skip

if __name__ == "__main__":
    main()
