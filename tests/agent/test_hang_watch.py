"""When is a worker hung, and when is it only busy, starved or waiting (agent/hang.py)?"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from headgate.agent.hang import Call, HangReading, HangWatch
from headgate.topology_runtime.struck import CallKind

NS = 1_000_000_000
LIMITS = {0: 10 * NS, 1: 5 * NS}
STEP_S = 0.5


def call(task: int, begun_s: float = 100, moved: int = 0, kind: CallKind = "row", thread: int = 7) -> Call:
    return Call(thread, task, kind, int(begun_s * NS), moved)


def watch(readings: Iterable[HangReading]) -> tuple[float, str]:
    """(after how many seconds, why) the worker counts as hung; (-1, "") if it never does."""
    watch = HangWatch()
    for reading in readings:
        hang = watch.look(reading, LIMITS)
        if hang is not None:
            assert (hang.thread == 7) == ("taken" in hang.why)
            return reading.now_ns / NS - 100, hang.why
    return -1.0, ""


def readings(seconds: float, make: Callable[[float], dict[str, object]]) -> list[HangReading]:
    """A reading each half second; by default of a worker that goes on, with rows waiting."""
    out = []
    for step in range(int(seconds / STEP_S) + 1):
        t = step * STEP_S
        given = {"state": "S", "progress": step, "ran_ns": 0, "queued": 5, "calls": (), **make(t)}
        out.append(HangReading(now_ns=int((100 + t) * NS), **given))  # type: ignore[arg-type]
    return out


def test_a_frozen_idle_worker_with_rows_waiting_is_hung_after_three_seconds() -> None:
    after_s, why = watch(readings(10, lambda t: {"progress": 7}))
    assert after_s == 3.0 and why == "no progress for 3.0 s with an idle CPU and 5 rows waiting"


def test_a_stopped_worker_is_hung_whatever_it_was_doing() -> None:
    after_s, why = watch(readings(10, lambda t: {"state": "T", "progress": 7, "calls": (call(0),)}))
    assert after_s == 3.0 and why == "it has been stopped for 3.0 s"


def test_the_time_counts_from_where_it_froze() -> None:
    after_s, _ = watch(readings(20, lambda t: {"progress": min(t, 8.0)}))
    assert 10.5 <= after_s <= 11.5


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda t: {}, id="it goes on"),
        pytest.param(lambda t: {"progress": 7, "queued": 0}, id="nothing waits"),
        pytest.param(lambda t: {"progress": 7, "ran_ns": int(t * NS)}, id="a C call holds the interpreter"),
        pytest.param(lambda t: {"progress": 7, "ran_ns": int(0.2 * t * NS)}, id="starved or throttled"),
        pytest.param(
            lambda t: {"progress": 7, "calls": (call(1, 100 + t - t % 4.5),)}, id="a legal call, idle"
        ),
        pytest.param(
            lambda t: {"state": "T" if 2 < t < 4.5 else "S", "progress": t}, id="stopped for a moment"
        ),
        pytest.param(lambda t: {"calls": (call(1, moved=int(t / 4.5)),)}, id="row after row of one frame"),
        pytest.param(lambda t: {"calls": (call(9),)}, id="a task that is not known"),
        pytest.param(lambda t: {"calls": (call(1, kind="open"),)}, id="the worker itself tells of an open"),
        pytest.param(
            lambda t: {"calls": (call(1, kind="open"),), "progress": 7}, id="an open has a minute in any case"
        ),
    ],
)
def test_this_is_no_hang(make: Callable[[float], dict[str, object]]) -> None:
    assert watch(readings(30, make)) == (-1.0, "")


def test_a_call_beyond_its_tasks_limit_is_a_hang_busy_or_not() -> None:
    begun = (call(1),)
    for more in ({}, {"ran_ns": 1}):
        after_s, why = watch(readings(10, lambda t, more=more: {"calls": begun, "progress": t, **more}))
        assert after_s == 5.5 and why == "a call has taken 5.5 s of at most 5 s"


def test_the_limit_is_for_each_row_however_many_are_in_the_frame() -> None:
    def stuck_at_the_third(t: float) -> dict[str, object]:
        return {"calls": (call(1, moved=min(int(t), 3)),)}

    after_s, why = watch(readings(20, stuck_at_the_third))
    assert after_s == 8.5 and why == "a call has taken 5.5 s of at most 5 s"


@pytest.mark.parametrize(("kind", "limit_s"), [("read", 5.5), ("close", 5.5), ("open", 60.5)])
def test_calls_about_no_row_are_timed_too(kind: CallKind, limit_s: float) -> None:
    after_s, why = watch(readings(90, lambda t: {"calls": (call(1, kind=kind),), "progress": 7}))
    assert after_s == limit_s and why.startswith(f"{kind}() has taken {limit_s} s of at most ")


def test_the_limit_is_the_tasks_own() -> None:
    assert watch(readings(20, lambda t: {"calls": (call(0),)}))[0] == 10.5


def test_an_agent_that_was_stalled_itself_gives_no_verdict() -> None:
    hang = HangWatch()
    frozen = HangReading(100 * NS, "S", 7, 0, 5, (call(1, 90),))
    for gap_s in (0, 2, 4, 6):
        assert hang.look(frozen._replace(now_ns=(100 + gap_s) * NS), LIMITS) is None
    assert hang.look(frozen._replace(now_ns=int(106.5 * NS)), LIMITS) is None
    for half in range(11):
        found = hang.look(frozen._replace(now_ns=int((106.5 + half / 2) * NS)), LIMITS)
    assert found is not None
