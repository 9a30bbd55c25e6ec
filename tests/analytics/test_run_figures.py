"""What of a run differs from another one: with which it is compared, and by how much two of the same differ."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from headgate.dashboards.analytics.run_figures import NOISE, RunFigures, changes, waited_s

FIRST = RunFigures(
    run="demo/a", topology="demo", started_us=1_000, seconds=120.0, offered_tps=100.0, acked_tps=99.0, p50_s=0.2,
    p95_s=0.4, p99_s=0.6, waited_s=0.0, slots=6.0, slot_hours=0.2, usd=0.01, replans=2, lost=0, dead_lettered=0,
    replayed=0, duplicates=0,
)  # fmt: skip
SECOND = replace(FIRST, run="demo/b", started_us=2_000)


def differing(now: RunFigures, before: RunFigures) -> set[str]:
    return {row.figure for row in changes([now], [before]) if row.differs}


def test_a_run_is_compared_with_the_last_of_its_topology_before_it() -> None:
    third = replace(FIRST, run="demo/c", started_us=3_000)
    other = replace(FIRST, run="else/x", topology="else", started_us=2_900)
    rows = list(changes([third, FIRST, SECOND, other], []))
    assert {(row.run, row.against) for row in rows} == {("demo/c", "demo/b"), ("demo/b", "demo/a")}
    assert len(rows) == 2 * len(NOISE)


def test_a_run_that_is_analysed_alone_is_compared_with_the_one_that_is_given() -> None:
    assert {row.against for row in changes([SECOND], [FIRST])} == {"demo/a"}
    assert list(changes([FIRST], [SECOND])) == [] == list(changes([SECOND], []))


def test_a_run_that_was_named_is_compared_with_whatever_it_is_of() -> None:
    other = replace(FIRST, run="else/x", topology="else", started_us=9_000)
    assert {row.against for row in changes([FIRST, SECOND], [other], named=True)} == {"else/x"}
    assert list(changes([other], [other], named=True)) == [], "not with itself"


@pytest.mark.parametrize(
    "than",
    [
        {"offered_tps": 101.9, "acked_tps": 103.5, "seconds": 122.3},
        {"p50_s": 0.219, "p95_s": 0.449, "p99_s": 0.69, "waited_s": 3.0},
        {"p50_s": 0.266, "p95_s": 0.53, "p99_s": 0.89, "slots": 6.18, "slot_hours": 0.206, "usd": 0.0103},
    ],
)
def test_what_two_runs_of_the_same_differ_by_is_no_change(than: dict[str, Any]) -> None:
    assert differing(replace(SECOND, **than), FIRST) == set()


@pytest.mark.parametrize(
    ("figure", "value"),
    [
        ("offered_tps", 102.1), ("offered_tps", 97.9), ("acked_tps", 93.9), ("seconds", 123.0), ("p50_s", 0.27),
        ("p95_s", 0.54),
        ("p99_s", 0.91), ("p99_s", 0.39), ("waited_s", 3.1), ("slots", 5.8), ("slot_hours", 0.207), ("usd", 0.0),
        ("replans", 3), ("lost", 1), ("dead_lettered", 1), ("replayed", 5), ("duplicates", 1),
    ],
)  # fmt: skip
def test_what_is_more_is_one(figure: str, value: float) -> None:
    assert differing(replace(SECOND, **{figure: value}), FIRST) == {figure}


def test_what_is_not_known_of_one_neither_differs_nor_is_the_same() -> None:
    rows = {row.figure: row for row in changes([replace(SECOND, lost=None)], [FIRST])}
    assert (rows["lost"].value, rows["lost"].before, rows["lost"].differs) == (None, 0, None)


def test_stretches_that_lie_over_each_other_count_once() -> None:
    assert waited_s([(5.0, 9.0), (1.0, 2.0), (6.0, 7.0), (8.0, 11.0)]) == pytest.approx(7.0)
    assert waited_s([]) == 0.0


def test_every_figure_has_its_noise() -> None:
    assert set(NOISE) == set(RunFigures.__struct_fields__) - {"run", "topology", "started_us"}
