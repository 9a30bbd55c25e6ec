"""How far event time has come in each task that has it, and who holds it back. Pure."""

from __future__ import annotations

from typing import Any

from headgate.controller.knowledge.knowledge import Knowledge
from headgate.controller.knowledge.run_view import EventTimeNow
from headgate.topology_runtime.api.timed import END_US
from headgate.topology_runtime.wire.messages import ThreadStatus

NS = 1_000_000_000


def event_time_of(k: Knowledge, wall_ns: int) -> tuple[EventTimeNow, ...]:
    """Of every task with event time in the plan that runs."""
    if k.topology is None or k.durable.rollout is None or not k.topology.timed:
        return ()
    threads = k.durable.rollout.threads
    partitions = {one.thread: f"{one.task} partition {one.partition}" for one in threads}
    every, found = said_by(k), []
    for task in k.topology.timed:
        said, whole = every[task]
        slowest = min(said, key=_how_far) if whole else None
        at_us = slowest.watermark_us if slowest is not None else None
        sources = [one.name for one in k.topology.sources_with_times(task)]
        ended = at_us is not None and at_us >= END_US
        at_us = None if ended else at_us
        state: Any = "ended" if ended else "known" if at_us is not None else "none yet"
        found.append(
            EventTimeNow(
                task,
                state if sources or ended else "no timestamps",
                at_us,
                None if at_us is None else wall_ns / NS - at_us / 1e6,
                partitions.get(slowest.held_by, "") if slowest is not None else "",
                sum(now.late for now in said),
                tuple((name, sum(now.timeless for now in every[name][0])) for name in sources),
                sum(now.open_keys for now in said)
                if whole and all(now.open_keys >= 0 for now in said)
                else None,
                tuple(
                    (partitions.get(now.thread, ""), partitions.get(now.held_by, ""))
                    for name in sources
                    for now in every[name][0]
                    if now.held_by >= 0
                ),
            )
        )
    return tuple(found)


def said_by(k: Knowledge) -> dict[str, tuple[list[ThreadStatus], bool]]:
    """Task with event time, or source with timestamps → what its threads that stay say, and whether all of them do."""
    assert k.durable.rollout is not None and k.topology is not None
    tasks = [one.name for one in k.topology.tasks if one.timed or one.timestamps is not None]
    here: dict[str, list[ThreadStatus | None]] = {name: [] for name in tasks}
    for one in k.durable.rollout.threads:
        if one.task in here and not one.leaving:
            here[one.task].append(k.members.threads.get(one.thread))
    found = {}
    for name, threads in here.items():
        said = [now for now in threads if now is not None]
        found[name] = said, bool(said) and len(said) == len(threads)
    return found


def _how_far(now: ThreadStatus) -> tuple[bool, int]:
    return now.watermark_us is not None, now.watermark_us or 0
