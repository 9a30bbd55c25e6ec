"""Slots for measuring: a process's CPU limited to a share of a core, undone at the end.

cgroup v1 or v2 where the cpu controller may be used; else the process is kept on one core, which
cannot enforce a share, and `binding` says so.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

from topology_runtime import one_core

MOUNTS, OWN = Path("/proc/self/mounts"), Path("/proc/self/cgroup")
PREFIX = "headgate-calibrate-"
PERIOD_US = 20_000  # exact to 1 %: longer ones stall small slots, shorter ones lose 5 %
LEAST_QUOTA_US = 1000  # what the kernel takes
WEIGHT_V1, WEIGHT_V2 = 8192, 800  # against what else runs on this machine
EMPTYING_S = 1.0  # a killed process leaves its cgroup within milliseconds


class Quotas:
    """The slots of one calibration. `binding`: cgroup1, cgroup2 or affinity."""

    def __init__(
        self, mounts: Path = Path("/proc/self/mounts"), own: Path = Path("/proc/self/cgroup")
    ) -> None:
        self._parent: Path | None = None
        self.binding = "affinity"
        for binding, place in candidates(mounts.read_text("utf-8"), own.read_text("utf-8")):
            parent = place / f"{PREFIX}{os.getpid()}"
            try:
                _remove_leftovers(place)
                _make_parent(binding, parent)
            except OSError:
                remove_group(parent)
                continue
            self._parent, self.binding = parent, binding
            return

    @property
    def enforced(self) -> bool:
        """Does a slot really get no more than its share?"""
        return self._parent is not None

    def bind(self, pid: int, name: str, cores: float, core: int | None) -> None:
        """Limit a process (all its threads) to `cores` of a core, where that can be enforced, and keep it on the
        core that this number falls to (None: on any)."""
        if core is not None:
            allowed = one_core.cores()
            one_core.keep_on(pid, allowed[core % len(allowed)])
        if self._parent is None:
            return
        slot = self._parent / name
        slot.mkdir(exist_ok=True)
        period_us = max(PERIOD_US, round(LEAST_QUOTA_US / cores))
        quota_us = round(cores * period_us)
        if self.binding == "cgroup1":
            (slot / "cpu.cfs_period_us").write_text(str(period_us))
            (slot / "cpu.cfs_quota_us").write_text(str(quota_us))
        else:
            (slot / "cpu.max").write_text(f"{quota_us} {period_us}")
        (slot / "cgroup.procs").write_text(str(pid))

    def remove(self) -> None:
        """Remove the slots; their processes must have ended."""
        if self._parent is not None:
            remove_group(self._parent)


def candidates(mounts: str, own: str) -> Iterator[tuple[str, Path]]:
    """(binding, cgroup under which slots may be made) in order of preference, from the texts of
    /proc/self/mounts and /proc/self/cgroup."""
    paths = {}
    for line in own.splitlines():
        _, controllers, path = line.split(":", 2)
        paths[controllers] = path.lstrip("/")
    mounted = [line.split() for line in mounts.splitlines()]
    for _, place, kind, *_ in mounted:
        if kind == "cgroup2" and "cpu" in _words(Path(place) / "cgroup.controllers"):
            here = Path(place) / paths.get("", "")
            yield from (
                ("cgroup2", at) for at in dict.fromkeys((here.parent if paths.get("") else here, here))
            )
    for _, place, kind, options, *_ in mounted:
        if kind == "cgroup" and "cpu" in options.split(","):
            mine = next((path for names, path in paths.items() if "cpu" in names.split(",")), "")
            yield "cgroup1", Path(place) / mine


def _words(path: Path) -> list[str]:
    try:
        return path.read_text("ascii").split()
    except OSError:
        return []


def _make_parent(binding: str, parent: Path) -> None:
    """OSError when it is not for us to make, or the cpu controller cannot be handed down to it."""
    if binding == "cgroup2":
        above = parent.parent / "cgroup.subtree_control"
        if "cpu" not in _words(above):
            above.write_text("+cpu")
    parent.mkdir()
    if binding == "cgroup2":
        (parent / "cgroup.subtree_control").write_text("+cpu")
        (parent / "cpu.weight").write_text(str(WEIGHT_V2))
    else:
        (parent / "cpu.shares").write_text(str(WEIGHT_V1))


def remove_group(parent: Path) -> None:
    deadline_s = time.monotonic() + EMPTYING_S
    while parent.is_dir():
        try:
            for slot in [path for path in parent.iterdir() if path.is_dir()]:
                slot.rmdir()
            parent.rmdir()
        except FileNotFoundError:
            return
        except OSError:  # its processes are still dying
            if time.monotonic() >= deadline_s:
                return
            time.sleep(0.01)


def _remove_leftovers(place: Path) -> None:
    """Of calibrations that were killed."""
    for path in place.glob(f"{PREFIX}*"):
        pid = path.name.removeprefix(PREFIX)
        if pid.isdigit() and not os.path.exists(f"/proc/{pid}"):
            remove_group(path)
