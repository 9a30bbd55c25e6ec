"""Panes of tumbling windows over random histories, against the model in beam_model.py."""

from __future__ import annotations

from typing import Any

import beam_model
from hypothesis import example, given
from hypothesis import strategies as st
from windows_world import counted, row_of, rows_of

from headgate import testing
from headgate import windows as w

SIZE = 10
TIMES = st.integers(-35, 60)
BEHIND = st.sampled_from([0, 5, 12])
LATENESS = st.sampled_from([0, 7, 20])


def given_panes(rows: list[Any]) -> dict[float, list[beam_model.Pane]]:
    found: dict[float, list[beam_model.Pane]] = {}
    for row in rows:
        pane = (row["start"], row["end"], row["value"], row["pane"], row["timing"])
        found.setdefault(row["start"], []).append(pane)
    return found


def expected(
    arrivals: list[beam_model.Arrival], rules: beam_model.Rules
) -> dict[float, list[beam_model.Pane]]:
    return {start: panes for start, panes in beam_model.panes(arrivals, rules).items() if panes}


@given(st.lists(TIMES, min_size=1, max_size=25), BEHIND, LATENESS, st.sampled_from([0, 1, 3]))
def test_panes_by_watermark_count_and_late_rows(times, behind, lateness, early):
    found = rows_of(
        [row_of(t) for t in times],
        lateness=float(behind), windows=w.tumbling(SIZE), late=lateness,
        early={"rows": early} if early else None, emit="updates",
    )  # fmt: skip
    arrivals = [beam_model.Arrival(t, 0.0) for t in times]
    rules = beam_model.Rules(SIZE, lateness, behind, early)
    assert given_panes(found) == expected(arrivals, rules)
    assert counted("too_late_rows") == beam_model.dropped(arrivals, rules)


@given(st.lists(st.tuples(TIMES, st.integers(0, 4)), min_size=1, max_size=20), BEHIND, LATENESS)
def test_early_panes_by_the_clock(steps, behind, lateness):
    clock, rows, arrivals = 0, [], []
    for t, pause in steps:
        clock += pause
        rows += [testing.wait(pause), row_of(t)] if pause else [row_of(t)]
        arrivals.append(beam_model.Arrival(t, clock))
    found = rows_of(
        rows,
        lateness=float(behind),
        windows=w.tumbling(SIZE),
        late=lateness,
        early={"seconds": 3},
        emit="updates",
    )
    rules = beam_model.Rules(SIZE, lateness, behind, early_delay=3)
    assert given_panes(found) == expected(arrivals, rules)


@given(st.lists(TIMES, min_size=1, max_size=25), LATENESS, st.sampled_from([1, 2]))
def test_what_is_taken_back_was_given_and_one_result_of_each_window_is_left(times, lateness, early):
    found = rows_of(
        [row_of(t) for t in times],
        windows=w.tumbling(SIZE), late=lateness, early={"rows": early}, emit="retractions",
    )  # fmt: skip
    standing: dict[float, Any] = {}
    for row in found:
        if row["retract"]:
            assert standing.pop(row["start"]) == (row["value"], row["pane"])
        else:
            assert row["start"] not in standing
            standing[row["start"]] = row["value"], row["pane"]
    arrivals = [beam_model.Arrival(t, 0.0) for t in times]
    last = expected(arrivals, beam_model.Rules(SIZE, lateness, 0, early))
    assert {start: value for start, (value, _) in standing.items()} == {s: p[-1][2] for s, p in last.items()}


def sessions(times: list[int], gap: int) -> dict[float, tuple[float, int]]:
    """Start → end and rows, of all rows together."""
    found: list[list[int]] = []
    for at in sorted(times):
        if found and at - found[-1][-1] < gap:
            found[-1].append(at)
        else:
            found.append([at])
    return {float(one[0]): (float(one[-1] + gap), len(one)) for one in found}


@example([(0, "a"), (10, "b"), (12, "a"), (6, "a")], 0, "final")
@given(
    st.lists(st.tuples(st.integers(0, 30), st.sampled_from("ab")), min_size=1, max_size=14),
    BEHIND,
    st.sampled_from(["retractions", "final"]),
)
def test_what_is_left_of_sessions_is_those_of_all_rows_however_late_they_came(arrivals, behind, emit):
    """A row that joined a session that was given and one that was open took the timer of both away: the result of three
    rows never came."""
    found = rows_of(
        [row_of(t, key) for t, key in arrivals],
        lateness=float(behind),
        windows=w.session(8),
        late=1000,
        emit=emit,
    )
    for key in {key for _, key in arrivals}:
        expected_now = sessions([t for t, one in arrivals if one == key], 8)
        standing: dict[float, tuple[float, int]] = {}
        for row in (row for row in found if row["key"] == key):
            if row.get("retract"):
                assert standing.pop(row["start"]) == (row["end"], row["value"])
            else:
                standing[row["start"]] = row["end"], row["value"]
        if emit == "final":  # nothing is taken back: of those that were joined some are left
            standing = {start: one for start, one in standing.items() if start in expected_now}
        assert standing == expected_now
