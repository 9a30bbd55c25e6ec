"""`headgate plan --placement`: the rate a placement carries, at which usage, and placements that cannot be."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from scene import FLOW, PLACED, Scene

from headgate.controller.files.planning_inputs import read_models
from headgate.controller.models.prediction_ledger import LedgerEntry, RateKept, TaskKept, version_of
from headgate.controller.recording.prediction_ledger_file import LedgerFile
from headgate.dashboards import headgate_command as cli
from headgate.topology_runtime.platform.clock import wall_ns
from headgate.topology_runtime.wording import utc_iso


@pytest.fixture
def placed(scene):
    return scene.write("placed.json", {"placement": PLACED})


def predicted(scene, placed, *words):
    return json.loads(scene.run("plan", "--placement", placed, *words, "-o", "json"))


def test_it_is_the_prediction_of_the_contract(scene, placed):
    found = predicted(scene, placed)
    assert found["schema"] == "headgate/prediction/v1"
    assert found["rate_tps"] == pytest.approx(150.0)  # parse: I(1) + I(4) = 50 + 100
    assert found["limited_by"] == "parse" and found["limited_by_slot"] in ("vm1/0", "vm1/1")
    assert found["at_rate_tps"] == found["rate_tps"]
    cpu = {(use["vm"], use["slot"]): use["cpu"] for use in found["slots"]}
    assert cpu == pytest.approx({("vm1", 0): 0.1 + 0.3, ("vm1", 1): 0.8, ("vm2", 0): 0.5 * 300 / 400})
    assert {use["vm"]: use["cpu"] for use in found["vms"]} == pytest.approx({"vm1": 1.2, "vm2": 0.375})


def test_usage_at_a_rate_and_at_peak(scene, placed):
    half = predicted(scene, placed, "--rate", "75")
    assert half["at_rate_tps"] == 75.0
    assert half["slots"][1]["cpu"] == pytest.approx(0.4)
    peak = predicted(scene, placed, "--rate", "75", "--usage", "peak")
    assert [use["cpu"] for use in peak["slots"]] == pytest.approx([0.4, 0.8, 0.5])
    assert [use["memory"] for use in peak["slots"]] == pytest.approx([0.2, 0.2, 0.1])


def test_a_rate_beyond_is_said_to_be(scene, placed):
    assert predicted(scene, placed, "--rate", "300")["at_rate_tps"] == pytest.approx(150.0)
    text = scene.run("plan", "--placement", placed, "--rate", "300")
    assert "flow: carries 150 rows/s, limited by parse in slot vm1/" in text
    assert "it cannot carry 300 rows/s: 50% of them" in text


def test_a_plan_is_a_placement_too(scene):
    plan = scene.plan("--rate", "120")
    found = predicted(scene, scene.write("plan.json", plan), "--rate", "120")
    assert {key: found[key] for key in plan["prediction"]} == plan["prediction"]


def test_files_that_are_no_placement_end_3(scene):
    scene.run("plan", "--placement", str(scene.folder / "none.json"), code=3)
    os.mkfifo(scene.folder / "pipe.json")
    scene.run("plan", "--placement", str(scene.folder / "pipe.json"), code=3)
    assert "pipe.json is not a regular file" in scene.err
    scene.run("plan", "--placement", scene.write("n.json", 3), code=3)
    scene.run("plan", "--placement", str(scene.folder), code=3)


@pytest.mark.parametrize("words", [["--usage", "peek"], ["--routing", "x"], ["--rate", "0"]])
def test_choices_and_rates_that_are_none(scene, placed, words):
    scene.run("plan", "--placement", placed, *words, code=3)


def test_without_any_model_a_rate_must_be_given(scene):
    lone = {**FLOW, "tasks": FLOW["tasks"][:1], "edges": []}
    scene.topology(lone)
    placed = scene.write("p.json", {"placement": [{"vm": "vm1", "slot": 0, "threads": {"source": 1}}]})
    scene.run("plan", "--placement", placed, code=2)
    assert "nothing limits the rate" in scene.err
    assert predicted(scene, placed, "--rate", "10")["limited_by"] is None


# ── `plan --sure P`, also of a placement, without a prediction ledger and with one ────────────────────


def kept(scene: Scene, costs: list[float]) -> Path:
    """A ledger in which a row of parse cost so many times what its model says, a run each."""
    model = read_models(scene.folder / "models")["parse"]
    path = scene.folder / "traces" / "flow" / "ledger.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    for run, cost in enumerate(costs):
        uses = {"vm1": (cost, 1.0)}
        task = TaskKept("parse", "parse", version_of(model), 100.0, cost, 1.0, cost / 2, 0.5, False, uses)
        rate = RateKept(100.0, 100.0, 110.0, None, "no")
        when = utc_iso(wall_ns())
        entry = LedgerEntry(when, "flow", "d", f"r{run}", 1, "plan1", "", 40.0, rate, {}, (), (task,), {})
        LedgerFile(path).append(entry)
    return path


def test_a_plan_is_as_sure_as_is_asked_for_and_says_by_what_errors(scene: Scene) -> None:
    plain, sure = scene.plan("--rate", "1000"), scene.plan("--rate", "1000", "--sure", "0.95")
    assert "errors: 5.3% each slot and 5.0% together" in scene.err
    assert "sure" not in plain["prediction"] and sure["rate_tps"] == plain["rate_tps"] == 1000.0
    told = sure["prediction"]["sure"]
    assert told["probability"] == 0.95 <= told["chance"] and told["spread"]["models"] == {}
    assert sure["slots"]["used"] > plain["slots"]["used"]
    assert sure["prediction"]["rate_tps"] >= 1000.0
    assert "1,000 of them with a probability of 0.9" in scene.run("plan", "--rate", "1000", "--sure", "0.95")


def test_a_placement_is_asked_how_surely_it_carries_a_rate_and_what_it_carries_so_surely(
    scene: Scene,
) -> None:
    placed = scene.write("plan.json", scene.plan("--rate", "1000", "--sure", "0.95"))
    at = json.loads(scene.run("plan", "--placement", placed, "--rate", "1000", "--sure", "0.9", "-o", "json"))
    assert at["sure"]["rate_tps"] == 1000.0 and at["sure"]["chance"] >= 0.95
    most = json.loads(scene.run("plan", "--placement", placed, "--sure", "0.9", "-o", "json"))["sure"]
    assert 1000.0 < most["rate_tps"] < at["rate_tps"] and most["chance"] == pytest.approx(0.9, abs=1e-3)
    assert "sure" not in json.loads(scene.run("plan", "--placement", placed, "-o", "json"))


def test_what_the_ledger_has_learned_counts_once_it_is_enough(scene: Scene) -> None:
    ledger = str(kept(scene, [1.1, 0.95]))
    few = scene.plan("--rate", "1000", "--sure", "0.95", "--ledger", ledger)
    assert "knows too few runs" in scene.err and few["prediction"]["sure"]["spread"]["models"] == {}
    kept(scene, [1.2, 0.9, 1.15, 0.8, 1.25, 1.1])
    folder = str(scene.folder / "traces")
    known = scene.plan("--rate", "1000", "--sure", "0.95", "--ledger", folder)["prediction"]["sure"]
    assert set(known["spread"]["models"]) == {"parse"} and "errors of parse: learned" in scene.err
    assert known["spread"]["models"]["parse"]["spread"] > 0.07 and known["chance"] >= 0.95


def test_a_model_that_is_surely_off_is_corrected_first(scene: Scene) -> None:
    ledger = str(kept(scene, [3.0]))
    plain = scene.plan("--rate", "1000", "--sure", "0.95")
    dear = scene.plan("--rate", "1000", "--sure", "0.95", "--ledger", ledger)
    assert "the model of parse is off: a row costs 2.99 times the CPU that it says" in scene.err
    threads = [next(t["threads"] for t in p["allocation"] if t["task"] == "parse") for p in (plain, dear)]
    assert threads[1] > 2 * threads[0]


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("--sure", "0.3"), 2, "0.3 is not in the range 0.5<=x<=0.9999"),
        (("--sure", "1"), 2, "1.0 is not in the range 0.5<=x<=0.9999"),
        (("--sure", "nan"), 2, "nan is not a finite number"),
        (("--rate", "nan"), 2, "nan is not a finite number"),
        (("--rate", "inf"), 2, "inf is not a finite number"),
        (("--ledger", "x"), 2, "--ledger needs --sure"),
        (("--sure", "0.9", "--ledger", "none.jsonl"), 3, "no prediction ledger"),
    ],
)
def test_what_cannot_be_is_refused(scene: Scene, words: tuple[str, ...], code: int, says: str) -> None:
    scene.plan("--rate", "1000", *words, code=code)
    assert says in scene.err


def test_where_no_plan_is_so_sure_that_is_said(scene: Scene) -> None:
    where = [str(scene.folder / "flow.json"), "--models", str(scene.folder / "models")]
    assert cli.main(["plan", *where, "--rate", "1000", "--sure", "0.99", "--vms", "4,4,4,4,1"]) == 4
    said = scene.capsys.readouterr()
    assert (
        said.out == ""
        and "holds with a probability of 0.99" in said.err
        and "the surest that fits" in said.err
    )


def test_a_highest_rate_is_not_sought_so(scene: Scene) -> None:
    scene.plan("--max-rate", "--vms", "4,4", "--sure", "0.9", code=2)
    assert "--sure needs a --rate" in scene.err
