"""What following a run decides: which run, whose folder, when it is over, how far behind."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from headgate.controller.files.season_files import read_season
from headgate.dashboards.analytics import follow_run as follow
from headgate.dashboards.analytics.analyses.rate_seasons import SeasonOf, season_data
from headgate.dashboards.analytics.analyze_command import analyze
from headgate.dashboards.analytics.curation.trace_segments import JudgedFiles, judged
from headgate.dashboards.analytics.follow_run import Offers, found_in
from headgate.dashboards.analytics.storage.data_folders import place
from headgate.dashboards.analytics.storage.trace_runs import TraceRun, run_of
from headgate.lab.experiments.follow_load import slope_h
from headgate.topology_runtime.errors import Conflict, InvalidInput, UsageError
from headgate.topology_runtime.keys.key_pairs import Contact, KeyPair
from headgate.topology_runtime.traces.arrow_schema import arrow_schema

NOW_S = 1_800_000_000.0


@pytest.fixture
def run(tmp_path: Path) -> TraceRun:
    folder = tmp_path / "traces" / "demo" / "one"
    (folder / "rates").mkdir(parents=True)
    return run_of(place(folder), {"started": "2027-01-15T08:00:00Z"})


def put(run: TraceRun, name: str, content: bytes, ago_s: float) -> None:
    path = Path(run.place.path, name)
    path.write_bytes(content)
    os.utime(path, (NOW_S - ago_s, NOW_S - ago_s))


def rates(path: Path, begin_s: int) -> None:
    schema = arrow_schema("rates")
    fill = {pa.string(): "a", pa.int64(): 1, pa.float64(): 2.0}
    columns = {f.name: [begin_s * 1_000_000] if f.name == "time" else [fill[f.type]] for f in schema}
    pq.write_table(pa.table({f.name: pa.array(columns[f.name], f.type) for f in schema}), path)


def test_one_run_is_followed(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / "demo" / name / "samples").mkdir(parents=True)
    assert follow.only_run([str(tmp_path / "demo" / "one")]).key == "demo/one"
    with pytest.raises(UsageError, match="2 runs"):
        follow.only_run([str(tmp_path / "demo")])


def test_the_checkpoint_of_another_trace_is_refused_by_name(tmp_path: Path, run: TraceRun) -> None:
    to = place(tmp_path / "out")
    follow.claim(to, run)
    follow.claim(to, run)
    other = run_of(place(tmp_path / "traces" / "demo" / "two"), {})
    with pytest.raises(Conflict) as refused:
        follow.claim(to, other)
    assert refused.value.exit_code == 6 and "demo/two" in refused.value.what
    assert f"demo/one in {run.place.uri}" in (refused.value.cause or "")
    again = run_of(run.place, {"started": "2027-01-15T09:00:00Z"})
    with pytest.raises(Conflict) as refused:
        follow.claim(to, again)
    assert "started at another time" in (refused.value.cause or "")
    (tmp_path / "out" / "follow" / "trace.json").write_text("torn")
    with pytest.raises(Conflict):
        follow.claim(to, run)


def test_a_run_is_over_when_it_says_so_or_is_quiet_for_long(run: TraceRun) -> None:
    assert not follow.is_over(run, NOW_S), "nothing is there yet"
    put(run, "rates/1.parquet", b"x", 30.0)
    assert not follow.is_over(run, NOW_S)
    assert follow.is_over(run, NOW_S + 31)
    running = b'{"patch":{"stage":"running"}}\n'
    put(run, "views.jsonl", running, 10.0)
    assert not follow.is_over(run, NOW_S)
    put(run, "views.jsonl", running + b'{"patch":{"stage":"over"}}\n{"patch":{}}\n', 2.0)
    assert not follow.is_over(run, NOW_S), "its last segments may be written now"
    assert follow.is_over(run, NOW_S + 2)
    put(run, "rates/2.parquet", b"x", 0.0)
    assert not follow.is_over(run, NOW_S + 2)


def test_lag_counts_finished_segments_of_the_table_that_has_most(run: TraceRun) -> None:
    Path(run.place.path, "slots").mkdir()
    for name in ("rates/1.parquet", "rates/2.parquet", "rates/_3.parquet", "slots/1.parquet"):
        put(run, name, b"x", 0.0)
    assert follow.lag(run, set()) == 2
    assert follow.lag(run, {(run.place / "rates" / name).uri for name in ("1.parquet", "2.parquet")}) == 1


def test_a_file_that_has_changed_is_judged_again_and_no_other(
    run: TraceRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[int] = []
    read = pq.read_metadata
    monkeypatch.setattr(pq, "read_metadata", lambda stream: looked.append(1) or read(stream))
    folder, files = Path(run.place.path, "rates"), JudgedFiles()
    for n in range(2):
        rates(folder / f"{n}.parquet", 100 + n)
    first = judged(run, files)
    assert judged(run, files) == first and len(looked) == 2
    rates(folder / "1.parquet", 200)
    os.utime(folder / "1.parquet", (NOW_S, NOW_S))
    assert [segment.begin_us for segment in judged(run, files)[0]] == [100_000_000, 200_000_000]
    assert len(looked) == 3


def test_a_segment_that_comes_is_seen_by_its_folder_alone(run: TraceRun) -> None:
    folder = Path(run.place.path, "rates")
    os.utime(folder, (NOW_S, NOW_S))
    before = follow.looked_at(run)
    put(run, "views.jsonl", b"x", 0.0)
    assert follow.looked_at(run) == before, "lines come all the time"
    put(run, "rates/_1.parquet", b"x", 0.0)
    Path(run.place.path, "rates", "_1.parquet").rename(folder / "1.parquet")
    assert follow.looked_at(run) != before
    before = follow.looked_at(run)
    Path(run.place.path, "slots").mkdir()
    assert follow.looked_at(run) != before


# ── What an analysis of a run has to offer to its controller, and when it is not asked to ───────────────

OF = SeasonOf("demo", "traces/demo/one", "2027-01-15T08:00:00Z", "0.1.0")


def wave(bins: int, bin_s: float, period_s: float, noise: float = 0.02, drift: float = 0.0) -> np.ndarray:
    """Means of bins, as aggregates have them."""
    at_s = np.arange(int(bins * bin_s))
    tps = 100 * (1 + drift * at_s / len(at_s)) * (1 + 0.6 * np.sin(2 * np.pi * at_s / period_s))
    tps *= 1 + noise * np.random.default_rng(3).standard_normal(len(at_s))
    return tps.reshape(bins, -1).mean(axis=1)


@pytest.mark.parametrize(("period_s", "drift"), [(90.0, 0.0), (240.0, 0.0), (333.3, 0.3)])
def test_a_season_is_learned_as_a_controller_reads_it(tmp_path: Path, period_s: float, drift: float) -> None:
    data = season_data(wave(300, 5.0, period_s, drift=drift), 5.0, OF)
    assert data is not None
    (tmp_path / "season.json").write_text(json.dumps(data))
    season = read_season(tmp_path / "season.json", "demo")
    assert season.period_s == pytest.approx(period_s, rel=0.01)
    assert season.learned.periods == int(1500 / period_s) and season.learned.held_out.error < 0.1
    at_s = np.arange(round(period_s)) + 0.5
    true = 1 + 0.6 * np.sin(2 * np.pi * at_s / period_s)
    middle = np.array(season.middle) / np.mean(season.middle)
    assert np.abs(middle - true).max() < 0.1, "each second's factor"
    assert all(high >= middle for high, middle in zip(season.high, season.middle, strict=True))


def test_what_does_not_come_back_is_not_offered() -> None:
    chance = np.random.default_rng(5)
    assert season_data(100 + 20 * chance.standard_normal(300), 5.0, OF) is None
    assert season_data(100 + np.cumsum(chance.standard_normal(300)), 5.0, OF) is None
    assert season_data(np.full(300, 100.0), 5.0, OF) is None
    assert season_data(np.zeros(300), 5.0, OF) is None
    assert season_data(wave(100, 5.0, 240.0), 5.0, OF) is None, "two periods are too few"
    once = np.concatenate((wave(200, 5.0, 240.0), np.full(100, 100.0)))
    assert season_data(once, 5.0, OF) is None, "it came back, and does no longer"


def test_what_is_offered_is_what_was_published(tmp_path: Path) -> None:
    assert found_in(place(tmp_path)) == {"models": []}
    (tmp_path / "models").mkdir()
    (tmp_path / "seasons").mkdir()
    (tmp_path / "models" / "parse.json").write_text('{"task": "parse"}')
    (tmp_path / "seasons" / "demo-one.json").write_text('{"period_s": 60}')
    assert found_in(place(tmp_path)) == {"models": [{"task": "parse"}], "season": {"period_s": 60}}


def test_offers_go_with_following_and_say_which_run() -> None:
    for words, why in (
        (["traces", "--offer"], "--offer goes with --follow"),
        (["traces", "--follow", "--controller", "here"], "--controller is where --offer goes"),
    ):
        ended = CliRunner().invoke(analyze, words)
        assert isinstance(ended.exception, UsageError) and why in ended.exception.what
    nameless = run_of(place("traces/demo/one"), {})
    with pytest.raises(InvalidInput, match="does not say when it began"):
        Offers(nameless, Contact("tcp://127.0.0.1:1", KeyPair("a", "b"), "nobody"), print)


# ── What `scripts/lab/experiments/follow_load.py` says of memory and turns that grow, or do not ─────────


@pytest.mark.parametrize("slope", [0.0, 360.0])
def test_a_slope_is_told_per_hour_with_an_interval_that_holds_it(slope: float) -> None:
    at_s = np.repeat(np.arange(0.0, 1800.0, 20.0), 15)  # moments of a turn are one moment of the run
    noise = np.random.default_rng(5).normal(0.0, 20.0, len(at_s))
    value, low, high = slope_h(list(at_s), list(2000 + slope * at_s / 3600 + noise))
    assert low <= slope <= high and high - low < 200
    assert value == pytest.approx(slope, abs=50)
    assert (low > 0) == (slope > 0)
