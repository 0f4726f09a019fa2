"""A client app that tries everything it must not: what to try in, as JSON in its first argument; what came of each out, as
JSON on standard output. Runs inside the confinement, so it stands alone."""

import ctypes
import errno
import json
import mmap
import os
import signal
import socket
import sys
import time

LIBC = ctypes.CDLL(None, use_errno=True)
NEW_USER, NEW_MOUNTS, PR_SET_DUMPABLE = 0x10000000, 0x00020000, 4
SYSTEM_CALLS = {
    "x86_64": {"keyctl": 250, "add_key": 248, "bpf": 321, "mount": 165, "pivot_root": 155, "ptrace": 101, "unshare": 272,
               "setns": 308, "perf_event_open": 298, "userfaultfd": 323, "open_by_handle_at": 304, "init_module": 175,
               "reboot": 169, "process_vm_readv": 310, "io_uring_setup": 425, "clone3": 435, "open_tree": 428,
               "memfd_create": 319, "shmget": 29, "kexec_load": 246, "chroot": 161, "clone": 56, "prlimit64": 302,
               "newer": 600},
    "aarch64": {"keyctl": 219, "add_key": 217, "bpf": 280, "mount": 40, "pivot_root": 41, "ptrace": 117, "unshare": 97,
                "setns": 268, "perf_event_open": 241, "userfaultfd": 282, "open_by_handle_at": 265, "init_module": 105,
                "reboot": 142, "process_vm_readv": 270, "io_uring_setup": 425, "clone3": 435, "open_tree": 428,
                "memfd_create": 279, "shmget": 194, "kexec_load": 104, "chroot": 51, "clone": 220, "prlimit64": 261,
                "newer": 600},
}  # fmt: skip
MEGABYTE = b"x" * (1 << 20)


def main():
    plan = json.loads(sys.argv[1])
    attacks = {"look": look, "forks": forks, "memory": memory, "shared_memory": shared_memory, "disk": disk,
             "hidden_disk": hidden_disk, "scratch": scratch, "large_file": large_file, "wait": wait,
             "sockets": sockets, "taken_disk": taken_disk, "refused": refused}  # fmt: skip
    print(json.dumps(attacks[plan["attack"]](plan)), flush=True)


def tried(attack, *given):
    """What it gave, or the name of its error."""
    try:
        return attack(*given)
    except OSError as failed:
        return errno.errorcode.get(failed.errno, str(failed))


def look(plan):
    found = {f"read {path}": tried(read, path) for path in plan["read"]}
    found |= {f"list {path}": tried(os.listdir, path) for path in plan["list"]}
    found |= {f"write {path}": tried(write, path) for path in plan["write"]}
    found |= {f"connect {port}": tried(connect, port) for port in plan["ports"]}
    found |= {f"socket {family}": tried(own_socket, family) for family in (17, 38, 40)}
    found |= {f"kill {process}": tried(os.kill, process, signal.SIGKILL) for process in plan["processes"]}
    found |= {f"call {name}": call(name) for name in SYSTEM_CALLS[os.uname().machine]}
    found["setuid 0"] = tried(os.setuid, 0)
    found["device"] = tried(os.mknod, "/tmp/device", 0o600 | 0o020000, os.makedev(1, 3))
    with open("/proc/self/status") as lines:
        found["status"] = [line.split() for line in lines if line.startswith(("Cap", "Seccomp:", "NoNew"))]
    found["processes"] = sorted(int(name) for name in os.listdir("/proc") if name.isdigit())
    found["environ"] = sorted(os.environ)
    found["root"] = sorted(os.listdir("/"))
    found["programs"] = sorted(os.listdir("/programs"))
    found["users"] = [os.getuid(), os.geteuid()]
    own = f"{os.environ['SOURCE_PATH']}/{os.environ['CLIENT_ID']}"
    found["own"] = [sorted(os.listdir(own)), *(tried(write, f"{own}/{name}/.mine") for name in ("in", "out", "log"))]
    return found


def wait(plan):
    """Until it is told to go on, by a file; then it looks."""
    own = f"{os.environ['SOURCE_PATH']}/{os.environ['CLIENT_ID']}"
    write_file(f"{own}/out/.ready")
    while not os.path.exists(f"{own}/in/go"):
        time.sleep(0.01)
    return {"programs": sorted(os.listdir("/programs"))}


def write_file(path):
    with open(path, "wb"):
        pass


def read(path):
    with open(path, "rb") as file:
        return f"{len(file.read(64))} bytes"


def write(path):
    with open(path, "wb") as file:
        file.write(b"mine")
    os.unlink(path)
    return "wrote"


def connect(port):
    with socket.create_connection(("127.0.0.1", port), 2):
        return "connected"


def own_socket(family):
    with socket.socket(family, socket.SOCK_RAW if family == 17 else socket.SOCK_STREAM):
        return "opened"


def call(name):
    """With arguments that would do no harm; the filter must refuse before anybody looks at them."""
    number = SYSTEM_CALLS[os.uname().machine][name]
    first = {"unshare": NEW_USER, "clone": NEW_USER | signal.SIGCHLD, "ptrace": 16, "prlimit64": 1}.get(name, 0)
    result = LIBC.syscall(ctypes.c_long(number), ctypes.c_long(first), ctypes.c_long(1), 0, 0, 0)
    if name == "clone" and result == 0:
        os._exit(0)
    return "done" if result >= 0 else errno.errorcode[ctypes.get_errno()]


