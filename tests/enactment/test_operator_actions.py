"""An operator brings an earlier plan back (`headgate rollback`): it comes, stays until `resume`, and is told."""

from __future__ import annotations

from typing import Any

import pytest
from enactment_world import MODELS, TOPOLOGY, World, replace, vm

from headgate.controller.knowledge import loop_events as t
from headgate.controller.knowledge.journal_records import Cordoned, HandedOver
from headgate.controller.models.plan_data import plan_data
from headgate.controller.models.plans import Plan
from headgate.controller.models.task_models import Point
from headgate.controller.plan.planner import PlanRequest, make_plan
from headgate.topology_runtime.api.cluster import Slot, Vm
from headgate.topology_runtime.api.topology import Edge, Topology
from headgate.topology_runtime.wire import messages as m


def raised(**settings: Any) -> World:
    """A run that began at 100 rows/s and has a plan for 300 now; `plans` are both."""
    world = World(**settings).start().until("committed").run(10)
    world.ask("rate_set", rate_tps=300.0)
    world.run(30)
    assert world.phase == "committed" and len(world.plans) == 2
    return world


def back(world: World, plan: Plan | None = None, **more: object) -> m.Reply:
    return world.ask("rollback", plan=plan_data(plan or world.plans[0]), **more)


def refused(reply: m.Reply, exit_code: int) -> str:
    assert reply.error is not None and reply.error[1] == exit_code, reply
    _, _, what, cause, hint, faults = reply.error
    assert hint, "what to try is said"
    return " ".join((what, cause or "", *faults))


def placed(plan: Plan) -> dict[tuple[str, Slot], int]:
    return {(bundle.task, bundle.slot): bundle.threads for bundle in plan.placement.bundles}


def threads(world: World) -> dict[tuple[str, Slot], int]:
    found: dict[tuple[str, Slot], int] = {}
    for thread in world.rollout.threads:
        if not thread.leaving:
            found[thread.task, thread.slot] = found.get((thread.task, thread.slot), 0) + 1
    return found


# ── it comes, and it stays ──────────────────────────────────────────────────────────────────────


def test_the_earlier_plan_comes_back_and_stays_whatever_is_offered() -> None:
    world = raised()
    first, second = world.plans
    done = back(world).data
    assert done["id"] == done["as"] == first.id and done["left"] == second.id and done["moves"] > 0
    assert "held" in done["held"]
    world.until("committed").run(120)
    assert world.rollout.plan.id == first.id and world.rollout.reason == "rollback"
    assert world.rollout.epoch == done["epoch"] == world.durable.next_epoch - 1, "no plan was made since"
    assert threads(world) == placed(first)
    last = world.loop.knowledge.last_decision
    assert last is not None and last["trigger"] == "rate_changed" and "resume" in last["text"]


def test_it_is_told_in_status_decisions_events_and_alarm() -> None:
    world = raised()
    back(world)
    world.until("committed")
    world.acks_at_once = int(world.rollout.plan.prediction.rate_tps * 0.05)  # no more than the plan carries
    world.run(60)
    status = world.ask("status").data
    assert world.plans[0].id in status["held"] and status["plan"]["reason"] == "rollback"
    assert any("until `headgate resume`" in text for text in world.texts("held"))
    (decision,) = [one for one in world.traces if one["trigger"] == "rollback"]
    assert decision["action"] == "plan" and decision["plan"]["moves"] > 0  # type: ignore[index]
    assert "headgate resume" in world.loop.knowledge.alarms["short"], "300 are offered, it carries less"
    assert world.ask("explain").data["held"]


def test_resume_ends_it_and_planning_goes_on() -> None:
    world = raised()
    back(world)
    world.until("committed").run(20)
    assert world.plans[0].id in world.ask("resume").data["was_held"]
    world.run(30)
    assert world.rollout.reason == "rate_changed" and world.rollout.plan.rate_tps > 300
    assert world.ask("status").data["held"] is None
    assert world.ask("resume").data["was_held"] is None


