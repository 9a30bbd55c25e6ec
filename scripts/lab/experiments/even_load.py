"""Paper 3's experiment on plans (Fig. 4 and 5): how much of CPU and bandwidth is used, and how evenly, by greedy
matching, at random, and in turns.

    .venv/bin/python -P -m headgate.lab.experiments.even_load --topology all --rates 50,100,200

For each rate MBA's threads of `--topology` (logic alone, published models) go onto the slots that greedy matching
takes: by greedy matching with either objective (`deviation`, `utilization`), in turns (`even`, paper 0's DSM), and each
thread anywhere (`random`, the median of `--seeds`). A JSON line each:

cpu_, words_utilization   Fig. 4: of all slots' CPU what threads need, at most all of a slot's; of all words those that
                          leave their slot
cpu_, words_deviation     Fig. 5: the mean absolute one of all slots from their mean, as a part of it
over                      slots that need more than all of their CPU

and a last line with the means over all topologies and rates.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
from collections import Counter

from msgspec.structs import replace

from headgate.controller.models.plans import Allocation, Bundle, TaskFlow
from headgate.controller.plan.allocators.mba import mba
from headgate.controller.plan.mappers.dsm import dsm
from headgate.controller.plan.mappers.free_slots import OBJECTIVES, GreedyBounds, Room, need_of
from headgate.controller.plan.mappers.greedy_matching import greedy_matching
from headgate.controller.plan.planner import PlanRequest, make_plan
from headgate.lab.reproduction.paper_tables import LOGIC, PUBLISHED
from headgate.topology_runtime.api.cluster import Slot, Vm
from headgate.topology_runtime.api.topology import Topology
from headgate.topology_runtime.errors import Infeasible

Held = dict[Slot, Counter[str]]
Figures = dict[str, float]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--topology", default="traffic", choices=["all", *sorted(LOGIC)])
    parser.add_argument("--rates", default="200,400,600,800,1000,1200")
    parser.add_argument("--seeds", type=int, default=20)
    asked = parser.parse_args()
    every: dict[str, list[Figures]] = {}
    for topology in LOGIC.values() if asked.topology == "all" else [LOGIC[asked.topology]]:
        for rate in map(float, asked.rates.split(",")):
            for name, found in placements(topology, rate, asked.seeds).items():
                every.setdefault(name, []).append(found)
                told = {key: round(value, 3) for key, value in found.items()}
                print(json.dumps({"topology": topology.name, "rate_tps": rate, "placement": name, **told}))
    means = {
        name: {key: round(statistics.mean(one[key] for one in rows), 4) for key in rows[0]}
        for name, rows in every.items()
    }
    print(json.dumps({"means": means, "n": len(every["even"])}))


def placements(topology: Topology, rate: float, seeds: int) -> dict[str, Figures]:
    allocation = mba(topology, PUBLISHED, rate)
    vms = tuple(Vm(f"vm{number}", 1) for number in range(2 * allocation.slots))
    used = make_plan(
        PlanRequest(topology, PUBLISHED, rate, vms, mapper="greedy-matching", routing="shuffle")
    ).slots.used
    rates = topology.rates(rate)
    flows = tuple(TaskFlow(e.source, e.target, rates[e.source] * e.selectivity) for e in topology.edges)
    room = Room(vms[:used], flows=flows)
    placed = {
        **{objective: greedily(allocation, room, objective) for objective in OBJECTIVES},
        "even": [held_of(dsm(allocation, room).bundles)],
        "random": [at_random(allocation, room, seed) for seed in range(seeds)],
    }
    found = {}
    for name, worlds in placed.items():
        if worlds:
            rows = [measured(allocation, room, held) for held in worlds]
            found[name] = {key: statistics.median(row[key] for row in rows) for key in rows[0]}
    return found


def greedily(allocation: Allocation, room: Room, objective: str) -> list[Held]:
    """None, where it does not fit into these slots."""
    try:
        return [
            held_of(
                greedy_matching(allocation, replace(room, greedy=GreedyBounds(objective=objective))).bundles
            )
        ]
    except Infeasible:
        return []


def held_of(bundles: tuple[Bundle, ...]) -> Held:
    held: Held = {}
    for bundle in bundles:
        held.setdefault(bundle.slot, Counter())[bundle.task] += bundle.threads
    return held


def at_random(allocation: Allocation, room: Room, seed: int) -> Held:
    chance, slots = random.Random(seed), room.slots()
    held: Held = {}
    for task in allocation.tasks:
        for _ in range(task.threads):
            held.setdefault(chance.choice(slots), Counter())[task.task] += 1
    return held


def measured(allocation: Allocation, room: Room, held: Held) -> Figures:
    threads = {task.task: task.threads for task in allocation.tasks}
    needs = {task.task: need_of(task)[0] for task in allocation.tasks}
    cpu, words = [], []
    for slot in room.slots():
        here = held.get(slot, Counter())
        cpu.append(sum(needs[task] * count for task, count in here.items()))
        crossing = 0.0
        for flow in room.flows:
            a, b = here[flow.source] / threads[flow.source], here[flow.target] / threads[flow.target]
            crossing += flow.rows_tps * (a + b - 2 * a * b)
        words.append(crossing)
    said = sum(flow.rows_tps for flow in room.flows)
    return {
        "slots": float(len(cpu)),
        "cpu_utilization": statistics.mean(min(1.0, one) for one in cpu),
        "words_utilization": sum(words) / 2 / said if said else 0.0,
        "cpu_deviation": deviation(cpu),
        "words_deviation": deviation(words),
        "cpu_most": max(cpu),
        "over": float(sum(one > 1 + 1e-9 for one in cpu)),
    }


def deviation(values: list[float]) -> float:
    mean = statistics.mean(values)
    return statistics.mean(abs(one - mean) for one in values) / mean if mean else 0.0


if __name__ == "__main__":
    main()
