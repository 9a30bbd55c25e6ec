"""What a run may leave on a machine, and its removal: cgroups and the state directory.

Agents remove their own; this is the last look of `up`, also after an agent that was killed.
"""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterable
from pathlib import Path

from topology_runtime.clock import monotonic_ns

CGROUP_ROOT = Path("/sys/fs/cgroup")
NS = 1_000_000_000
EMPTYING_S = 1.0  # a killed process leaves its cgroup within milliseconds; a second is plenty
LOOK_AGAIN_S = 0.01


def cgroups_of(run: str, root: Path = CGROUP_ROOT) -> list[Path]:
    """The run's parent cgroups: under the root (v2), under each controller (v1), under our own cgroup."""
    name = f"headgate-{run}"
    places = [root, *(path for path in root.glob("*") if path.is_dir()), *_own(root)]
    return sorted({place / name for place in places if (place / name).is_dir()})


def _own(root: Path) -> Iterable[Path]:
    """Where this process is itself: a delegated subtree has its slots there."""
    for line in Path("/proc/self/cgroup").read_text("utf-8").splitlines():
        _, controllers, path = line.split(":", 2)
        hierarchy = controllers.removeprefix("name=")
        for base in (root, root / hierarchy):
            yield base / path.lstrip("/")


def remove_cgroups(run: str, root: Path = CGROUP_ROOT) -> list[Path]:
    """Kill what is still in the run's cgroups and remove them; those that would not go."""
    parents = cgroups_of(run, root)
    deadline_ns = monotonic_ns() + int(EMPTYING_S * NS)
    while True:
        left = [parent for parent in parents if not _removed(parent)]
        if not left or monotonic_ns() >= deadline_ns:
            return left
        _pause(LOOK_AGAIN_S)


def _removed(parent: Path) -> bool:
    """One try, children first."""
    for directory, _, _ in os.walk(parent, topdown=False):
        _kill_members(Path(directory))
        try:
            os.rmdir(directory)
        except FileNotFoundError:
            continue
        except OSError:
            return False  # its processes are still dying
    return True


def _kill_members(cgroup: Path) -> None:
    try:
        members = (cgroup / "cgroup.procs").read_text("ascii").split()
    except FileNotFoundError:
        return
    for pid in map(int, members):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def _pause(seconds: float) -> None:
    import time

    time.sleep(seconds)


def remove_state(state: Path) -> None:
    """The run's state directory, and `.headgate` above it when it was the last."""
    shutil.rmtree(state)
    if state.parent.name == ".headgate":
        try:
            state.parent.rmdir()
        except OSError:
            return  # another run is in there
