"""Plans that take long are made beside the loop, which goes on meanwhile; one made of what is so no more is dropped."""

from __future__ import annotations

from typing import Any

from enactment_world import S, World

from headgate.controller.core.decisions import question
from headgate.controller.knowledge import loop_events as t
from headgate.controller.replay.ideal_machines import Delays
from headgate.topology_runtime.wire import messages as m


class SlowWorld(World):
    """A plan by mixes takes 3 s, of virtual time."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(allocator="optimal", mapper="optimal", **settings)
        self.delays = Delays(machine_s=0.0, plan_s=3.0)
        self.orders: list[t.MakePlan] = []

    def perform(self, instruction: t.Instruction) -> None:
        if isinstance(instruction, t.MakePlan):
            self.orders.append(instruction)
        super().perform(instruction)

    def overload(self) -> SlowWorld:
        """More is offered than is planned for; run until a plan for it is being made."""
        self.ask("rate_set", rate_tps=300.0)
        self.until_ordered(len(self.orders) + 1)
        return self

    def until_ordered(self, orders: int) -> None:
        for _ in range(1200):
            if len(self.orders) >= orders:
                return
            self.run(0.05)
        raise AssertionError(f"{len(self.orders)} plans were asked for, not {orders}")


def running(**settings: Any) -> SlowWorld:
    world = SlowWorld(**settings)
    world.start()
    world.until("committed").run(10)
    return world


def test_the_first_plan_is_made_beside_the_loop():
    world = SlowWorld()
    world.start()
    world.run(2.5)
    assert len(world.orders) == 1 and world.phase == "none"
    world.until("committed")
    assert world.rollout.plan.allocator == "optimal" and len(world.orders) == 1
    world.do(t.Measured(1, 0.25))
    assert world.loop.knowledge.counts.planning_s == {1: 3.25}


def test_views_heartbeats_and_orders_go_on_while_a_plan_is_made():
    world = running().overload()
    shown: list[int] = []
    perform = world.perform

    def look(instruction: t.Instruction) -> None:
        if isinstance(instruction, t.Show):
            shown.append(world.mono_ns)
        perform(instruction)

    world.perform = look
    began_ns, sent, epoch = world.mono_ns, len(world.sent), world.durable.next_epoch
    world.run(2.5)
    assert world.durable.next_epoch == epoch, "it is not there before it is made"
    assert max(b - a for a, b in zip([began_ns, *shown], shown, strict=False)) <= S
    assert len(world.sent) > sent, "leases and states are told meanwhile"
    decision = world.loop.knowledge.last_decision
    assert decision is not None and "is being made" in decision["text"]
    assert world.ask("status").error is None
    world.run(1.0)
    assert world.durable.next_epoch == epoch + 1 and len(world.orders) == 2
    assert world.rollout.plan.rate_tps >= 300 or world.durable.waiting is not None


def test_a_plan_made_of_vms_that_are_gone_is_dropped_and_made_anew():
    world = running().overload()
    spare = next(one for one in world.vms.values() if not one.workers)
    world.do(t.FromVm(m.Goodbye(spare.name, spare.boot)))
    del world.vms[spare.name]
    epoch = world.durable.next_epoch
    world.run(3.2)
    assert world.durable.next_epoch == epoch
    [told] = world.texts("plan_dropped")
    assert "is not used: the VMs changed meanwhile" in told
    world.until_ordered(3)
    world.run(3.5)
    assert world.durable.next_epoch == epoch + 1


def test_a_fault_does_not_wait_for_a_plan_that_is_being_made():
    world = running().overload()
    victim = next(one for one in world.vms.values() if one.workers)
    number = next(iter(victim.workers)).number
    world.run(1.0)
    victim.quarantine(number)
    epoch = world.durable.next_epoch
    world.run(0.5)
    assert len(world.orders) == 3, "the plan round the fault is asked for at once"
    world.run(2.2)
    assert world.durable.next_epoch == epoch, "the plan made before is for something else"
    world.run(1.0)
    assert world.rollout.reason == "slot_quarantined" or (
        world.durable.waiting is not None and world.durable.waiting.reason == "slot_quarantined"
    )


def test_what_goes_wrong_in_it_is_said():
    world = running().overload()
    number = world.orders[-1].number
    failed = t.MakePlan(number, lambda: (_ for _ in ()).throw(ZeroDivisionError("planted"))).made(1.0)
    world.do(failed)
    assert "planning failed: ZeroDivisionError" in world.loop.knowledge.alarms["plan"]


def test_a_command_that_needs_a_plan_is_answered_when_it_is_made():
    world = running()
    asked = world.command("plan", {"rate_tps": 200.0, "propose": True})
    world.do(asked)
    assert asked.number not in world.answers
    world.run(3.5)
    reply = world.answers[asked.number]
    assert reply.error is None and reply.data["rate_tps"] == 200.0
    assert world.loop.knowledge.proposal is not None
    drained = world.command("drain", {"vms": ["vm2"], "check": True})
    world.do(drained)
    world.run(4)
    assert world.answers[drained.number].error is None


def test_the_same_inputs_give_the_same_decisions():
    world = running().overload()
    world.run(20)
    assert any(b"plan_made" in line for line in world.inputs)
    world.check_decisions()


def test_advice_that_changes_nothing_leaves_the_core_time():
    world = running(mode="advise")
    world.overload()
    before = len(world.orders)
    for second in range(30):
        world.ask("rate_set", rate_tps=300.0 + 3 * second)
        world.run(1)
    assert len(world.orders) - before <= 2, "a plan of 3 s at most every 15 s"


def test_what_is_in_force_is_part_of_what_is_asked_so_that_threads_stay():
    """Only of a mapper that looks at it."""
    world = running()
    plan = world.rollout.plan
    world.overload()
    assert world.orders[-1].work.args[0].in_force == plan.placement
    quick = World(allocator="mba", mapper="sam")
    quick.start()
    assert question(quick.loop.knowledge, 100.0).request.in_force is None
