"""Paper 3's experiment on plans: how evenly CPU and words are spread by greedy matching, at random, and in turns.

For input rates from 200 to 1,200 rows/s MBA's threads of `--topology` (logic alone, published models) go onto the
slots that greedy matching takes: by greedy matching, in turns (`even`, paper 0's DSM), and each thread anywhere
(`random`, the median of `--seeds`). Deviation is the mean absolute one of all slots from their mean, as a part of it:
of CPU (what threads need on average), and of the rows/s that leave or enter a slot. `over`: slots that need more than
all of their CPU. A JSON line each.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
from collections import Counter

from headgate.controller.models.plans import Allocation, Bundle, TaskFlow
from headgate.controller.plan.allocators.mba import mba
from headgate.controller.plan.mappers.dsm import dsm
from headgate.controller.plan.mappers.free_slots import Room, need_of
from headgate.controller.plan.mappers.greedy_matching import greedy_matching
from headgate.controller.plan.planner import PlanRequest, make_plan
from headgate.lab.reproduction.paper_tables import LOGIC, PUBLISHED
from headgate.topology_runtime.api.cluster import Slot, Vm

Held = dict[Slot, Counter[str]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--topology", default="traffic", choices=sorted(LOGIC))
    parser.add_argument("--seeds", type=int, default=20)
    asked = parser.parse_args()
    topology = LOGIC[asked.topology]
    for rate in range(200, 1201, 200):
        allocation = mba(topology, PUBLISHED, float(rate))
        vms = tuple(Vm(f"vm{number}", 1) for number in range(2 * allocation.slots))
        request = PlanRequest(
            topology, PUBLISHED, float(rate), vms, mapper="greedy-matching", routing="shuffle"
        )
        used = make_plan(request).slots.used
        rates = topology.rates(float(rate))
        flows = tuple(TaskFlow(e.source, e.target, rates[e.source] * e.selectivity) for e in topology.edges)
        room = Room(vms[:used], flows=flows)
        placed = {
            "greedy-matching": [held_of(greedy_matching(allocation, room).bundles)],
            "even": [held_of(dsm(allocation, room).bundles)],
            "random": [at_random(allocation, room, seed) for seed in range(asked.seeds)],
        }
        for name, worlds in placed.items():
            found = [measured(allocation, room, held) for held in worlds]
            row = {key: round(statistics.median(one[key] for one in found), 3) for key in found[0]}
            print(json.dumps({"topology": topology.name, "rate_tps": rate, "slots": used, "placement": name,
                              **row, "n": len(found)}))  # fmt: skip


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


def measured(allocation: Allocation, room: Room, held: Held) -> dict[str, float]:
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
    return {
        "cpu_deviation": deviation(cpu),
        "words_deviation": deviation(words),
        "cpu_mean": statistics.mean(cpu),
        "cpu_most": max(cpu),
        "over": float(sum(one > 1 + 1e-9 for one in cpu)),
        "rows_between_slots_tps": sum(words) / 2,
    }


def deviation(values: list[float]) -> float:
    mean = statistics.mean(values)
    return statistics.mean(abs(one - mean) for one in values) / mean if mean else 0.0


if __name__ == "__main__":
    main()
