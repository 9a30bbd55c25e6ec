"""A model that is wrong by a factor, and a slow VM, are named and corrected: in worlds where the truth is known."""

from __future__ import annotations

import json

import msgspec
import pytest
from costed_world import BASE_CPU, BY_CPU, TASK, CostedWorld, times
from enactment_world import MODELS, vm
from msgspec.structs import replace

from headgate.controller.core.decisions import question
from headgate.controller.core.plan_choice import moving_little
from headgate.controller.core.prediction_accounting import PLANS_KEPT, Accounts
from headgate.controller.knowledge.controller_config import ControllerSettings
from headgate.controller.models.model_data import model_data, model_of
from headgate.controller.models.prediction_ledger import corrected, correction_of, latest, version_of
from headgate.controller.models.task_models import Model
from headgate.controller.recording.prediction_ledger_file import speaking_of


def model_in_use(world: CostedWorld) -> Model:
    return world.loop.knowledge.models[TASK]


@pytest.mark.parametrize("true", [BY_CPU, MODELS[0]], ids=["by CPU", "by time"])
@pytest.mark.parametrize("factor", [0.3, 3.0])
def test_a_model_that_is_wrong_by_a_factor_is_named_corrected_and_planned_with(
    true: Model, factor: float
) -> None:
    said = times(true, factor)
    world = CostedWorld(true, said, rate_tps=150.0).start().run(240)
    assert f"the model of {TASK} is off" in world.events("off")[0]["text"]
    kept = world.kept[-1]
    assert len(world.kept) == (1 if factor > 1 else 2), "at most twice as quick at a time"
    assert kept["corrected"]["of"] == version_of(said) and kept["corrected"]["runs"] == 1
    assert kept["corrected"]["plans"][0] == f"test/1/{world.entries[0].plan[:8]}"
    for point, right in zip(kept["points"], true.points, strict=True):
        assert point["rate_tps"] == pytest.approx(right.rate_tps, rel=0.1)
    assert world.loop.knowledge.alarms == {}, "the next plan carries what is offered"
    decided = [d for d in world.traces if d["trigger"] == "model_off"]
    assert len(decided) == len(world.kept) and world.rollout.reason == "model_off"
    assert all(d["action"] in ("plan", "adopt") for d in decided)
    right_plan = CostedWorld(true, true, rate_tps=150.0).start().run(30).rollout.plan
    assert abs(world.rollout.plan.slots.used - right_plan.slots.used) <= 1
    assert model_of(model_data(model_in_use(world)))[1] == [], "it is a sound model file"


def test_a_model_is_corrected_though_the_plan_for_the_rate_fails_again_and_again() -> None:
    """By the model that is wrong it takes slots whose workers do not get ready: it is called for at every look. By the
    one that is right what runs carries the rate."""
    world = CostedWorld(BY_CPU, times(BY_CPU, 0.5), rate_tps=150.0).start().run(12)
    used = {thread.slot for thread in world.rollout.threads}
    for one in world.vms.values():
        one.hung.update(slot for slot in one.shape.all_slots() if slot not in used)
    world.ask("rate_set", rate_tps=250.0)
    world.run(90)
    led = [(one["trigger"], one["action"]) for one in world.traces if one["action"] != "none"]
    assert world.kept and led[-1] == ("model_off", "adopt") and world.phase == "committed"
    assert model_in_use(world).points[0].rate_tps == pytest.approx(100.0, rel=0.1)
    assert world.rollout.plan.rate_tps > 250.0 and {t.slot for t in world.rollout.threads} == used


def test_what_waits_for_approval_is_withdrawn_once_the_plan_in_force_carries_the_rate_by_a_corrected_model() -> (
    None
):
    """A plan for the correction itself takes the place of none that waits: it is looked at again at the next look."""
    world = CostedWorld(BY_CPU, times(BY_CPU, 0.5), rate_tps=150.0, mode="approve").start().run(12)
    world.ask("rate_set", rate_tps=250.0)
    world.run(20)
    before = world.loop.knowledge.proposal
    world.run(60)
    assert world.kept and before is not None and before.reason == "rate_changed"
    assert world.loop.knowledge.proposal is None
    plan = world.loop.knowledge.plan
    assert plan is not None and plan.rate_tps > 250.0 and plan.slots.used < before.plan.slots.used
    assert not [one for one in world.traces if one["trigger"] == "model_off"]


