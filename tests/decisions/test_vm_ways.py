"""A way between two VMs that carries nothing is named and told everywhere, and no plan is made to go over it."""

from __future__ import annotations

from enactment_world import TOPOLOGY, World, replace, vm

from headgate.controller.core.alarms import WayWatch, with_rows
from headgate.controller.core.loop import Loop
from headgate.controller.knowledge import loop_events as t
from headgate.controller.knowledge.knowledge import Turn
from headgate.controller.knowledge.measured_window import EdgeWindow
from headgate.controller.knowledge.run_view import RunView
from headgate.controller.knowledge.vm_ways import VmWay, covers
from headgate.controller.plan.predict.vm_links import rows_between
from headgate.controller.views.controller_metrics import families
from headgate.controller.views.run_snapshots import SnapshotMaker
from headgate.topology_runtime.api.topology import Edge, Topology
from headgate.topology_runtime.wire import messages as m


class HearingWorld(World):
    """Workers that tell what they hear. silent: (VM, another one) → for so many ms its workers have heard nothing of
    those."""

    silent: dict[tuple[str, str], int] = {}
    late: dict[tuple[str, str], int] = {}

    def do(self, event: t.Event) -> list[t.Instruction]:
        if isinstance(event, t.FromVm) and isinstance(said := event.message, m.Report):
            heard: tuple[m.VmHeard, ...] = (m.VmHeard("a VM that there is not", 99_999),)
            heard += tuple(
                m.VmHeard(
                    other,
                    self.silent.get((said.vm, other), 400),
                    self.late.get((said.vm, other), 7),
                )
                for other, one in self.vms.items()
                if other != said.vm and one.workers
            )
            workers = tuple(replace(worker, heard=heard) for worker in said.workers)
            event = t.FromVm(replace(said, workers=workers))
        return super().do(event)

    def view(self) -> RunView:
        return self.loop.view(self.now)


KEYED = Topology(
    TOPOLOGY.name,
    tuple(replace(task, state="keyed") if task.name == "work" else task for task in TOPOLOGY.tasks),
    (Edge("source", "work", grouping="fields", key="0"), Edge("work", "sink")),
)


def on_two_vms(topology: Topology = TOPOLOGY) -> HearingWorld:
    world = HearingWorld((vm("vm1", 1), vm("vm2", 1)), rate_tps=200.0)
    world.submitted = replace(world.submitted, topology=topology)
    world.loop = Loop(world.settings, world.submitted)
    world.start().until("committed").run(15)
    assert {slot.vm for slot in world.rollout.slots} == {"vm1", "vm2"}
    return world


def alarms(world: World) -> dict[str, str]:
    return {alarm["what"]: alarm["text"] for alarm in world.ask("status").data["alarms"]}


def test_a_way_that_is_cut_on_both_sides_is_an_alarm_until_it_carries() -> None:
    world = on_two_vms(KEYED)
    both = {("vm1", "vm2"): 12_000, ("vm2", "vm1"): 11_000}
    world.silent = {("vm1", "vm2"): 12_000}
    world.run(3)
    assert not alarms(world), "vm2 hears vm1: its own worker stands still, or lies"
    world.silent = both
    world.run(3)
    assert alarms(world)["link vm1>vm2"].startswith("vm1 → vm2 does not carry")
    links = world.ask("status").data["links"]
    assert links[0] == {"from": "vm1", "to": "vm2", "delay_ms": 7, "carries": False, "slow": False}
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


def test_a_cut_is_not_taken_for_overload_and_a_plan_without_the_pair_is_made_once() -> None:
    """Neither VM alone has room for all; what one of them carries is more than what goes over a cut."""
    world = on_two_vms()
    world.hold_acks = True
    source = world.source_thread().slot.vm
    world.silent = {("vm1", "vm2"): 12_000, ("vm2", "vm1"): 12_000}
    epoch = world.durable.next_epoch
    world.run(3)
    decision = world.ask("status").data["last_decision"]
    world.hold_acks = False
    world.run(20)
    (plan,) = [text for text in [event["text"] for event in world.events("plan")] if "link_cut" in text]
    assert "vm1 → vm2 does not carry" in plan and "rows/s without vm" in plan
    assert world.durable.next_epoch == epoch + 1, "and none after it"
    assert {slot.vm for slot in world.rollout.slots} == {source} and world.rollout.degraded
    assert decision["trigger"] != "overloaded" and world.durable.held_dead == (), "it obeyed, and is empty"
    left = "vm2" if source == "vm1" else "vm1"
    told = alarms(world)["link vm1>vm2"]
    assert told.startswith(f"nothing runs on {left}: vm1 → vm2 did not carry; tried again in 1 min")


def test_where_each_vm_keeps_what_only_it_has_that_is_said_and_nothing_is_planned() -> None:
    world = on_two_vms(KEYED)
    world.hold_acks = True
    world.silent = {("vm1", "vm2"): 12_000, ("vm2", "vm1"): 12_000}
    epoch = world.durable.next_epoch
    world.run(40)
    decision = world.ask("status").data["last_decision"]
    assert decision["trigger"] == "link_cut" and "vm1 → vm2 does not carry" in decision["text"]
    assert "no plan does without vm1 and vm2: vm1 has keyed state of work; mend the link" in decision["text"]
    assert world.durable.next_epoch == epoch and world.durable.held_dead == ()
    world.silent = {}
    world.run(10)
    assert world.ask("status").data["last_decision"]["trigger"] != "link_cut"


