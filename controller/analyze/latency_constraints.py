"""Do the latency constraints of the topology hold? Pure.

The latency along a path is the mean over the constraint's window of what its rows wait and work (paper 4,
section 3.2): in each task but the first, and on each edge half the life of the sender's buffers, and the way. Where the
path begins at a source and ends at a sink, it is measured whole, from the intended emit time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import pairwise
from statistics import fmean

from headgate.controller.knowledge.diagnoses import PathStanding, Violation
from headgate.controller.knowledge.measured_window import MeasuredWindow
from headgate.topology_runtime.api.topology import LatencyConstraint, Topology
from headgate.topology_runtime.latency.latency_messages import PathNow, Standing
from headgate.topology_runtime.wire.messages import WorkerStatus


def violations(topology: Topology, window_of: Callable[[float], MeasuredWindow]) -> tuple[Violation, ...]:
    """The constraints that do not hold; `window_of(seconds)` gives the window to judge one by."""
    found = (violation(topology, c, window_of(c.window_s)) for c in topology.latency_constraints)
    return tuple(v for v in found if v is not None)


def violation(topology: Topology, constraint: LatencyConstraint, window: MeasuredWindow) -> Violation | None:
    """How the constraint is violated; None when it holds or too many samples are missing."""
    if not window.is_complete:
        return None
    parts = _parts(constraint.path, window)
    ends = constraint.path[0], constraint.path[-1]
    whole = window.latencies.get(ends)
    direct = ends[0] in {t.name for t in topology.sources} and whole is not None and whole.rows > 0
    measured_ms = whole.mean_ms if direct and whole is not None else sum(parts.values())
    if measured_ms <= constraint.limit_ms:
        return None
    busiest = max(window.tasks[name].busy_share for name in constraint.path)
    return Violation(constraint.path, constraint.limit_ms, measured_ms, parts, busiest)


def _parts(path: tuple[str, ...], window: MeasuredWindow) -> dict[str, float]:
    """Mean ms by part: `a → b` for edges, the name for tasks."""
    parts: dict[str, float] = {}
    for source, target in pairwise(path):
        if (edge := window.edges.get((source, target))) is not None:
            parts[f"{source} → {target}"] = edge.buffer_latency_ms / 2 + edge.channel_latency_ms
        parts[target] = window.tasks[target].latency_mean_ms
    return parts


# ── How the latency constraints stand, as those workers report that manage their parts
# (topology_runtime/latency). Pure

WORSE: dict[Standing, int] = {"held": 0, "adapting": 1, "helpless": 2}


def standings(topology: Topology, workers: Iterable[WorkerStatus]) -> tuple[PathStanding, ...]:
    """Of each constraint, all managers together: it stands as with the one where it stands worst."""
    told = [path for worker in workers for path in worker.paths]
    return tuple(
        _standing(constraint, [path for path in told if path.constraint == number])
        for number, constraint in enumerate(topology.latency_constraints)
    )


def _standing(constraint: LatencyConstraint, parts: list[PathNow]) -> PathStanding:
    seen = [part for part in parts if part.channels]
    worst = max(parts, key=lambda part: (WORSE[part.standing], part.most_ms), default=None)
    return PathStanding(
        path=constraint.path,
        limit_ms=constraint.limit_ms,
        window_s=constraint.window_s,
        standing=worst.standing if worst is not None and seen else "unknown",
        mean_ms=fmean(part.mean_ms for part in seen) if seen else None,
        least_ms=min((part.least_ms for part in seen), default=None),
        most_ms=max((part.most_ms for part in seen), default=None),
        managers=len(parts),
        channels=sum(part.channels for part in parts),
        shortened=sum(part.shortened for part in parts),
        lengthened=sum(part.lengthened for part in parts),
        chained=sum(part.chained for part in parts),
        text=worst.text if worst is not None else "",
    )
