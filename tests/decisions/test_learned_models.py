"""Models learned from the rows of a run, for tasks that nothing is known of yet (controller/core/learned_models.py)."""

from __future__ import annotations

import json
import math

import pytest
from enactment_world import MODELS, TOPOLOGY, S, World
from msgspec.structs import replace

from headgate.controller.core.learned_models import WORKER_BYTES, model_from, own_part, row_cost
from headgate.controller.core.plan_choice import PlanQuestion, choose, planned
from headgate.controller.knowledge import loop_events as t
from headgate.controller.knowledge.knowledge import RowsSeen
from headgate.controller.models.model_data import model_of
from headgate.controller.models.plan_data import plan_data, plan_of
from headgate.controller.models.task_models import Model, peak, peak_rate
from headgate.controller.plan.planning_request import PlanRequest
from headgate.controller.plan.verifier import faults_of
from headgate.dashboards.runs.live_view import headline, notes, tick_line
from headgate.topology_runtime.api.cluster import Vm
from headgate.topology_runtime.api.topology import Edge, Static, Task, Topology
from headgate.topology_runtime.measuring.model_store import stand_in
from headgate.topology_runtime.wire import messages as m
from headgate.topology_runtime.wire.run_options import FRAME_ROWS

# ── what a row costs ────────────────────────────────────────────────────────────────────────────


def second(rows: float, cpu_s: float, wait_s: float = 0.0, frames: float = 0.0, **more: float) -> RowsSeen:
    """Of a thread that spent so much on each of its rows."""
    busy_s = rows * (cpu_s + wait_s)
    others, delay_s = more.get("others", 0.0), more.get("delay_s", 0.0)
    return RowsSeen(rows, frames or rows, rows * cpu_s, busy_s, rows * wait_s, delay_s, others, False)


def test_a_computing_row_costs_its_cpu_and_waits_for_nothing() -> None:
    cost = row_cost([second(50, 0.01)] * 10, 0.5)
    assert cost is not None and (cost.cpu_s, cost.wait_s, cost.why) == (pytest.approx(0.01), 0.0, ())


def test_how_much_rows_differ_is_learned_from_calm_seconds() -> None:
    """10 ms of CPU give or take 3, or a wait of 20 ms give or take 8; what a disturbed second says does not count."""
    ran = second(50, 0.01)._replace(calls=50.0, ran_us2=50 * (10_000.0**2 + 3_000**2))
    wild = ran._replace(disturbed=True, ran_us2=50 * 90_000.0**2)
    cost = row_cost([*[ran] * 9, wild], 0.5)
    assert cost is not None and cost.wait_spread is None
    assert cost.cpu_spread == pytest.approx(math.sqrt(math.log(1.09)), abs=0.001)
    waits = second(50, 0.001, 0.02)._replace(calls=50.0, waited_us2=50 * (20_000.0**2 + 8_000**2))
    cost = row_cost([waits] * 10, 0.5)
    assert cost is not None and cost.wait_spread == pytest.approx(math.sqrt(math.log(1.16)), abs=0.001)
    slot = {"cores": 0.5, "memory_bytes": 1 << 30, "machine": "here"}
    before, _ = model_of(stand_in("work", slot))
    assert before is not None
    model = model_from(before, cost, 0.1, "2026")
    assert model.spreads[1] == pytest.approx(cost.wait_spread, abs=0.001)
    again = row_cost(
        [second(50, 0.01)] * 10, 0.5
    )  # too few calls to tell: it waits no more, and nobody knows the rest
    assert again is not None and model_from(model, again, 0.1, "2026").spreads == (None, None)


def test_a_computing_row_comes_alone_at_its_peak_whatever_it_came_with() -> None:
    alone = second(50, 0.002 + FRAME_S)
    together = second(50, 0.002 + FRAME_S / 10, frames=5)
    cost = row_cost([*[alone] * 5, *[together] * 5], 0.5)
    assert cost is not None and cost.cpu_s == pytest.approx(0.002 + FRAME_S), "its frame is its own"


def test_what_is_waited_for_a_service_is_told_from_what_is_waited_for_a_cpu() -> None:
    waits = row_cost([second(50, 0.001, 0.02)] * 10, 0.5)
    assert waits is not None and waits.wait_s == pytest.approx(0.02)
    late = [second(50, 0.01, 0.004, delay_s=0.2)] * 10  # 4 ms a row, all of it until there was a CPU
    held = [second(50, 0.01, 0.005, others=0.4)] * 10  # and by another thread, which held the interpreter
    for seen in (late, held):
        cost = row_cost(seen, 0.5)
        assert cost is not None and cost.wait_s == 0.0


