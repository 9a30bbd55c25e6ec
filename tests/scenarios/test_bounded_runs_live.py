"""A run whose input ends: by itself, exit code 0, everything done; also when processes are killed all the while."""

from __future__ import annotations

import pytest

from benchmarks.live_runs.bench_bounded import bounded

pytestmark = pytest.mark.live


def test_it_ends_by_itself_with_every_result() -> None:
    found = bounded(rows=6000, kills=0, rate=3000)
    assert found["exit_code"] == 0 and found["ended"] == "every source has ended", found
    assert found["whole"] and found["results"] > 200, found
    assert found["tuples"] == {"emitted": 6000, "acked": 6000, "lost": 0, "left": 0, "replayed": 0}


@pytest.mark.parametrize("seed", [1, 2])
def test_a_kill_while_it_ends_changes_no_result(seed: int) -> None:
    found = bounded(rows=6000, kills=2, rate=1000, seed=seed)
    assert found["exit_code"] == 0 and found["whole"], found


@pytest.mark.full
@pytest.mark.alone
def test_a_million_rows_under_ten_kills_give_what_duckdb_gives() -> None:
    found = bounded()
    assert found["exit_code"] == 0 and found["whole"] and len(found["kills"]) == 10, found
