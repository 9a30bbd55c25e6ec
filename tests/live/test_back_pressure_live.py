"""The ledger's window is the only back-pressure: memory stays bounded and nothing is lost, whatever is too slow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import bench_pressure as bench
from headgate.topology_runtime import proc

pytestmark = [pytest.mark.live, pytest.mark.alone]
GROWING_MB_PER_S = 0.1  # what comes without a bound at full speed is a hundred times as much


def test_a_sink_that_stands_still_costs_no_memory_and_no_row() -> None:
    found = bench.stopped_sink(10.0)
    assert found["rows"] > 100_000, "it ran at full speed before"
    assert found["moved_meanwhile"] == 0
    assert found["mb_per_s_95"][1] < GROWING_MB_PER_S and found["mb_most"] - found["mb"] < 5.0
    assert found["lost"] == 0 and found["moving_again_s"] < 5.0


@pytest.mark.parametrize("large", [bench.large_rows, bench.grown_rows], ids=["as-read", "as-made"])
def test_large_rows_in_flight_are_few(large: Callable[[float], dict[str, Any]]) -> None:
    """By the rate alone 32,768 rows of 200 KB could be: 6.5 GB."""
    found = large(8.0)
    assert found["rows"] > 500, "rows flowed before"
    assert found["moved_meanwhile"] == 0
    assert found["mb_most"] < 400.0, "two workers, each with what may be in flight, written and unwritten"
    assert found["mb_per_s_95"][1] < GROWING_MB_PER_S * 5
    assert found["lost"] == 0 and found["moving_again_s"] < 5.0


def test_rows_that_are_kept_elsewhere_are_not_held_by_their_source_and_come_again() -> None:
    """Rows of 20 KB, some 100 MB of which are in the worker that dies."""
    with bench.keeping() as run:
        run.rig.offer([(0.0, 2000.0)])
        run.rig.pump(4.0)
        held_mb = proc.rss_bytes(run.rig.pid_of(0)) / bench.MB
        run.rig.kill(1)
        run.rig.respawn(1)
        run.rig.pump(2.0)
        found = run.end()
    assert held_mb < 140.0, "with all its rows it would be above 200"
    assert found["lost"] == 0 and found["sent_again"] > 2_000


def test_a_slow_sink_slows_its_source_and_memory_stays_flat() -> None:
    found = bench.slow_sink(5.0)
    assert found["rows"] < 30_000, "a thousand a second came out, and a window more was read"
    assert found["mb_per_s_95"][1] < GROWING_MB_PER_S and found["lost"] == 0


def test_a_slow_key_bounds_what_is_read_and_loses_nothing() -> None:
    found = bench.slow_key(5.0)
    assert found["lost"] == 0
    assert found["mb_most"] < 200.0, "two workers with at most 200,000 kept rows"


def test_after_a_burst_latency_is_what_it_was_and_no_row_is_lost() -> None:
    found = bench.burst(12.0)
    before, during, after = (found["p99_ms"][name] for name in ("before", "burst", "after"))
    assert during > 500.0, "ten times what was offered had to wait"
    assert after < max(3 * before, 500.0)
    assert found["lost"] == 0