def test_of_three_vms_the_one_that_costs_least_is_left_out_and_taken_again_later() -> None:
    world = HearingWorld((vm("vm1", 2), vm("vm2", 2), vm("vm3", 2)), rate_tps=380.0)
    world.start().until("committed").run(15)
    one, other = sorted({slot.vm for slot in world.rollout.slots})[:2]
    world.silent = {(one, other): 12_000, (other, one): 12_000}
    world.run(30)
    assert len({one, other} & {slot.vm for slot in world.rollout.slots}) == 1 and not world.rollout.degraded
    (left,) = {one, other} - {slot.vm for slot in world.rollout.slots}
    world.silent = {}
    world.ask("rate_set", rate_tps=900.0)
    world.run(15)
    assert left not in {slot.vm for slot in world.rollout.slots}
    world.run(60)
    assert left in {slot.vm for slot in world.rollout.slots}, "it is tried again"
    world.silent = {(one, other): 12_000, (other, one): 12_000}
    world.run(30)
    world.silent = {}
    assert "tried again in 2 min" in alarms(world)[f"link {one}>{other}"]
    again = [event for event in world.events("plan") if "link_cut" in event["text"]]
    world.run(80)
    assert len(again) == 2 and len({one, other} & {slot.vm for slot in world.rollout.slots}) == 1, (
        "later than before"
    )


def test_a_slow_way_is_named_and_not_taken_for_overload() -> None:
    world = on_two_vms()
    world.acks_at_once = 4  # 80 of 200 rows/s
    world.late = {("vm1", "vm2"): 5200, ("vm2", "vm1"): 5200}
    epoch = world.durable.next_epoch
    world.run(30)
    decision = world.ask("status").data["last_decision"]
    words = "is slow: 5.2 s there and back, usually 7 ms"
    assert decision["trigger"] == "link_slow" and words in decision["text"]
    assert world.durable.next_epoch == epoch and words in alarms(world)["link vm1>vm2"]
    assert alarms(world).keys() == {"link vm1>vm2"}, "not the models"
    assert {link["slow"] for link in world.ask("status").data["links"]} == {True}
    world.late, world.acks_at_once = {}, 1 << 40
    world.run(15)
    assert not alarms(world) and {link["slow"] for link in world.ask("status").data["links"]} == {False}


def test_workers_that_have_no_cpu_left_answer_late_and_their_link_is_not_called_slow() -> None:
    world = on_two_vms()
    window = world.view().window
    assert window is not None
    busy = {slot: replace(used, cpu=0.97) for slot, used in window.slots.items() if slot.vm == "vm2"}
    world.late = {("vm1", "vm2"): 5200, ("vm2", "vm1"): 5200}
    for used, slow in ((window.slots | busy, False), (window.slots, True)):
        watch = WayWatch()
        for late in (False, *[True] * 5):
            world.late = dict.fromkeys((("vm1", "vm2"), ("vm2", "vm1")), 5200 if late else 7)
            world.report_all()
            watch.look(Turn(world.loop.knowledge, world.now, world.loop), replace(window, slots=used))
        assert {way.slow for way in world.loop.knowledge.ways} == {slow}


def test_what_a_slow_way_carries_is_told_where_its_edges_go_no_other_way() -> None:
    world = on_two_vms()
    slow = VmWay("vm1", "vm2", 400, 5200, True, 7)
    knowledge, window = world.loop.knowledge, world.view().window
    assert knowledge.plan is not None and window is not None
    needed = rows_between(knowledge.plan, TOPOLOGY)
    edges = {edge: EdgeWindow(400.0, 0.0, 0.0, 0.0, 40.0, 40.0) for ways in needed.values() for edge in ways}
    window = replace(window, edges=edges, offered_tps=knowledge.plan.rate_tps / 2)
    told = [with_rows(knowledge, window, (slow._replace(vm=vm, to=to),))[0] for vm, to in needed]
    assert told
    for way, edges_of in zip(told, needed.values(), strict=True):
        of = sum(edges_of.values()) / 2
        assert f"carries {40 * len(edges_of):,.0f} rows/s of {of:,.0f}" in way.words


def test_sets_of_vms_without_which_no_pair_is_left() -> None:
    def cut(*pairs: str) -> list[frozenset[str]]:
        return covers([VmWay(pair[0], pair[1], 9000, None, False) for pair in pairs])

    assert cut("ab") == [{"a"}, {"b"}]
    assert cut("ab", "ac") == [{"a"}, {"b", "c"}], "the smallest first, none with more than it takes"
    assert cut() == [frozenset()]
    assert {"a"} in cut(*(f"a{n}" for n in range(9)))


def test_a_vm_that_was_not_reached_gets_no_new_threads_for_a_while() -> None:
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
    world.run(15)
    assert far not in {slot.vm for slot in world.rollout.slots} and world.rollout.degraded
    world.run(60)
    assert far in {slot.vm for slot in world.rollout.slots}, "it is tried again"
