"""Which task is profiled in a spare slot, where and for how long (controller/core/profiling.py)."""

from __future__ import annotations

import msgspec
import pytest
from enactment_world import MODELS, S, World, vm
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from headgate.controller.core.loop import Loop
from headgate.controller.core.profiling import HOUR_NS, budget_left_s, doubts
from headgate.controller.knowledge import loop_events as t
from headgate.controller.knowledge.diagnoses import Residual
from headgate.controller.models.task_models import Model, ModelSlot, Point
from headgate.topology_runtime.api.cluster import Slot
from headgate.topology_runtime.api.topology import Edge, Static, Task, Topology
from headgate.topology_runtime.wire.report_messages import Profiled, ProfileSpec

checked = examples(100)
NAMES = ("a", "b", "c", "d")
CHAIN = Topology(
    "chain",
    (Task("source", "source", static=Static()), *(Task(name) for name in NAMES), Task("sink")),
    tuple(Edge(x, y) for x, y in zip(("source", *NAMES), (*NAMES, "sink"), strict=True)),
)


def model(task: str, measured_at: str = "2026-03-01", trials: int = 3, rate_tps: float = 50.0) -> Model:
    more = {"measured_at": measured_at, "points": [{"trials": trials}]}
    return Model(task, ModelSlot(), (Point(1, rate_tps, 0.9, 0.1),), more)


def models(*given: Model) -> dict[str, Model]:
    return {name: model(name) for name in (*NAMES, "sink")} | {one.task: one for one in given}


# ── which task ──────────────────────────────────────────────────────────────────────────────────


def test_stale_comes_before_wrong_before_hardly_measured_before_old() -> None:
    known = models(model("c", trials=1), model("d", measured_at="2025-01-01"))
    found = doubts(CHAIN, known, {"b": "code of x:b has changed"}, {"a": 0.5})
    assert [doubt.task for doubt in found] == ["b", "a", "c", "d"]
    assert [doubt.why for doubt in found] == [
        "its model may no longer hold: code of x:b has changed",
        "measured and predicted are 50% apart",
        "a point of its model rests on one probe",
        "its model is the oldest (measured 2025-01-01)",
    ]


def test_what_must_not_run_twice_is_not_profiled() -> None:
    tasks = tuple(
        msgspec.structs.replace(
            task, exclusive=task.name == "b", static=Static() if task.name == "c" else None
        )
        for task in CHAIN.tasks
    )
    found = doubts(msgspec.structs.replace(CHAIN, tasks=tasks), models(model("source")), {}, {})
    assert {doubt.task for doubt in found} == {"a", "d"}  # and no source, no sink


def test_a_model_of_two_tasks_is_measured_once() -> None:
    tasks = tuple(msgspec.structs.replace(x, model="a") if x.name == "d" else x for x in CHAIN.tasks)
    found = doubts(msgspec.structs.replace(CHAIN, tasks=tasks), models(), {}, {"d": 0.9})
    assert [doubt.task for doubt in found] == ["d", "b", "c"]


@checked
@given(
    stale=st.sets(st.sampled_from(NAMES)),
    off=st.dictionaries(st.sampled_from(NAMES), st.floats(0, 3)),
    trials=st.dictionaries(st.sampled_from(NAMES), st.integers(1, 3)),
    dates=st.dictionaries(st.sampled_from(NAMES), st.sampled_from(["", "2025-01-01", "2026-01-01"])),
)
def test_every_task_is_there_once_and_more_doubt_never_comes_later(
    stale: set[str], off: dict[str, float], trials: dict[str, int], dates: dict[str, str]
) -> None:
    known = models(*(model(name, dates.get(name, "2026-03-01"), trials.get(name, 3)) for name in NAMES))
    found = doubts(CHAIN, known, dict.fromkeys(stale, "other machine"), off)
    assert sorted(doubt.task for doubt in found) == sorted(NAMES)
    assert found == sorted(found)
    first = [doubt.task for doubt in found]
    for name in NAMES:
        now = [doubt.task for doubt in doubts(CHAIN, known, dict.fromkeys({*stale, name}, "x"), off)]
        assert now.index(name) <= first.index(name)


