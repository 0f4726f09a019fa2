"""The system calls that a tenant's program may not make: a machine in, a filter for the kernel out. Standard library alone.

Forbidden is what reaches beyond the program: mounts and namespaces, other processes, the kernel's own keys, programs,
modules, clocks and counters; and memory that no limit counts. Newer calls look as if the kernel did not know them."""

import ctypes
import errno
import os
import struct

from millrace.manage.confine.kernel import gain_no_privileges, prctl

_PR_SET_SECCOMP, _BY_FILTER = 22, 2
_LOAD, _EQUALS, _ABOVE, _HAS_BIT, _RETURN = 0x20, 0x15, 0x25, 0x45, 0x06
_NUMBER_AT, _MACHINE_AT, _FIRST_ARGUMENT_AT = 0, 4, 16
_ALLOW, _KILL, _FAIL = 0x7FFF0000, 0x80000000, 0x00050000
_ANY_NEW_NAMESPACE = 0x7E020000
# AF_UNIX, AF_INET, AF_INET6, and AF_NETLINK, by which libraries ask for their own addresses.
_FAMILIES = (1, 2, 10, 16)
# mseal, of Linux 6.10.
_LAST = 462
_MACHINES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}

# Numbers for x86_64 and aarch64; None: the machine does not have the call.
_FORBIDDEN: dict[str, tuple[int | None, int | None]] = {
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51), "unshare": (272, 97),
    "setns": (308, 268), "open_tree": (428, 428), "move_mount": (429, 429), "fsopen": (430, 430), "fsconfig": (431, 431),
    "fsmount": (432, 432), "fspick": (433, 433), "mount_setattr": (442, 442), "statmount": (457, 457),
    "listmount": (458, 458), "name_to_handle_at": (303, 264), "open_by_handle_at": (304, 265),
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "kcmp": (312, 272),
    "pidfd_getfd": (438, 438), "process_madvise": (440, 440), "process_mrelease": (448, 448),
    "migrate_pages": (256, 238), "move_pages": (279, 239),
    "add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219), "bpf": (321, 280),
    "perf_event_open": (298, 241), "userfaultfd": (323, 282), "fanotify_init": (300, 262),
    "init_module": (175, 105), "finit_module": (313, 273), "delete_module": (176, 106), "create_module": (174, None),
    "get_kernel_syms": (177, None), "query_module": (178, None), "kexec_load": (246, 104), "kexec_file_load": (320, 294),
    "reboot": (169, 142), "swapon": (167, 224), "swapoff": (168, 225), "acct": (163, 89), "quotactl": (179, 60),
    "quotactl_fd": (443, 443), "nfsservctl": (180, 42), "lookup_dcookie": (212, 18), "syslog": (103, 116),
    "vhangup": (153, 58), "sethostname": (170, 161), "setdomainname": (171, 162), "settimeofday": (164, 170),
    "clock_settime": (227, 112), "adjtimex": (159, 171), "clock_adjtime": (305, 266), "iopl": (172, None),
    "ioperm": (173, None), "modify_ldt": (154, None), "uselib": (134, None), "ustat": (136, None), "sysfs": (139, None),
    "_sysctl": (156, None),
}  # fmt: skip
# Libraries know what to do without these.
_UNKNOWN: dict[str, tuple[int | None, int | None]] = {
    "clone3": (435, 435), "io_uring_setup": (425, 425), "io_uring_enter": (426, 426), "io_uring_register": (427, 427),
    "memfd_create": (319, 279), "memfd_secret": (447, 447), "shmget": (29, 194), "msgget": (68, 186), "semget": (64, 190),
}  # fmt: skip
_CLONE, _SOCKET, _PRLIMIT = (56, 220), (41, 198), (302, 261)


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))


def knows(machine: str) -> bool:
    return machine in _MACHINES


def forbid() -> None:
    """For this process and all that it starts, for good."""
    program = filter_for(os.uname().machine)
    code = ctypes.create_string_buffer(program, len(program))
    given = _Program(len(program) // 8, ctypes.addressof(code))
    gain_no_privileges()
    prctl(_PR_SET_SECCOMP, _BY_FILTER, ctypes.byref(given))


def filter_for(machine: str) -> bytes:
    which = list(_MACHINES).index(machine)
    steps = [_step(_LOAD, _MACHINE_AT), _step(_EQUALS, _MACHINES[machine], 1, 0), _step(_RETURN, _KILL)]
    steps += [_step(_LOAD, _NUMBER_AT), *_if(_ABOVE, _LAST, _fail(errno.ENOSYS))]
    for calls, failure in ((_FORBIDDEN, errno.EPERM), (_UNKNOWN, errno.ENOSYS)):
        for numbers in calls.values():
            number = numbers[which]
            steps += [] if number is None else _if(_EQUALS, number, _fail(failure))
    steps += _if(
        _EQUALS,
        _CLONE[which],
        _step(_LOAD, _FIRST_ARGUMENT_AT),
        *_if(_HAS_BIT, _ANY_NEW_NAMESPACE, _fail(errno.EPERM)),
        _step(_RETURN, _ALLOW),
    )
    # Limits of other processes, the one that watches this program among them; 0 is the caller itself.
    steps += _if(
        _EQUALS,
        _PRLIMIT[which],
        _step(_LOAD, _FIRST_ARGUMENT_AT),
        *_if(_EQUALS, 0, _step(_RETURN, _ALLOW)),
        _fail(errno.EPERM),
    )
    families = [step for family in _FAMILIES for step in _if(_EQUALS, family, _step(_RETURN, _ALLOW))]
    steps += _if(
        _EQUALS, _SOCKET[which], _step(_LOAD, _FIRST_ARGUMENT_AT), *families, _fail(errno.EAFNOSUPPORT)
    )  # fmt: skip
    return b"".join([*steps, _step(_RETURN, _ALLOW)])


def _if(test: int, value: int, *then: bytes) -> list[bytes]:
    return [_step(test, value, 0, len(then)), *then]


def _fail(error: int) -> bytes:
    return _step(_RETURN, _FAIL | error)


def _step(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)
