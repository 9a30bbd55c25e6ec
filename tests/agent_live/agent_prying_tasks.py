"""User code that tries what it must not, and says what became of it: imported in workers only."""

from __future__ import annotations

import ctypes
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

DAEMON = (  # leaves its session, and the process that started it
    "import os, sys, time\n"
    "if os.fork(): os._exit(0)\n"
    "os.setsid()\n"
    "if os.fork(): os._exit(0)\n"
    "open(sys.argv[1], 'w').write(str(os.getpid()))\n"
    "time.sleep(1000)\n"
)


class Prying:
    """Passes rows on; with the first of them it does as `how` says and writes its findings into a file."""

    def __init__(self, how: str, folder: str, told: dict[str, Any] | None = None) -> None:
        self._act, self._folder, self._told = getattr(self, how), Path(folder), told or {}
        self._done = False

    def __call__(self, row: int) -> int:
        if not self._done:
            self._done = True
            self._say(self._act())
        return row

    def _say(self, found: Any) -> None:
        file = self._folder / f"found-{os.getpid()}"
        file.with_suffix(".new").write_text(json.dumps(found))
        os.replace(file.with_suffix(".new"), file.with_suffix(".json"))

    def variables(self) -> dict[str, Any]:
        """What it has of its agent's, and what it was given of them."""
        return {"told": self._told, "has": dict(os.environ)}

    # ── whoever it runs as ──────────────────────────────────────────────────────────────────────

    def looks(self) -> dict[str, Any]:
        """At itself."""
        status = dict(line.split(":\t", 1) for line in Path("/proc/self/status").read_text().splitlines())
        limits = Path("/proc/self/limits").read_text().splitlines()
        return {"status": status, "limits": {line[:25].strip(): line[25:].split()[:2] for line in limits[1:]}}

    def leaves_a_daemon(self) -> int:
        file = self._folder / "daemon"
        subprocess.run([sys.executable, "-S", "-c", DAEMON, str(file)], check=True, stdout=subprocess.DEVNULL)
        while not file.exists() or not file.read_text():
            time.sleep(0.01)
        return int(file.read_text())

    def forks(self) -> int:
        """How often it could, up to a bound."""
        children: list[int] = []
        try:
            while len(children) < self._told["most"]:
                child = os.fork()
                if not child:
                    time.sleep(1000)
                children.append(child)
        except OSError:
            return len(children)
        return len(children)

    def forks_on(self) -> None:
        """Without end: what is refused is tried again."""
        while True:
            self.forks()
            time.sleep(0.01)

    def fills(self) -> int:
        """Its folder, file after file, until it is stopped or has written so much."""
        chunk, files = os.urandom(1 << 20), 0
        for number in range(self._told["most"]):
            Path(f"filled-{os.getpid()}-{number}").write_bytes(chunk)
            files = number + 1
            time.sleep(0.01)
        return files

    def hogs(self) -> int:
        """Memory, far more than its slot has."""
        hog = bytearray(self._told["size_bytes"])
        for at in range(0, len(hog), 4096):
            hog[at] = 1
        return len(hog)

    def opens(self) -> str:
        """Files, until there are no more; and keeps them, if told so."""
        held = []
        try:
            while True:
                held.append(os.open("/dev/null", os.O_RDONLY))
        except OSError as error:
            said = f"{len(held)} files, then {error}"
        for one in held if not self._told["kept"] else held[:1]:  # that one for the file with its findings
            os.close(one)
        self._held = held
        return said

    # ── as a user of its own ────────────────────────────────────────────────────────────────────

    def tries(self) -> dict[str, str]:
        """What it must not, one after the other: what became of each."""
        return {name: outcome(act) for name, act in self._attempts().items()}

    def _attempts(self) -> dict[str, Callable[[], Any]]:
        agent, told = self._told["agent"], self._told
        acts: dict[str, Callable[[], Any]] = {
            **{f"read {path}": partial(read, path) for path in told["read"]},
            **{f"list {path}": partial(os.listdir, path) for path in told["list"]},
            **{f"write {path}": partial(write, path) for path in told["write"]},
            **{f"signal {name}": partial(os.kill, agent, name) for name in (0, 15, 9)},
            "trace the agent": partial(trace, agent),
            "become root": partial(os.setuid, 0),
            "become root's group": partial(os.setgid, 0),
            "join groups": partial(os.setgroups, [0]),
            "become another user": partial(os.setresuid, 65534, 65534, 65534),
            "change its root": partial(os.chroot, "/"),
            "mount": partial(libc, "mount", b"none", b"/", None, 1 << 14, None),
            "leave its mounts": partial(libc, "unshare", 0x0002_0000),
            "raise its limits": partial(resource.setrlimit, resource.RLIMIT_NOFILE, (1 << 16, 1 << 16)),
            "start more than it may": partial(resource.setrlimit, resource.RLIMIT_NPROC, (-1, -1)),
            "leave its slot": leave,
            "a program of root's": partial(setuid_program, told["program"]),
            "other numbers of users": partial(os.chown, self._folder / "mine", 0, 0),
        }
        (self._folder / "mine").touch()
        return acts

    def traces(self) -> str:
        """The worker of the other slot: of the same user, and no less to be left alone."""
        me = os.getpid()
        parent = Path(f"/proc/{os.getppid()}/task/{os.getppid()}/children").read_text().split()
        (other,) = [int(pid) for pid in parent if int(pid) != me]
        return outcome(partial(trace, other))

    def forges(self) -> str:
        """Files where its agent looks for those of the worker."""
        for folder in ("finished", "letters", "spools"):
            os.makedirs(folder, exist_ok=True)
        for name in ("999-1-1.log", "1-2-" + "9" * 40 + ".log"):
            Path("finished", name).write_bytes(b"x" * 400)
        os.symlink("/etc/passwd", "finished/0-1-7.log")
        os.mkfifo("finished/0-2-7.log")
        os.mkdir("finished/0-3-7.log")
        Path("letters", "1-7-0").write_bytes(b"no letter\n" * 9)
        os.mkfifo("letters/1-8-0")
        os.symlink("/etc/passwd", "letters/1-9-0")
        for owner in ("work~0~run~1", "work~" + "9" * 40 + "~run~1"):
            os.makedirs(f"spools/{owner}")
            Path("spools", owner, "acked").write_text("9" * 400)
            Path("spools", owner, "9" * 60 + ".spool").write_bytes(b"\xff" * 4000)
            os.mkfifo(f"spools/{owner}/1.spool")
        return "forged"

    def knocks(self) -> str:
        """At its controller, with a key that nobody knows."""
        from headgate.topology_runtime.keys import curve
        from headgate.topology_runtime.keys.key_pairs import Contact
        from headgate.topology_runtime.wire import channels
        from headgate.topology_runtime.wire import messages as m

        where = Contact(self._told["controller"], curve.new_pair(), self._told["public"])
        channel: Any = channels.ClientChannel(channels.from_controller, where)
        channel.send(m.Goodbye("vm1", 1 << 60))
        time.sleep(1.0)
        return "knocked"


