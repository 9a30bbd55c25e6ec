"""What an analysis finds where something was planted, and that it finds nothing in ten runs where nothing was."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from generate_trace import Wanted, generate
from made_runs import PLANTS

pytestmark = pytest.mark.live
ROOT = Path(__file__).parents[2]
LIMIT_S = 500
PLANTED = ("overload", "slow_slot", "pair", "leak", "skew")
CLEAN = 10
SHAPE = {"threads": 40, "slots": 16, "epochs": 4, "segment_rows": 20_000}


@pytest.fixture(scope="module")
def found(java: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Any]:
    """(what was planted into the run "planted", the analysis of it and of ten clean ones)."""
    folder = tmp_path_factory.mktemp("planted")
    truth = generate(folder / "one", Wanted(rows=48_000, planted=PLANTED, **SHAPE))
    generate(folder / "ten", Wanted(rows=CLEAN * 20_000, runs=CLEAN, seed=2, planted=(), **SHAPE))
    for run in sorted((folder / "ten" / "made").iterdir()):
        rename(run, run.name.replace("run", "clean"))
    rename(folder / "one" / "made" / "run-1", "planted")
    command = [
        sys.executable,
        "-P",
        "-m",
        "dashboards.cli",
        "analyze",
        str(folder / "one"),
        str(folder / "ten"),
    ]
    command += ["-o", "json", "--output", str(folder / "out"), "--master", "local[2]"]
    environment = {**os.environ, **java}
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, cwd=ROOT, env=environment)
    assert done.returncode == 0, done.stderr
    return truth["runs"][0]["planted"], json.loads(done.stdout)


def rename(run: Path, name: str) -> None:
    head = json.loads((run / "run.json").read_text("utf-8"))
    (run / "run.json").write_text(json.dumps(head | {"run": name}), "utf-8")
    run.rename(run.with_name(name))


def of_planted(analysis: Any, name: str) -> list[dict[str, Any]]:
    return [row for row in analysis[name] if row["run"] == "made/planted"]


def test_all_runs_are_there(found: tuple[dict[str, Any], Any]) -> None:
    truth, analysis = found
    assert sorted(truth) == sorted(PLANTED) and set(PLANTED) < set(PLANTS)
    assert analysis["runs"] == ["made/planted", *sorted(f"made/clean-{n + 1}" for n in range(CLEAN))]


@pytest.mark.parametrize("name", ["episodes", "slow_slots", "disturbing_pairs", "leaks", "skewed_threads"])
def test_nothing_is_found_where_nothing_was_planted(found: tuple[dict[str, Any], Any], name: str) -> None:
    assert [row for row in found[1][name] if row["run"] != "made/planted"] == []


def test_clean_runs_keep_up(found: tuple[dict[str, Any], Any]) -> None:
    clean = [row["stable"] for row in found[1]["stability"] if row["run"] != "made/planted"]
    assert (
        len(clean) == CLEAN * SHAPE["epochs"] and False not in clean and clean.count(True) > 0.9 * len(clean)
    )


def test_the_overload_is_told_from_when_to_when(found: tuple[dict[str, Any], Any]) -> None:
    """Its peak is what rows waited for, and what they take anyway."""
    truth, [episode] = found[0]["overload"], of_planted(found[1], "episodes")
    assert episode["from_s"] == pytest.approx(truth["from_s"], abs=2)
    assert episode["to_s"] == pytest.approx(truth["to_s"], abs=2)
    assert episode["peak_s"] == pytest.approx(truth["waited_s"], abs=1)
    assert episode["task"] == truth["task"] and episode["epoch"] == 2
    verdicts = {row["epoch"]: row["stable"] for row in of_planted(found[1], "stability")}
    assert verdicts[2] is False and False not in {verdicts[1], verdicts[3], verdicts[4]}


def test_the_slow_slot_is_named_with_its_speed(found: tuple[dict[str, Any], Any]) -> None:
    truth, [slow] = found[0]["slow_slot"], of_planted(found[1], "slow_slots")
    assert (slow["vm"], slow["slot"]) == (truth["vm"], truth["slot"])
    assert slow["speed"] == pytest.approx(truth["speed"], abs=0.05)
    assert slow["low"] <= truth["speed"] <= slow["high"]


def test_the_pair_that_disturbs_each_other_is_named(found: tuple[dict[str, Any], Any]) -> None:
    pairs = of_planted(found[1], "disturbing_pairs")
    assert sorted(row["task"] for row in pairs) == sorted(found[0]["pair"])
    for row in pairs:
        assert {row["task"], row["beside"]} == set(found[0]["pair"])
        assert row["factor"] == pytest.approx(1.5, rel=0.05)


def test_the_leak_is_told_with_its_pace(found: tuple[dict[str, Any], Any]) -> None:
    truth, [leak] = found[0]["leak"], of_planted(found[1], "leaks")
    assert (leak["vm"], leak["slot"]) == (truth["vm"], truth["slot"])
    assert leak["bytes_per_s"] == pytest.approx(truth["bytes_per_s"], rel=0.2)


def test_the_skewed_thread_of_each_plan_is_named(found: tuple[dict[str, Any], Any]) -> None:
    truth, skewed = found[0]["skew"], of_planted(found[1], "skewed_threads")
    assert [row["thread"] for row in skewed] == truth["threads"]
    assert all(row["times"] == pytest.approx(truth["times"], rel=0.05) for row in skewed)


def test_the_season_is_found_to_a_hundredth(found: tuple[dict[str, Any], Any]) -> None:
    """Of the run of 1200 s and of those of 500 s: a quarter of each."""
    seasons = {row["run"]: row["period_s"] for row in found[1]["seasons"]}
    assert seasons.pop("made/planted") == pytest.approx(300, rel=0.01)
    assert len(seasons) == CLEAN and all(
        period == pytest.approx(125, rel=0.01) for period in seasons.values()
    )