def test_a_plan_that_runs_already_is_only_held() -> None:
    world = World().start().until("committed").run(10)
    epoch = world.rollout.epoch
    done = back(world).data
    assert done["moves"] == 0 and done["epoch"] == epoch
    world.ask("rate_set", rate_tps=300.0)
    world.run(40)
    assert world.rollout.epoch == epoch and world.phase == "committed"


def test_an_operators_word_is_not_undone_by_its_probation() -> None:
    """The sources stop being acked while it is on probation: any other plan would be taken back."""
    world = raised(probation_window_s=4.0)
    back(world)
    world.until("probation")
    world.hold_acks = True
    world.run(40)
    assert world.durable.held_plan is not None
    assert world.rollout.reason == "rollback" and not world.durable.rollouts[-1].rolled_back


# ── what it survives ────────────────────────────────────────────────────────────────────────────


def test_a_controller_that_was_killed_goes_on_holding_it() -> None:
    world = raised()
    back(world)
    world.run(0.1)
    world.restart_controller()
    assert "moment ago" in refused(back(world, world.plans[1], instead=True), 6), (
        "it still finds out what runs"
    )
    world.until("committed").run(60)
    assert (
        world.rollout.plan.id == world.plans[0].id and world.plans[0].id in world.ask("status").data["held"]
    )
    assert world.ask("resume").error is None
    world.restart_controller()
    world.run(40)
    assert world.rollout.reason == "rate_changed" and world.durable.held_plan is None


def test_a_vm_that_is_lost_is_planned_round_and_the_hold_stays() -> None:
    world = raised()
    first = world.plans[0]
    back(world)
    world.until("committed").run(5)
    world.vms[first.placement.bundles[0].slot.vm].down = True
    world.run(60)
    assert world.rollout.reason == "vm_lost" and world.phase == "committed"
    assert world.rollout.plan.rate_tps == pytest.approx(first.rate_tps), "for what the held plan was for"
    epoch = world.rollout.epoch
    world.run(60)
    assert world.rollout.epoch == epoch and "what had to take its place" in world.ask("status").data["held"]


def test_what_cannot_be_brought_into_force_is_not_held() -> None:
    world = raised()
    here = {thread.slot for thread in world.rollout.threads}
    spare = next(slot for one in world.vms.values() for slot in one.shape.all_slots() if slot not in here)
    first = elsewhere(world.plans[0], spare)
    world.vms[spare.vm].failing.add("work")
    assert back(world, first).error is None
    world.run(10)
    world.vms[spare.vm].failing.clear()
    assert world.durable.held_plan is None and world.rollout.reason == "rolled_back"
    assert any("held no more" in text for text in world.texts("plan"))


def elsewhere(plan: Plan, slot: Slot) -> Plan:
    """The same threads, all in one slot."""
    bundles = tuple(replace(bundle, slot=slot) for bundle in plan.placement.bundles)
    fresh = make_plan(
        PlanRequest(TOPOLOGY, {x.task: x for x in MODELS}, plan.rate_tps, (vm(slot.vm),), fixed=True)
    )
    uses = tuple(replace(use, vm=slot.vm, slot=slot.number) for use in fresh.prediction.slots)
    shares = tuple(replace(share, slot=slot) for share in fresh.prediction.shares)
    limited = str(slot) if fresh.prediction.limited_by_slot else None
    prediction = replace(fresh.prediction, slots=uses, shares=shares, limited_by_slot=limited)
    return replace(fresh, placement=replace(plan.placement, bundles=bundles), prediction=prediction)


# ── modes, and two operators ────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("mode", ["approve", "advise"])
def test_it_is_an_operators_word_in_every_mode(mode: str) -> None:
    world = World(rate_tps=100.0).start().until("committed").run(10)
    world.ask("rate_set", rate_tps=300.0)
    world.run(30)
    world.ask("resume", mode=mode)
    assert back(world).error is None
    world.until("committed").run(60)
    assert world.rollout.plan.id == world.plans[0].id
    assert world.loop.knowledge.proposal is None, "while it is held nothing is proposed"
    assert bool(world.ask("status").data["advice"]) == (mode == "advise"), (
        "advice changes nothing, so it goes on"
    )


