"""What an analysis offers to a controller: which models and seasons are taken, planned with and kept, and which not."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import msgspec
import pytest
from costed_world import BY_CPU, TASK, CostedWorld, times
from enactment_world import MEMORY, WALL0, S, World, vm
from msgspec.structs import replace

from headgate.controller.core.decisions import question
from headgate.controller.core.decisions import run_of as told_of
from headgate.controller.core.loop import Loop
from headgate.controller.core.plan_choice import moving_little
from headgate.controller.knowledge import loop_events as t
from headgate.controller.knowledge.journal_records import fold_all
from headgate.controller.models.prediction_ledger import correction_of, version_of
from headgate.controller.models.task_models import Model
from headgate.controller.monitor.admission import refused_to
from headgate.controller.recording.recorder import input_line
from headgate.controller.replay.exact_replay import ExactReplay
from headgate.controller.replay.ideal_machines import Delays
from headgate.controller.replay.recorded_run import InputLine, run_of
from headgate.topology_runtime.keys.key_pairs import Who
from headgate.topology_runtime.wire.messages import Reply, SampleBlock
from headgate.topology_runtime.wording import utc_iso

SAID = times(BY_CPU, 1.35)  # less than the prediction ledger is sure of in a first run
NO: dict[str, Any] = {}


def refitted(rate_tps: float = 100.0, threads: int = 1, **changes: Any) -> dict[str, Any]:
    """A file as `headgate analyze` writes it; `changes` of the file or of its only point."""
    point: dict[str, Any] = {
        "threads": threads,
        "rate_tps": rate_tps,
        "cpu": 0.9,
        "memory": 0.1,
        "windows": 12,
    }
    point |= {"spread": {"rate_tps": 2.0}}
    point |= {key: changes.pop(key) for key in list(changes) if key in point}
    slot = {"cores": 1.0, "memory_bytes": MEMORY, "machine": "as in the trace"}
    return {
        "schema": "headgate/model/v1", "task": TASK, "slot": slot, "points": [point], "window_s": 5, "vms": ["vm1"],
        **changes,
    }  # fmt: skip


def season(period_s: float = 60.0, seconds: float = 600.0, **changes: Any) -> dict[str, Any]:
    middle = [100.0 + 50.0 * math.sin(2 * math.pi * n / period_s) for n in range(round(period_s))]
    held_out = {"seconds": 120.0, "error": 0.02, "error_of_level": 0.3, "covered": 0.95}
    learned = {"sources": ["traces/line/test"], "seconds": seconds, "periods": int(seconds / period_s), "time": "",
               "version": "", "held_out": held_out}  # fmt: skip
    return {
        "schema": "headgate/season/v1", "topology": "line", "period_s": period_s, "middle": middle,
        "high": [1.05 * tps for tps in middle], "learned": learned, **changes,
    }  # fmt: skip


def offer(world: CostedWorld, *models: Any, season: Any = None, **changes: Any) -> Reply:
    told = {
        "run": "test",
        "started": utc_iso(world.submitted.wall_ns),
        "until_us": world.now.wall_ns // 1000,
        "models": models,
    }
    return world.ask("offer", **(told | ({} if season is None else {"season": season}) | changes))


def why_not(reply: Reply) -> str:
    (one,) = reply.data["refused"]
    assert reply.data["taken"] == []
    return str(one["why"])


def in_use(world: CostedWorld) -> Model:
    return world.loop.knowledge.models[TASK]


@pytest.fixture
def world() -> CostedWorld:
    """One slot carries its 120 rows/s by the model, two are needed."""
    return CostedWorld(BY_CPU, SAID, rate_tps=100.0).start().run(25)


def test_a_refitted_model_is_taken_planned_with_and_told(world: CostedWorld) -> None:
    assert world.phase == "committed" and len(world.slots_of(TASK)) == 1 and world.kept == []
    (taken,) = offer(world, refitted(100.0)).data["taken"]
    world.run(3)
    assert world.rollout.reason == "refitted" and len(world.slots_of(TASK)) == 2
    right = CostedWorld(BY_CPU, BY_CPU, rate_tps=100.0).start().run(25)
    assert world.rollout.plan.slots.used == right.rollout.plan.slots.used
    (decided,) = [d for d in world.traces if d["trigger"] == "refitted"]
    assert decided["action"] == "plan" and decided["evidence"] == {TASK: pytest.approx(1.35)}
    for words in (
        "1 thread 135 → 100 rows/s",
        "60 s at its peak",
        version_of(SAID)[:8],
        version_of(in_use(world))[:8],
    ):
        assert words in decided["text"] and words in taken["text"]
    assert in_use(world).points[0].rate_tps == pytest.approx(100.0)
    assert in_use(world).points[0].cpu == pytest.approx(0.9) and in_use(world).points[0].memory == 0.1
    assert world.kept[-1]["corrected"]["by"] == "refit" and world.kept[-1]["corrected"]["of"] == version_of(
        SAID
    )
    assert world.durable.refits == {}, "a plan was made with it"


def test_cpu_of_a_row_is_told_apart_from_its_time(world: CostedWorld) -> None:
    offer(world, refitted(100.0, cpu=0.45))
    assert in_use(world).points[0].cpu == pytest.approx(0.45)
    assert correction_of(in_use(world))[1:] == (pytest.approx(1.35), pytest.approx(1.35 / 2))


def test_what_a_model_says_within_its_error_is_left_alone(world: CostedWorld) -> None:
    assert "within its error of 7%" in why_not(offer(world, refitted(135.0)))
    assert "within its error of 7%" in why_not(offer(world, refitted(135.0 / 1.14)))
    assert offer(world, refitted(135.0 / 1.17)).data["refused"] == []


def test_scattered_windows_prove_less(world: CostedWorld) -> None:
    scattered = refitted(100.0, spread={"rate_tps": 40.0})
    assert "within its error of 23%" in why_not(offer(world, scattered))
    assert in_use(world) == SAID
    scattered["points"][0]["windows"] = 200
    assert offer(world, scattered).data["refused"] == []


def test_the_same_evidence_does_not_correct_a_model_twice(world: CostedWorld) -> None:
    assert offer(world, refitted(100.0)).data["taken"]
    assert "60 s, and 120 s are needed" in why_not(offer(world, refitted(70.0, windows=20)))
    assert "within its error" in why_not(offer(world, refitted(100.0, windows=30)))
    assert offer(world, refitted(70.0, windows=30)).data["taken"]
    assert in_use(world).points[0].rate_tps == pytest.approx(70.0, rel=1e-3)
    assert correction_of(in_use(world)).of == version_of(SAID), "counted from the first model again"


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (refitted(windows=5), "too little was seen: at most 25 s"),
        (refitted(3.0), "too little was seen"),
        (refitted(windows=-3), "too little was seen"),
        (refitted(windows="many"), "too little was seen"),
        (refitted(window_s=float("inf")), "too little was seen"),
        (refitted(window_s=None), "too little was seen"),
        (refitted(20.0), "off by more than × 5"),
        (refitted(slot={"cores": 0.5, "memory_bytes": MEMORY}), "seen in slots of 0.5 cores"),
        (refitted(slot={"cores": 1.0, "memory_bytes": MEMORY // 2}), f"slots of 1 cores and {MEMORY // 2} bytes"),
        (refitted(slot=NO), "plans are of slots of 1"),
        (refitted(vms=["vm9"]), "which VMs of this run"),
        (refitted(vms=[]), "which VMs of this run"),
        (refitted(vms=[["vm1"]]), "which VMs of this run"),
        (refitted(task="parse"), "topology line has no such task"),
        (refitted(task="source"), "of fixed size"),
        (refitted(points=[]), "at least one point"),
        (refitted(rate_tps="fast"), "expected a finite number above 0"),
        (refitted(schema="headgate/model/v9"), "schema: expected"),
        ("garbage", "expected an object"),
        (None, "expected an object"),
    ],
)  # fmt: skip
def test_what_cannot_be_believed_is_refused_with_the_reason(world: CostedWorld, data: Any, why: str) -> None:
    journal = len(world.journal)
    assert why in why_not(offer(world, data))
    assert in_use(world) == SAID and len(world.journal) == journal
    world.run(5)
    assert world.durable.next_epoch == 2, "and nothing is planned"


def test_numbers_of_threads_that_contradict_each_other_are_refused(world: CostedWorld) -> None:
    data = refitted(90.0)
    data["points"].append(data["points"][0] | {"threads": 2, "rate_tps": 160.0})
    assert "differ in how far they are off" in why_not(offer(world, data))
    data["points"][1]["rate_tps"] = 95.0
    assert offer(world, data).data["taken"] and in_use(world).points[1].rate_tps == pytest.approx(
        92.5, rel=0.01
    )


def test_one_part_of_an_offer_is_refused_and_the_other_taken(world: CostedWorld) -> None:
    reply = offer(world, refitted(100.0), refitted(90.0), refitted(task="parse"), season=season())
    assert [one["what"] for one in reply.data["taken"]] == [f"model {TASK}", "season"]
    assert [one["why"] for one in reply.data["refused"]] == [
        "it was offered twice",
        "topology line has no such task",
    ]


@pytest.mark.parametrize(
    ("changes", "code", "why"),
    [
        ({"run": "other"}, "HG-CONFLICT", "of run other, which this controller does not run"),
        ({"started": "2020-01-01T00:00:00.000000Z"}, "HG-CONFLICT", "does not run"),
        ({"until_us": 0}, "HG-CONFLICT", "stale offer"),
        ({"until_us": WALL0 // 1000 - 700_000_000}, "HG-CONFLICT", "600 s at most"),
        ({"until_us": WALL0 // 1000 + 900_000_000}, "HG-CONFLICT", "ahead of the controller's clock"),
        ({"until_us": "soon"}, "HG-INVALID", "invalid offer"),
        ({"models": "work"}, "HG-INVALID", "invalid offer"),
        ({"models": [NO] * 1001}, "HG-INVALID", "at most 1000"),
        ({"more": 1}, "HG-INVALID", "invalid offer"),
    ],
)  # fmt: skip
def test_a_stale_foreign_or_broken_offer_is_refused(
    world: CostedWorld, changes: dict[str, Any], code: str, why: str
) -> None:
    reply = offer(world, refitted(100.0), **changes)
    assert reply.error is not None and why in " ".join(map(str, reply.error))
    assert reply.error[0] == code and in_use(world) == SAID


def test_an_operator_asks_whether_offers_are_heard_and_a_viewer_may_not(world: CostedWorld) -> None:
    assert offer(world, until_us=0).data == {"schema": "headgate/offer/v1", "taken": [], "refused": []}
    assert refused_to(Who("operator", "ann"), "offer") is None
    assert "not for the viewer eve" in str(refused_to(Who("viewer", "eve"), "offer"))


def test_nothing_is_taken_by_a_plan_that_was_given_nor_at_the_end_of_a_run() -> None:
    made = CostedWorld(BY_CPU, SAID, rate_tps=100.0).start().run(5)
    plan = moving_little(question(made.loop.knowledge, 115.0))
    world = CostedWorld(BY_CPU, SAID, rate_tps=100.0, plan=plan).start().run(25)
    assert "given and is held" in str(offer(world, refitted(100.0)).error)
    made.ask("stop")
    assert "is ending" in str(offer(made, refitted(100.0)).error)


def test_vms_of_several_speeds_or_a_slow_one_prove_nothing() -> None:
    vms = vm("vm1"), replace(vm("vm2"), speed=1.5)
    world = CostedWorld(BY_CPU, SAID, rate_tps=100.0, vms=vms).start().run(25)
    assert "of speeds 1, 1.5" in why_not(offer(world, refitted(100.0)))
    slow = CostedWorld(BY_CPU, SAID, rate_tps=100.0).start().run(25)
    slow.loop.knowledge.found_off["VM vm1"] = "VM vm1 is slow"
    assert "seen on vm1" in why_not(offer(slow, refitted(100.0)))


def test_in_mode_approve_the_plan_waits_for_a_word() -> None:
    world = CostedWorld(BY_CPU, SAID, rate_tps=100.0, mode="approve").start().run(25)
    offer(world, refitted(100.0))
    world.run(5)
    proposal = world.loop.knowledge.proposal
    assert proposal is not None and proposal.reason == "refitted" and world.durable.next_epoch == 2
    world.ask("apply", id=proposal.plan.id)
    assert len(world.slots_of(TASK)) == 2 and world.durable.refits == {}


def test_the_prediction_ledger_lets_a_right_refit_stand_and_takes_a_wrong_one_back(
    world: CostedWorld,
) -> None:
    offer(world, refitted(100.0))
    world.run(150)
    assert correction_of(in_use(world)).time == pytest.approx(1.35), "what rows cost says the same"
    wrong = CostedWorld(BY_CPU, SAID, rate_tps=100.0).start().run(25)
    offer(wrong, refitted(55.0))
    wrong.run(150)
    assert "model_off" in {d["trigger"] for d in wrong.traces}
    assert in_use(wrong).points[0].rate_tps == pytest.approx(100.0, rel=0.1)
    assert "120 s are needed" in why_not(offer(wrong, refitted(55.0))), "it is not taken twice"


def test_a_controller_that_is_killed_keeps_what_it_took_and_plans_with_it(world: CostedWorld) -> None:
    offer(world, refitted(100.0), season=season())
    model = in_use(world)
    assert world.durable.refits
    world.restart_controller()
    assert in_use(world) == model and world.durable.season is not None
    world.run(40)
    assert world.rollout.reason == "refitted" and len(world.slots_of(TASK)) == 2
    assert "s are needed" in why_not(offer(world, refitted(70.0, windows=20))), (
        "nor does it forget from how much"
    )
    assert fold_all(tuple(world.journal)) == world.durable


def test_without_room_in_the_journal_nothing_is_taken(world: CostedWorld) -> None:
    world.journal_fails = True
    assert "takes no records" in str(offer(world, refitted(100.0)).error)
    world.run(3)
    assert in_use(world) == SAID and world.kept == [] and world.durable.refits == {}
    world.journal_fails = False
    world.run(3)
    assert offer(world, refitted(100.0)).data["taken"]


class RecordedWorld(CostedWorld):
    """It writes down what its controllers were told, as the recorder does."""

    def __init__(self, *given: Any, **more: Any) -> None:
        self.lines: list[bytes] = []
        super().__init__(*given, **more)
        self.submitted = replace(self.submitted, wall_ns=WALL0 - S)
        self.loop = Loop(self.settings, self.submitted)

    def do(self, event: t.Event) -> list[t.Instruction]:
        if isinstance(event, t.FromVm) and isinstance(event.message, SampleBlock):
            event = t.FromVm(self.block_of(event.message.vm, event.message))
        self.lines.append(input_line(self.now, str(type(event).__struct_config__.tag), event))
        return World.do(self, event)


def test_a_replay_takes_and_decides_the_same(tmp_path: Path) -> None:
    world = RecordedWorld(BY_CPU, SAID, rate_tps=100.0)
    world.start().run(25)
    offer(world, refitted(135.0), refitted(task="parse"), run="test")
    offer(world, refitted(100.0), season=season())
    world.run(25)
    world.restart_controller()
    world.run(20)
    offer(world, refitted(70.0, windows=40), run="other")
    assert offer(world, refitted(85.0, windows=40)).data["taken"]
    world.run(20)
    assert [d["trigger"] for d in world.traces if d["action"] == "plan"] == ["start", "refitted"]
    run = run_of(msgspec.json.encode(told_of(world.loop.knowledge, world.submitted)), "run.json")
    again = ExactReplay(run)
    moments = list(again.moments(msgspec.json.decode(line, type=InputLine) for line in world.lines))
    assert [line for life in again.lives for line in life.decisions] == [
        msgspec.json.encode(decision) for decision in world.traces
    ]
    assert moments[-1].loop.knowledge.models == world.loop.knowledge.models
    assert moments[-1].loop.knowledge.durable.season == world.durable.season


# ── seasons ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"seconds": 150.0}, "do not support a period of 60 s"),
        ({"period_s": 10.0}, "expected 30 to 3600 s"),
        ({"topology": "other"}, "learned from 'other'"),
        ({"schema": "headgate/season/v9"}, "invalid season"),
        ({"middle": [1.0]}, "expected 60 values each"),
        ({"middle": [-1.0] * 60}, "a rate is negative"),
        ({"learned": 3}, "invalid season"),
    ],
)  # fmt: skip
def test_a_season_that_is_none_is_refused(world: CostedWorld, changes: dict[str, Any], why: str) -> None:
    assert why in why_not(offer(world, season=season(**changes)))
    assert "invalid season" in why_not(offer(world, season="spring"))
    assert world.durable.season is None


def test_a_season_is_taken_anew_once_it_was_seen_for_twice_as_long(world: CostedWorld) -> None:
    assert offer(world, season=season()).data["taken"]
    assert "one of 60 s is known, and 1200 s are needed" in why_not(
        offer(world, season=season(seconds=900.0))
    )
    assert offer(world, season=season(90.0)).data["taken"], "another period is another season"
    assert offer(world, season=season(90.0, seconds=1200.0)).data["taken"]
    world.run(3)
    assert json.loads(msgspec.json.encode(world.durable.season))["period_s"] == 90.0


def test_a_season_that_is_offered_is_planned_with_once_it_foresaw() -> None:
    """Four minutes of a wave: alone the controller would have to see three of them."""
    period_s = 240
    rates = [80.0 + 60.0 * math.sin(2 * math.pi * (n + 5) / period_s) for n in range(0, period_s, 10)]
    world = CostedWorld(BY_CPU, BY_CPU, rate_tps=80.0)
    steps = tuple((10.0 * n, tps) for n, tps in enumerate(rates))
    world.submitted = replace(world.submitted, steps=steps, period_s=period_s)
    world.loop = Loop(world.settings, world.submitted)
    world.start().run(100)
    middle = [rates[n // 10] for n in range(period_s)]
    assert offer(world, season=season(period_s, 4 * period_s, middle=middle, high=middle)).data["taken"]
    told = len(world.traces)
    world.run(5)
    assert not any("handed over" in str(d) for d in world.traces[told:]), "not by its word"
    world.run(200)
    assert any("by the season that was handed over" in str(d) for d in world.traces[told:])


def test_a_plan_that_is_made_beside_the_loop_is_used_when_it_is_there() -> None:
    """A mapper that takes long: the controller goes on meanwhile, and does not ask for it twice."""
    world = CostedWorld(BY_CPU, SAID, rate_tps=100.0, allocator="optimal", mapper="optimal")
    world.delays = Delays(machine_s=0.0, plan_s=3.0)
    world.start().run(30)
    assert world.phase == "committed" and len(world.slots_of(TASK)) == 1
    offer(world, refitted(100.0))
    world.run(20)
    assert (
        world.rollout.reason == "refitted" and len(world.slots_of(TASK)) == 2 and world.durable.refits == {}
    )
