"""What a recorded run failed to finish, by the counts of its trace."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headgate.controller.replaying.measured import measured_of, violations_of

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


def test_stretches_in_which_less_was_finished_than_offered_are_told() -> None:
    """From the 20th to the 40th second 40 of 100 are missing, and are done later."""
    seconds = [(float(n), 100, 60 if 20 <= n < 40 else 140 if 40 <= n < 60 else 100) for n in range(100)]
    assert violations_of(seconds) == (20.0, 800.0)


def test_what_is_on_its_way_is_no_violation() -> None:
    seconds = [(float(n), 100, 97 if n % 2 else 101) for n in range(60)]
    assert violations_of(seconds) == (0.0, 0.0)


def rates(folder: Path, name: str, columns: dict[str, list[object]]) -> None:
    (folder / "rates").mkdir(exist_ok=True)
    pq.write_table(pa.table(columns), folder / "rates" / name)


def test_the_sources_of_a_trace_are_put_together_and_what_was_not_finished_is_left_out(
    tmp_path: Path,
) -> None:
    times: list[object] = [BEGIN + timedelta(seconds=n // 2) for n in range(80)]
    offered: list[object] = [0 if n < 20 else 50 for n in range(80)]
    acked: list[object] = [0 if n < 20 else 20 for n in range(80)]
    rates(tmp_path, "1-000001.parquet", {"time": times, "offered": offered, "acked": acked})
    (tmp_path / "rates" / "_1-000002.parquet").write_bytes(b"half")
    assert measured_of(tmp_path) == (30.0, pytest.approx(30 * 60))


def test_of_a_trace_without_counts_nothing_is_known(tmp_path: Path) -> None:
    rates(tmp_path, "1-000001.parquet", {"time": [BEGIN], "offered_tps": [10.0]})
    assert measured_of(tmp_path) is None and measured_of(tmp_path / "none") is None