def test_a_proposal_is_not_applied_over_a_held_plan() -> None:
    world = raised()
    back(world)
    world.until("committed").run(5)
    assert world.ask("plan", rate_tps=200.0, propose=True).error is None
    assert world.plans[0].id in refused(world.ask("apply"), 6)


def test_the_second_of_two_operators_hears_of_the_first() -> None:
    world = raised()
    first, second = world.plans
    assert back(world, first).error is None
    said = refused(back(world, second), 6)
    assert f"an operator brought plan {first.id} back at" in said
    assert "another enactment is running" in refused(back(world, second, instead=True), 6)
    world.until("committed")
    assert back(world, first).data["moves"] == 0, "the same once more is done already"
    assert back(world, second, instead=True).error is None
    world.until("committed").run(30)
    assert world.rollout.plan.id == second.id and second.id in world.ask("status").data["held"]


# ── what is refused ─────────────────────────────────────────────────────────────────────────────


def test_a_plan_of_another_topology_is_refused() -> None:
    world = raised()
    other = Topology("other", TOPOLOGY.tasks, TOPOLOGY.edges)
    changed = Topology("line", TOPOLOGY.tasks, (Edge("source", "work", 2.0), Edge("work", "sink")))
    for topology, words in ((other, "it is for the topology 'other'"), (changed, "has changed since")):
        plan = make_plan(PlanRequest(topology, {x.task: x for x in MODELS}, 60.0, (vm("vm1"),), fixed=True))
        assert words in refused(back(world, plan), 3)
    assert world.durable.held_plan is None


@pytest.mark.parametrize(
    ("vms", "words"),
    [
        ((vm("vm7"),), "VM 'vm7' is not there"),
        ((vm("vm1", 1), vm("vm2", 9)), "so there is no slot vm2/"),
        ((Vm("vm1", 4, 0.5, 1 << 29),), "slots of VM 'vm1' have 1 cores and 512 MiB"),
    ],
)
def test_a_plan_for_other_vms_or_slots_is_refused(vms: tuple[Vm, ...], words: str) -> None:
    world = raised()
    request = PlanRequest(
        TOPOLOGY, {x.task: x for x in MODELS}, 1500.0 if len(vms) > 1 else 60.0, vms, fixed=True
    )
    said = refused(back(world, make_plan(request)), 3)
    assert words in said
    world.run(5)
    assert world.rollout.plan.id == world.plans[1].id


def test_a_quarantined_slot_and_a_run_that_ends_are_refused() -> None:
    world = raised()
    slot = world.plans[0].placement.bundles[0].slot
    world.vms[slot.vm].quarantine(slot.number)
    world.run(30)
    assert f"slot {slot} is given up" in refused(back(world), 3)
    world.ask("stop")
    assert "no plan is in force" in refused(back(world), 6)


@pytest.mark.parametrize("plan", [None, [], {"schema": "headgate/plan/v1"}, "ab12"])
def test_what_is_no_plan_is_refused_with_its_faults(plan: object) -> None:
    world = raised()
    reply = world.ask("rollback", plan=plan)
    assert reply.error is not None and reply.error[1] == 3 and reply.error[5]


def test_nothing_to_roll_back_before_the_first_plan() -> None:
    world = World().start()
    plan = make_plan(PlanRequest(TOPOLOGY, {x.task: x for x in MODELS}, 60.0, (vm("vm1"),), fixed=True))
    assert "no plan is in force" in refused(back(world, plan), 6)


# ── VMs and models that changed since ───────────────────────────────────────────────────────────


def test_vms_that_were_given_back_are_asked_for_again() -> None:
    world = World(vms=(vm("vm1"),), rate_tps=900.0, spare=vm("spare"), max_vms=3).start().until("committed")
    world.run(20)
    large = world.rollout.plan
    assert len(large.vms) > 1
    world.ask("rate_set", rate_tps=60.0)
    world.run(60)
    assert set(world.vms) == {"vm1"}, "the others were given back"
    done = back(world, large).data
    assert done["asked"] == [one.vm for one in large.vms[1:]]
    world.run(1).until("committed").run(60)
    assert world.rollout.plan.id == large.id and threads(world) == placed(large)


