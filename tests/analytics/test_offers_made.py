"""What an analysis of a run has to offer to its controller, and when it is not asked to."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from headgate.controller.files.season_files import read_season
from headgate.dashboards.analytics.analyses.season_profile import SeasonOf, season_data
from headgate.dashboards.analytics.analyze_cli import analyze
from headgate.dashboards.analytics.data_places import place
from headgate.dashboards.analytics.offering import Offers, found_in
from headgate.dashboards.analytics.trace_runs import run_of
from headgate.topology_runtime.errors import InvalidInput, UsageError
from headgate.topology_runtime.keys.pairs import Contact, KeyPair

OF = SeasonOf("demo", "traces/demo/one", "2027-01-15T08:00:00Z", "0.1.0")


def wave(bins: int, bin_s: float, period_s: float, noise: float = 0.02, drift: float = 0.0) -> np.ndarray:
    """Means of bins, as aggregates have them."""
    at_s = np.arange(int(bins * bin_s))
    tps = 100 * (1 + drift * at_s / len(at_s)) * (1 + 0.6 * np.sin(2 * np.pi * at_s / period_s))
    tps *= 1 + noise * np.random.default_rng(3).standard_normal(len(at_s))
    return tps.reshape(bins, -1).mean(axis=1)


@pytest.mark.parametrize(("period_s", "drift"), [(90.0, 0.0), (240.0, 0.0), (333.3, 0.5)])
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
