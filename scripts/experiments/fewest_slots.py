"""Slots of MBA+SAM and of the optimal planner on the six topologies of paper 0, published models; a JSON line each.

Logic alone, as in the seed's minima, then with source and sink. `seconds`: the median of `--turns` plans.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from experiments.paper_plans import LOGIC, PUBLISHED
from headgate.controller.plan.planner import PlanRequest, plan_acquiring
from headgate.topology_runtime.cluster import Vm
from headgate.topology_runtime.loading import load

SIZES = tuple(Vm(f"size{slots}", slots) for slots in (4, 2, 1))
NAMES = ("linear", "diamond", "star", "finance", "traffic", "smart-grid")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=3)
    turns = parser.parse_args().turns
    for ends in (False, True):
        for name in NAMES:
            for rate_tps in (50, 100, 200):
                topology = load(name).topology if ends else LOGIC[name]
                asked = PlanRequest(topology, PUBLISHED, float(rate_tps), ())
                usual = plan_acquiring(asked, SIZES)
                took = []
                for _ in range(turns):
                    began = time.perf_counter()
                    request = PlanRequest(
                        topology, PUBLISHED, float(rate_tps), (), allocator="optimal", mapper="optimal"
                    )
                    found = plan_acquiring(request, SIZES)
                    took.append(time.perf_counter() - began)
                row = {"topology": name, "ends": ends, "rate_tps": rate_tps, "mba_sam": usual.slots.total,
                       "optimal": found.slots.total, "gap": found.allocation.gap,
                       "predicted_tps": found.prediction.rate_tps, "seconds": statistics.median(took)}  # fmt: skip
                print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
