"""How long a plan for the fewest slots takes by the clock, and what is left open, beside whatever else runs here.

    .venv/bin/python -P scripts/experiments/plans_in_time.py

Random topologies as in `scripts/bench_plan.py`, each at rates for which MBA takes 20, 40, 60 slots (15 tasks) or 1,900
(1,000 tasks), with the clock that commands hand in. A plan here is allocated, mapped and predicted.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from msgspec.structs import replace

from bench_plan import MODELS, highest_rate, timed, topology
from headgate.controller.plan.planner import PlanRequest, make_plan
from headgate.topology_runtime.cluster import Vm
from headgate.topology_runtime.patience import clocked

CASES = ((15, (20, 40, 60)), (1000, (1900,)))
STEPS = (1.0, 0.97, 0.94)  # of each rate


def measured(tasks: int, slots: tuple[int, ...]) -> dict[str, Any]:
    shape, times, gaps, ended = topology(tasks), [], [], []
    for most in slots:
        vms = tuple(Vm(f"vm{number}", 4) for number in range(most // 2))
        rate_tps = highest_rate(shape, "mba", most)
        for step in STEPS:
            fresh = replace(shape, name=f"{shape.name}-{len(times)}")
            asked = PlanRequest(fresh, MODELS, rate_tps * step, vms, allocator="optimal", mapper="optimal")
            with clocked(time.monotonic):
                plan, took_ms = timed(lambda asked=asked: make_plan(asked))
            times.append(took_ms / 1000)
            gaps.append(plan.allocation.gap or 0.0)
            ended.append(plan.allocation.ended)
    return {
        "tasks": tasks,
        "n": len(times),
        "median_s": round(statistics.median(times), 2),
        "most_s": round(max(times), 2),
        "gap_median": round(statistics.median(gaps), 3),
        "gap_most": round(max(gaps), 3),
        "ended_by_the_clock": sum(" after " in why and why.endswith(" s") for why in ended),
        "load": os.getloadavg()[0],
    }


def main() -> None:
    for tasks, slots in CASES:
        print(json.dumps(measured(tasks, slots)), flush=True)


if __name__ == "__main__":
    main()
