"""Seasons as files: learned, refused, and what handing one over is worth."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from headgate.controller.controller_cli import season_of
from headgate.controller.files.season_files import read_season
from headgate.lab.rate_policies.backtest_command import backtest
from headgate.lab.rate_policies.season_command import learn, show, topology_of
from headgate.topology_runtime.errors import HeadgateError, InvalidInput, UsageError
from headgate.topology_runtime.rates.season_learning import learned_of

PERIOD_S = 90


def rate_at(second: int) -> float:
    """A jump up, a slope down, a smaller hump."""
    phase = second % PERIOD_S
    return 220.0 - 2.5 * phase if 20 <= phase < 60 else 40.0 + (30.0 if phase >= 75 else 0.0)


def rates_file(path: Path, begins_s: int, seconds: int, noise: float = 0.05) -> str:
    chance = random.Random(begins_s)
    lines = [f"{n},{rate_at(begins_s + n) * (1 + noise * chance.uniform(-1, 1)):.3f}" for n in range(seconds)]
    path.write_text("\n".join(lines) + "\n")
    return str(path)


@pytest.fixture
def before(tmp_path: Path) -> str:
    return rates_file(tmp_path / "before.csv", 0, 12 * PERIOD_S)


def told(command: Any, *arguments: object) -> Any:
    result = CliRunner().invoke(command, [*map(str, arguments), "-o", "json"], standalone_mode=False)
    if result.exception is not None:
        raise result.exception
    return json.loads(result.stdout)


def test_a_season_says_its_period_its_profile_and_where_it_is_from(before: str, tmp_path: Path) -> None:
    out, picture = tmp_path / "season.json", tmp_path / "season.svg"
    found = told(learn, before, "--output", out, "--topology", "day", "--plot", picture)
    assert found == json.loads(out.read_text()) == told(show, out)
    assert (found["schema"], found["topology"]) == ("headgate/season/v1", "day")
    assert found["period_s"] == pytest.approx(PERIOD_S, abs=0.3)
    there = [
        rate_at(round(n * found["period_s"] / len(found["middle"]))) for n in range(len(found["middle"]))
    ]
    off = np.abs(np.array(found["middle"]) - np.array(there)) / np.array(there)
    assert np.median(off) < 0.03
    assert all(high >= middle for middle, high in zip(found["middle"], found["high"], strict=True))
    learned = found["learned"]
    assert (learned["sources"], learned["seconds"], learned["periods"]) == ([before], 1080.0, 12)
    assert learned["held_out"]["error"] < 0.1 < learned["held_out"]["error_of_level"]
    assert picture.read_text().startswith("<?xml")


def test_several_files_are_laid_together(tmp_path: Path) -> None:
    files = [rates_file(tmp_path / f"{n}.csv", begins, 6 * PERIOD_S) for n, begins in enumerate((0, 37))]
    one = told(learn, files[0], "--output", tmp_path / "one.json")
    both = told(learn, *files, "--output", tmp_path / "both.json")
    assert both["learned"]["periods"] == 2 * one["learned"]["periods"]
    off = np.abs(np.array(one["middle"]) - np.array(both["middle"])) / np.array(one["middle"])
    assert np.median(off) < 0.03


def test_a_longer_period_is_taken_where_it_foresees_better() -> None:
    """Every fifth peak is twice as high: a week of short days."""
    days = [50.0 + (100.0 if n // 60 % 5 == 4 else 50.0) * (n % 60 >= 30) for n in range(3600)]
    found = learned_of([np.array(days)], None, lambda items: items)
    assert found.period_s == pytest.approx(300, abs=1)
    chosen = learned_of([np.array([50.0 + 50.0 * (n % 60 >= 30) for n in range(1200)])], None, iter)
    assert chosen.period_s == pytest.approx(60, abs=0.5), "and not a multiple that is no better"


def test_handed_over_it_is_foreseen_before_three_periods_were_seen(before: str, tmp_path: Path) -> None:
    season = tmp_path / "season.json"
    told(learn, before, "--output", season)
    later = rates_file(tmp_path / "later.csv", 12 * PERIOD_S + 31, 5 * PERIOD_S)
    asked = (later, "--policy", "foresight")
    without, handed = (
        told(backtest, *asked, *more)["series"][0]["policies"][0]
        for more in ((), ("--set", f"season={season}"))
    )
    assert handed["of_static"] < without["of_static"] - 0.05
    assert handed["short_share"] <= max(0.01, without["short_share"])


def test_a_season_of_something_else_does_no_harm(before: str, tmp_path: Path) -> None:
    season = tmp_path / "season.json"
    told(learn, before, "--output", season)
    asked = ("made:steps-by-chance", "--policy", "foresight")
    without, handed = (
        told(backtest, *asked, *more)["series"][0]["policies"][0]
        for more in ((), ("--set", f"season={season}"))
    )
    assert handed["short_share"] <= without["short_share"] + 0.002
    assert handed["of_static"] <= without["of_static"] + 0.01


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda data: data | {"schema": "headgate/season/v9"}, "expected 'headgate/season/v1'"),
        (lambda data: {"schema": data["schema"], "period_s": 90.0}, "missing required field"),
        (lambda data: data | {"middle": data["middle"][:-1]}, "expected 90 values each"),
        (lambda data: data | {"middle": [-1.0, *data["middle"][1:]]}, "negative"),
        (lambda data: data | {"high": data["middle"], "middle": data["high"]}, "less in high than in middle"),
        (lambda data: data | {"period_s": 86400.0}, "expected 30 to 3600 s"),
        (
            lambda data: data | {"learned": data["learned"] | {"seconds": 200.0}},
            "do not support a period of 90",
        ),
        (lambda data: data | {"learned": data["learned"] | {"periods": 2}}, "3 whole ones are needed"),
    ],
)
def test_files_that_are_no_season_are_refused(change: Any, text: str, before: str, tmp_path: Path) -> None:
    path = tmp_path / "season.json"
    told(learn, before, "--output", path, "--topology", "day", "--set", f"period={PERIOD_S}")
    path.write_text(json.dumps(change(json.loads(path.read_text()))))
    with pytest.raises(InvalidInput) as caught:
        read_season(path)
    assert text in "\n".join(caught.value.lines()) and caught.value.hint


def test_a_truncated_file_another_topologys_and_none_are_refused(before: str, tmp_path: Path) -> None:
    path = tmp_path / "season.json"
    told(learn, before, "--output", path, "--topology", "day")
    assert season_of(path, "day") == read_season(path) == read_season(path, "day")
    with pytest.raises(InvalidInput, match="another topology's"):
        season_of(path, "night")
    with pytest.raises(InvalidInput, match="another topology's"):
        told(backtest, "made:step-up", "--set", f"season={path}", "--topology", "diamond")
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(InvalidInput, match="cut off"):
        read_season(path)
    with pytest.raises(InvalidInput, match="No such file"):
        season_of(tmp_path / "none.json", "day")


@pytest.mark.parametrize(
    ("arguments", "kind", "text"),
    [
        (("RATES",), UsageError, "missing --output FILE"),
        (("--output", "OUT"), UsageError, "missing rates"),
        (("nowhere.csv", "--output", "OUT"), InvalidInput, "nowhere.csv"),
        (("100", "--output", "OUT"), InvalidInput, "has no end"),
        (("RATES", "--output", "OUT", "--set", "take=150"), InvalidInput, "no season in"),
        (("RATES", "--output", "OUT", "--set", "period=700"), InvalidInput, "3 whole periods are needed"),
        (("RATES", "--output", "OUT", "--set", "period=70"), InvalidInput, "the best period is 70 s"),
        (("RATES", "--output", "OUT", "--set", "period=20"), InvalidInput, "is invalid for a run"),
        (("RATES", "--output", "OUT", "--set", "skip=5000"), InvalidInput, "0 s to learn from"),
        (("RATES", "--output", "OUT", "--set", "time-scale=0"), InvalidInput, "--time-scale"),
        (("RATES", "--output", "nowhere/season.json"), InvalidInput, "cannot be written"),
        (("RATES", "--output", "OUT", "--plot", "x.gif"), UsageError, "x.gif"),
    ],
)
def test_what_cannot_be_learned_says_what_and_why(
    before: str, tmp_path: Path, arguments: tuple[str, ...], kind: type[HeadgateError], text: str
) -> None:
    names = {"RATES": before, "OUT": str(tmp_path / "season.json")}
    with pytest.raises(kind) as caught:
        told(learn, *(names.get(word, word) for word in arguments))
    assert text in "\n".join(caught.value.lines())
    assert not (tmp_path / "season.json").exists()


def test_rates_by_chance_have_no_season() -> None:
    chance = random.Random(3)
    walk = [100.0]
    while len(walk) < 3000:
        walk.append(max(5.0, walk[-1] * math.exp(chance.gauss(0, 0.05))))
    with pytest.raises(InvalidInput, match="no season"):
        learned_of([np.array(walk)], None, iter)


def test_traces_say_whose_they_are(tmp_path: Path) -> None:
    folders = [tmp_path / "day" / "run1", tmp_path / "day" / "run2" / "rates", tmp_path / "night" / "run1"]
    for folder in folders:
        folder.mkdir(parents=True)
    mine, rates, others = map(str, folders)
    assert topology_of([mine, rates], None) == "day" and topology_of([mine, others], "day") == "day"
    with pytest.raises(InvalidInput, match="several topologies"):
        topology_of([mine, others], None)
    assert topology_of(["rates.csv"], None) == ""
