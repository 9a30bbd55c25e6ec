"""How many rows a frame has while a task is measured."""

from __future__ import annotations

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from headgate.topology_runtime.calibration.frames import (
    ROWS_MOST,
    SURELY,
    call_rows,
    frame_rows,
    frames_that_hold,
)

GAP_S = 0.001


@pytest.mark.parametrize(("tps", "rows"), [(0.0, 1), (900.0, 1), (5_000.0, 5), (1e9, 64)])
def test_frames_hold_what_comes_in_a_gap(tps: float, rows: int) -> None:
    assert frame_rows(tps, 0.001) == rows


def test_calls_of_a_batched_task_are_as_large_as_a_run_makes_them() -> None:
    """A tenth of a second of rows, up to 256; a task of rows has what comes in a gap."""
    assert [call_rows(tps) for tps in (1.0, 50.0, 500.0, 2_000.0, 1e6)] == [1, 5, 50, 200, 256]
    assert [frame_rows(tps, 0.001) for tps in (500.0, 1e6)] == [1, 64]


class Cost:
    """A thread of so many cores, whose frames and rows cost so many seconds; what was asked of it."""

    def __init__(self, cores: float, frame_s: float, row_s: float) -> None:
        self.cores, self.frame_s, self.row_s = cores, frame_s, row_s
        self.asked: list[int] = []

    def __call__(self, rows: int) -> float:
        self.asked.append(rows)
        return rows * self.cores / (self.frame_s + rows * self.row_s)

    @property
    def most_tps(self) -> float:
        """What it takes of one sender, which sends it a frame in each gap: the frames of a second leave it so much."""
        return (self.cores - self.frame_s / GAP_S) / self.row_s


@pytest.mark.parametrize(
    ("cores", "frame_s", "row_s", "rows"),
    [
        (0.4, 150e-6, 2e-6, 64),  # a quick one, which takes 125,000 rows/s; with single rows 2,600
        (0.4, 80e-6, 50e-6, 5),  # 6,400 rows/s, six in a gap
        (0.4, 200e-6, 50e-6, 1),  # 4,000, four in a gap, and hardly more frames than come
        (0.2, 70e-6, 20e-6, 5),
        (0.12, 200e-6, 2e-6, 1),  # not even its frames fit into the slot
        (1.0, 100e-6, 2e-3, 1),  # a slow one
    ],
)
def test_a_task_is_measured_with_the_frames_that_it_gets_at_its_rate(cores, frame_s, row_s, rows):
    cost = Cost(cores, frame_s, row_s)
    assert frames_that_hold(cost, GAP_S) == rows


def test_a_slow_task_is_looked_at_once():
    cost = Cost(1.0, 100e-6, 2e-3)
    frames_that_hold(cost, GAP_S)
    assert cost.asked == [1]


@examples(400)
@given(st.floats(0.05, 1.0), st.floats(20e-6, 500e-6), st.floats(1e-7, 5e-3))
def test_it_is_promised_what_its_frames_allow_and_not_a_small_part_of_it(cores, frame_s, row_s):
    cost = Cost(cores, frame_s, row_s)
    promised_tps, single_tps = cost(frames_that_hold(cost, GAP_S)), cost(1)
    assert single_tps <= promised_tps <= max(cost.most_tps, single_tps) * 1.000001
    surely = Cost(cores / SURELY, frame_s, row_s)
    assert promised_tps >= 0.25 * min(surely.most_tps, ROWS_MOST / GAP_S)
