"""Flows of one task with event time, over rows that a test gives, and streams of rows out of order."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from headgate import Context, Exhausted, Source, testing, topology, windows
from headgate.topology_runtime.testing.run_results import Result

METRICS: list[Any] = []  # of the task of the last run


class Events(Source):
    """Any rows: they come from the tests."""

    def read(self, position: int, limit: int) -> Sequence[Any]:
        raise Exhausted


class Saved:
    """Mixed into a task: what it knows of a key is saved and read again before each call, as if it had moved."""

    def process(self, key: Any, row: Any, state: Any, time: Any) -> Any:
        return super().process(key, row, self._moved(state), time)  # type: ignore[misc]

    def on_timer(self, key: Any, at: int, state: Any, time: Any) -> Any:
        return super().on_timer(key, at, self._moved(state), time)  # type: ignore[misc]

    def _moved(self, state: Any) -> Any:
        return self.restore(self.snapshot(state))  # type: ignore[attr-defined]

    def open(self, context: Context) -> None:
        super().open(context)  # type: ignore[misc]
        METRICS[:] = [context.metrics]


class SavedWindow(Saved, windows.EventWindow):
    pass


class SavedInterval(Saved, windows.IntervalJoin):
    pass


class SavedAsOf(Saved, windows.AsOfJoin):
    pass


class SavedWindowJoin(Saved, windows.WindowJoin):
    pass


class SavedRepeats(Saved, windows.DropRepeats):
    pass


def keep(row: Any) -> None:
    """A sink."""


def ran(given: Sequence[Any], task: Any = SavedWindow, *, lateness: float = 0.0, **params: Any) -> Result:
    """One input, by key `k`, its time at `t`."""
    flow = topology("windows")
    unit = params.get("unit", "s")
    events = flow.source("events", Events).timestamps("t", unit=unit, lateness=lateness)
    events >> flow.task("timed", task, at="t", **params).by("k") >> flow.task("keep", keep)
    return testing.run(flow, {"events": list(given)})


def rows_of(given: Sequence[Any], task: Any = SavedWindow, **params: Any) -> list[Any]:
    result = ran(given, task, **params)
    assert result.dead_letters == []
    return result.rows["keep"]


def joined(
    left: Sequence[Any], right: Sequence[Any], task: Any, *, lateness: float = 0.0, **params: Any
) -> list[Any]:
    """Two inputs, `left` and `right`."""
    flow = topology("joins")
    unit = params.get("unit", "s")
    join = flow.task("join", task, left="left", right="right", at="t", **params).by("k")
    for name in ("left", "right"):
        flow.source(name, Events).timestamps("t", unit=unit, lateness=lateness) >> join
    join >> flow.task("keep", keep)
    result = testing.run(flow, {"left": list(left), "right": list(right)})
    assert result.dead_letters == []
    return result.rows["keep"]


def counted(name: str) -> float:
    """Of the last run."""
    return float(METRICS[0].named[name].value)


def stream(
    seed: int, rows: int, *, keys: int = 4, span: int = 60_000, late: int = 5_000
) -> list[dict[str, Any]]:
    """Rows whose times (whole ms) are out of order by less than `late` ms; `v` is any number, `n` its number."""
    rng = random.Random(seed)
    start = rng.choice([0, -90_000_000, 4_102_444_800_000])  # 1970, before it, 2100
    events = []
    for number in range(rows):
        at = start + rng.randrange(span)
        row = {"k": f"k{rng.randrange(keys)}", "t": at, "v": rng.randrange(-100, 100), "n": number}
        events.append((at + rng.randrange(late), number, row))
    return [row for _, _, row in sorted(events, key=lambda one: one[:2])]


def row_of(t: Any, key: str = "a", **more: Any) -> dict[str, Any]:
    return {"k": key, "t": t, **more}


def brief(rows: Sequence[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """(start, end, value, timing) of results."""
    return [(row["start"], row["end"], row["value"], row["timing"]) for row in rows]