def outcome(act: Callable[[], Any]) -> str:
    try:
        return f"DONE: {act()!r}"
    except (OSError, ValueError) as error:
        return f"refused: {error}"


def read(path: str) -> bytes:
    return Path(path).read_bytes()[:10]


def write(path: str) -> str:
    (Path(path) / "planted" if os.path.isdir(path) else Path(path)).write_text("planted")
    return path


def trace(pid: int) -> None:
    libc("ptrace", 16, pid, None, None)  # PTRACE_ATTACH


def libc(name: str, *arguments: Any) -> None:
    if getattr(ctypes.CDLL(None, use_errno=True), name)(*arguments) != 0:
        raise OSError(ctypes.get_errno(), name)


def leave() -> list[str]:
    """Its control groups: into those above."""
    left, tried = [], []
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        group = Path("/sys/fs/cgroup", controllers, path.lstrip("/"))
        if "headgate" in path:
            tried.append(path)
            for above in (group.parent, group.parent.parent):
                try:
                    (above / "cgroup.procs").write_text("0")
                    left.append(str(above))
                except OSError:
                    continue
    if not left:
        raise PermissionError(f"none of {tried}")
    return left


def setuid_program(path: str) -> str:
    """One that anybody may run, and that is root's then: it tells who it was."""
    said = subprocess.run([path, "-u"], capture_output=True, text=True, check=True).stdout.strip()
    if said != "0":
        raise PermissionError(f"it ran as {said}")
    return said