def test_a_vm_that_does_not_come_ends_the_hold() -> None:
    world = World(vms=(vm("vm1"),), rate_tps=900.0, spare=vm("spare"), max_vms=3).start().until("committed")
    world.run(20)
    large = world.rollout.plan
    world.ask("rate_set", rate_tps=60.0)
    world.run(60)
    small = world.rollout.plan
    world.lost_requests |= {"vm2", "vm3"}
    back(world, large)
    assert world.durable.waiting is not None and world.durable.held_plan is not None
    world.run(400)
    assert world.durable.waiting is None and world.durable.held_plan is None
    assert world.rollout.plan.id == small.id
    assert any("held no more" in text for text in world.texts("abandoned"))


def made_from(points: tuple[Point, ...], rate_tps: float) -> Plan:
    """A plan of these VMs when the model of `work` was another."""
    models = {"work": replace(MODELS[0], points=points)}
    return make_plan(PlanRequest(TOPOLOGY, models, rate_tps, (vm("vm1"), vm("vm2")), fixed=True))


@pytest.mark.parametrize("times", [0.8, 1.5])
def test_a_plan_from_models_of_before_is_predicted_anew(times: float) -> None:
    """Also where it carries less by the models of now than it was made for: that is the operator's business."""
    world = raised()
    plan = made_from(tuple(replace(p, rate_tps=p.rate_tps * times) for p in MODELS[0].points), 140.0)
    done = back(world, plan).data
    assert done["id"] == plan.id != done["as"] == world.loop.knowledge.plans[done["as"]].id
    assert done["predicted_tps"] == pytest.approx(plan.prediction.rate_tps / times, rel=0.05)
    assert "its models or VMs are others now" in world.texts("held")[-1]
    world.until("committed").run(30)
    assert threads(world) == placed(plan)


def test_a_plan_whose_slots_have_too_little_memory_by_the_models_of_now_is_refused() -> None:
    world = raised()
    plan = made_from(tuple(Point(n, 50.0 * n, 0.05 * n, 0.01 * n) for n in (1, 16)), 600.0)
    assert "of its memory by the models of now" in refused(back(world, plan), 3)


def test_the_controller_names_the_plans_that_it_knows() -> None:
    world = raised()
    found = world.ask("plans").data
    assert {one["id"] for one in found["plans"]} == {plan.id for plan in world.plans} and found[
        "plan"
    ] is None
    assert world.ask("plans", id=world.plans[0].id).data["plan"] == plan_data(world.plans[0])
    world.restart_controller()
    world.run(10)
    assert {one["id"] for one in world.ask("plans").data["plans"]} == {plan.id for plan in world.plans}


# ── VMs that an operator sets apart: drained ones end up empty, with all rows done; what that may cost is
# said


def running(rate_tps: float = 100.0, vms: int = 3, **settings: Any) -> World:
    shapes = [vm(f"vm{n}") for n in range(1, vms + 1)]
    return World(shapes, rate_tps=rate_tps, **settings).start().until("committed")


def exit_code(reply: m.Reply) -> int:
    return reply.error[1] if reply.error is not None else 0


def used(world: World) -> set[str]:
    return {slot.vm for slot in world.rollout.slots}


def cordons(world: World) -> dict[str, str | None]:
    return {one["vm"]: one["cordon"] for one in world.ask("status").data["vms"]}


def drained(world: World, *vms: str) -> World:
    """Until the controller says so."""
    for _ in range(120):
        world.run(0.5)
        if all(cordons(world)[name] == "drained" for name in vms):
            return world
    raise AssertionError(f"not drained: {cordons(world)}, {world.phase}")


def held_by(world: World, name: str) -> set[int]:
    """Threads that the VM itself still has, whatever the controller thinks."""
    return {thread for one in world.vms[name].workers.values() for thread in one.threads}


# ── drain ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", ["vm1", "vm2", "vm3"])
def test_a_drained_vm_is_empty_and_every_row_is_done(name: str) -> None:
    world = running(rate_tps=1400.0)
    assert name in used(world), "else nothing is tried here"
    assert world.ask("drain", vms=[name], force=True).data == {"vms": [{"vm": name, "cordon": "draining"}]}
    drained(world, name)
    assert world.rollout.reason == "vm_drained" and name not in used(world)
    assert not held_by(world, name)
    world.ask("stop")
    world.run(20)
    assert world.finish is not None and world.finish.error is None
    assert world.finish.summary is not None
    tuples = world.finish.summary["tuples"]
    assert tuples["offered"] == tuples["emitted"] == tuples["acked"] > 1000
    assert (tuples["lost"], tuples["replayed"]) == (0, 0)


