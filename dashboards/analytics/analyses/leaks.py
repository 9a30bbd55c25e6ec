"""Memory that only grows: slots whose process held more and more, at a steady pace, for a minute or longer.

Theil–Sen on the means of at most 48 blocks of a process's life (it ends where memory falls by a tenth), with an
interval by block bootstrap. A leak grows surely, and by a tenth of what is held or more: what grows only while a task
warms up, or with the rate, leaves the line by so much that it is not sure.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from headgate.dashboards.analytics.asked import AnalysisInput
from headgate.dashboards.analytics.results import Leak
from headgate.dashboards.analytics.trace_runs import TraceRun

if TYPE_CHECKING:
    from headgate.topology_runtime.stability.slopes import Slope

LEAST_POINTS, LEAST_S = 12, 60.0
FALLEN = 0.1  # another process, or memory that was given back
GROWN = 0.1  # of what is held in the mean

Points = Sequence[tuple[float, float]]  # time in s, fraction of the slot's memory


def leaks(asked: AnalysisInput) -> list[Leak]:
    """Those that fill their slot first, first."""
    tasks = _tasks(asked)
    found = []
    for (run, vm, slot), rows in groupby(
        _points(asked), key=lambda row: (row["run"], row["vm"], row["slot"])
    ):
        points = [(row["at_s"], row["memory"]) for row in rows]
        life = longest_life(points)
        slope = leak_of(life)
        if slope is None:
            continue
        size = memory_bytes_of(asked.runs[run], vm)
        pace, low, high = (None if size is None else at * size for at in (slope.value, slope.low, slope.high))
        begin_s, end_s = (asked.at_s(run, life[n][0] * 1e6) for n in (0, -1))
        held, here = life[-1][1], tasks.get((run, vm, slot), [])
        full_in_s = (1 - held) / slope.value
        found.append(Leak(run, vm, slot, here, begin_s, end_s, pace, low, high, held, full_in_s))
    return sorted(found, key=lambda leak: leak.full_in_s)


def longest_life(points: Points) -> Points:
    """The longest stretch in which memory never falls by a tenth from one point to the next."""
    lives: list[list[tuple[float, float]]] = [[]]
    for point in points:
        if lives[-1] and point[1] < (1 - FALLEN) * lives[-1][-1][1]:
            lives.append([])
        lives[-1].append(point)
    return max(lives, key=len)


def leak_of(points: Points) -> Slope | None:
    """The pace of a leak in fractions of the slot per second; None when there is none."""
    import numpy as np

    from headgate.topology_runtime.stability.slopes import median_slopes, trend

    if len(points) < LEAST_POINTS or points[-1][0] - points[0][0] < LEAST_S:
        return None
    at_s, memory = (np.array([point[n] for point in points]) for n in (0, 1))
    at_s = at_s - at_s[0]
    if median_slopes(at_s, memory[None])[0] * at_s[-1] < GROWN * memory.mean():
        return None  # an interval takes long, and most slots grow by less
    slope = trend(at_s, memory)
    return slope if slope.low > 0 else None


def _points(asked: AnalysisInput) -> list[Any]:
    """At most 48 means of each slot's memory, in order of time."""
    return [
        row | {"at_s": row["at"] / row["n"] * asked.window_s, "memory": row["memory"] / row["n"]}
        for row in asked.rows("memory_blocks", "run", "vm", "slot", "block")
    ]


def _tasks(asked: AnalysisInput) -> dict[tuple[str, str, int], list[str]]:
    found: dict[tuple[str, str, int], list[str]] = {}
    for row in asked.sums("groups", "run", "vm", "slot", "task"):
        found.setdefault((row["run"], row["vm"], row["slot"]), []).append(row["task"])
    return found


def memory_bytes_of(run: TraceRun, vm: str) -> float | None:
    """Of a slot of this VM; VMs that came later are as the spare one."""
    size = run.memory_bytes.get(vm, run.spare.get("slot_memory_bytes"))
    return None if size is None else float(size)