@checked
@given(st.lists(st.tuples(st.integers(0, 7200), st.integers(0, 600)), max_size=8), st.floats(0, 60))
def test_the_budget_is_of_the_last_hour(parts: list[tuple[int, int]], minutes: float) -> None:
    spent = [(begin * S, (begin + seconds) * S) for begin, seconds in parts]
    now_ns = 8000 * S
    left_s = budget_left_s(spent, minutes, now_ns)
    assert left_s <= minutes * 60 + 1e-6
    assert budget_left_s(spent, minutes, now_ns + 1000 * S) >= left_s
    assert budget_left_s(spent, minutes, now_ns + 2 * HOUR_NS) == pytest.approx(minutes * 60)


# ── in a run ────────────────────────────────────────────────────────────────────────────────────


class Recorded(World):
    """A world that keeps the controller's inputs, and what it said about profiles."""

    def __init__(self, *args: object, **more: object) -> None:
        self.turns: list[tuple[bytes, list[t.Instruction]]] = []
        super().__init__(*args, **more)  # type: ignore[arg-type]

    def do(self, event: t.Event) -> list[t.Instruction]:
        line = msgspec.json.encode(t.Input(self.now, event))
        out = super().do(event)
        self.turns.append((line, out))
        return out

    @property
    def profile(self) -> ProfileSpec | None:
        return self.loop.knowledge.profiles.desired

    def told(self) -> list[ProfileSpec | None]:
        """What each VM obeys."""
        return [one.desired.profile for one in self.vms.values() if one.desired is not None]

    def words(self) -> list[str]:
        kinds = ("profile", "profiled")
        return [event["text"] for event in self.loop.knowledge.events if event["kind"] in kinds]

    def says(self, model: object, error: str = "") -> list[t.Instruction]:
        assert self.profile is not None
        data = model if isinstance(model, bytes) else msgspec.json.encode(model)
        return self.do(t.FromVm(Profiled(self.profile.slot.vm, self.profile.number, data, error)))


def running(minutes: float = 30.0, vms: tuple[str, ...] = ("vm1",), **more: object) -> Recorded:
    world = Recorded(tuple(vm(name) for name in vms), profile_spare_min=minutes, **more)
    world.start()
    return world.until("committed").run(3.0)  # type: ignore[return-value]


def measured(rate_tps: float = 60.0, complete: bool = True) -> dict[str, object]:
    points = [{"threads": 1, "rate_tps": rate_tps, "cpu": 0.25, "memory": 0.1}]
    return {"schema": "headgate/model/v1", "task": "work", "points": points, "complete": complete}


def test_nothing_is_profiled_unless_it_is_asked_for() -> None:
    world = running(minutes=0.0)
    assert world.profile is None and world.told() == [None] and world.words() == []


def test_a_spare_slot_profiles_the_task_and_everyone_is_told_where_and_why() -> None:
    world = running()
    assert world.profile is not None
    assert (world.profile.task, world.profile.slot) == ("work", Slot("vm1", 3))  # a plan takes it last
    assert world.told() == [world.profile]
    said = "work is profiled in spare slot vm1/3: measured and predicted are 100% apart"
    assert world.words() == [said]  # nothing is used in this world
    status = world.ask("status").data
    assert status["profile"]["slot"] == "vm1/3" and status["vms"][0]["slots"][3]["state"] == "profiling"


def test_what_was_measured_is_kept_beside_the_run_and_not_planned_with() -> None:
    world = running()
    out = world.says(measured(60.0))
    (kept,) = [i.model for i in out if isinstance(i, t.KeepModel)]
    assert kept["provenance"] == "background" and kept["profiled"]["slot"] == 3
    assert "peak 200 → 60 rows/s (-70%)" in world.words()[-1]
    assert world.loop.knowledge.models == {"work": MODELS[0]}
    assert world.run(3.0).profile is None  # type: ignore[attr-defined]
    assert world.told() == [None]


def test_a_part_of_a_profile_goes_on_and_a_failed_one_does_not() -> None:
    world = running()
    world.says(measured(complete=False))
    world.run(2.0)
    assert world.profile is not None
    world.says(b"", "task 'work' fails on most of its rows")
    world.run(5.0)
    assert world.profile is None and "fails on most" in world.words()[-1]


