"""What can be wrong with event time in a topology: windows that no source gives a time, and the like. Pure but for what
classes say of their params."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from headgate.topology_runtime.api.timed import is_timed
from headgate.topology_runtime.api.topology import Edge, Task, Topology
from headgate.topology_runtime.errors import HeadgateError


def time_faults(
    tasks: Sequence[tuple[int, Task]], edges: Iterable[Edge], runs: Mapping[str, tuple[str, Any]]
) -> Iterator[str]:
    """Tasks of `headgate.windows` behind no source with timestamps, or next to one with another unit. `runs`: task →
    (kind, what it runs)."""
    feeders: dict[str, list[str]] = {}
    for edge in edges:
        feeders.setdefault(edge.target, []).append(edge.source)
    named = {task.name: task for _, task in tasks}
    for number, task in tasks:
        made = _made(task, runs.get(task.name, ("", None))[1])
        if made is None or not feeders.get(task.name):
            continue
        place = f"tasks[{number}].run {type(made).__name__}"
        if getattr(made, "needs_timestamps", False):
            yield from _without_times(place, task, made.at, _before(task.name, feeders), named)
        for name in dict.fromkeys(feeders[task.name]):
            times = named[name].timestamps if name in named else None
            if times is not None and times.at == made.at and times.unit != made.unit:
                yield (
                    f'{place}: its unit is "{made.unit}", and rows come to {task.name} as they are from {name}, '
                    f'whose unit is "{times.unit}": give both the same'
                )


def _made(task: Task, run: Any) -> Any:
    """A task with event time that may be made to look at it. None: it is none, or has faults of its own."""
    if not (is_timed(run) and getattr(run, "made_to_check", False)):
        return None
    try:
        return run(**task.params)
    except (HeadgateError, TypeError):  # told where params are checked
        return None


def _before(task: str, feeders: Mapping[str, list[str]]) -> list[str]:
    """All tasks upstream, the nearest first; edges may go in a circle."""
    found, waiting = dict[str, None](), [task]
    while waiting:
        more = [name for name in feeders.get(waiting.pop(0), ()) if name not in found]
        found |= dict.fromkeys(more)
        waiting += more
    return list(found)


def _without_times(
    place: str, task: Task, at: Any, before: list[str], named: Mapping[str, Task]
) -> Iterator[str]:
    sources = [name for name in before if name in named and named[name].kind == "source"]
    if not sources or any(named[name].timestamps for name in sources):
        return
    of = f'"{at}"' if isinstance(at, str) else repr(at) if isinstance(at, int) else "…"
    yield (
        f"{place}: no source before {task.name} has timestamps, so event time never goes on there, and nothing is "
        f"given before the input ends: say of {', '.join(sources)} how to get the time of its rows, .timestamps({of}) "
        f'(in a file: timestamps: {{"at": {of}}})'
    )


def time_warnings(topology: Topology) -> list[str]:
    """What may be meant, and mostly is not: in words, of a topology whose code was looked at."""
    found = [
        f"{one.name} has a max_drift, and no task behind it has event time: it waits for nobody"
        for one in topology.sources
        if one.timestamps and one.timestamps.max_drift is not None and not topology.timed_below(one.name)
    ]
    for task in topology.timed:
        sources = [one for one in topology.sources if one.name in topology.upstream(task)]
        without = [one.name for one in sources if one.timestamps is None]
        if len(without) == len(sources):
            found.append(
                f"no source before {task} has timestamps: timers by event time (`set`) fire there when the input ends "
                "and not before; those by the clock (`set_clock`) do"
            )
        elif without:
            have = "has" if len(without) == 1 else "have"
            found.append(
                f"{', '.join(without)} {have} no timestamps, other sources before {task} have: it does not wait for "
                f"{'its' if len(without) == 1 else 'their'} rows, and they may be late there"
            )
    return found
