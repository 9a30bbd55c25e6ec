"""Do the latency constraints of the topology hold? Pure.

The latency along a path is the mean over the constraint's window of what its rows wait and work (paper 4,
section 3.2): in each task but the first, and on each edge half the life of the sender's buffers, and the way. Where the
path begins at a source and ends at a sink, it is measured whole, from the intended emit time.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

from headgate.controller.knowledge.diagnoses import Violation
from headgate.controller.knowledge.windows import Window
from headgate.topology_runtime.topology import LatencyConstraint, Topology


def violations(topology: Topology, window_of: Callable[[float], Window]) -> tuple[Violation, ...]:
    """The constraints that do not hold; `window_of(seconds)` gives the window to judge one by."""
    found = (violation(topology, c, window_of(c.window_s)) for c in topology.latency_constraints)
    return tuple(v for v in found if v is not None)


def violation(topology: Topology, constraint: LatencyConstraint, window: Window) -> Violation | None:
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


def _parts(path: tuple[str, ...], window: Window) -> dict[str, float]:
    """Mean ms by part: `a → b` for edges, the name for tasks."""
    parts: dict[str, float] = {}
    for source, target in pairwise(path):
        if (edge := window.edges.get((source, target))) is not None:
            parts[f"{source} → {target}"] = edge.buffer_latency_ms / 2 + edge.channel_latency_ms
        parts[target] = window.tasks[target].latency_mean_ms
    return parts