@pytest.mark.parametrize(
    "data", [b"{", b"{}", b"x" * 300_000, msgspec.json.encode({**measured(), "task": "a"})]
)
def test_a_model_that_is_none_is_not_kept_and_blamed(data: bytes) -> None:
    world = running()
    out = world.says(data)
    assert [type(i) for i in out if isinstance(i, t.KeepModel | t.Distrust)] == [t.Distrust]
    assert world.profile is None


def test_a_word_of_an_earlier_profile_is_not_heard() -> None:
    world = running()
    assert world.profile is not None
    world.do(t.FromVm(Profiled("vm1", world.profile.number - 1, msgspec.json.encode(measured()))))
    assert world.profile is not None


def test_an_agent_that_does_not_say_how_it_ended_is_waited_for_no_longer() -> None:
    world = running(minutes=1.0)
    world.run(75.0)
    assert world.profile is None and "does not say how it ended" in world.words()[-1]
    world.run(30.0)
    assert world.profile is None, "the hour's minutes are used up"


def test_a_higher_rate_ends_it_before_anything_starts_in_its_slot() -> None:
    world = running()
    before = world.profile
    world.ask("rate_set", rate_tps=600.0)
    for _ in range(400):
        world.run(0.05)
        for one in world.vms.values():
            assert one.desired is not None
            named = one.desired.profile
            assert named is None or named.slot not in {thread.slot for thread in one.desired.threads}
        if world.rollout.epoch > 1:
            break
    assert before is not None and world.profile is None
    assert before.slot in {thread.slot for thread in world.rollout.threads}
    assert world.words()[-1].endswith("its slot is needed")


@pytest.mark.parametrize("end", ["stop", "vm"])
def test_it_ends_with_the_run_and_with_its_vm(end: str) -> None:
    world = running(vms=("vm1", "vm2"))
    assert world.profile is not None
    if end == "stop":
        world.ask("stop")
    else:
        world.vms[world.profile.slot.vm].down = True
    world.run(6.0)
    assert world.profile is None


def test_rows_stay_on_their_vm_and_slots_must_be_bound() -> None:
    world = running(vms=("vm1", "vm2"))
    assert world.profile is not None and world.profile.slot.vm == "vm1"  # no thread of it is on vm2
    unbound = Recorded((vm("vm1"),), profile_spare_min=30.0)
    hello = unbound.vms["vm1"].hello
    unbound.vms["vm1"].hello = lambda: msgspec.structs.replace(hello(), binding="affinity")  # type: ignore[method-assign]
    unbound.start()
    unbound.until("committed").run(3.0)
    assert unbound.profile is None


def test_a_controller_that_comes_back_profiles_anew() -> None:
    world = running()
    before = world.profile
    world.restart_controller()
    assert world.profile is None
    world.do(t.FromVm(world.vms["vm1"].hello()))
    world.run(12.0)
    assert world.profile is not None and before is not None and world.profile.number > before.number


def test_recorded_inputs_give_the_same_instructions_again() -> None:
    world = running()
    world.says(measured(complete=False))
    world.run(3.0)
    world.ask("rate_set", rate_tps=600.0)
    world.run(20.0)
    assert len(world.words()) >= 4
    again = Loop(world.settings, world.submitted)
    for line, expected in world.turns:
        given = msgspec.json.decode(line, type=t.Input)
        assert repr(again.step(given.event, given.now)) == repr(expected)


def test_the_error_of_a_slot_is_that_of_every_task_in_it() -> None:
    from headgate.controller.core.profiling import errors

    plan = running(0.0).loop.knowledge.plan
    assert plan is not None
    slot = next(str(bundle.slot) for bundle in plan.placement.bundles if bundle.task == "work")
    found = errors([Residual("cpu", slot, 0.9, 0.6, 1.5), Residual("rate", "work", 90.0, 100.0, 0.9)], plan)
    assert found["work"] == pytest.approx(0.5)
    assert errors([Residual("cpu", slot, 0.03, 0.01, 3.0)], plan) == {}
