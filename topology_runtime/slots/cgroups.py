"""Control groups as files: where they are mounted, and what one directory of them can be asked to do."""

from __future__ import annotations

import os
import re
import signal
import time
from pathlib import Path

from headgate.topology_runtime.clock import monotonic_ns

NS = 1_000_000_000
MOUNTS = Path("/proc/self/mounts")
ROOT = Path("/sys/fs/cgroup")
EMPTYING_NS = NS  # a killed process leaves its group within milliseconds; a second is plenty
LOOK_AGAIN_S = 0.002
KILL_ROUNDS = 5
PERIOD_US = 20_000  # 5 ms loses 5–7 % of the share, 100 ms stalls small slots for 120 ms (measured)
QUOTA_LEAST_US = 1_000  # the kernel's own least quota
NAME = "headgate-{run}"


class ControlGroup:
    """One cgroup directory."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def procs(self) -> Path:
        return self.path / "cgroup.procs"

    def write(self, file: str, value: object) -> None:
        """Raises OSError: the kernel refuses, or there is no such file."""
        fd = os.open(self.path / file, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(fd, str(value).encode())
        finally:
            os.close(fd)

    def number(self, file: str, key: str | None = None) -> int:
        """A file's number, or the one after `key` in a file of "key number" lines; 0 when it is not there."""
        try:
            text = (self.path / file).read_text("ascii")
        except OSError:
            return 0  # the group is gone, or this kernel does not count that
        if key is None:
            return int(text) if text.strip().isdigit() else 0
        found = re.search(rf"^{re.escape(key)} (\d+)$", text, re.MULTILINE)
        return int(found[1]) if found else 0

    def pids(self) -> list[int]:
        try:
            return [int(pid) for pid in self.procs.read_text("ascii").split()]
        except FileNotFoundError:
            return []

    def may_fork(self, most: int) -> None:
        """At most so many processes and threads from now on; 0: those that are there cannot become more. Does nothing
        where the group is gone, or nothing counts them."""
        try:
            self.write("pids.max", most)
        except FileNotFoundError:
            return

    def kill(self) -> None:
        """End every process in here: through `cgroup.kill` where there is one, else one by one."""
        try:
            self.write("cgroup.kill", 1)
        except OSError:
            self._kill_each()

    def _kill_each(self) -> None:
        """Several rounds: a process that was being made while the list was read is in the next one."""
        for _ in range(KILL_ROUNDS):
            pids = self.pids()
            if not pids:
                return
            for pid in pids:
                _kill(pid)

    def remove(self) -> bool:
        """Kill what is inside and remove the directory; False if it is not empty after a second."""
        deadline_ns = monotonic_ns() + EMPTYING_NS
        self.may_fork(0)
        while True:
            self.kill()
            try:
                self.path.rmdir()
                return True
            except FileNotFoundError:
                return True
            except OSError:
                if monotonic_ns() >= deadline_ns:
                    return False
            time.sleep(LOOK_AGAIN_S)


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return  # it ended by itself


def make(parent: Path, name: str) -> ControlGroup:
    """The group `name` under `parent`, made if need be. The last agent of a run removes the parent:
    a second try meets that."""
    group = ControlGroup(parent / name)
    for attempt in (1, 2):
        parent.mkdir(exist_ok=True)
        try:
            group.path.mkdir(exist_ok=True)
        except FileNotFoundError:
            if attempt == 2:
                raise
            continue
        break
    return group


def leftovers(parent: Path, vm: str) -> list[ControlGroup]:
    """Groups of this VM's slots that an earlier agent left behind."""
    if not parent.is_dir():
        return []
    mine = re.compile(rf"{re.escape(vm)}-\d+")
    return [
        ControlGroup(path) for path in sorted(parent.iterdir()) if path.is_dir() and mine.fullmatch(path.name)
    ]


def remove_if_empty(parent: Path) -> None:
    """Remove the run's parent group unless another agent's slots are in it."""
    try:
        parent.rmdir()
    except OSError:
        return


def parents_of(run: str, root: Path = ROOT) -> list[Path]:
    """The parent groups of a run (or of those that a pattern names): under the root (v2), under each controller (v1),
    and where this process may make them itself."""
    own = {
        base for hierarchy in ("", "cpu", "cpuacct", "memory", "pids") for base in _own_bases(root, hierarchy)
    }
    places = {root, *(path for path in root.glob("*") if path.is_dir()), *own}
    return sorted(path for place in places for path in place.glob(NAME.format(run=run)) if path.is_dir())


def _own_bases(root: Path, hierarchy: str) -> tuple[Path, ...]:
    """A subtree that is ours may be handed down from beside this process, or from where it is."""
    here = root / hierarchy / own_path(hierarchy).lstrip("/")
    return here.parent, here


def remove_run(run: str, root: Path = ROOT) -> list[Path]:
    """Kill what is still in the groups of a run (of all that a pattern names) and remove them; those that would not
    go."""
    left, parents = [], parents_of(run, root)
    for path in (path for parent in parents for path in parent.iterdir() if path.is_dir()):
        ControlGroup(path).may_fork(0)  # in every tree, before anything is killed through one of them
    for parent in parents:
        inner_first = [Path(directory) for directory, _, _ in os.walk(parent, topdown=False)]
        if not all([ControlGroup(path).remove() for path in inner_first]):
            left.append(parent)
    return left


def quota(cores: float) -> tuple[int, int]:
    """(quota, period) in µs for a share of a core."""
    period_us = max(PERIOD_US, round(QUOTA_LEAST_US / cores))
    return max(QUOTA_LEAST_US, round(cores * period_us)), period_us


def mounted(kind: str, mounts: Path = MOUNTS) -> list[tuple[Path, frozenset[str]]]:
    """(mount point, options) of every file system of this kind; for v1 the options name controllers."""
    found = []
    for line in mounts.read_text("utf-8").splitlines():
        _, point, fs, options, *_ = line.split(" ")
        if fs == kind:
            found.append((Path(point.replace("\\040", " ")), frozenset(options.split(","))))
    return found


def own_path(controller: str = "") -> str:
    """Where this process is in the hierarchy of a v1 controller, or in v2 (no controller named)."""
    for line in Path("/proc/self/cgroup").read_text("utf-8").splitlines():
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            return path
    return "/"