def test_the_plan_goes_on_without_it_whatever_the_rate_does() -> None:
    world = running()
    busy = min(used(world))
    world.ask("drain", vms=[busy])
    drained(world, busy)
    world.ask("rate_set", rate_tps=700.0)
    world.run(30)
    assert world.rollout.reason == "rate_changed" and busy not in used(world)


def test_one_that_nothing_runs_on_is_drained_at_once() -> None:
    world = running()
    idle = next(name for name in world.vms if name not in used(world))
    assert world.ask("drain", vms=[idle]).data == {"vms": [{"vm": idle, "cordon": "drained"}]}
    world.run(5)
    assert world.rollout.epoch == 1


@pytest.mark.parametrize("after_s", [1, 30])
def test_a_source_moves_without_reading_a_row_twice_however_long_it_ran(after_s: int) -> None:
    """(The time that a leaving source gets to run empty began with the plan before.)"""
    world = running().run(after_s)
    source = next(t.slot.vm for t in world.rollout.threads if t.task == "source")
    world.ask("drain", vms=[source])
    drained(world, source)
    assert not [record for record in world.journal if isinstance(record, HandedOver)]
    _, (successor, position) = world.started
    left = world.loop.knowledge.counts.source("source", 0)
    assert position == left.below[0] and successor in {t.thread for t in world.rollout.threads}


def test_it_is_not_drained_while_rows_are_open_there() -> None:
    world = running()
    source = next(t.slot.vm for t in world.rollout.threads if t.task == "source")
    world.hold_acks = True
    world.run(0.3)
    world.ask("drain", vms=[source])
    world.run(12)
    assert cordons(world)[source] == "draining" and held_by(world, source)
    world.hold_acks = False
    drained(world, source)


def test_it_is_not_drained_while_the_plan_may_be_taken_back() -> None:
    world = running()
    busy = min(used(world))
    world.ask("drain", vms=[busy])
    seen = []
    for _ in range(600):
        world.run(0.05)
        seen.append((world.phase, cordons(world)[busy]))
        if seen[-1][1] == "drained":
            break
    assert seen[-1] == ("committed", "drained")
    assert {word for phase, word in seen if phase != "committed"} == {"draining"}


def test_a_drain_outlives_the_controller() -> None:
    world = running()
    busy = min(used(world))
    world.ask("drain", vms=[busy])
    world.restart_controller()
    world.run(8)
    drained(world, busy)
    assert world.durable.cordoned == {busy: True}


def test_too_little_without_it_is_refused_and_changes_nothing() -> None:
    world = running(rate_tps=1400.0)
    before = world.durable
    reply = world.ask("drain", vms=["vm1"])
    assert exit_code(reply) == 6 and "too little can be carried" in str(reply.error), reply
    assert world.durable == before
    world.run(5)
    assert "vm1" in used(world)


def test_the_last_vm_is_not_drained_even_by_force_into_nothing() -> None:
    world = running(vms=1)
    assert exit_code(world.ask("drain", vms=["vm1"])) == 6
    world.ask("drain", vms=["vm1"], force=True)
    world.run(10)
    assert used(world) == {"vm1"} and cordons(world)["vm1"] == "draining"
    assert any("no plan" in text for text in world.loop.knowledge.alarms.values())
    world.ask("uncordon", vms=["vm1"])
    world.run(3)
    assert not any("no plan" in text for text in world.loop.knowledge.alarms.values())


