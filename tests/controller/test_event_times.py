"""How far event time is in a task, and who holds it back: in `status`, in Prometheus, and as an alarm if it stands."""

from __future__ import annotations

from typing import Any

import pytest
from enactment_world import TOPOLOGY, World, replace

from headgate.controller.core.loop import Loop
from headgate.controller.knowledge import loop_events as t
from headgate.controller.views.controller_metrics import families
from headgate.controller.views.run_documents import status
from headgate.controller.views.run_snapshots import topology_now
from headgate.topology_runtime.api.timed import END_US
from headgate.topology_runtime.api.topology import Edge, Timestamps, Topology
from headgate.topology_runtime.wire import messages as m
from headgate.topology_runtime.wire.run_snapshot import TaskEventTime

EVENT_TIME = Topology(
    TOPOLOGY.name,
    tuple(
        replace(task, state="keyed", timed=True)
        if task.name == "work"
        else replace(task, timestamps=Timestamps("t"))
        if task.name == "source"
        else task
        for task in TOPOLOGY.tasks
    ),
    (Edge("source", "work", grouping="fields", key="0"), Edge("work", "sink")),
)


class TimedWorld(World):
    """Threads of `work` say so of themselves, and those of `source`."""

    said: dict[str, Any] = {}
    source_said: dict[str, Any] = {}

    def do(self, event: t.Event) -> list[t.Instruction]:
        if isinstance(event, t.FromVm) and isinstance(report := event.message, m.Report):
            task_of = {one.thread: one.task for one in self.rollout.threads} if self.planned else {}
            workers = tuple(
                replace(
                    worker,
                    threads=tuple(replace(now, **self.of(task_of.get(now.thread))) for now in worker.threads),
                )
                for worker in report.workers
            )
            event = t.FromVm(replace(report, workers=workers))
        return super().do(event)

    def of(self, task: str | None) -> dict[str, Any]:
        return {"work": self.said, "source": self.source_said}.get(task or "", {})

    @property
    def planned(self) -> bool:
        return self.loop.knowledge.durable.rollout is not None


def timed_world(topology: Topology = EVENT_TIME) -> TimedWorld:
    world = TimedWorld()
    world.submitted = replace(world.submitted, topology=topology)
    world.loop = Loop(world.settings, world.submitted)
    return world.start().until("committed")


def source_thread(world: TimedWorld) -> int:
    return next(one.thread for one in world.rollout.threads if one.task == "source")


def test_watermark_lag_and_who_holds_it_back_are_shown() -> None:
    world = timed_world()
    view = world.loop.view(world.now)
    assert status(view)["event_time"] == [
        {
            "task": "work",
            "state": "none yet",
            "watermark": None,
            "lag_s": None,
            "held_by": None,
            "late_rows": 0,
            "rows_without_time": {"source": 0},
            "open_keys": None,
            "waiting": {},
        }
    ]
    at_us = world.now.wall_ns // 1000
    world.said = {"watermark_us": at_us, "held_by": source_thread(world), "late": 3}
    world.run(2)
    view = world.loop.view(world.now)
    (found,) = status(view)["event_time"]
    threads = sum(one.task == "work" for one in world.rollout.threads)
    assert found["held_by"] == "source partition 0" and found["late_rows"] == 3 * threads
    assert abs(found["watermark"] - at_us / 1e6) < 1 and 1.5 < found["lag_s"] < 3
    told = {family.name: family for family in families(view)}
    (sample,) = told["headgate_watermark_lag_seconds"].samples
    assert sample.labels == {"task": "work"} and 1.5 < sample.value < 3
    assert told["headgate_late_rows"].samples[0].value == 3 * threads


