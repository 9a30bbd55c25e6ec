"""How the latency constraints stand, as those workers tell that manage their parts (topology_runtime/latency). Pure."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import fmean

from headgate.controller.knowledge.diagnoses import PathStanding
from headgate.topology_runtime.latency.words import PathNow, Standing
from headgate.topology_runtime.messages import WorkerStatus
from headgate.topology_runtime.topology import LatencyConstraint, Topology

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
