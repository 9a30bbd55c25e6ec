"""What tasks hold in memory is a stock: however few rows come, it is there. In no slot is it more than the slot has."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Sequence

import pytest
from msgspec.structs import replace

from headgate.controller.core.plan_choice import planned
from headgate.controller.models.plans import Plan
from headgate.controller.models.task_models import Model, ModelSlot, Point
from headgate.controller.plan.planner import PlanRequest, best_plan, make_plan, plan_acquiring
from headgate.controller.plan.predict.slot_fit import fitted
from headgate.controller.plan.schedulers import MAPPERS, pair_of, pairs
from headgate.controller.plan.verifier import faults_of
from headgate.topology_runtime.api.cluster import SLOT_MEMORY_LEAST, Slot, Vm
from headgate.topology_runtime.api.topology import Edge, Static, Task, Topology
from headgate.topology_runtime.errors import Infeasible

MIB = 1 << 20
SLOT, WORKER = 512 * MIB, 40 * MIB
HEEDFUL = [pair for pair in pairs() if not MAPPERS[pair_of(pair)[1]].heedless]


def measured(task: str, *points: tuple[int, float, float, int], slot: int = SLOT) -> Model:
    """Points: threads, rows/s, CPU, MiB that they hold."""
    more = {"measured_at": "2026-11-30T00:00:00Z", "worker_bytes": WORKER, "base_memory": 0.0}
    found = tuple(Point(n, rate, cpu, mib * MIB / slot) for n, rate, cpu, mib in points)
    return Model(task, ModelSlot(1.0, slot, "here"), found, more)


def line(*tasks: str) -> Topology:
    names = ("source", *tasks, "sink")
    ends = Static(1, 0.05, 0.02)
    made = (
        Task("source", kind="source", static=ends),
        *(Task(task) for task in tasks),
        Task("sink", static=ends),
    )
    return Topology("line", made, tuple(Edge(a, b) for a, b in zip(names, names[1:], strict=False)))


def request(pair: str, models: Sequence[Model], rate_tps: float, slots: int = 8) -> PlanRequest:
    allocator, mapper = pair_of(pair)
    vms = (Vm("vm1", slots, slot_memory_bytes=SLOT),)
    topology = line(*(model.task for model in models))
    return PlanRequest(
        topology, {m.task: m for m in models}, rate_tps, vms, allocator=allocator, mapper=mapper
    )


def held_mib(plan: Plan, models: Sequence[Model]) -> dict[Slot, float]:
    """By slot, worked out from the plan and the points alone: no task's memory is shared with another's."""
    points = {model.task: {p.threads: p.memory * SLOT / MIB for p in model.points} for model in models}
    found: defaultdict[Slot, float] = defaultdict(lambda: WORKER / MIB)
    for bundle in plan.placement.bundles:
        if (of := points.get(bundle.task)) is not None:
            whole, rest = divmod(
                bundle.threads, max(of)
            )  # more threads than were measured: groups of the most
            found[bundle.slot] += whole * of[max(of)] + of.get(rest, 0.0)
    return found


THREE = [measured(name, (1, 100.0, 0.2, 200), (2, 200.0, 0.4, 210)) for name in ("join", "look", "score")]


@pytest.mark.parametrize("pair", HEEDFUL)
def test_three_tasks_that_hold_200_mib_each_do_not_share_a_slot_of_512(pair: str) -> None:
    """They did at few rows/s, and were killed for ever beside three empty slots."""
    plan = make_plan(request(pair, THREE, 5.0))
    found = held_mib(plan, THREE)
    assert max(found.values()) <= 512, found
    assert not faults_of(plan, line("join", "look", "score"), {m.task: m for m in THREE})


@pytest.mark.parametrize("pair", pairs())
def test_tasks_that_leave_no_room_for_the_worker_do_not_share_a_slot(pair: str) -> None:
    """Together they hold less than a slot has, but not beside its worker: mixes were refused there."""
    two = [measured(name, (1, 100.0, 0.2, 240)) for name in ("join", "look")]
    plan = make_plan(request(pair, two, 5.0))
    assert max(held_mib(plan, two).values()) <= 512


def test_mixes_that_run_leave_the_worker_its_memory_when_the_rate_rises() -> None:
    tasks = [measured(name, (1, 50.0, 0.2, 110), (2, 100.0, 0.4, 225)) for name in ("join", "look", "score")]
    asked = request("optimal+optimal", tasks, 40.0)
    first = make_plan(asked)
    again = replace(asked, rate_tps=90.0, in_force=first.placement)
    second = make_plan(again)
    assert not faults_of(second, again.topology, again.models)
    assert max(held_mib(second, tasks).values()) <= 512


def test_the_best_that_fits_is_refused_where_slots_would_hold_too_much() -> None:
    """Tasks of fixed size need more CPU than there is: threads would go round the slots, whatever they hold."""
    asked = request(
        "mba+sam", [measured(name, (1, 100.0, 0.2, 300)) for name in ("join", "look")], 5.0, slots=1
    )
    with pytest.raises(Infeasible) as refused:
        best_plan(asked)
    assert refused.value.faults[0].endswith("join 300 MiB, look 300 MiB")
    assert refused.value.hint is not None and "larger slots" in refused.value.hint


def test_slots_smaller_than_the_worker_are_refused_with_a_size_that_it_fits_in() -> None:
    small = (Vm("vm1", 8, slot_memory_bytes=WORKER - 1),)
    with pytest.raises(Infeasible) as refused:
        make_plan(replace(request("mba+sam", THREE, 5.0), vms=small))
    assert refused.value.what == "a slot has 40 MiB of memory, a worker without tasks takes 40"
    assert refused.value.faults[0] == "task 'join' needs a slot of 240 MiB"
    assert refused.value.hint is not None and f"slot-memory={264 * MIB}" in refused.value.hint


def of_a_paper(model: Model) -> Model:
    return replace(model, more={})


def nothing_known(model: Model) -> Model:
    return replace(model, more={"unmeasured": True})


@pytest.mark.parametrize("known", [of_a_paper, nothing_known])
@pytest.mark.parametrize(
    "plan", [make_plan, best_plan, lambda asked: plan_acquiring(asked, asked.vms), planned]
)
def test_slots_smaller_than_any_worker_are_refused_whatever_is_known_of_tasks(
    known: Callable[[Model], Model], plan: Callable[[PlanRequest], object]
) -> None:
    """A run with slots of 32 MiB began, and its workers could only be killed."""
    small = (Vm("vm1", 8, slot_memory_bytes=SLOT_MEMORY_LEAST - 1),)
    asked = replace(request("mba+sam", [known(model) for model in THREE], 5.0), vms=small)
    with pytest.raises(Infeasible) as refused:
        plan(asked)
    assert refused.value.what == "a slot has 34 MiB of memory, a worker without tasks takes 34"
    assert refused.value.hint is not None and f"slot-memory={38 * MIB}" in refused.value.hint
    assert plan(replace(asked, vms=(replace(small[0], slot_memory_bytes=SLOT_MEMORY_LEAST),)))


@pytest.mark.parametrize("pair", ["mba+sam", "mba+rsm", "lsa+rsm", "optimal+optimal"])
def test_acquired_slots_leave_the_worker_its_memory(pair: str) -> None:
    """Threads were counted for whole slots, so bundles of two had no slot however many were acquired."""
    look = measured("look", (1, 50.0, 0.2, 250), (2, 100.0, 0.4, 500))
    plan = plan_acquiring(request(pair, [look], 90.0), (Vm("small", 1, slot_memory_bytes=SLOT),))
    assert max(held_mib(plan, [look]).values()) <= 512 and plan.prediction.rate_tps >= 90


@pytest.mark.parametrize("pair", ["mba+dsm", "mba+topology"])
def test_a_mapper_that_looks_at_no_memory_is_refused_where_it_puts_too_much_into_a_slot(pair: str) -> None:
    large = [measured(name, (1, 100.0, 0.2, 300)) for name in ("join", "look", "score")]
    with pytest.raises(Infeasible) as refused:
        make_plan(request(pair, large, 5.0, slots=2))
    assert "more into a slot than it has memory for" in (refused.value.cause or "")


def test_models_of_papers_need_memory_in_proportion_to_their_rate_as_printed() -> None:
    printed = [replace(model, more={}) for model in THREE]
    plan = make_plan(request("mba+sam", printed, 5.0))
    assert len({bundle.slot for bundle in plan.placement.bundles}) == 1


def test_a_smaller_slot_gets_no_more_threads_than_it_has_memory_for() -> None:
    large = measured("look", (1, 10.0, 0.1, 150), (4, 40.0, 0.4, 400), (8, 80.0, 0.8, 800), slot=1024 * MIB)
    (model,) = fitted([large], line("look"), 1.0, SLOT)
    plan = make_plan(request("mba+sam", [model], 80.0))
    assert [bundle.threads for bundle in plan.placement.bundles if bundle.task == "look"] == [4, 4]


def test_a_task_that_no_slot_holds_is_named_with_the_slot_that_it_needs() -> None:
    large = measured("look", (1, 10.0, 0.1, 700), slot=1024 * MIB)
    models = fitted([large, THREE[0]], line("look", "join"), 1.0, SLOT)
    with pytest.raises(Infeasible) as refused:
        make_plan(request("mba+sam", models, 5.0))
    assert list(refused.value.faults) == ["task 'look' holds 700 MiB in one thread, a slot has 472"]
    assert refused.value.hint is not None and f"slot-memory={815 * MIB}" in refused.value.hint


def test_machines_are_acquired_for_what_is_held() -> None:
    asked = request("mba+sam", THREE, 5.0)
    plan = plan_acquiring(asked, [Vm("small", 1, slot_memory_bytes=SLOT)])
    assert plan.slots.used == 2 and max(held_mib(plan, THREE).values()) <= 512


@pytest.mark.parametrize("seed", range(60))
def test_no_slot_of_a_random_world_holds_more_than_it_has(seed: int) -> None:
    r = random.Random(seed)
    models = []
    for number in range(r.randint(2, 7)):
        mib, points = float(r.choice([5, 30, 90, 200, 330])), []
        for threads in range(1, r.randint(2, 6)):
            points.append((threads, 40.0 * threads, min(1.0, 0.18 * threads), int(mib)))
            mib += r.choice([1, 10, 40])
        models.append(measured(f"t{number}", *[p for p in points if p[3] <= 470]))
    for pair in (
        "lsa+rsm",
        "mba+rsm",
        "mba+sam",
        "mba+traffic",
        "mba+task-level",
        "mba+top-down",
        "optimal+optimal",
    ):
        try:
            plan = make_plan(request(pair, models, r.choice([1.0, 20.0, 90.0]), slots=24))
        except Infeasible:
            continue
        found = held_mib(plan, models)
        assert max(found.values()) <= 512 * (1 + 1e-6), (pair, found)


def test_what_fills_a_slot_to_the_last_byte_fits() -> None:
    """Sums of fractions of it are over by their rounding."""
    room = 512 - WORKER // MIB
    for parts in ((room,), (room / 3, room / 3, room / 3), (0.1 * room, 0.2 * room, 0.7 * room)):
        models = [
            replace(measured(f"t{n}", (1, 10.0, 0.01, 1)), points=(Point(1, 10.0, 0.01, mib * MIB / SLOT),))
            for n, mib in enumerate(parts)
        ]
        asked = request("mba+sam", models, 1.0)
        plan = make_plan(asked)
        assert not faults_of(plan, asked.topology, asked.models)