def test_the_page_is_told_what_status_says_and_nothing_of_tasks_without_event_time() -> None:
    world = timed_world()
    shown = topology_now(world.loop.view(world.now))
    assert shown is not None and shown.tasks["work"].event_time == TaskEventTime(
        state="none yet", late_rows=0, rows_without_time={"source": 0}
    )
    world.said = {"watermark_us": world.now.wall_ns // 1000, "held_by": source_thread(world), "late": 3}
    world.run(2)
    view = world.loop.view(world.now)
    shown = topology_now(view)
    assert shown is not None and [shown.tasks[name].event_time for name in ("source", "sink")] == [None, None]
    (said,), now = status(view)["event_time"], shown.tasks["work"].event_time
    assert now is not None and (now.held_by, now.late_rows) == (said["held_by"], said["late_rows"])
    assert now.watermark == pytest.approx(said["watermark"], abs=0.001)
    assert now.lag_s == pytest.approx(said["lag_s"], abs=0.051)


def test_a_partition_that_waits_for_one_far_behind_is_shown_and_its_rows_are_not_offered() -> None:
    world = timed_world()
    before = world.loop.knowledge.load.positions_at(world.now.wall_ns)
    world.source_said = {"held_by": source_thread(world)}
    world.run(2)
    view = world.loop.view(world.now)
    (found,) = status(view)["event_time"]
    assert found["waiting"] == {"source partition 0": "source partition 0"} and found["held_by"] is None
    shown = topology_now(view)
    assert shown is not None and shown.tasks["work"].event_time.waiting == found["waiting"]
    known, k = world.loop.knowledge.counts.source("source", 0), world.loop.knowledge
    offered = k.load.positions_at(world.now.wall_ns)
    assert offered > before
    known.held = True
    assert k.load.positions_at(world.now.wall_ns) == known.emitted < offered


def alarm_after_a_minute(world: TimedWorld, **said: Any) -> str:
    world.said = said
    world.run(70)
    return world.loop.knowledge.alarms["watermark work"]


def test_a_watermark_that_is_ahead_of_the_clock_is_held_back_by_nobody() -> None:
    world = timed_world()
    at_us = world.now.wall_ns // 1000 + 3_600_000_000
    told = alarm_after_a_minute(world, watermark_us=at_us, held_by=source_thread(world))
    assert "ahead of the clock" in told and "source partition 0" in told and "back" not in told


def test_a_partition_without_a_single_time_is_told_as_such() -> None:
    world = timed_world()
    told = alarm_after_a_minute(world, held_by=source_thread(world))
    assert "source partition 0 holds it back: no row with a time of it is done" in told


def test_a_task_with_event_time_behind_no_source_with_timestamps_is_told_so() -> None:
    plain = tuple(replace(task, timestamps=None) for task in EVENT_TIME.tasks)
    world = timed_world(Topology(EVENT_TIME.name, plain, EVENT_TIME.edges))
    world.run(70)
    assert "watermark work" not in world.loop.knowledge.alarms, "it may have timers by the clock alone"
    (found,) = status(world.loop.view(world.now))["event_time"]
    assert found["state"] == "no timestamps" and found["rows_without_time"] == {}


def test_an_input_that_has_ended_is_not_taken_for_one_that_has_not_begun() -> None:
    world = timed_world()
    world.said = {"watermark_us": END_US}
    world.run(2)
    view = world.loop.view(world.now)
    (found,) = status(view)["event_time"]
    shown = topology_now(view)
    assert (found["state"], found["watermark"], found["lag_s"]) == ("ended", None, None)
    assert shown is not None and shown.tasks["work"].event_time.state == "ended"  # type: ignore[union-attr]
    world.said = {"watermark_us": 5_000_000}
    world.run(2)
    assert status(world.loop.view(world.now))["event_time"][0]["state"] == "known"


def test_rows_without_a_time_are_shown_with_the_name_of_their_source() -> None:
    world = timed_world()
    world.source_said = {"timeless": 7}
    world.run(2)
    view = world.loop.view(world.now)
    (found,) = status(view)["event_time"]
    shown = topology_now(view)
    assert found["rows_without_time"] == {"source": 7}
    assert shown is not None and shown.tasks["work"].event_time.rows_without_time == {"source": 7}  # type: ignore[union-attr]
    told = {family.name: family for family in families(view)}
    (sample,) = told["headgate_rows_without_time"].samples
    assert sample.labels == {"task": "source"} and sample.value == 7


def test_times_that_are_wrong_are_an_alarm_at_once() -> None:
    world = timed_world()
    world.source_said = {"timeless": 100, "times_wrong": "no row so far has a time: timestamps('made')"}
    world.run(2)
    alarms = world.loop.knowledge.alarms
    assert alarms["times source"].startswith("source: no row so far has a time")
    world.source_said = {"timeless": 100}
    world.said = {"times_wrong": "its times look like seconds"}
    world.run(2)
    assert "times source" not in alarms and alarms["times work"] == "work: its times look like seconds"


def stopped(world: TimedWorld) -> dict[str, Any]:
    """The summary of a run that was asked to stop."""
    world.ask("stop")
    world.run(30)
    assert world.finish is not None and world.finish.summary is not None
    return world.finish.summary


def test_a_run_that_is_stopped_says_in_which_task_how_many_keys_are_open_and_where_the_watermark_was() -> (
    None
):
    world = timed_world()
    world.said = {"watermark_us": 1_790_000_000_000_000, "open_keys": 4}
    world.run(2)
    threads = sum(one.task == "work" for one in world.rollout.threads)
    (found,) = stopped(world)["event_time"]
    assert (found["task"], found["open_keys"]) == ("work", 4 * threads)
    assert (found["state"], found["watermark"]) == ("known", 1_790_000_000)
    assert world.loop.knowledge.durable.open_keys == 4 * threads
    (said,) = [one["text"] for one in world.loop.knowledge.events if one["kind"] == "open"]
    assert said.startswith(f"windows or timers are open of {4 * threads} keys of work: ")


@pytest.mark.parametrize(("keys", "goes_on"), [(4, True), (0, False), (-1, True)])
def test_a_run_that_was_stopped_with_open_windows_can_go_on(keys: int, goes_on: bool) -> None:
    world = timed_world()
    world.said = {"watermark_us": 1_790_000_000_000_000, "open_keys": keys}
    world.run(2)
    stopped(world)
    world.finish = None
    world.restart_controller()
    world.start()
    error = world.finish and world.finish.error
    assert (error is None) == goes_on
    if goes_on:
        assert world.loop.knowledge.durable.draining == ""