def test_a_model_is_corrected_once_though_the_plan_with_it_waits_for_approval() -> None:
    """What else there is to find is looked for then; what was found is not found again."""
    world = CostedWorld(BY_CPU, times(BY_CPU, 3.0), rate_tps=150.0, mode="approve").start().run(120)
    assert len(world.kept) == 1 and world.loop.knowledge.proposal is not None
    assert model_in_use(world).points[0].rate_tps == pytest.approx(100.0, rel=0.1)


def test_a_model_that_is_right_is_left_alone() -> None:
    for off_by in (0.9, 1.0, 1.1):
        world = CostedWorld(BY_CPU, times(BY_CPU, off_by), rate_tps=150.0).start().run(240)
        assert world.events("off") == [] and world.kept == [] and world.durable.next_epoch == 2


def test_the_next_run_begins_with_what_the_ones_before_it_found() -> None:
    said = times(BY_CPU, 3.0)
    first = CostedWorld(BY_CPU, said, rate_tps=150.0).start().run(180)
    told = speaking_of(latest(first.entries), "line", (said,))
    assert [len(entry.slots) for entry in told] == [0, 0]
    recorded = msgspec.to_builtins(replace(first.settings, ledger=told))
    assert msgspec.convert(json.loads(json.dumps(recorded)), ControllerSettings).ledger == told, "for replays"
    world = CostedWorld(BY_CPU, said, rate_tps=150.0, ledger=told).start().run(10)
    assert model_in_use(world).points[0].rate_tps == pytest.approx(100.0, rel=0.05)
    assert world.rollout.plan.slots.used == 2 and world.events("corrected")
    world.run(120)
    assert world.durable.next_epoch == 2 and len(world.kept) == 1, "and nothing more is to be corrected"


def test_entries_of_other_models_and_topologies_do_not_count() -> None:
    said = times(BY_CPU, 3.0)
    first = CostedWorld(BY_CPU, said, rate_tps=150.0).start().run(60)
    assert speaking_of(latest(first.entries), "line", (BY_CPU,)) == ()
    assert speaking_of(latest(first.entries), "other", (said,)) == ()
    larger = replace(said, slot=replace(said.slot, memory_bytes=1), points=tuple(
        replace(point, memory=point.memory / 2) for point in said.points))  # fmt: skip
    assert len(speaking_of(latest(first.entries), "line", (larger,))) == 1, "memory of slots does not matter"


def test_a_correction_that_was_wrong_is_corrected_from_the_first_model_again() -> None:
    told = corrected(BY_CPU, 3.0, 3.0, {})
    assert correction_of(told) == (version_of(BY_CPU), 3.0, 3.0)
    world = CostedWorld(BY_CPU, told, rate_tps=150.0).start().run(120)
    now = correction_of(model_in_use(world))
    assert now.of == version_of(BY_CPU) and now.time == pytest.approx(1.0, abs=0.08)
    assert model_in_use(world).points[0].rate_tps == pytest.approx(100.0, rel=0.08)


def test_a_slow_vm_is_named_and_its_rows_do_not_count_against_the_model() -> None:
    vms = vm("vm1", 2), vm("vm2", 2)
    world = (
        CostedWorld(BY_CPU, BY_CPU, slow={"vm2": 2.0}, vms=vms, rate_tps=230.0, mode="advise").start().run(60)
    )
    (event,) = world.events("off")
    assert (
        event["what"] == "VM vm2"
        and "VM vm2 is slow" in event["text"]
        and "times the CPU there" in event["text"]
    )
    assert world.kept == []
    assert "VM vm2 is slow" in world.loop.knowledge.alarms.get("models", "VM vm2 is slow")


def test_a_plan_that_was_given_is_held_and_its_model_named() -> None:
    said = times(BY_CPU, 3.0)
    made = CostedWorld(BY_CPU, said, rate_tps=150.0).start().run(10)
    plan = moving_little(question(made.loop.knowledge, 150.0))
    world = CostedWorld(BY_CPU, said, rate_tps=150.0, plan=plan).start().run(120)
    assert world.kept == [] and world.durable.next_epoch == 2
    assert f"the model of {TASK} is off" in world.loop.knowledge.alarms["models"]
    assert len(world.events("off")) == 1, "once"


