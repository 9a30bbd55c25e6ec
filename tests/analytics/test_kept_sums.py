"""Which stretches of a run that goes on are added up again, and that what is kept says the same as the whole."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("duckdb", reason="DuckDB is not installed: pip install 'headgate[sql]'")

from headgate.dashboards.analytics import kept_sums
from headgate.dashboards.analytics.analysis_pipeline import ASKED
from headgate.dashboards.analytics.curation.trace_segments import Segment, judged
from headgate.dashboards.analytics.kept_sums import STRETCH_US, KeptSums, SumPart, planned
from headgate.dashboards.analytics.storage import trace_runs
from headgate.dashboards.analytics.storage.data_folders import place
from headgate.dashboards.tables.duckdb_tables import DuckdbEngine
from headgate.dashboards.tables.table_engines import fill
from headgate.dashboards.tables.trace_files import RunFiles
from made_traces.generate_trace import Wanted, generate


def segments(*stretches: tuple[float, float], table: str = "samples") -> list[Segment]:
    """One for each (from, to), in stretches."""
    return [
        Segment(place(f"{n}"), table, 1, round(a * STRETCH_US), round(b * STRETCH_US) - 1, f"{n}")
        for n, (a, b) in enumerate(stretches)
    ]


def named(begin: float, end: float, table: str = "samples") -> Segment:
    """One that comes to these."""
    [one] = segments((begin, end), table=table)
    return replace(one, place=place(f"{begin}"), digest="late")


def ranges(parts: Sequence[SumPart]) -> list[tuple[int, int]]:
    return [(part.begin, part.end) for part in parts]


def test_the_last_two_stretches_are_open_and_all_before_them_one_part() -> None:
    plan = planned([], segments((10, 12.5), (13, 16)))
    assert (plan.kept, ranges(plan.fresh), plan.open_from) == ([], [(10, 14)], 14)
    short = planned([], segments((10, 10.5)))
    assert (short.fresh, short.open_from) == ([], 10), "nothing of it is over"


def test_what_is_kept_is_not_made_again_and_what_is_over_is_added() -> None:
    its = segments((10, 12), (12, 14), (14, 15))
    known = planned([], its).fresh
    assert planned(known, its) == (known, [], 13)
    later = planned(known, [*its, named(15, 16)])
    assert later.kept == known and ranges(later.fresh) == [(13, 14)]


def test_what_comes_late_makes_its_own_part_again() -> None:
    its = segments((10, 12), (14, 15))
    parts = [*planned([], its).fresh]
    more = [*its, named(15, 18)]
    parts += planned(parts, more).fresh
    plan = planned(parts, [*more, named(14.2, 14.4)])
    assert ranges(plan.kept) == [(10, 13)] and ranges(plan.fresh) == [(13, 16)]


@pytest.mark.parametrize(("table", "again"), [("slots", [(13, 14)]), ("rates", [(13, 15)])])
def test_rates_are_counted_from_what_was_a_minute_before(table: str, again: list[tuple[int, int]]) -> None:
    its, known = segments(*((n, n + 1) for n in range(10, 17))), list[SumPart]()
    for there in (5, 6, 7):
        known += planned(known, its[:there]).fresh
    assert ranges(known) == [(10, 13), (13, 14), (14, 15)]
    assert ranges(planned(known, [*its, named(13.9, 14, table)]).fresh) == again


def test_what_is_kept_counts_also_when_its_files_are_gone_unless_they_are_doubted() -> None:
    its = segments((10, 11), (11, 12), (12, 13), (13, 16))
    known = planned([], its).fresh
    assert planned(known, its[2:]) == (known, [], 14), "the oldest of a large trace go"
    assert planned(known, its[2:], {"samples/7"}) == (known, [], 14)
    assert ranges(planned(known, its[2:], {"samples/1"}).fresh) == [(12, 14)], (
        "its clock is not believed any more"
    )
    other = replace(its[0], digest="other")
    assert ranges(planned(known, [other, *its[1:]]).fresh) == [(10, 14)], (
        "the same name, and something else in it"
    )


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> RunFiles:
    """A run of 20 minutes in segments of 20 s and less."""
    folder = tmp_path_factory.mktemp("made")
    generate(folder, Wanted(rows=12_000, threads=10, slots=8, epochs=3, segment_rows=200))
    [run] = trace_runs.find([str(folder)])[0]
    begun = datetime(2027, 1, 15, 8, tzinfo=UTC)
    took = {"sink": "sink", "p50_ms": 10.0, "p95_ms": 20.0, "p99_ms": 30.0}
    lines = [
        {
            "time": (begun + timedelta(seconds=at_s)).isoformat(),
            "epoch": 1 + at_s // 400,
            "plan": "any",
            "settled_in_s": 15.0,
            "rate_tps": 700.0 + at_s % 7 * 200,
            "sinks": [took],
        }
        for at_s in range(5, 1200, 33)
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    Path(run.place.path, "predicted_latency.jsonl").write_text(text)
    return RunFiles(run, tuple(judged(run)[0]))


def rows(engine: DuckdbEngine, name: str) -> list[tuple[object, ...]]:
    """In order; sums of fractions may differ in their last digits."""
    found = engine.ask(f"select * from {name}").to_pylist()
    lines = [tuple(float(f"{v:.9g}") if isinstance(v, float) else v for v in row.values()) for row in found]
    return sorted(lines, key=str)


def at_once(one: RunFiles) -> DuckdbEngine:
    engine = DuckdbEngine()
    fill(engine, [one], (), ASKED)
    return engine


def test_sums_of_a_run_that_came_bit_by_bit_are_those_of_the_whole(
    made: RunFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Late segments, and another process, in between."""
    monkeypatch.setattr(kept_sums, "STRETCH_US", 60_000_000)
    order = sorted(made.segments, key=lambda s: s.begin_us)
    chance = random.Random(3)
    late = chance.sample(order[10:60], 3)
    order = [s for s in order if s not in late] + late
    for share in (0.3, 0.6, 0.95, 1.0):
        sums = KeptSums(tmp_path / "follow", "1g")
        there = replace(made, segments=tuple(order[: round(share * len(order))]))
        sums.bring_up_to_date([there])
        whole = at_once(there)
        for name in sorted(name for name in ASKED if name.startswith("sum_")):
            assert rows(sums.engine, name) == rows(whole, name), (share, name)
            assert share < 1 or name == "sum_peaks" or rows(whole, name), name
        sums.close()


def test_a_torn_file_of_sums_is_made_again(made: RunFiles, tmp_path: Path) -> None:
    (tmp_path / "sums.duckdb").write_bytes(b"torn")
    sums = KeptSums(tmp_path, "1g")
    sums.bring_up_to_date([made])
    assert rows(sums.engine, "sum_threads") == rows(at_once(made), "sum_threads")
    sums.close()


def test_a_value_that_is_no_number_is_null_in_sums_of_files(tmp_path: Path) -> None:
    generate(tmp_path, Wanted(rows=2_000, threads=10, slots=8, epochs=2, segment_rows=1_000))
    [run] = trace_runs.find([str(tmp_path)])[0]
    for file in Path(run.place.path).glob("slots/*.parquet"):
        table = pq.read_table(file)
        values = pa.array([float("nan"), float("inf")] * (len(table) // 2) + [0.5] * (len(table) % 2))
        pq.write_table(table.set_column(table.column_names.index("cpu"), "cpu", values), file)
    engine = at_once(RunFiles(run, tuple(judged(run)[0])))
    known = engine.ask("select sum(cpu_n) as n, max(cpu) as cpu from sum_slot_windows").to_pylist()[0]
    assert known["n"] <= 2 and known["cpu"] in (None, 0.5)
