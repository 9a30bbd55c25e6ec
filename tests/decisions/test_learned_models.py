"""Models learned from the rows of a run, for tasks that nothing is known of yet (controller/core/learned_models.py)."""

from __future__ import annotations

import pytest
from enactment_world import MODELS, TOPOLOGY, S, World
from msgspec.structs import replace

from headgate.controller.core.learned_models import LARGE, row_cost
from headgate.controller.core.plan_choice import planned
from headgate.controller.knowledge import loop_events as t
from headgate.controller.knowledge.knowledge import RowsSeen
from headgate.controller.models.model_data import model_of
from headgate.controller.models.task_models import Model, peak, peak_rate
from headgate.controller.plan.planning_request import PlanRequest
from headgate.topology_runtime.api.cluster import Vm
from headgate.topology_runtime.api.topology import Edge, Static, Task, Topology
from headgate.topology_runtime.measuring.model_store import stand_in

# ── what a row costs ────────────────────────────────────────────────────────────────────────────


def second(rows: float, cpu_s: float, wait_s: float = 0.0, frames: float = 0.0, **more: float) -> RowsSeen:
    """Of a thread that spent so much on each of its rows."""
    busy_s = rows * (cpu_s + wait_s)
    others, delay_s = more.get("others", 0.0), more.get("delay_s", 0.0)
    return RowsSeen(rows, frames or rows, rows * cpu_s, busy_s, rows * wait_s, delay_s, others, False)


def test_a_computing_row_costs_its_cpu_and_waits_for_nothing() -> None:
    cost = row_cost([second(50, 0.01)] * 10)
    assert cost is not None and (cost.cpu_s, cost.wait_s, cost.why) == (pytest.approx(0.01), 0.0, ())


def test_what_is_waited_for_a_service_is_told_from_what_is_waited_for_a_cpu() -> None:
    waits = row_cost([second(50, 0.001, 0.02)] * 10)
    assert waits is not None and waits.wait_s == pytest.approx(0.02)
    late = [second(50, 0.01, 0.004, delay_s=0.2)] * 10  # 4 ms a row, all of it until there was a CPU
    held = [second(50, 0.01, 0.005, others=0.4)] * 10  # and by another thread, which held the interpreter
    for seen in (late, held):
        cost = row_cost(seen)
        assert cost is not None and cost.wait_s == 0.0


def quick(rows_a_frame: float, rows: float = 2000) -> RowsSeen:
    """2 µs a row and 50 µs a frame."""
    return second(rows, 2e-6 + 50e-6 / rows_a_frame, frames=rows / rows_a_frame)


def test_a_quick_row_is_taken_as_it_costs_among_many() -> None:
    alone = row_cost([quick(1)] * 10)
    assert alone is not None and alone.cpu_s == pytest.approx(52e-6) and alone.why == ("small frames",)
    some = row_cost([*[quick(1)] * 5, *[quick(10)] * 3])  # a line through both tells the frame from its rows
    assert (
        some is not None and some.cpu_s == pytest.approx(2e-6 + 50e-6 / 64) and some.why == ("small frames",)
    )
    many = row_cost([*[quick(1)] * 5, *[quick(2 / LARGE)] * 3])
    assert many is not None and many.cpu_s == pytest.approx(2e-6, rel=0.3) and many.why == ()


@pytest.mark.parametrize(
    ("seen", "why"),
    [
        ([second(3, 0.01)] * 10, ("few rows",)),
        ([second(100, 0.01)] * 4, ("some seconds",)),
        ([second(100, 0.01)._replace(disturbed=True)] * 10, ("disturbed",)),
    ],
)
def test_few_or_disturbed_rows_say_so(seen: list[RowsSeen], why: tuple[str, ...]) -> None:
    cost = row_cost(seen)
    assert cost is not None and cost.why == why


def test_hardly_any_rows_say_nothing() -> None:
    assert row_cost([]) is None and row_cost([second(1, 0.01)] * 10) is None


# ── in a run ────────────────────────────────────────────────────────────────────────────────────


def unknown(name: str) -> Model:
    model, faults = model_of(stand_in(name, {"cores": 1.0}))
    assert model is not None and not faults
    return model


TASKS = (*TOPOLOGY.tasks, Task("store"))
WITH_STORE = replace(TOPOLOGY, tasks=TASKS, edges=(*TOPOLOGY.edges, Edge("work", "store")))
A_SECOND = {
    "tuples_in": 100,
    "busy_ns": S // 4,
    "cpu_ns": S // 10,
    "wait_ns": 3 * S // 20,
}  # 1 ms, 1.5 ms of waiting