def test_a_row_that_waits_is_cheaper_when_many_are_about() -> None:
    """Its thread sleeps and is woken once more for it; at its peak something is awake as it is."""
    few, many = (row_cost([second(rate, 0.001, 0.02)] * 10, 0.5) for rate in (40, 4000))
    assert few is not None and many is not None
    assert 0.0009 < few.cpu_s < many.cpu_s <= 0.001


FRAME_S, PAUSE_S = 100e-6, 400e-6  # of CPU: a frame that comes alone, and one after a pause


def quick(rows_a_frame: float, rows: float, row_s: float = 10e-6) -> RowsSeen:
    """A second of a task of 10 µs a row; its rows came alone, or together after a pause."""
    frame_s = FRAME_S if rows_a_frame <= 2 else PAUSE_S
    return second(rows, row_s + frame_s / rows_a_frame, frames=rows / rows_a_frame)


@pytest.mark.parametrize(
    ("rows", "why"), [pytest.param(2000, (), id="many"), pytest.param(100, ("small frames",), id="few")]
)
def test_a_quick_row_is_taken_as_it_costs_among_those_that_come_at_its_peak(
    rows: float, why: tuple[str, ...]
) -> None:
    seen = [quick(1.2, rows)] * 4 + [quick(rows / 5, rows)] * 3 + [quick(rows / 10, rows)] * 3
    cost = row_cost(seen, 0.5)
    assert cost is not None and cost.why == why
    assert cost.frame_s == pytest.approx(0.8 * FRAME_S, rel=0.05), "warm"
    assert cost.frame_rows == FRAME_ROWS, "as a full slot has them"
    assert cost.cpu_s == pytest.approx(9e-6 + cost.frame_s / FRAME_ROWS, rel=0.05)


def test_without_two_sizes_of_frames_small_ones_tell_what_a_large_one_has() -> None:
    seen = [quick(1.0, 2000)] * 5 + [second(2000, 10e-6 + FRAME_S / 250, frames=8)] * 5
    cost = row_cost(seen, 0.5)
    assert cost is not None and cost.cpu_s == pytest.approx(9e-6 + 0.8 * FRAME_S / FRAME_ROWS, rel=0.1)


def test_quick_rows_that_only_came_alone_cost_their_frames() -> None:
    alone = row_cost([quick(1.0, 2000)] * 10, 0.5)
    assert alone is not None and alone.why == ("small frames",)
    assert alone.cpu_s == pytest.approx(110e-6, rel=0.01)


@pytest.mark.parametrize(
    ("seen", "why"),
    [
        ([second(3, 0.01)] * 10, ("few rows",)),
        ([second(100, 0.01)] * 4, ("some seconds",)),
        ([second(100, 0.01)._replace(disturbed=True)] * 10, ("disturbed",)),
    ],
)
def test_few_or_disturbed_rows_say_so(seen: list[RowsSeen], why: tuple[str, ...]) -> None:
    cost = row_cost(seen, 0.5)
    assert cost is not None and cost.why == why


def test_hardly_any_rows_say_nothing() -> None:
    assert row_cost([], 0.5) is None and row_cost([second(1, 0.01)] * 10, 0.5) is None


# ── in a run ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("sharing", [1, 2, 3])
@pytest.mark.parametrize("worker_mib", [20, 24, 28])
def test_tasks_learned_apart_fit_together_where_a_plan_says_so(sharing: int, worker_mib: int) -> None:
    """Four that hold 60 MiB each were planned into 256 MiB: what a worker had less was taken for each of them."""
    mib = 1 << 20
    each = 512 * own_part((worker_mib + sharing * 60) / 512, 512 * mib, 0.0, sharing)
    assert 4 * each + WORKER_BYTES / mib >= 4 * 60 + worker_mib


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

    def __init__(
        self, rate_tps: float = 100.0, only_unknown: bool = False, p95_ms: float | None = None
    ) -> None:
        super().__init__(rate_tps=rate_tps, p95_ms=p95_ms)
        self.kept: list[dict[str, object]] = []
        if only_unknown:
            self.submitted = replace(self.submitted, models=tuple(unknown(model.task) for model in MODELS))
        else:
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
    assert peak_rate(world.model, 1) == pytest.approx(1000 / 2.5, rel=0.04), "one thread: 2.5 ms a row"
    most_tps, threads = peak(world.model)
    assert 1000 < most_tps < 1100 and threads == 4, (
        "its slot: 1 ms of CPU a row, without the wake a little less"
    )
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


