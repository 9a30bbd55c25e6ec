"""When rows of a live source came: as they say, within bounds, and never at the price of a row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from headgate.topology_runtime.logic import LiveSource
from headgate.topology_runtime.worker.row_times import times_of

S = 1_000_000_000
NOW = 1_700_000_000 * S


class Silent(LiveSource):
    def poll(self, limit: int) -> Sequence[Any]:
        return ()


class Told(Silent):
    """A row is how many seconds ago it came, or what is wrong with that."""

    def came(self, row: Any) -> float | None:
        return None if row is None else NOW / S - row


def test_rows_that_say_nothing_came_now() -> None:
    assert times_of(Silent(), [1, 2], NOW) == ([NOW, NOW], "")
    assert times_of(Told(), [None], NOW) == ([NOW], "")
    assert times_of(Told(), [], NOW) == ([], "")


def test_a_row_came_when_it_says() -> None:
    times, wrong = times_of(Told(), [0.25, 59.0, 0.0], NOW)
    assert wrong == ""
    assert times == pytest.approx([NOW - S // 4, NOW - 59 * S, NOW], abs=1000)


def test_a_clock_that_is_ahead_makes_no_latency_below_nothing() -> None:
    assert times_of(Told(), [-5.0], NOW) == ([NOW], "")


@pytest.mark.parametrize(
    ("row", "says"),
    [
        (3600.0, "it came 3,600 s ago"),
        (float("nan"), "it came nan s ago"),
        (float("-inf"), "it came -inf s ago"),
        ("a", "came() raised TypeError"),
        (10**400, "came() raised OverflowError"),
    ],
)
def test_what_cannot_be_is_said_and_counts_from_now(row: Any, says: str) -> None:
    times, wrong = times_of(Told(), [0.5, row, 0.5], NOW)
    assert times == pytest.approx([NOW - S // 2, NOW, NOW - S // 2], abs=1000) and says in wrong
