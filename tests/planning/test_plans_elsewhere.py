"""Any plan, whatever made it, says the same in the words of every other system."""

from __future__ import annotations

import shlex
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from worlds import checked_few, requests

from headgate.controller.knowledge.plans import Plan
from headgate.controller.offline.elsewhere.for_flink import for_flink
from headgate.controller.offline.elsewhere.for_kubernetes import for_kubernetes
from headgate.controller.offline.elsewhere.for_storm import for_storm
from headgate.controller.plan.planner import PlanRequest, make_plan
from headgate.controller.plan.schedulers import pair_of, pairs
from headgate.topology_runtime.errors import Infeasible


def planned(request: PlanRequest, pair: str) -> Plan | None:
    allocator, mapper = pair_of(pair)
    try:
        return make_plan(replace(request, allocator=allocator, mapper=mapper))
    except Infeasible:
        return None


@checked_few
@given(requests(), st.sampled_from(pairs()))
def test_every_thread_and_every_slot_leaves(request, pair):
    plan = planned(request, pair)
    if plan is None:
        return
    threads = Counter()
    for bundle in plan.placement.bundles:
        threads[bundle.task] += bundle.threads
    flink = for_flink(plan, request.topology, 1.0)
    assert {one["task"]: one["parallelism"] for one in flink.rows} == threads
    assert len({one["vertex_id"] for one in flink.rows}) == len(threads)
    assert flink.told["task_managers"] == plan.placement.slots_used()
    held = flink.told["task_managers"] * flink.told["settings"]["taskmanager.numberOfTaskSlots"]
    assert held >= sum(threads.values())
    storm = for_storm(plan, 1.0)
    words = shlex.split(storm.told["rebalance"])
    assert words[3:5] == ["-n", str(plan.placement.slots_used())]
    assert {word for word in words if "=" in word} == {f"{task}={count}" for task, count in threads.items()}
    kubernetes = for_kubernetes(plan)
    assert sum(one["replicas"] * one["slots"] for one in kubernetes.rows) == sum(vm.slots for vm in plan.vms)
    assert len(set(kubernetes.told["pods"])) == len(plan.vms)
    assert all(found.lost and found.blocks for found in (flink, storm, kubernetes))