def test_a_controller_that_is_killed_still_plans_with_the_corrected_model() -> None:
    world = CostedWorld(BY_CPU, times(BY_CPU, 3.0), rate_tps=150.0).start().run(90)
    before = model_in_use(world)
    assert correction_of(before).time > 2.5
    world.restart_controller()
    world.run(30)
    assert model_in_use(world) == before


def test_without_room_in_the_journal_nothing_is_corrected() -> None:
    said = times(BY_CPU, 3.0)
    world = CostedWorld(BY_CPU, said, rate_tps=150.0).start().run(30)
    world.journal_fails = True
    world.run(20)
    assert model_in_use(world) == said and world.kept == []
    world.journal_fails = False
    world.run(100)
    assert correction_of(model_in_use(world)).time > 2.5


def test_a_spoiled_ledger_is_named_and_the_run_goes_on() -> None:
    trouble = "ledger.jsonl:3: no entry, left out"
    world = CostedWorld(BY_CPU, BY_CPU, rate_tps=150.0, ledger_trouble=trouble).start().run(20)
    (event,) = world.events("trouble")
    assert trouble in event["text"] and world.phase in ("probation", "committed")


@pytest.mark.parametrize(
    "told", [1, "3", {"of": 1}, {"of": "a", "time": 0, "cpu": 1}, {"of": "a", "time": True}]
)
def test_whatever_else_a_file_says_of_a_correction_is_not_believed(told: object) -> None:
    model = replace(BY_CPU, more={"corrected": told})
    assert correction_of(model) == (version_of(model), 1.0, 1.0)


def test_a_corrected_model_keeps_what_else_it_says() -> None:
    model = replace(BY_CPU, more={"wake_cpu": 0.002, "measured_at": "2026"})
    found = corrected(model, 2.0, 2.0, {"runs": 1})
    assert found.more["measured_at"] == "2026" and found.wake.cpu == pytest.approx(0.004)
    assert found.points[0].cpu == model.points[0].cpu and found.points[0].rate_tps == 50.0


# ── plans that are sure ─────────────────────────────────────────────────────────────────────────


def test_a_run_that_is_to_be_sure_holds_more_slots_and_says_so_and_does_not_flap() -> None:
    plain = CostedWorld(BY_CPU, BY_CPU, rate_tps=300.0).start().run(20)
    world = CostedWorld(BY_CPU, BY_CPU, rate_tps=300.0, sure=0.95).start().run(120)
    plan, sure = world.rollout.plan, world.rollout.plan.prediction.sure
    assert sure is not None and sure.chance >= 0.95 and sure.probability == 0.95
    assert plan.rate_tps == plain.rollout.plan.rate_tps, "it is for the same rate"
    assert plan.slots.used > plain.rollout.plan.slots.used
    assert "with a probability of " in world.traces[0]["text"] and world.traces[0]["plan"]["chance"] >= 0.95
    assert world.durable.next_epoch == 2, "and stays"
    world.ask("rate_set", rate_tps=100.0)
    world.run(60)
    fewer = world.rollout.plan.prediction.sure
    assert world.rollout.plan.slots.used < plan.slots.used and fewer is not None and fewer.chance >= 0.95


def test_where_the_slots_do_not_suffice_it_is_as_sure_as_can_be() -> None:
    world = CostedWorld(BY_CPU, BY_CPU, rate_tps=150.0, sure=0.99, vms=(vm("vm1", 2),)).start().run(40)
    sure = world.rollout.plan.prediction.sure
    assert sure is not None and sure.chance < 0.99 and world.phase == "committed"
    assert "(0.99 was asked for)" in world.traces[0]["text"]


# ── What is kept of a plan: predicted and measured, of a world whose tasks cost what they really cost ───


def settled(
    true: Model, said: Model, rate_tps: float = 150.0, seconds: float = 60.0, **given: object
) -> CostedWorld:
    return CostedWorld(true, said, rate_tps=rate_tps, mode="advise", **given).start().run(seconds)


def test_a_plan_is_told_of_after_twenty_calm_seconds_and_each_time_they_double() -> None:
    world = settled(BY_CPU, BY_CPU, seconds=30)
    assert world.entries == [], "a plan is not judged by its first seconds"
    world.run(120)
    assert [round(entry.seconds) for entry in world.entries] == [20, 40, 80]
    (newest,) = latest(world.entries)
    assert newest is world.entries[-1]
    assert (newest.run, newest.topology, newest.plan) == ("test", "line", world.rollout.plan.id)


