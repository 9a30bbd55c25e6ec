"""What a controller journals while a plan waits for machines, when another takes its place, and when a VM with leaving
threads is gone for good: of the pure functions, on what a run that is committed knows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from enactment_world import World, vm
from msgspec.structs import replace

from headgate.controller.core.loop import unread_spools_found
from headgate.controller.execute.handover import hand_over, keyed_vms, still_open
from headgate.controller.execute.rollout import Enactment, begin, enact
from headgate.controller.knowledge.journal_records import HandedOver, Phase, RolloutStarted
from headgate.controller.knowledge.knowledge import Apart, Knowledge, Turn
from headgate.topology_runtime.api.cluster import Slot
from headgate.topology_runtime.api.topology import Task
from headgate.topology_runtime.wire.messages import SourceStart, SpoolLeft, ThreadSpec, ThreadStatus

LOST = 900  # a leaving source thread that was lost with its VM


@pytest.fixture
def world() -> World:
    return World().start().until("committed").run(1.0)


def known(world: World) -> Knowledge:
    return world.loop.knowledge


def plan_of(k: Knowledge) -> RolloutStarted:
    assert k.durable.rollout is not None
    return k.durable.rollout


def left_open(k: Knowledge, phase: Phase = "committed") -> None:
    k.durable = replace(k.durable, phase=phase, apart=(HandedOver("source", 0, LOST, 5, 9),))


def changed(world: World, do: Callable[[Turn], object]) -> bool:
    """Does it journal anything?"""
    k = known(world)
    before = k.durable
    do(Turn(k, world.now, world.loop))
    return k.durable is not before


# ── Stand-ins ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("phase", ["switched", "probation", "committed"])
def test_a_thread_that_leaves_reads_again_what_a_lost_one_had_open(world: World, phase: Phase) -> None:
    k = known(world)
    left_open(k, phase)
    number, reader = k.durable.next_thread, world.source_thread()
    assert changed(world, hand_over)
    assert plan_of(k).by_number[number] == replace(reader, thread=number, leaving=True)
    assert k.durable.apart == (HandedOver("source", 0, number, 5, 9),)
    assert k.durable.next_thread == number + 1


def test_no_stand_in_begins_while_a_plan_is_prepared(world: World) -> None:
    left_open(known(world), "prepared")
    assert not changed(world, hand_over)


def test_no_stand_in_begins_while_a_plan_waits_for_machines(world: World) -> None:
    """That plan has given its threads numbers already: the stand-in would get the number of one of them."""
    k = known(world)
    left_open(k)
    k.durable = replace(k.durable, waiting=replace(plan_of(k), epoch=plan_of(k).epoch + 1, awaits=("vm3",)))
    assert not changed(world, hand_over)
    k.durable = replace(k.durable, waiting=None)
    assert changed(world, hand_over)


def left_at(k: Knowledge) -> int:
    """From where whoever reads next would begin."""
    return k.counts.source("source", 0).main


def test_who_read_on_a_vm_that_is_gone_has_not_begun_whatever_it_was_told(world: World) -> None:
    k = known(world)
    left_open(k)
    reader = world.source_thread()
    assert k.desired is not None
    k.desired = replace(k.desired, starts=(SourceStart("source", 0, 9, 9),))
    k.members.goodbye(reader.slot.vm, world.vms[reader.slot.vm].boot)
    assert reader.slot.vm in k.members.gone()
    assert changed(world, hand_over) and not k.durable.apart and left_at(k) == 5


@pytest.mark.parametrize(("thread", "told"), [(-1, True), (LOST, False)])
def test_only_an_order_to_whoever_reads_says_where_a_successor_begins(
    world: World, thread: int, told: bool
) -> None:
    """One for a leaving thread alone does not."""
    k = known(world)
    left_open(k)
    reader, number = world.source_thread(), k.durable.next_thread
    assert k.desired is not None
    k.desired = replace(k.desired, starts=(SourceStart("source", 0, 9, 9, thread),))
    del k.members.sources[reader.thread]
    assert changed(world, hand_over)
    assert (number in plan_of(k).by_number) == told


@pytest.mark.parametrize(
    ("task", "partition", "given_up"), [("source", 0, True), ("source", 1, False), ("other", 0, False)]
)
def test_only_a_spool_of_its_own_partition_is_read_instead(
    world: World, task: str, partition: int, given_up: bool
) -> None:
    k = known(world)
    left_open(k)
    k.spools = {"vm9": (SpoolLeft(task, partition, 0, 9),)}
    number = k.durable.next_thread
    assert changed(world, hand_over)
    assert (number not in plan_of(k).by_number) == given_up
    assert (k.durable.apart == ()) == given_up


# ── What is known of threads that leave ─────────────────────────────────────────────────────────


def test_what_was_open_is_told_under_the_thread_that_reads_it_now(world: World) -> None:
    k = known(world)
    left_open(k)
    number = k.durable.next_thread
    assert changed(world, hand_over)
    assert set(k.counts.source("source", 0).apart) == {number}
    assert still_open(k, plan_of(k).by_number[number]) and not still_open(k, world.source_thread())


def test_what_comes_under_others_is_nobodys_any_more(world: World) -> None:
    k = known(world)
    left_open(k)
    k.spools = {"vm9": (SpoolLeft("source", 0, 0, 9),)}
    main = k.counts.source("source", 0).main
    records = recorded(world, hand_over)
    assert HandedOver("source", 0, LOST, 9, 9, True) in records, "a spool has it"
    assert LOST not in k.counts.source("source", 0).apart and left_at(k) == main


def test_without_a_reader_whoever_reads_next_begins_where_it_was_left_unless_a_spool_has_it(
    world: World,
) -> None:
    for spooled, begins in ((False, 5), (True, None)):
        k = known(world)
        left_open(k)
        k.counts.source("source", 0).apart.clear()
        k.counts.source("source", 0).main = 100
        k.durable = replace(k.durable, rollout=without_source(k))
        k.spools = {"vm9": (SpoolLeft("source", 0, 0, 9),)} if spooled else {}
        assert changed(world, hand_over) and not k.durable.apart
        assert left_at(k) == (begins or 100)


@pytest.mark.parametrize("apart", ["left out", "drained"])
def test_events_on_a_vm_that_no_plan_uses_now_are_planned_for_as_soon_as_one_may(
    world: World, apart: str
) -> None:
    """A plan was made at once, changed nothing, and the next one came a minute later: seed 920807."""
    k = known(world)
    reader = world.source_thread().slot.vm
    away = next(one for one in world.vms.values() if one.name != reader)
    k.spools = {away.name: (SpoolLeft("source", 0, 0, 9, thread=LOST),)}
    if apart == "left out":
        k.left_out = dict.fromkeys(away.shape.all_slots(), 1 << 60)
    else:
        k.durable = replace(k.durable, cordoned={away.name: "an operator"})
    turn = Turn(k, world.now, world.loop)
    assert unread_spools_found(turn) is None and "9 events of source" in world.alarms["unread"]
    k.left_out, k.durable = {}, replace(k.durable, cordoned={})
    found = unread_spools_found(turn)
    assert found is not None and found.reason == "events_unread"
    assert unread_spools_found(turn) is None, "once in a while"


def test_nobody_stands_in_for_a_thread_of_another_partition(world: World) -> None:
    k = known(world)
    k.durable = replace(k.durable, apart=(HandedOver("source", 1, LOST, 5, 9),))
    number = k.durable.next_thread
    assert changed(world, hand_over)
    assert not k.durable.apart and number not in plan_of(k).by_number


def without_source(k: Knowledge) -> RolloutStarted:
    """The plan with nobody but a thread that leaves to read."""
    threads = tuple(replace(t, leaving=True) if t.task == "source" else t for t in plan_of(k).threads)
    return replace(plan_of(k), threads=threads)


def test_only_threads_that_are_no_more_and_have_nothing_open_are_forgotten(world: World) -> None:
    k = known(world)
    reader = world.source_thread().thread
    k.durable = replace(k.durable, apart=(HandedOver("source", 0, LOST, 5, 9),))
    apart = k.counts.source("source", 0).apart
    done, some = Apart(9, 9, 9), Apart(9, 5, 5)
    apart.update({LOST: done, reader: done, 901: done, 902: some})
    number = k.durable.next_thread
    assert changed(world, hand_over)
    assert not k.durable.apart and number not in plan_of(k).by_number, "nobody reads again what is done"
    assert 901 not in apart and {reader, 902} <= set(apart), "one has a place, one has rows open"


def test_vms_with_threads_of_keyed_tasks_are_known_while_these_leave(world: World) -> None:
    k = known(world)
    assert keyed_vms(k.durable) == frozenset()
    run, plan = k.durable.run, plan_of(k)
    assert run is not None
    task = next(t.task for t in plan.threads if t.task != "source")
    tasks = tuple(replace_task(one, task) for one in run.topology.tasks)
    run = replace(run, topology=replace(run.topology, tasks=tasks))
    threads = tuple(replace(t, leaving=True) for t in plan.threads)
    k.durable = replace(k.durable, run=run, rollout=replace(plan, threads=threads))
    assert keyed_vms(k.durable) == {t.slot.vm for t in threads if t.task == task} != frozenset()


def replace_task(task: Task, name: str) -> Task:
    return replace(task, kind="keyed", state="keyed") if task.name == name else task


def recorded(world: World, do: Callable[[Turn], object]) -> list[object]:
    """What it journals."""
    turn = Turn(known(world), world.now, world.loop)
    found: list[object] = []
    record = turn.record

    def kept(one: Any) -> None:
        found.append(one)
        record(one)

    turn.record = kept  # type: ignore[method-assign]
    do(turn)
    return found


def leaving_source(world: World, slot: Slot) -> ThreadSpec:
    """A source thread that leaves, in this slot, whose worker is no more."""
    k = known(world)
    leaver = ThreadSpec(LOST, "source", slot, leaving=True)
    k.durable = replace(k.durable, rollout=replace(plan_of(k), threads=(*plan_of(k).threads, leaver)))
    return leaver


def test_a_leaver_that_died_reads_its_spool_to_the_end_whatever_is_known_to_be_read(world: World) -> None:
    k = known(world)
    slot = Slot(world.source_thread().slot.vm, 3)
    leaving_source(world, slot)
    end = k.counts.source("source", 0).emitted + 90
    k.spools = {slot.vm: (SpoolLeft("source", 0, 0, end, k.settings.run, LOST),)}
    (parted,) = [one for one in recorded(world, hand_over) if isinstance(one, HandedOver)]
    assert (parted.thread, parted.emitted) == (LOST, end)


@pytest.mark.parametrize("phase", ["switched", "committed"])
def test_a_leaver_that_says_it_has_ended_is_not_over_until_its_rows_are_known_to_be_done(
    phase: Phase, world: World
) -> None:
    k = known(world)
    slot = Slot(world.source_thread().slot.vm, 3)
    leaving_source(world, slot)
    k.durable = replace(k.durable, phase=phase, apart=(HandedOver("source", 0, LOST, 5, 9),))
    k.counts.source("source", 0).apart[LOST] = Apart(9, 5, 5)
    of_another = next(iter(k.members.workers.values()))
    k.members.workers[slot] = replace(of_another, slot=slot, threads=(ThreadStatus(LOST, ended=True),))
    for done, there in ((5, True), (9, False)):
        k.counts.source("source", 0).apart[LOST] = Apart(9, done, done)
        enact(Turn(k, world.now, world.loop))
        assert (LOST in plan_of(k).by_number) == there


def cannot_be_built(world: World, phase: Phase) -> Knowledge:
    """A leaving source thread."""
    k = known(world)
    slot = Slot(world.source_thread().slot.vm, 3)
    leaving_source(world, slot)
    k.durable = replace(k.durable, phase=phase)
    of_another = next(iter(k.members.workers.values()))
    threads = (ThreadStatus(LOST, failed="ValueError: no"),)
    k.members.failed[LOST] = "ValueError: no"
    k.members.workers[slot] = replace(of_another, slot=slot, threads=threads)
    return k


@pytest.mark.parametrize("phase", ["switched", "probation", "committed"])
def test_a_leaver_that_cannot_be_built_is_not_over_until_its_rows_are_known_to_be_done(
    phase: Phase, world: World
) -> None:
    k = cannot_be_built(world, phase)
    k.durable = replace(k.durable, apart=(HandedOver("source", 0, LOST, 5, 9),))
    for done, there in ((5, True), (9, False)):
        k.counts.source("source", 0).apart[LOST] = Apart(9, done, done)
        enact(Turn(k, world.now, world.loop))
        assert (LOST in plan_of(k).by_number) == there


@pytest.mark.parametrize("phase", ["switched", "probation", "committed"])
def test_a_leaver_whose_spool_is_on_its_vm_is_waited_for_though_it_cannot_be_built(
    phase: Phase, world: World
) -> None:
    k = cannot_be_built(world, phase)
    assert k.durable.run is not None
    topology = k.durable.run.topology
    tasks = tuple(replace(task, arriving=True if task.name == "source" else None) for task in topology.tasks)
    k.durable = replace(k.durable, run=replace(k.durable.run, topology=replace(topology, tasks=tasks)))
    enact(Turn(k, world.now, world.loop))
    assert LOST in plan_of(k).by_number


def test_threads_that_a_prepared_plan_began_stay_until_they_are_empty_where_rows_go_to_them(
    world: World,
) -> None:
    """Those before them were dead. Of what never got a row nobody waits for an end."""
    k, unused = known(world), LOST + 1
    (spare,) = {"vm1", "vm2"} - {slot.vm for slot in plan_of(k).staying_slots}
    fresh = tuple(ThreadSpec(number, "work", Slot(spare, 3)) for number in (LOST, unused))
    edge, *others = plan_of(k).routes
    rollout = replace(
        plan_of(k),
        threads=(*plan_of(k).threads, *fresh),
        fresh=(LOST, unused),
        before_routes=(replace(edge, targets=((LOST, 1.0),)), *others),
    )
    k.durable = replace(k.durable, phase="prepared", rollout=rollout)
    begin(Turn(k, world.now, world.loop), Enactment(rollout.plan, "scaled", "as it was"))
    assert plan_of(k).by_number[LOST].leaving and unused not in plan_of(k).by_number


# ── Machines ────────────────────────────────────────────────────────────────────────────────────


def waiting_for(world: World, *names: str) -> Knowledge:
    k = known(world)
    asked = tuple(vm(name) for name in names)
    order = Enactment(plan_of(k).plan, "scaled", "for these machines", asked)
    begin(Turn(k, world.now, world.loop), order)
    assert k.durable.waiting is not None and k.durable.waiting.awaits == names
    return k


def test_the_next_plan_keeps_the_machines_that_it_awaits_too(world: World) -> None:
    k = waiting_for(world, "vm3", "vm4")
    order = Enactment(plan_of(k).plan, "scaled", "for one of them", (vm("vm4"), vm("vm5")))
    begin(Turn(k, world.now, world.loop), order)
    assert sorted(one.vm for one in k.durable.machines) == ["vm4", "vm5"]
    assert k.durable.released == ("vm3",)
    assert not k.open_circuits, "it did not fail: it may be tried again at once"


def test_a_plan_for_no_more_machines_gives_all_of_them_back(world: World) -> None:
    k = waiting_for(world, "vm3", "vm4")
    begin(Turn(k, world.now, world.loop), Enactment(plan_of(k).plan, "scaled", "for those there are"))
    assert k.durable.machines == () and k.durable.waiting is None


def test_no_machine_is_given_back_while_a_plan_waits_for_others(world: World) -> None:
    """Which of them it leaves without threads is known when it is in force."""
    k = waiting_for(world, "vm3")
    k.durable = replace(k.durable, machines=(*k.durable.machines, vm("vm8")))
    enact(Turn(k, world.now, world.loop))
    assert {one.vm for one in k.durable.machines} == {"vm3", "vm8"}


# ── VMs that are gone for good ──────────────────────────────────────────────────────────────────


def with_leaver(world: World, name: str) -> ThreadSpec:
    """A thread of `work` that leaves, on this VM."""
    k = known(world)
    leaver = ThreadSpec(LOST, "work", Slot(name, 3), leaving=True)
    rollout = replace(plan_of(k), threads=(*plan_of(k).threads, leaver))
    k.durable = replace(k.durable, rollout=rollout, held_dead=("vm7",))
    return leaver


def lose(world: World, name: str) -> None:
    known(world).members.goodbye(name, world.vms[name].boot)


def test_leavers_on_a_vm_that_is_gone_are_over_and_it_is_held_dead_beside_the_others(world: World) -> None:
    k = known(world)
    (spare,) = {"vm1", "vm2"} - {slot.vm for slot in plan_of(k).staying_slots}
    with_leaver(world, spare)
    lose(world, spare)
    enact(Turn(k, world.now, world.loop))
    assert LOST not in plan_of(k).by_number
    assert k.durable.held_dead == tuple(sorted(["vm7", spare]))


def test_a_vm_that_is_gone_with_threads_that_stay_is_left_to_the_next_plan(world: World) -> None:
    k = known(world)
    home = world.source_thread().slot.vm
    with_leaver(world, home)
    lose(world, home)
    enact(Turn(k, world.now, world.loop))
    assert LOST in plan_of(k).by_number and k.durable.held_dead == ("vm7",)


def test_of_leavers_of_a_plan_that_is_prepared_none_is_over_with_its_vm(world: World) -> None:
    """Rows still go to them: that needs a new plan."""
    k = known(world)
    (spare,) = {"vm1", "vm2"} - {slot.vm for slot in plan_of(k).staying_slots}
    with_leaver(world, spare)
    lose(world, spare)
    k.durable = replace(k.durable, phase="prepared")
    enact(Turn(k, world.now, world.loop))
    assert LOST in plan_of(k).by_number and k.durable.held_dead == ("vm7",)


def test_when_too_many_are_lost_at_once_none_of_them_is_held_dead(world: World) -> None:
    k = known(world)
    (spare,) = {"vm1", "vm2"} - {slot.vm for slot in plan_of(k).staying_slots}
    with_leaver(world, spare)
    lose(world, spare)
    k.members.mass_loss = (spare,)
    enact(Turn(k, world.now, world.loop))
    assert LOST in plan_of(k).by_number and k.durable.held_dead == ("vm7",)
