"""`testing.run` of tasks with event time: watermarks from the rows' own times, timers, late rows, the end."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from headgate import Exhausted, Source, Time, Timed, testing, topology
from headgate.topology_runtime.api.builder import Builder
from headgate.topology_runtime.api.timed import microseconds
from headgate.topology_runtime.errors import InvalidInput

S = 1_000_000


class Events(Source):
    """Any rows: they come from the tests."""

    def read(self, position: int, limit: int) -> Sequence[Any]:
        raise Exhausted


class Tens(Timed):
    """How many rows of a key there are in each ten seconds; late ones are given on at once."""

    at = "t"

    def new(self, key: str) -> dict[str, int]:
        return {}

    def process(
        self, key: str, row: dict[str, Any], state: dict[str, int], time: Time
    ) -> tuple[dict[str, int], Iterable[Any]]:
        if time.late:
            return state, [("late", key, row["t"])]
        end_us = (time.at_us // (10 * S) + 1) * 10 * S
        time.set(end_us)
        return {**state, str(end_us): state.get(str(end_us), 0) + 1}, []

    def on_timer(
        self, key: str, at: int, state: dict[str, int], time: Time
    ) -> tuple[dict[str, int] | None, Iterable[Any]]:
        left = {end: count for end, count in state.items() if end != str(at)}
        return left or None, [("count", key, at // S, state[str(at)], time.at)]


class Others(Timed):
    """As the tests have it."""

    at = "t"

    def new(self, key: str) -> Any:
        return 0

    def process(self, key: str, row: Any, state: Any, time: Time) -> tuple[Any, Iterable[Any]]:
        return state + 1, []


def keep(row: Any) -> None:
    """A sink."""


def row_of(t: Any, key: str = "a") -> dict[str, Any]:
    return {"k": key, "t": t}


def flow_of(task: type[Timed], **times: Any) -> Builder:
    flow = topology("times")
    events = flow.source("events", Events).timestamps("t", **times)
    events >> flow.task("timed", task).by("k") >> flow.task("keep", keep)
    return flow


def rows(task: type[Timed], given: list[Any], **times: Any) -> list[Any]:
    result = testing.run(flow_of(task, **times), {"events": given})
    assert result.dead_letters == []
    return result.rows["keep"]


def test_a_timer_fires_when_the_watermark_is_past_it_and_at_the_end():
    given = [row_of(1), row_of(9), row_of(9, "b"), row_of(10), row_of(31), row_of(3)]
    assert rows(Tens, given) == [
        ("count", "a", 10, 2, 10.0),
        ("count", "b", 10, 1, 10.0),
        ("count", "a", 20, 1, 20.0),
        ("late", "a", 3),
        ("count", "a", 40, 1, 40.0),
    ]


def test_what_finish_gave_no_timer_by_the_clock_gives_again():
    """Due a moment after the end of the input: the state is still there, as results show it."""

    class Both(Others):
        def process(self, key: str, row: Any, state: int, time: Time) -> tuple[int, Iterable[Any]]:
            time.set_clock(time.clock_us + S // 2)
            return state + 1, []

        def on_timer(self, key: str, at: int, state: int, time: Time) -> tuple[None, Iterable[Any]]:
            return None, [("timer", key, state)]

        def finish(self, key: str, state: int) -> Iterable[Any]:
            return [("end", key, state)]

    assert rows(Both, [row_of(1), row_of(2)]) == [("end", "a", 2)]
    result = testing.run(flow_of(Both), {"events": [row_of(1), testing.wait(1.0), row_of(2)]})
    assert result.rows["keep"] == [("timer", "a", 1), ("end", "a", 1)], "before the end it fires"


def test_lateness_holds_the_watermark_back():
    given = [row_of(1), row_of(12), row_of(8), row_of(15), row_of(3)]
    assert rows(Tens, given, lateness=5.0) == [
        ("count", "a", 10, 2, 10.0),
        ("late", "a", 3),
        ("count", "a", 20, 2, 20.0),
    ]


def test_times_are_numbers_of_a_unit_or_datetimes():
    given = [row_of(1000), row_of(12_000)]

    class Millis(Tens):
        unit = "ms"

    assert rows(Millis, given, unit="ms")[0] == ("count", "a", 10, 1, 10.0)
    when = [row_of(datetime(1970, 1, 1, 0, 0, s, tzinfo=UTC)) for s in (1, 2)] + [
        row_of(datetime(1970, 1, 1, 0, 0, 11))
    ]

    class Dates(Others):
        def on_timer(self, key: str, at: int, state: int, time: Time) -> tuple[int, Iterable[Any]]:
            return state, [(at, state)]

        def process(self, key: str, row: Any, state: int, time: Time) -> tuple[int, Iterable[Any]]:
            time.set(2 * S)
            return state + 1, []

    assert rows(Dates, when) == [(2 * S, 2), (2 * S, 3)]
    texts = ["1970-01-01T00:00:01Z", "1970-01-01T02:00:02.000+02:00", "1970-01-01 00:00:11"]
    assert rows(Dates, [row_of(text) for text in texts]) == [(2 * S, 2), (2 * S, 3)]


@pytest.mark.parametrize(
    "text", ["", "11", "11.5", "1970", "1970-01-01", "19700101T000001", "1970-13-01T00:00:00"]
)
def test_another_text_is_no_time(text: str) -> None:
    with pytest.raises(ValueError, match=r"no event time: a text is to be one like|month must be"):
        microseconds(text)


def test_a_state_of_none_forgets_the_key_and_its_timers():
    class Once(Others):
        def process(self, key: str, row: Any, state: int, time: Time) -> tuple[int | None, Iterable[Any]]:
            if row["t"] == 2:
                return None, ["forgotten"]
            time.set(5 * S)
            return state + 1, []

        def on_timer(self, key: str, at: int, state: int, time: Time) -> tuple[int | None, Iterable[Any]]:
            return None, [(key, state)]

    result = testing.run(
        flow_of(Once), {"events": [row_of(1), row_of(1, "b"), row_of(2), row_of(3, "c"), row_of(9, "d")]}
    )
    assert result.rows["keep"][0] == "forgotten"
    assert sorted(result.rows["keep"][1:]) == [("b", 1), ("c", 1), ("d", 1)]
    assert result.states == {"timed": {}}
    again = testing.run(flow_of(Once), {"events": [row_of(2), row_of(1), row_of(1)]})
    assert again.rows["keep"] == ["forgotten", ("a", 2)]


def test_timers_have_names_fire_in_order_and_can_be_cancelled():
    class Named(Others):
        def process(self, key: str, row: Any, state: int, time: Time) -> tuple[int, Iterable[Any]]:
            if not state:
                for at, name in ((4, "b"), (4, "a"), (3, "z"), (4, "a"), (5, "no")):
                    time.set(at * S, name)
                time.cancel(5 * S, "no")
                time.cancel(77)
            return state + 1, []

        def on_timer(self, key: str, at: int, state: int, time: Time) -> tuple[int, Iterable[Any]]:
            if time.name == "z":
                time.set(1 * S, "past")  # at or below the watermark: at the next look
            return state, [(at // S, time.name)]

    assert rows(Named, [row_of(0), row_of(9)]) == [(3, "z"), (1, "past"), (4, "a"), (4, "b")]


def test_finish_comes_after_all_timers():
    class Last(Tens):
        def on_timer(
            self, key: str, at: int, state: dict[str, int], time: Time
        ) -> tuple[dict[str, int], Iterable[Any]]:
            return state, [("timer", at // S)]

        def finish(self, key: str, state: dict[str, int]) -> Iterable[Any]:
            return [("finish", key, sum(state.values()))]

    assert rows(Last, [row_of(1), row_of(11)]) == [("timer", 10), ("timer", 20), ("finish", "a", 2)]


def test_a_timer_that_fails_is_a_dead_letter_and_gone():
    class Fails(Others):
        def process(self, key: str, row: Any, state: int, time: Time) -> tuple[int, Iterable[Any]]:
            time.set(1 * S)
            time.set(2 * S)
            return state + 1, []

        def on_timer(self, key: str, at: int, state: int, time: Time) -> tuple[int, Iterable[Any]]:
            if at == 1 * S:
                raise ValueError("no")
            return state, [("fired", at), object() if key == "odd" else ("also", at)]

    result = testing.run(flow_of(Fails), {"events": [row_of(0), row_of(0, "odd")]})
    assert sorted(result.rows["keep"]) == [("also", 2 * S), ("fired", 2 * S), ("fired", 2 * S)]
    errors = sorted(letter.error.split(":")[0] for letter in result.dead_letters)
    assert len(errors) == 3 and errors[-2:] == ["ValueError", "ValueError"]
    assert "timer at 1970-01-01T00:00:01.000000Z of key 'a'" in {letter.row for letter in result.dead_letters}


def test_a_row_without_a_time_is_a_dead_letter_of_the_task_and_moves_no_watermark():
    result = testing.run(
        flow_of(Tens), {"events": [row_of(1), row_of(float("nan")), row_of("x"), {"k": "a"}, row_of(12)]}
    )
    assert [letter.task for letter in result.dead_letters] == ["timed"] * 3
    assert result.rows["keep"] == [("count", "a", 10, 1, 10.0), ("count", "a", 20, 1, 20.0)]


def late_of(row: Any) -> Any:
    return row


def test_the_slowest_source_with_timestamps_counts():
    flow = topology("two")
    timed = flow.task("timed", Tens).by("k")
    flow.source("fast", Events).timestamps("t") >> timed >> flow.task("keep", keep)
    flow.source("slow", Events).timestamps("t", idle=100.0) >> timed
    flow.source("other", Events) >> timed
    given = {
        "fast": [row_of(1), testing.wait(1), row_of(30), testing.wait(200), row_of(31)],
        "slow": [testing.wait(2), row_of(12, "b"), testing.wait(220), row_of(13, "b")],
        "other": [testing.wait(1), row_of(99, "c")],
    }
    assert testing.run(flow, given).rows["keep"] == [
        ("count", "a", 10, 1, 10.0),  # both are past 10
        ("count", "b", 20, 1, 20.0),  # nothing has come of the slow one for so long that it is not waited for
        ("late", "b", 13),
        ("count", "a", 40, 2, 40.0),
        ("count", "c", 100, 1, 100.0),
    ]


def as_row(row: tuple[Any, ...]) -> dict[str, Any]:
    return {"k": "all", "t": row[2] - 1, "count": row[3]}


class Sums(Tens):
    """Adds up counts of ten seconds, a hundred seconds each."""

    def process(
        self, key: str, row: dict[str, Any], state: dict[str, int], time: Time
    ) -> tuple[dict[str, int], Iterable[Any]]:
        assert not time.late
        end_us = (time.at_us // (100 * S) + 1) * 100 * S
        time.set(end_us)
        return {**state, str(end_us): state.get(str(end_us), 0) + row["count"]}, []


def test_tasks_with_event_time_one_behind_the_other():
    flow = topology("levels")
    events = flow.source("events", Events).timestamps(lambda row: row["t"])
    tens = flow.task("tens", Tens).by("k")
    events >> tens >> flow.task("rows", as_row) >> flow.task("sums", Sums).by("k") >> flow.task("keep", keep)
    given = [row_of(t, f"k{t % 3}") for t in range(250)]
    found = testing.run(flow, {"events": given}).rows["keep"]
    assert found == [
        ("count", "all", 100, 100, 100.0),
        ("count", "all", 200, 100, 200.0),
        ("count", "all", 300, 50, 300.0),
    ]


def test_timers_by_the_clock_fire_when_it_is_past_them():
    class Clock(Others):
        def process(self, key: str, row: Any, state: int, time: Time) -> tuple[int, Iterable[Any]]:
            time.set_clock(time.clock_us + 60 * S, "minute")
            return state + 1, []

        def on_timer(self, key: str, at: int, state: int, time: Time) -> tuple[int | None, Iterable[Any]]:
            return None, [(time.name, state)]

    given = [row_of(1), testing.wait(120), row_of(2), row_of(3)]
    assert rows(Clock, given) == [("minute", 1)]  # the second one is not due when the input ends


def test_what_is_wrong_is_said_when_the_topology_is_built():
    flow = topology("wrong")
    events = flow.source("events", Events).timestamps("", lateness=-1.0, idle=0.0)
    events >> flow.task("timed", Tens).by("k").timestamps("t")
    with pytest.raises(InvalidInput) as told:
        flow.build()
    places = [fault.split(" ")[0].rstrip(":") for fault in told.value.faults]
    assert places == [
        "tasks[0].timestamps.at",
        "tasks[0].timestamps.lateness",
        "tasks[0].timestamps.idle",
        "tasks[1].timestamps",
    ]
    bad = topology("unit")
    bad.source("events", Events).timestamps("t", unit="days") >> bad.task("timed", Tens).by("k")
    with pytest.raises(InvalidInput, match="fault"):
        bad.build()

    class NoTime(Others):
        at = None

    with pytest.raises(InvalidInput, match="does not say how to get the event time"):
        testing.run(flow_of(NoTime), {"events": [row_of(1)]})
