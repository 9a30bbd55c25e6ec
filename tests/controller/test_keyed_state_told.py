"""Keyed state that was lost is journaled, said, and not forgotten by a controller that comes back."""

from __future__ import annotations

import pytest
from enactment_world import World, replace

from headgate.controller.execute.desired_state import answering
from headgate.controller.knowledge import loop_events as t
from headgate.controller.monitor import admission
from headgate.controller.views.run_documents import summary
from headgate.dashboards.up.up_run import check_state
from headgate.topology_runtime.api.cluster import Slot, Vm
from headgate.topology_runtime.errors import BadMessage, CheckFailed
from headgate.topology_runtime.wire import messages as m
from headgate.topology_runtime.wire.messages import Keepers, ThreadSpec


def report_of(world: World, thread: m.ThreadSpec, **changes: object) -> m.Report:
    """Its VM's report with this thread changed."""
    report = world.vms[thread.slot.vm].report()
    workers = tuple(
        replace(
            worker,
            threads=tuple(
                replace(now, **changes) if now.thread == thread.thread else now for now in worker.threads
            ),
        )
        for worker in report.workers
    )
    return replace(report, workers=workers)


def told(world: World, thread: m.ThreadSpec, **changes: object) -> None:
    world.do(t.FromVm(report_of(world, thread, **changes)))


def test_lost_state_is_journaled_once_and_said() -> None:
    world = World().start().until("committed")
    thread = world.rollout.threads[-1]
    told(world, thread, lost=((3, 2),))
    told(world, thread, lost=((3, 2),))
    told(world, thread, lost=((3, 4),))
    events = [event for event in world.loop.knowledge.events if event["kind"] == "state_lost"]
    assert [(event["task"], event["ranges"]) for event in events] == [(thread.task, 2), (thread.task, 2)]
    assert thread.task in world.loop.knowledge.alarms["state"]
    assert str(thread.slot) in world.loop.knowledge.alarms["state"]
    state = summary(world.loop.view(world.now))["state"]
    assert (state["lost_ranges"], state["tasks"]) == (4, {thread.task: 4})
    world.restart_controller()
    assert summary(world.loop.view(world.now))["state"]["lost_ranges"] == 4


def test_a_run_that_lost_state_does_not_end_well() -> None:
    world = World().start().until("committed")
    check_state(summary(world.loop.view(world.now)))
    thread = world.rollout.threads[-1]
    told(world, thread, lost=((0, 7),))
    with pytest.raises(CheckFailed, match=f"{thread.task}: 7 of 1024") as failed:
        check_state(summary(world.loop.view(world.now)))
    assert failed.value.exit_code == 8


def test_rows_that_may_have_counted_twice_are_summed_over_threads() -> None:
    world = World().start().until("committed")
    one, other = world.rollout.threads[:2]
    told(world, one, applied_again=3)
    told(world, other, applied_again=4)
    told(world, one, applied_again=5)
    assert summary(world.loop.view(world.now))["state"]["applied_again_at_most"] == 9


def test_a_snapshot_that_cannot_be_written_is_an_alarm_of_its_vm() -> None:
    world = World().start().until("committed")
    thread = world.rollout.threads[-1]
    told(world, thread, unsaved="No space left on device")
    alarm = world.loop.knowledge.alarms[f"disk {thread.slot.vm}"]
    assert "No space left on device" in alarm and str(thread.thread) in alarm
    told(world, thread)
    assert f"disk {thread.slot.vm}" not in world.loop.knowledge.alarms


@pytest.mark.parametrize(
    ("trouble", "words"),
    [
        ({"failed": "FileNotFoundError: no.csv"}, "does not run: FileNotFoundError: no.csv"),
        (
            {"unreadable": "cannot be read: ValueError: 'x'"},
            "cannot be read: ValueError: 'x'; it is tried again every second",
        ),
    ],
)
def test_user_code_that_does_not_run_is_an_alarm_of_its_vm(trouble: dict[str, str], words: str) -> None:
    world = World().start().until("committed")
    thread = world.rollout.threads[-1]
    told(world, thread, **trouble)
    told(world, thread, **trouble)
    what, knowledge = f"code {thread.slot.vm}", world.loop.knowledge
    name = f"thread {thread.thread} of {thread.task} on {thread.slot}"
    assert knowledge.alarms[what] == f"{name} {words}"
    kinds = [event["kind"] for event in knowledge.events if event.get("vm") == thread.slot.vm]
    assert kinds.count("alarm") == 1
    told(world, thread)
    assert what not in knowledge.alarms
    assert [event["kind"] for event in knowledge.events][-1] == "alarm_over"


@pytest.mark.parametrize("lost", [((0, 1 << 60),), ((-1, 2),), ((5, 0),), ((0, 1),) * 2000])
def test_ranges_that_cannot_be_are_refused(lost: tuple[tuple[int, int], ...]) -> None:
    world = World().start().until("committed")
    with pytest.raises(BadMessage):
        admission.check(report_of(world, world.rollout.threads[-1], lost=lost))


# ── Which VMs get a thread that only answers for snapshots: those with none that could ──────────────────

VMS = tuple(Vm(f"vm{n}", n, 1.0, 1 << 28) for n in (1, 2))
ONE, FIRST, SECOND = Slot("vm1", 0), Slot("vm2", 0), Slot("vm2", 1)


def held(*homes: tuple[int, str]) -> Keepers:
    return Keepers("tally", 3, ((7, 1024),), True, homes)


def desired(number: int, slot: Slot) -> ThreadSpec:
    return ThreadSpec(number, "sink", slot)


def test_one_on_each_vm_without_a_thread_in_the_place_of_the_first_that_had_a_snapshot() -> None:
    keepers = [held((7, "vm1"), (8, "vm2")), held((9, "vm2"))]
    found = answering(keepers, (), VMS, set())
    assert [(t.thread, t.task, t.slot) for t in found] == [(7, "tally", ONE), (8, "tally", FIRST)]
    assert all(t.leaving and t.answers for t in found)


def test_none_where_another_thread_can_answer() -> None:
    assert answering([held((7, "vm1"))], [desired(1, ONE)], VMS, set()) == ()


def test_a_thread_in_a_quarantined_slot_cannot_answer_and_another_slot_is_taken_if_there_is_one() -> None:
    keepers = [held((7, "vm1"), (8, "vm2"))]
    found = answering(keepers, [desired(1, FIRST)], VMS, {ONE, FIRST})
    assert [t.slot for t in found] == [ONE, SECOND]


def test_none_where_nothing_is_to_be_asked() -> None:
    assert answering([held()], (), VMS, {ONE}) == ()
