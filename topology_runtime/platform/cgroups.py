"""Control groups as files: where they are mounted, and what one directory of them can be asked to do."""

from __future__ import annotations

import os
import re
import signal
import time
from pathlib import Path

from headgate.topology_runtime.platform.clock import monotonic_ns
from headgate.topology_runtime.platform.slot_size import SlotSize, joining, keep_slot

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

    def held_bytes(self, charged: str, unused: str) -> int:
        """What its processes are charged together, but for pages of files that were not used lately: these go before
        anybody is killed. Everything else may kill: pages in use, tmpfs, buffers of sockets, the kernel's own."""
        return max(0, self.number(charged) - self.number("memory.stat", unused))

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


# ── Slots as control groups of version 1: the controllers cpu, cpuacct and memory (and pids where it is
# mounted), each with its own tree.
#
# A worker joins all three before its exec, while its slot has no CPU quota: start-up under a 5 % quota
# takes 0.9 s, without it 0.04 s. The quota comes into force when the worker has said hello.

CONTROLLERS_1 = ("cpu", "cpuacct", "memory")
PIDS = "pids"
PARENT_SHARES = 8192  # against three foreign spinners a 20 % slot gets 20 %, at 1024 only 8.5 % (measured)
UNLIMITED = -1


def find() -> dict[str, Path]:
    """Controller → its mount point, of those we use that are mounted."""
    points = mounted("cgroup")
    return {name: point for name in (*CONTROLLERS_1, PIDS) for point, options in points if name in options}


class Cgroup1:
    """`<mount>/headgate-<run>/<vm>-<slot>` in each tree."""

    name = "cgroup1"

    def __init__(self, size: SlotSize, roots: dict[str, Path]) -> None:
        self.size = size
        self._parents = {c: roots[c] / NAME.format(run=size.run) for c in roots}
        self._groups: dict[int, dict[str, ControlGroup]] = {}

    def reserve(self) -> None:
        """Make the run's parent groups. Raises OSError where this user may not."""
        for parent in self._trees():
            parent.mkdir(exist_ok=True)
        ControlGroup(self._parents["cpu"]).write("cpu.shares", PARENT_SHARES)

    def prepare(self) -> None:
        """Remove what an earlier agent of this VM left, then make every slot's groups."""
        old = [group for parent in self._trees() for group in leftovers(parent, self.size.vm)]
        for group in old:  # in the tree of pids, before anything is killed through another
            group.may_fork(0)
        for group in old:
            group.remove()
        for slot in range(self.size.count):
            name = f"{self.size.vm}-{slot}"
            self._groups[slot] = {c: make(parent, name) for c, parent in self._parents.items()}
            self._groups[slot]["memory"].write("memory.limit_in_bytes", self.size.memory_bytes or UNLIMITED)
            self._may_fork(slot, self.size.processes)
        self.reserve()

    def _trees(self) -> list[Path]:
        """The parents without repetition: cpu and cpuacct are often one tree."""
        return sorted({path.parent.resolve() / path.name for path in self._parents.values()})

    def command(self, slot: int, command: list[str]) -> list[str]:
        """The command line that starts a worker inside its slot, without a CPU quota yet."""
        self._groups[slot]["cpu"].write("cpu.cfs_quota_us", UNLIMITED)
        return joining(self.procs(slot), command)

    def procs(self, slot: int) -> list[str]:
        return [str(group.procs) for group in self._groups[slot].values()]

    def bind(self, slot: int, pid: int) -> None:
        """The worker is ready: from now on its slot has its share of a core, and of one only."""
        quota_us, period_us = quota(self.size.cores)
        cpu = self._groups[slot]["cpu"]
        cpu.write("cpu.cfs_period_us", period_us)
        cpu.write("cpu.cfs_quota_us", quota_us)
        if self.size.one_core:
            keep_slot(pid, self.size.vm, slot)

    def cpu_ns(self, slot: int) -> int:
        return self._groups[slot]["cpuacct"].number("cpuacct.usage")

    def throttled_ns(self, slot: int) -> int:
        return self._groups[slot]["cpu"].number("cpu.stat", "throttled_time")

    def memory_bytes(self, slot: int) -> int:
        return self._groups[slot]["memory"].held_bytes("memory.usage_in_bytes", "total_inactive_file")

    def oom_kills(self, slot: int) -> int:
        return self._groups[slot]["memory"].number("memory.oom_control", "oom_kill")

    def forks_refused(self, slot: int) -> int:
        return self._groups[slot][PIDS].number("pids.events", "max") if PIDS in self._groups[slot] else 0

    def kill(self, slot: int) -> None:
        """End every process in the slot, also those that a worker started and those that these are starting now."""
        self._may_fork(slot, 0)
        self._groups[slot]["memory"].kill()
        self._may_fork(slot, self.size.processes)

    def _may_fork(self, slot: int, most: int) -> None:
        if PIDS in self._groups[slot]:
            self._groups[slot][PIDS].may_fork(most)

    def cleanup(self) -> list[str]:
        """Remove every group; those that would not go."""
        left = [str(g.path) for groups in self._groups.values() for g in groups.values() if not g.remove()]
        for parent in self._trees():
            remove_if_empty(parent)
        return left