@pytest.mark.parametrize(
    ("rows", "known", "held"),
    [
        pytest.param(35, False, True, id="nothing is known of it"),
        pytest.param(35, True, False, id="a little is known, and so few rows would not say more"),
        pytest.param(2000, True, True, id="a little is known, and that many rows say the rest"),
    ],
)
@pytest.mark.parametrize("p95_ms", [None, 500.0])
def test_rows_are_held_back_to_measure_only_where_that_says_more(
    rows: int, known: bool, held: bool, p95_ms: float | None
) -> None:
    """Each run held all rows for up to 200 ms, seconds after it began, as long as a model was tentative; of some tens
    of rows a second it remained so for ever. Where latency is limited none is held."""
    world = Kept(p95_ms=p95_ms)
    quick = {"tuples_in": rows, "busy_ns": rows * 50_000, "cpu_ns": rows * 50_000}
    if known:
        model = replace(unknown("store"), more={"tentative": ["small frames"], "rows": 500.0})
        models = (*MODELS, model)
        assert model.tentative and not model.unmeasured
        world.submitted = replace(world.submitted, models=models)
        world.loop = type(world.loop)(world.settings, world.submitted)
    world.start()
    world.work["store"] = quick
    gaps = set()
    for _ in range(30):
        world.run(1)
        gaps.add(world.loop.knowledge.learning.gap_s)
    assert (gaps != {None}) is (held and p95_ms is None), gaps


def test_nothing_is_learned_of_rows_that_fail() -> None:
    """What attempts and the pauses between them cost was taken for the rows' cost: 86 threads were planned, and the
    next run began with that model."""
    world, position = Kept().start(), 0
    world.work["store"] = {**A_SECOND, "busy_ns": S, "wait_ns": 9 * S // 10}
    for _ in range(150):
        letters = tuple(
            m.DeadLetter("store", 3, "source", 0, position + n, "row", "ValueError: bad", "Traceback …")
            for n in range(10)
        )
        vm = world.vms["vm1"]
        world.do(t.FromVm(m.DeadLetters(vm.name, letters, vm.boot, position + 1, position + 1)))
        position += 10
        world.run(0.1)
    assert world.model.unmeasured and not world.kept
    world.work["store"] = A_SECOND
    world.run(20)
    assert peak_rate(world.model, 1) == pytest.approx(1000 / 2.5, rel=0.04), "by those that were done"


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


def test_what_is_not_known_yet_is_said_so_and_no_figure_stands_in_for_it() -> None:
    world = Kept(only_unknown=True).start().run(10)
    status = world.ask("status").data
    assert status["rates"]["predicted_tps"] is None and status["rates"]["headroom_tps"] is None
    assert status["plan"]["predicted_tps"] is None and status["plan"]["limited_by"] is None
    assert status["learning"] == {"unknown": ["work"], "tentative": [], "text": "not known yet of work"}
    assert "predicted not known yet" in tick_line(status) and "headroom not known yet" in headline(status)
    assert "what rows cost is: not known yet of work" in notes(status)
    assert world.ask("explain").data["plan"]["predicted_tps"] is None
    assert all(d["plan"]["predicted_tps"] is None for d in world.traces if d["plan"])
    world.work["work"] = A_SECOND
    world.run(20)
    status = world.ask("status").data
    assert status["rates"]["predicted_tps"] > 100 and status["learning"] is None


@pytest.mark.parametrize("asked_tps", [100.0, 100_000.0])
def test_what_a_plan_that_knew_nothing_promised_holds_up_no_other(asked_tps: float) -> None:
    """It was for all that may come, more than fits; by what rows say since then it carries little."""
    request = replace(all_unknown(1, 4), rate_tps=asked_tps)
    before, _ = planned(request)
    known = replace(request, models={"t0": MODELS[0]})
    choice = choose(PlanQuestion(known, (), before, False, frozenset()))
    assert choice.plan is not None and bool(choice.degraded) == (asked_tps > 1000), choice.text
    assert choice.plan.prediction.rate_tps >= 100
    there = choose(PlanQuestion(known, (), choice.plan, False, frozenset()))
    assert choice.degraded == "" or "nothing better fits" in there.text


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
    read = plan_of(json.loads(json.dumps(plan_data(plan))))
    assert plan_data(plan)["prediction"]["rate_tps"] is None and read.prediction == plan.prediction
    assert not faults_of(plan, request.topology, request.models)
    assert not degraded and plan.rate_tps == 100.0 and {vm.vm for vm in plan.vms} == {"vm1"}
    assert plan.placement.by_task() == {"source": 1} | {f"t{n}": 1 for n in range(tasks)}
    most = max(sum(b.slot == slot for b in plan.placement.bundles) for slot in plan.vms[0].all_slots())
    assert most <= 1 + 2 * -(-tasks // slots), "no slot has many more than its part"
