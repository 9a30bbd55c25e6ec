"""A way between two VMs that carries nothing is named and told everywhere, and no plan is made to go over it."""

from __future__ import annotations

from enactment_world import World, replace, vm

from headgate.controller.knowledge import loop_events as t
from headgate.controller.knowledge.run_view import RunView
from headgate.controller.views.controller_metrics import families
from headgate.controller.views.run_snapshots import SnapshotMaker
from headgate.topology_runtime.wire import messages as m


class HearingWorld(World):
    """Workers that tell what they hear. silent: (VM, another one) → for so many ms its workers have heard nothing of
    those."""

    silent: dict[tuple[str, str], int] = {}

    def do(self, event: t.Event) -> list[t.Instruction]:
        if isinstance(event, t.FromVm) and isinstance(said := event.message, m.Report):
            heard: tuple[m.VmHeard, ...] = (m.VmHeard("a VM that there is not", 99_999),)
            heard += tuple(
                m.VmHeard(other, self.silent.get((said.vm, other), 400), 7)
                for other in self.vms
                if other != said.vm
            )
            workers = tuple(replace(worker, heard=heard) for worker in said.workers)
            event = t.FromVm(replace(said, workers=workers))
        return super().do(event)

    def view(self) -> RunView:
        return self.loop.view(self.now)


def on_two_vms() -> HearingWorld:
    world = HearingWorld((vm("vm1", 1), vm("vm2", 1)), rate_tps=200.0)
    world.start().until("committed").run(15)
    assert {slot.vm for slot in world.rollout.slots} == {"vm1", "vm2"}
    return world


def alarms(world: World) -> dict[str, str]:
    return {alarm["what"]: alarm["text"] for alarm in world.ask("status").data["alarms"]}


def test_a_way_that_is_cut_on_both_sides_is_an_alarm_until_it_carries() -> None:
    world = on_two_vms()
    both = {("vm1", "vm2"): 12_000, ("vm2", "vm1"): 11_000}
    world.silent = {("vm1", "vm2"): 12_000}
    world.run(3)
    assert not alarms(world), "vm2 hears vm1: its own worker stands still, or lies"
    world.silent = both
    world.run(3)
    assert alarms(world)["link vm1>vm2"].startswith("vm1 → vm2 does not carry")
    links = world.ask("status").data["links"]
    assert links[0] == {"from": "vm1", "to": "vm2", "delay_ms": 7, "carries": False}
    assert SnapshotMaker().advance(world.view()).patch["alarms"].keys() == {"link vm1>vm2"}
    told = {
        s.name: s
        for family in families(world.view())
        for s in family.samples
        if s.labels.get("what") == "link"
    }
    assert told["headgate_alarms"].value == 1
    world.silent = {}
    world.run(3)
    assert not alarms(world)
    delays = [
        s
        for family in families(world.view())
        for s in family.samples
        if s.name == "headgate_link_delay_seconds"
    ]
    assert {(s.labels["vm"], s.labels["to"]): s.value for s in delays} == {
        ("vm1", "vm2"): 0.007,
        ("vm2", "vm1"): 0.007,
    }


def test_a_cut_is_not_taken_for_overload_and_nothing_is_planned_over_it() -> None:
    world = on_two_vms()
    world.hold_acks = True
    world.silent = {("vm1", "vm2"): 12_000, ("vm2", "vm1"): 12_000}
    epoch = world.durable.next_epoch
    world.run(40)
    decision = world.ask("status").data["last_decision"]
    assert decision["trigger"] == "link_cut" and "vm1 → vm2 does not carry" in decision["text"]
    assert world.durable.next_epoch == epoch
    world.silent = {}
    world.run(10)
    assert world.ask("status").data["last_decision"]["trigger"] != "link_cut"


def test_a_vm_that_was_not_reached_gets_no_new_threads_for_minutes() -> None:
    """Its agent ends, its work moves; it comes back when more is offered, and another VM is taken."""
    world = HearingWorld((vm("vm1", 2), vm("vm2", 2), vm("vm3", 2)), rate_tps=380.0)
    world.start().until("committed").run(15)
    one, other = sorted({slot.vm for slot in world.rollout.slots})[:2]
    far = other if world.source_thread().slot.vm == one else one
    world.silent = {(one, other): 12_000, (other, one): 12_000}
    world.run(3)
    world.vms[far].down = True
    world.run(30)
    assert far not in {slot.vm for slot in world.rollout.slots}
    world.silent = {}
    world.vms[far].down = False
    world.vms[far].restart()
    world.ask("rate_set", rate_tps=900.0)
    world.run(60)
    assert far not in {slot.vm for slot in world.rollout.slots} and world.rollout.degraded
    world.run(300)
    assert far in {slot.vm for slot in world.rollout.slots}, "it is tried again"
