"""Numbers and lists as they are said."""

from __future__ import annotations

import math

import pytest

from headgate.dashboards.report.wording import cell, count, duration, listed, number, percent


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "N/A"), (math.nan, "N/A"), (math.inf, "N/A"), (0.0, "0"), (1234.5, "1,234"), (12.345, "12.3"),
        (100.0, "100"), (0.012345, "0.0123"), (-0.5, "-0.5"), (1e-12, "0"), (999.9, "1000"),
    ],
)  # fmt: skip
def test_numbers(value: float | None, text: str) -> None:
    assert number(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "N/A"), (0.04, "40 ms"), (1.25, "1.25 s"), (125, "125 s"), (3600, "60 min"), (7200, "2 h"),
     (200_000, "2.31 days"), (0, "0 ms")],
)  # fmt: skip
def test_durations(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text


def test_shares_counts_and_lists() -> None:
    assert percent(0.1234) == "12.3 %" and percent(None) == "N/A"
    assert [count(n, "slot") for n in (0, 1, 2000)] == ["no slots", "1 slot", "2,000 slots"]
    assert listed([]) == "" and listed(["a"]) == "a" and listed(["a", "b", "c"]) == "a, b and c"
    assert listed(list("abcdefgh"), 2) == "a, b and 6 more"
    assert [cell(v) for v in (None, True, 1.23456, 12000, ["x", None])] == [
        "N/A",
        "yes",
        "1.235",
        "12,000",
        "x, N/A",
    ]