def test_a_run_whose_vm_is_drained_before_its_first_plan_waits_for_it() -> None:
    """It ended: no plan carried its rate without that VM."""
    world = World(rate_tps=1400.0)
    world.do(t.Started((), None, 1))
    world.do(t.FromVm(world.vms["vm1"].hello()))
    world.ask("drain", vms=["vm1"])
    world.do(t.FromVm(world.vms["vm2"].hello()))
    world.run(5)
    assert world.finish is None and world.durable.rollout is None
    (told,) = (text for text in world.loop.knowledge.alarms.values() if "no first plan" in text)
    assert "vm1 is drained (`headgate uncordon`)" in told
    world.ask("uncordon", vms=["vm1"])
    world.until("committed")
    assert "vm1" in used(world)
    assert not any("no first plan" in text for text in world.loop.knowledge.alarms.values())


def test_more_vms_are_asked_for_where_they_may_be_had() -> None:
    world = running(rate_tps=1400.0, max_vms=4, spare=vm("x"))
    assert exit_code(world.ask("drain", vms=["vm1"])) == 0
    drained(world, "vm1")
    assert "vm4" in used(world) and "vm1" not in used(world)


def test_approval_is_not_asked_for_what_an_operator_ordered() -> None:
    world = running(mode="approve")
    busy = min(used(world))
    world.ask("drain", vms=[busy])
    drained(world, busy)


@pytest.mark.parametrize("mode", ["advise"])
def test_nobody_waits_for_what_is_never_done(mode: str) -> None:
    world = running(mode=mode)
    busy = min(used(world))
    assert exit_code(world.ask("drain", vms=[busy])) == 6 and not world.durable.cordoned
    assert exit_code(world.ask("cordon", vms=[busy])) == 0


# ── cordon, uncordon ────────────────────────────────────────────────────────────────────────────


def test_what_runs_on_a_cordoned_vm_stays_until_the_next_plan() -> None:
    world = running()
    busy = min(used(world))
    world.ask("cordon", vms=[busy])
    world.run(10)
    assert busy in used(world) and world.rollout.epoch == 1 and cordons(world)[busy] == "cordoned"
    world.ask("rate_set", rate_tps=500.0)
    world.run(30)
    assert busy not in used(world) and world.rollout.epoch > 1


def test_an_uncordoned_vm_is_planned_with_when_it_is_needed() -> None:
    world = running()
    busy = min(used(world))
    world.ask("drain", vms=[busy])
    drained(world, busy)
    epoch = world.rollout.epoch
    assert world.ask("uncordon", vms=[busy]).data == {"vms": [{"vm": busy, "cordon": ""}]}
    world.run(10)
    assert world.rollout.epoch == epoch, "nothing moves back by itself"
    world.ask("rate_set", rate_tps=1400.0)
    world.run(30)
    assert busy in used(world)


def test_an_uncordoned_vm_is_planned_with_at_once_where_the_others_carry_too_little() -> None:
    world = running(rate_tps=1400.0)
    world.ask("drain", vms=["vm2"], force=True)
    drained(world, "vm2")
    world.ask("uncordon", vms=["vm2"])
    world.run(40)
    assert world.rollout.reason in ("vm_joined", "rate_changed", "overloaded") and "vm2" in used(world)


def test_a_drain_that_is_taken_back_leaves_things_as_they_are() -> None:
    world = running()
    busy = min(used(world))
    world.ask("cordon", vms=[busy])
    world.ask("cordon", vms=[busy])
    world.ask("uncordon", vms=[busy, busy])
    world.run(10)
    assert world.rollout.epoch == 1
    assert sum(isinstance(record, Cordoned) for record in world.journal) == 2, (
        "what is so already is not said again"
    )


@pytest.mark.parametrize("vms", [[], None, "vm1", ["vm9"], [3], [["vm1"]], ["x" * 5000]])
@pytest.mark.parametrize("command", ["drain", "cordon", "uncordon"])
def test_what_is_no_vm_is_refused(command: str, vms: Any) -> None:
    world = running()
    before = world.durable
    assert exit_code(world.ask(command, vms=vms)) == 3
    assert world.durable == before


def test_a_vm_whose_workers_have_just_died_is_not_drained_for_that() -> None:
    world = running()
    busy = min(used(world))
    for worker in world.vms[busy].workers.values():
        worker.state = "exited"
    world.report(world.vms[busy])
    assert world.ask("drain", vms=[busy]).data == {"vms": [{"vm": busy, "cordon": "draining"}]}
