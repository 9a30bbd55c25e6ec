"""Rows that pass once within a time, and states of a key with names and an end."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from windows_world import Events, SavedRepeats, counted, keep, ran, row_of, rows_of

from headgate import Time, Timed, testing, topology
from headgate import windows as w


def test_a_row_passes_once_within_the_time():
    given = [row_of(t, n=n) for n, t in enumerate((0, 3, 9, 10, 12, 25, 16))]
    result = ran(given, SavedRepeats, within_s=10, lateness=20)
    assert [row["n"] for row in result.rows["keep"]] == [0, 3, 5]
    assert counted("repeats") == 4
    assert result.states == {"timed": {}}


def test_rows_behind_the_watermark_are_dropped_and_counted():
    given = [row_of(0), row_of(100, "b"), row_of(1), row_of(98, "c")]
    rows = rows_of(given, SavedRepeats, within_s=10, late={"within_s": 5, "emit": True})
    assert [row.get("timing") for row in rows] == [None, None, "too late", None]
    assert counted("too_late_rows") == 1


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 4)), max_size=30))
def test_out_of_order_rows_of_one_id_pass_once(steps):
    """Each id is sent at one time and repeated up to 4 s later, in any order: one of each passes."""
    given = [row_of(t * 5 + more, f"id{t}") for t, more in steps]
    rows = rows_of(given, SavedRepeats, within_s=5, lateness=1_000)
    assert sorted(row["k"] for row in rows) == sorted({row["k"] for row in given})


class Visits(Timed):
    """Pages of a user, until they were away for a minute of event time, or (`clock`) of the clock."""

    at = "t"

    def __init__(self, clock: bool = False) -> None:
        self.clock = clock

    def new(self, key: str) -> dict[str, Any]:
        return {}

    def process(
        self, key: str, row: dict[str, Any], state: dict[str, Any], time: Time
    ) -> tuple[dict[str, Any] | None, Iterable[Any]]:
        states = w.NamedStates(state)
        states.list("pages").append(row["page"])
        by_page = states.map("by_page")
        by_page[row["page"]] = by_page.get(row["page"], 0) + 1
        states.put("last", row["page"])
        states.keep_for(60, time, clock=self.clock)
        if row["page"] == "bad":
            raise ValueError("bad")
        if row["page"] == "bye":
            for name in ("pages", "by_page", "last", "ttl"):
                states.clear(name)
        return states.state, []

    def on_timer(
        self, key: str, at: int, state: dict[str, Any], time: Time
    ) -> tuple[dict[str, Any] | None, Iterable[Any]]:
        states = w.NamedStates(state)
        if states.expired(time):
            return None, [
                (key, at // 1_000_000, states.list("pages"), states.map("by_page"), states.value("last"))
            ]
        return states.state, []


def page(t: float, page: str, key: str = "a") -> dict[str, Any]:
    return row_of(t, key, page=page)


def visits(rows: list[Any], **params: Any) -> Any:
    flow = topology("visits")
    events = flow.source("events", Events).timestamps("t")
    events >> flow.task("visits", Visits, **params).by("k") >> flow.task("keep", keep)
    return testing.run(flow, {"events": rows})


def test_a_key_is_forgotten_when_it_was_quiet_for_so_long():
    result = visits([page(0, "x"), page(30, "y"), page(50, "x"), page(111, "z", "b"), page(112, "w")])
    assert result.rows["keep"] == [
        ("a", 110, ["x", "y", "x"], {"x": 2, "y": 1}, "x"),
        ("b", 171, ["z"], {"z": 1}, "z"),
        ("a", 172, ["w"], {"w": 1}, "w"),
    ]


def test_a_key_is_forgotten_by_the_clock():
    given = [page(0, "x"), testing.wait(50), page(1, "y"), testing.wait(50), page(1, "z"), testing.wait(200)]
    result = visits([*given, page(2, "w", "b")], clock=True)
    assert [row[2] for row in result.rows["keep"]] == [["x", "y", "z"]]
    assert set(result.states["visits"]) == {"b"}


def test_a_call_that_raises_has_changed_nothing():
    result = visits([page(0, "x"), page(1, "bad"), page(2, "y")])
    assert len(result.dead_letters) == 1
    assert result.rows["keep"] == [("a", 62, ["x", "y"], {"x": 1, "y": 1}, "y")]


def test_a_state_with_nothing_in_it_is_forgotten():
    result = visits([page(0, "x"), page(1, "bye"), page(2, "x", "b")])
    assert [row[0] for row in result.rows["keep"]] == ["b"]