@pytest.mark.parametrize("factor", [0.3, 1.0, 3.0])
def test_what_rows_cost_is_measured_beside_what_the_model_says(factor: float) -> None:
    """By hand: 150 rows/s at 0.9 of a slot for each 100, and what idle workers use."""
    world = settled(BY_CPU, times(BY_CPU, factor), rate_tps=90.0)
    (entry,) = latest(world.entries)
    (task,) = entry.tasks
    assert not task.waits and task.version == version_of(world.submitted.models[0])
    assert task.rate_tps == pytest.approx(90.0, rel=0.03)
    assert task.predicted_cpu == pytest.approx(90 * 0.9 / (100 * factor), rel=0.03)
    assert task.cpu == pytest.approx(90 * 0.9 / 100, abs=len(entry.slots) * BASE_CPU + 0.01)
    assert task.cpu / task.predicted_cpu == pytest.approx(factor, rel=0.1)


def test_where_threads_are_full_before_their_slot_time_tells_what_a_row_costs() -> None:
    """Threads of `MODELS` use 0.2 of a slot at their peak: of a model × 3 they are busy three times as long."""
    world = settled(MODELS[0], times(MODELS[0], 3.0), rate_tps=80.0)
    (task,) = latest(world.entries)[0].tasks
    assert task.waits and task.task == TASK
    assert task.busy / task.predicted_busy == pytest.approx(3.0, rel=0.05)


def test_the_rate_is_tested_only_by_as_much_as_the_plan_carries() -> None:
    calm = latest(settled(BY_CPU, BY_CPU, rate_tps=100.0).entries)[0].rate
    assert calm.tested == "no" and calm.offered_tps == pytest.approx(100.0, rel=0.02)
    short = latest(settled(BY_CPU, times(BY_CPU, 3.0), rate_tps=150.0).entries)[0].rate
    assert short.tested == "short", "150 rows/s are offered, one slot takes 100"
    assert short.carried_tps == pytest.approx(100.0, rel=0.05) and short.predicted_tps > 150.0
    near = CostedWorld(BY_CPU, BY_CPU, (), rate_tps=70.0, mode="advise").start().run(20)
    most = near.rollout.plan.prediction.rate_tps
    near.ask("rate_set", rate_tps=0.97 * most)
    near.run(120)
    carried = latest(near.entries)[-1].rate
    assert carried.tested == "carried" and carried.carried_tps == pytest.approx(0.97 * most, rel=0.03)


def test_each_vm_is_told_by_itself() -> None:
    world = settled(BY_CPU, BY_CPU, 300.0, vms=(vm("vm1", 2), vm("vm2", 2)), slow={"vm2": 1.5})
    (entry,) = latest(world.entries)
    costs = {name: cpu / predicted for name, (cpu, predicted) in entry.tasks[0].vms.items()}
    assert costs["vm2"] / costs["vm1"] == pytest.approx(1.5, rel=0.05)


def test_workers_that_use_nothing_measurable_say_nothing_of_models() -> None:
    world = CostedWorld(times(BY_CPU, 100.0), BY_CPU, rate_tps=20.0, mode="advise").start().run(60)
    (task,) = latest(world.entries)[0].tasks
    assert (task.cpu, task.predicted_cpu, task.vms) == (0.0, 0.0, {})


def test_of_a_life_of_many_plans_the_last_ones_are_learned_from() -> None:
    world = settled(BY_CPU, BY_CPU)
    (entry,), accounts = latest(world.entries), Accounts()
    for number in range(2 * PLANS_KEPT):
        accounts.keep(replace(entry, epoch=number))
        accounts.keep(replace(entry, epoch=0))
    epochs = {one.epoch for one in accounts.entries.values()}
    assert epochs == {0, *range(PLANS_KEPT + 1, 2 * PLANS_KEPT)}, "the first plan is told of again and again"


def test_while_anything_is_on_its_way_or_missing_nothing_is_kept() -> None:
    world = settled(BY_CPU, BY_CPU, seconds=50)
    assert len(world.entries) == 1
    world.vms["vm1"].cut = True  # its samples do not come
    world.run(60)
    assert len(world.entries) == 1