def probe_cgroup1(size: SlotSize) -> tuple[Cgroup1 | None, str]:
    """The binding if this machine and this user can have it, and a sentence about it."""
    roots = find()
    missing = [name for name in CONTROLLERS_1 if name not in roots]
    if missing:
        return None, f"cgroup v1 has no {' and no '.join(missing)} controller mounted"
    binding = Cgroup1(size, roots)
    try:
        binding.reserve()
    except OSError as error:
        binding.cleanup()
        return None, f"cgroup v1 cannot be used ({error.strerror}: {error.filename})"
    what = "CPU, memory and processes" if PIDS in roots else "CPU and memory, not the number of processes,"
    return binding, f"cgroup v1 bounds {what} of every slot"


# ── Slots as control groups of version 2: one tree, `cpu.max`, `memory.max` and `pids.max` ──────────────
#
# A worker joins before its exec, while its slot has no CPU quota; the quota comes into force when the
# worker has said hello (why: at version 1).

CONTROLLERS_2 = ("cpu", "memory")
PARENT_WEIGHT = 800  # as 8192 shares in v1: foreign processes must not take a slot's share


class Cgroup2:
    """`<base>/headgate-<run>/<vm>-<slot>`; `base` may hold no process of its own unless it is the root."""

    name = "cgroup2"

    def __init__(self, size: SlotSize, base: Path, controllers: tuple[str, ...] = CONTROLLERS_2) -> None:
        self.size = size
        self._controllers = controllers
        self._base = base
        self._parent = base / NAME.format(run=size.run)
        self.groups: dict[int, ControlGroup] = {}

    def reserve(self) -> None:
        """Make the run's parent group and hand it the controllers. Raises OSError where we may not."""
        enable = " ".join(f"+{name}" for name in self._controllers)
        ControlGroup(self._base).write("cgroup.subtree_control", enable)
        self._parent.mkdir(exist_ok=True)
        parent = ControlGroup(self._parent)
        parent.write("cgroup.subtree_control", enable)
        parent.write("cpu.weight", PARENT_WEIGHT)

    def prepare(self) -> None:
        """Remove what an earlier agent of this VM left, then make every slot's group."""
        for group in leftovers(self._parent, self.size.vm):
            group.remove()
        self.reserve()
        for slot in range(self.size.count):
            group = make(self._parent, f"{self.size.vm}-{slot}")
            group.write("memory.max", self.size.memory_bytes or "max")
            group.may_fork(self.size.processes)
            self.groups[slot] = group

    def command(self, slot: int, command: list[str]) -> list[str]:
        """The command line that starts a worker inside its slot, without a CPU quota yet."""
        self.groups[slot].write("cpu.max", "max")
        return joining(self.procs(slot), command)

    def procs(self, slot: int) -> list[str]:
        return [str(self.groups[slot].procs)]

    def bind(self, slot: int, pid: int) -> None:
        """The worker is ready: from now on its slot has its share of a core, and of one only."""
        quota_us, period_us = quota(self.size.cores)
        self.groups[slot].write("cpu.max", f"{quota_us} {period_us}")
        if self.size.one_core:
            keep_slot(pid, self.size.vm, slot)

    def cpu_ns(self, slot: int) -> int:
        return 1000 * self.groups[slot].number("cpu.stat", "usage_usec")

    def throttled_ns(self, slot: int) -> int:
        return 1000 * self.groups[slot].number("cpu.stat", "throttled_usec")

    def memory_bytes(self, slot: int) -> int:
        return self.groups[slot].held_bytes("memory.current", "inactive_file")

    def oom_kills(self, slot: int) -> int:
        return self.groups[slot].number("memory.events", "oom_kill")

    def forks_refused(self, slot: int) -> int:
        return self.groups[slot].number("pids.events", "max")

    def kill(self, slot: int) -> None:
        """End every process in the slot, also those that a worker started and those that these are starting now."""
        self.groups[slot].may_fork(0)
        self.groups[slot].kill()
        self.groups[slot].may_fork(self.size.processes)

    def cleanup(self) -> list[str]:
        """Remove every group; those that would not go."""
        left = [str(group.path) for group in self.groups.values() if not group.remove()]
        remove_if_empty(self._parent)
        return left


def probe_cgroup2(size: SlotSize) -> tuple[Cgroup2 | None, str]:
    """The binding if this machine and this user can have it, and a sentence about it.

    Tried at the tree's root, then beside this process and where it is itself (a delegated subtree)."""
    points = mounted("cgroup2")
    if not points:
        return None, "cgroup v2 is not mounted"
    point = points[0][0]
    reason = ""
    own = point / own_path().lstrip("/")
    for base in dict.fromkeys((point, own.parent if own != point else point, own)):
        binding, reason = binding_under(size, base)
        if binding is not None:
            return binding, reason
    return None, reason


def binding_under(size: SlotSize, base: Path) -> tuple[Cgroup2 | None, str]:
    try:
        offered = (base / "cgroup.controllers").read_text("ascii").split()
    except OSError as error:
        return None, f"cgroup v2 cannot be read ({error.strerror}: {error.filename})"
    missing = [name for name in CONTROLLERS_2 if name not in offered]
    if missing:
        return None, f"cgroup v2 at {base} has no {' and no '.join(missing)} controller"
    counts = PIDS in offered
    binding = Cgroup2(size, base, (*CONTROLLERS_2, PIDS) if counts else CONTROLLERS_2)
    try:
        binding.reserve()
    except OSError as error:
        binding.cleanup()
        return None, f"cgroup v2 at {base} cannot be used ({error.strerror}: {error.filename})"
    what = "CPU, memory and processes" if counts else "CPU and memory, not the number of processes,"
    return binding, f"cgroup v2 at {base} bounds {what} of every slot"