def forks(plan):
    children = []
    for _ in range(2000):
        try:
            child = os.fork()
        except OSError as failed:
            why = errno.errorcode[failed.errno]
            break
        if child == 0:
            time.sleep(60)
            os._exit(0)
        children.append(child)
    else:
        why = "none"
    for child in children:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    return {"forks": len(children), "why": why}


def memory(plan):
    """In each process less than it may have, in all of them more."""
    try:
        bytearray(plan["one_mb"] << 20)
        return {"alone": "done"}
    except MemoryError:
        pass
    print("refused alone", flush=True)
    for _ in range(plan["processes"]):
        if os.fork() == 0:
            held = bytearray(os.urandom(1 << 20) * plan["each_mb"])
            time.sleep(60)
            return {"held": len(held)}
    time.sleep(60)
    return {"together": "done"}


def shared_memory(plan):
    """Kept without being counted as its own, by a process that does not want to be looked at."""
    LIBC.prctl(PR_SET_DUMPABLE, 0)
    held = mmap.mmap(-1, plan["one_mb"] << 20)
    for at in range(0, len(held), 4096):
        held[at] = 1
        if at % (1 << 20) == 0:
            held.madvise(mmap.MADV_DONTNEED)
    time.sleep(60)
    return {"held": len(held)}


def sockets(plan):
    """The kernel keeps what nobody reads."""
    held = []
    for _ in range(plan["processes"]):
        if os.fork() == 0:
            break
    while True:
        try:
            pair = socket.socketpair()
        except OSError:
            break
        pair[0].setblocking(False)
        tried(pair[0].send, MEGABYTE)
        held.append(pair)
    time.sleep(60)
    return {"held": len(held)}


def orphans():
    """Processes that end all the time, in a process of their own."""
    if os.fork() == 0:
        while True:
            if os.fork() == 0:
                os.fork()
                os._exit(0)
            os.wait()


def taken_disk(plan):
    """It goes on writing to files that the platform has taken."""
    own, held = f"{os.environ['SOURCE_PATH']}/{os.environ['CLIENT_ID']}/out", []
    for number in range(plan["files"]):
        held.append(os.fdopen(os.open(f"{own}/.{number}", os.O_WRONLY | os.O_CREAT), "wb", buffering=0))
        os.rename(f"{own}/.{number}", f"{own}/{number}.bin")
    while any(name.endswith(".bin") for name in os.listdir(own)):
        time.sleep(0.01)
    for file in held:
        for _ in range(plan["each_mb"]):
            file.write(MEGABYTE)
    time.sleep(60)
    return {"written": len(held)}


def refused(plan):
    """Files that belong to no table, one after the other; each is left until it was taken, or for good."""
    own = f"{os.environ['SOURCE_PATH']}/{os.environ['CLIENT_ID']}/out"
    for number in range(plan["files"]):
        with open(f"{own}/.{number}", "wb") as file:
            for _ in range(plan["each_mb"]):
                file.write(MEGABYTE)
        os.rename(f"{own}/.{number}", f"{own}/{number}.bin")
        until = time.monotonic() + 0.2
        while os.path.exists(f"{own}/{number}.bin") and time.monotonic() < until:
            time.sleep(0.01)
    time.sleep(60)
    return {"written": plan["files"]}


def disk(plan):
    for _ in range(plan.get("orphans", 0)):
        orphans()
    os.chdir(f"{os.environ['SOURCE_PATH']}/{os.environ['CLIENT_ID']}/{plan['folder']}")
    for _ in range(plan["levels"]):
        os.mkdir("." + "d" * 250)
        os.chdir("." + "d" * 250)
    for number in range(plan["files"]):
        with open(f".{number}", "wb") as file:
            for _ in range(plan["each_mb"]):
                file.write(MEGABYTE)
        time.sleep(0.05 if plan["each_mb"] else 0)
    time.sleep(60)
    return {"written": plan["files"]}


def hidden_disk(plan):
    """Files that have no name any more."""
    own, held = f"{os.environ['SOURCE_PATH']}/{os.environ['CLIENT_ID']}/out/.hidden", []
    for _ in range(plan["files"]):
        held.append(os.fdopen(os.open(own, os.O_WRONLY | os.O_CREAT), "wb"))
        os.unlink(own)
        for _ in range(plan["each_mb"]):
            held[-1].write(MEGABYTE)
        time.sleep(0.05)
    time.sleep(60)
    return {"written": len(held)}


def scratch(plan):
    return {folder: tried(fill, f"{folder}/large", plan["one_mb"]) for folder in ("/tmp", "/var/tmp", "/dev/shm")}


def large_file(plan):
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    own = f"{os.environ['SOURCE_PATH']}/{os.environ['CLIENT_ID']}"
    return {"large": tried(sparse, f"{own}/out/.large", plan["one_mb"])}


def sparse(path, megabytes):
    with open(path, "wb") as file:
        os.ftruncate(file.fileno(), megabytes << 20)
    return "written"


def fill(path, megabytes):
    try:
        with open(path, "wb") as file:
            for _ in range(megabytes):
                file.write(MEGABYTE)
        return "written"
    finally:
        os.unlink(path)


if __name__ == "__main__":
    main()
