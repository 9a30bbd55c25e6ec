"""Keyed state that was lost is journaled, said, and not forgotten by a controller that comes back."""

from __future__ import annotations

import pytest
from enactment_world import World, replace

from headgate.controller.knowledge import turns as t
from headgate.controller.monitor import border
from headgate.controller.views.summary import summary
from headgate.dashboards.up.run_summary import check_state
from headgate.topology_runtime import messages as m
from headgate.topology_runtime.errors import BadMessage, CheckFailed


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


@pytest.mark.parametrize("lost", [((0, 1 << 60),), ((-1, 2),), ((5, 0),), ((0, 1),) * 2000])
def test_ranges_that_cannot_be_are_refused(lost: tuple[tuple[int, int], ...]) -> None:
    world = World().start().until("committed")
    with pytest.raises(BadMessage):
        border.check(report_of(world, world.rollout.threads[-1], lost=lost))