class Kept(World):
    """Notes the models that the controller has kept."""

    def __init__(self, rate_tps: float = 100.0) -> None:
        super().__init__(rate_tps=rate_tps)
        self.kept: list[dict[str, object]] = []
        self.submitted = replace(self.submitted, topology=WITH_STORE, models=(*MODELS, unknown("store")))
        self.loop = type(self.loop)(self.settings, self.submitted)

    def perform(self, instruction: t.Instruction) -> None:
        if isinstance(instruction, t.KeepModel):
            self.kept.append(instruction.model)
        super().perform(instruction)

    @property
    def model(self) -> Model:
        return self.loop.knowledge.models["store"]

    def beside_store(self) -> list[str]:
        """The tasks in its slot."""
        bundles = self.loop.knowledge.plan.placement.bundles
        (slot,) = (bundle.slot for bundle in bundles if bundle.task == "store")
        return [bundle.task for bundle in bundles if bundle.slot == slot]


def test_it_starts_at_once_and_is_planned_again_by_its_own_rows_within_seconds() -> None:
    world = Kept().start().run(10)
    assert world.beside_store() == ["store"] and world.loop.knowledge.plan.slots.used == 2
    picture = world.ask("status").data
    assert next(task for task in picture["tasks"] if task["task"] == "store")["load"] is None
    world.work["store"] = A_SECOND
    world.run(20)
    decided = next(d for d in world.traces if d["trigger"] == "first_rows")
    assert decided["action"] in ("plan", "adopt") and "store" in decided["text"]
    assert not world.model.unmeasured and not world.model.tentative
    assert peak_rate(world.model, 1) == pytest.approx(1000 / 2.5, rel=0.01), "one thread: 2.5 ms a row"
    assert peak(world.model) == (pytest.approx(1000.0, rel=0.01), 4), "its slot: 1 ms of CPU a row"
    assert world.kept[-1]["provenance"] == "first rows" and "unmeasured" not in world.kept[-1]
    assert len(world.beside_store()) > 1 and world.loop.knowledge.plan.slots.used == 1
    assert sum(d["trigger"] == "first_rows" for d in world.traces) <= 2


def test_what_is_said_of_few_rows_says_so_and_is_learned_again_from_more() -> None:
    world = Kept().start()
    world.work["store"] = {"tuples_in": 4, "busy_ns": S // 100, "cpu_ns": S // 100}
    world.run(20)
    assert world.model.tentative and "few rows" in world.model.more["tentative"]
    assert world.kept[-1]["tentative"] == world.model.more["tentative"]
    world.work["store"] = A_SECOND
    world.run(40)
    assert not world.model.tentative and "tentative" not in world.kept[-1]


def test_a_controller_that_is_killed_still_knows_what_was_learned() -> None:
    world = Kept().start()
    world.work["store"] = A_SECOND
    world.run(60)
    learned, kept = world.model, len(world.kept)
    assert not learned.unmeasured
    world.restart_controller()
    world.run(30)
    assert world.model == learned and len(world.kept) == kept


def test_without_room_in_the_journal_nothing_is_learned_nor_planned() -> None:
    world = Kept().start().run(10)
    world.journal_fails = True
    world.work["store"] = A_SECOND
    world.run(30)
    assert world.model.unmeasured and world.beside_store() == ["store"]
    world.journal_fails = False
    world.run(60)
    assert not world.model.unmeasured


# ── the plan before anything is known ───────────────────────────────────────────────────────────


def all_unknown(tasks: int, slots: int, may_add: int = 0) -> PlanRequest:
    names = [f"t{n}" for n in range(tasks)]
    chain = ("source", *names)
    made = (Task("source", "source", static=Static(cpu=0.1, memory=0.1)), *(Task(name) for name in names))
    edges = tuple(Edge(a, b) for a, b in zip(chain, names, strict=False))
    models = {name: unknown(name) for name in names}
    vms = (Vm("vm1", slots, 1.0, 1 << 29),)
    more = tuple(Vm(f"vm{n}", slots, 1.0, 1 << 29) for n in range(2, 2 + may_add))
    return PlanRequest(Topology("t", made, edges), models, 100.0, vms, more)


@pytest.mark.parametrize("slots", [1, 2, 4])
@pytest.mark.parametrize("tasks", [1, 2, 3, 5, 9, 40])
def test_tasks_that_nothing_is_known_of_share_the_slots_there_are(tasks: int, slots: int) -> None:
    request = all_unknown(tasks, slots, may_add=3)
    plan, degraded = planned(request)
    assert not degraded and plan.rate_tps == 100.0 and {vm.vm for vm in plan.vms} == {"vm1"}
    assert plan.placement.by_task() == {"source": 1} | {f"t{n}": 1 for n in range(tasks)}
    most = max(sum(b.slot == slot for b in plan.placement.bundles) for slot in plan.vms[0].all_slots())
    assert most <= 1 + 2 * -(-tasks // slots), "no slot has many more than its part"
