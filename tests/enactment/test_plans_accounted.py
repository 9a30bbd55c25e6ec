"""What is kept of a plan: predicted and measured, of a world whose tasks cost what they really cost."""

from __future__ import annotations

import pytest
from costed_world import BASE_CPU, BY_CPU, TASK, CostedWorld, times
from enactment_world import MODELS, vm
from msgspec.structs import replace

from headgate.controller.core.accounting import PLANS_KEPT, Accounts
from headgate.controller.knowledge.corrections import version_of
from headgate.controller.knowledge.models import Model
from headgate.controller.knowledge.prediction_ledger import latest


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
    assert short.tested == "short", "150 tuples/s are offered, one slot takes 100"
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
