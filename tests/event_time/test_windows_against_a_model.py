"""Panes of tumbling windows over random histories, against the model in beam_model.py."""

from __future__ import annotations

from typing import Any

import beam_model
from hypothesis import given
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
