"""Runs a command under what a systemd unit forbids, where no systemd runs: `unit_sandbox.py UNIT COMMAND…`.

Taken over: rights (CapabilityBoundingSet), NoNewPrivileges, folders that may be written (ProtectSystem,
ReadWritePaths), calls (SystemCallFilter, by systemd's own lists), namespaces, families of sockets. Left out:
PrivateTmp, PrivateDevices and what hides parts of /proc and /sys.
"""

from __future__ import annotations

import ctypes
import errno
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

CAPABILITIES = """\
CHOWN DAC_OVERRIDE DAC_READ_SEARCH FOWNER FSETID KILL SETGID SETUID SETPCAP LINUX_IMMUTABLE NET_BIND_SERVICE
NET_BROADCAST NET_ADMIN NET_RAW IPC_LOCK IPC_OWNER SYS_MODULE SYS_RAWIO SYS_CHROOT SYS_PTRACE SYS_PACCT SYS_ADMIN
SYS_BOOT SYS_NICE SYS_RESOURCE SYS_TIME SYS_TTY_CONFIG MKNOD LEASE AUDIT_WRITE AUDIT_CONTROL SETFCAP MAC_OVERRIDE
MAC_ADMIN SYSLOG WAKE_ALARM BLOCK_SUSPEND AUDIT_READ PERFMON BPF CHECKPOINT_RESTORE
"""  # in the order of their numbers
NAMESPACES = {
    "mnt": 0x20000, "cgroup": 0x2000000, "uts": 0x4000000, "ipc": 0x8000000, "user": 0x10000000, "pid": 0x20000000,
    "net": 0x40000000,
}  # fmt: skip
PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 24, 38
MS_RDONLY, MS_REMOUNT, MS_BIND, MS_REC, MS_SLAVE = 1, 32, 4096, 16384, 1 << 19
ALLOW, REFUSE, EQUAL, MASKED_EQUAL = 0x7FFF0000, 0x00050000, 4, 7
LIBRARY = "libseccomp.so.2"


class Compare(ctypes.Structure):
    """`struct scmp_arg_cmp`."""

    _fields_ = (
        ("arg", ctypes.c_uint), ("op", ctypes.c_int), ("a", ctypes.c_uint64), ("b", ctypes.c_uint64),
    )  # fmt: skip


def missing() -> str | None:
    """Why no unit can be tried here."""
    if os.geteuid() != 0:
        return "what a unit takes from root is tried as root"
    try:
        ctypes.CDLL(LIBRARY)
        subprocess.run(["systemd-analyze", "--version"], capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        return f"there is no systemd-analyze, or no libseccomp: {error}"
    return None


def options_of(unit: str) -> dict[str, list[str]]:
    """Each with its values in order."""
    found: dict[str, list[str]] = {}
    for line in unit.splitlines():
        key, is_one, value = line.partition("=")
        if is_one and not line.startswith(("#", "[")):
            found.setdefault(key, []).append(value)
    return found


def expanded(words: str) -> Iterator[str]:
    """Names of calls, of systemd's lists too."""
    for word in words.split():
        if not word.startswith("@"):
            yield word
            continue
        told = subprocess.run(
            ["systemd-analyze", "syscall-filter", word], capture_output=True, text=True, check=True
        )
        for line in told.stdout.splitlines()[1:]:
            if line.strip() and not line.strip().startswith("#"):
                yield from expanded(line.strip())


def allowed(lines: list[str]) -> set[str]:
    calls: set[str] = set()
    for line in lines:
        if line.startswith("~"):
            calls -= set(expanded(line[1:]))
        else:
            calls |= set(expanded(line))
    return calls | set(expanded("@default"))


def checked(answer: int, what: str) -> None:
    if answer < 0:
        raise OSError(ctypes.get_errno() or -answer, f"{what}: {os.strerror(ctypes.get_errno() or -answer)}")


def folders(options: dict[str, list[str]]) -> None:
    """ProtectSystem and ReadWritePaths, in a mount namespace of its own."""
    libc = ctypes.CDLL(None, use_errno=True)

    def mount(source: str, at: str, flags: int) -> None:
        checked(libc.mount(source.encode(), at.encode(), None, ctypes.c_ulong(flags), None), f"mount {at}")

    checked(libc.unshare(NAMESPACES["mnt"]), "unshare")
    mount("none", "/", MS_REC | MS_SLAVE)
    strict = options.get("ProtectSystem") == ["strict"]
    for path in options.get("ReadWritePaths", ()):
        mount(path, path, MS_BIND | MS_REC)
    for path in ("/",) if strict else ("/usr", "/boot", "/etc"):
        if os.path.isdir(path) and not os.path.islink(path):
            mount(path, path, MS_BIND | (0 if path == "/" else MS_REC))
            mount("none", path, MS_REMOUNT | MS_BIND | MS_RDONLY)


def calls(options: dict[str, list[str]]) -> None:
    """Two filters: kinds of sockets and namespaces that are refused, and calls that are allowed."""
    library = ctypes.CDLL(LIBRARY, use_errno=True)
    library.seccomp_init.restype = ctypes.c_void_p
    refusing, allowing = library.seccomp_init(ALLOW), library.seccomp_init(REFUSE | errno.EPERM)

    def rule(to: int, action: int, call: str, *compares: Compare) -> None:
        number = library.seccomp_syscall_resolve_name(call.encode())
        if number >= 0:
            array = (Compare * len(compares))(*compares)
            count = ctypes.c_uint(len(compares))
            checked(library.seccomp_rule_add_array(ctypes.c_void_p(to), action, number, count, array), call)

    (told,) = options["RestrictNamespaces"]
    for name, flag in NAMESPACES.items():
        if told == "yes" or name not in told.split():
            for call in ("unshare", "clone"):
                rule(refusing, REFUSE | errno.EPERM, call, Compare(0, MASKED_EQUAL, flag, flag))
    rule(refusing, REFUSE | errno.ENOSYS, "clone3")
    families = {int(getattr(socket, name)) for name in options["RestrictAddressFamilies"][0].split()}
    for family in set(range(46)) - families:
        rule(refusing, REFUSE | errno.EAFNOSUPPORT, "socket", Compare(0, EQUAL, family, 0))
    for call in allowed(options["SystemCallFilter"]):
        rule(allowing, ALLOW, call)
    for one in (refusing, allowing):
        checked(library.seccomp_load(ctypes.c_void_p(one)), "seccomp_load")


def enter(unit: str) -> None:
    """This process, and all that it starts, from now on."""
    options, here = options_of(unit), os.getcwd()
    folders(options)
    os.chdir(here)  # which may be in another mount now
    libc = ctypes.CDLL(None, use_errno=True)
    kept = set(options["CapabilityBoundingSet"][0].replace("CAP_", "").split())
    for number, name in enumerate(CAPABILITIES.split()):
        if (
            name not in kept
            and libc.prctl(PR_CAPBSET_DROP, number, 0, 0, 0)
            and ctypes.get_errno() != errno.EINVAL
        ):
            raise OSError(ctypes.get_errno(), f"cannot drop {name}")
    checked(libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no new privileges")
    allowed_calls = options["SystemCallFilter"]
    options["SystemCallFilter"] = [*allowed_calls, "execve"]  # systemd's own, of the command
    calls(options)


if __name__ == "__main__":
    enter(Path(sys.argv[1]).read_text())
    os.execvp(sys.argv[2], sys.argv[2:])
