"""`headgate compare`: pairs side by side on the shipped examples."""

from __future__ import annotations

import csv
import io
import json

import pytest

from headgate.controller.plan.schedulers import pairs
from headgate.topology_runtime.examples import MODELS

PATIENT = ("--search-seconds", "600")  # however busy this machine is


def compare(scene, *words):
    return json.loads(scene.headgate("compare", *words, "-o", "json"))


def test_a_row_per_rate_and_pair_in_that_order(scene):
    found = compare(scene, "linear", "--rates", "50,100,200", "--pairs", "lsa+dsm,mba+sam")
    assert (found["schema"], found["topology"], found["routing"]) == (
        "headgate/comparison/v1", "linear", "weighted",
    )  # fmt: skip
    rows = found["rows"]
    assert [(row["rate_tps"], row["pair"]) for row in rows] == [
        (rate, pair) for rate in (50, 100, 200) for pair in ("lsa+dsm", "mba+sam")
    ]
    assert [row["slots"]["estimated"] for row in rows] == [7, 4, 13, 7, 25, 14]
    sam = rows[5]
    assert (sam["slots"]["extra"], sam["slots"]["total"], sam["vms"]) == (1, 15, "4,4,4,2,1")
    assert sam["usd_per_hour"] == pytest.approx(1.47)
    assert sam["weighted_tps"] == pytest.approx(200)
    assert sam["shuffle_tps"] == pytest.approx(165)
    assert sam["limited_by"] == "blob" and sam["reason"] is None
    assert all(0 <= row["planned_s"] < 60 for row in rows)


def test_the_papers_five_pairs_on_twenty_slots(scene):
    found = compare(scene, "linear", "--slots", "20", "--max-rate", "--rate-step", "10")
    assert [row["pair"] for row in found["rows"]] == ["lsa+dsm", "lsa+rsm", "mba+dsm", "mba+rsm", "mba+sam"]
    planned = {row["pair"]: row["rate_tps"] for row in found["rows"]}
    assert (planned["lsa+dsm"], planned["mba+dsm"], planned["mba+sam"]) == (160, 280, 280)
    assert found["rows"][4]["weighted_tps"] == pytest.approx(280)
    assert all(row["weighted_tps"] < row["rate_tps"] for row in found["rows"][:4])
    assert all(row["shuffle_tps"] <= row["weighted_tps"] * (1 + 1e-9) for row in found["rows"])
    assert {row["slots"]["total"] for row in found["rows"]} == {20}


def test_what_does_not_fit_is_a_row_with_its_reason(scene):
    rows = compare(scene, "star", "--rates", "50,900", "--slots", "12", "--pairs", "mba+dsm,mba+sam")["rows"]
    assert [row["reason"] is None for row in rows] == [True, True, False, False]
    assert "fits into 12 slots" in rows[3]["reason"]
    assert (rows[3]["rate_tps"], rows[3]["slots"], rows[3]["weighted_tps"]) == (900, None, None)
    table = scene.headgate("compare", "star", "--rates", "900", "--slots", "12", "--pairs", "mba+sam")
    assert "N/A" in table and "fits into 12 slots" in table
    never = compare(scene, "star", "--slots", "1", "--max-rate", "--rate-step", "500", "--pairs", "mba+sam")
    assert never["rows"][0]["rate_tps"] is None and never["rows"][0]["reason"]


def test_a_plan_that_costs_too_much_is_a_row_with_its_reason(scene):
    found = compare(scene, "linear", "--rates", "50,200", "--pairs", "mba+sam", "--max-usd-per-hour", "1")
    cheap, dear = found["rows"]
    assert cheap["usd_per_hour"] < 1
    assert "more than the $1 allowed" in dear["reason"]


def test_csv_has_numbers_in_columns(scene):
    text = scene.headgate("compare", "linear", "--rates", "50:100:50", "--pairs", "mba+sam", "-o", "csv")
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [(row["rate_tps"], row["slots_total"], row["vms"]) for row in rows] == [
        ("50.0", "4", "4"), ("100.0", "7", "4,2,1"),
    ]  # fmt: skip


def test_every_wrong_pair_is_named(scene):
    scene.headgate("compare", "linear", "--rates", "50", "--pairs", "lsa+rms,mba,lsa+sam,mab+sam", code=2)
    for fault in ("'lsa+rms': no mapper 'rms'", "'mba' is not ALLOCATOR+MAPPER", "'lsa+sam': sam maps",
                  "did you mean 'mba'?"):  # fmt: skip
        assert fault in scene.err


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ((), 2, "--rates or --max-rate"),
        (("--rates", "5", "--max-rate", "--slots", "4"), 2, "--rates or --max-rate"),
        (("--max-rate",), 2, "--max-rate needs fixed VMs"),
        (("--max-rate", "--slots", "4", "--rate-step", "0"), 3, "--rate-step"),
        (("--rates", "50", "--rate-step", "5"), 2, "--rate-step is for --max-rate"),
        (("--rates", "1e-322"), 3, "'1e-322': expected 1e-06"),
        (("--rates", "1e-10:2e-10:1e-10"), 3, "expected 1e-06"),
        (("--rates", "5,1e300"), 3, "'1e300': expected 1e-06 to 1e+12 tuples/s, got 1e+300"),
        (("--rates", "50,x"), 2, "'x' is neither a number nor FROM:TO:STEP"),
        (("--rates", "1:2"), 2, "'1:2'"),
        (("--rates", "nan,-3,5"), 3, "'-3': expected 1e-06 to 1e+12 tuples/s, got -3"),
        (("--rates", "300:100:50"), 3, "TO must be at least FROM"),
        (("--rates", "1:100:1e-3"), 3, "at most 1000 steps"),
        (("--rates", "50", "--routing", "round"), 3, "round"),
        (("--rates", "50", "--plot", "x.gif"), 2, "no picture can be written"),
    ],
)
def test_what_makes_no_sense_is_refused(scene, words, code, said):
    scene.headgate("compare", "linear", *words, code=code)
    assert said in scene.err


def test_too_fine_a_step_is_refused(scene):
    scene.run("compare", "--max-rate", "--slots", "4", "--rate-step", "1e-4", code=3)
    assert "rate step: 0.0001 tuples/s is too fine" in scene.err
    assert "a step of 0.5 gives three digits" in scene.err


def test_missing_models_are_named_not_a_row(scene):
    (scene.folder / "models/count.json").unlink()
    scene.run("compare", "--rates", "50", code=3)
    assert "task 'count': no model 'count'" in scene.err


def test_a_picture_is_written(scene):
    path = scene.folder / "pairs.svg"
    scene.headgate("compare", "linear", "--rates", "50,100", "--plot", str(path))
    assert path.read_text().lstrip().startswith("<?xml")


def test_moves_are_the_threads_that_start_and_end_from_the_plan_in_force(scene, tmp_path):
    base = tmp_path / "base.json"
    base.write_text(
        scene.headgate("plan", "linear", "--rate", "90", "--planner", "optimal", *PATIENT, "-o", "json")
    )
    chosen = ("mba+sam", "optimal+optimal")
    rows = compare(
        scene, "linear", "--rates", "100", "--pairs", ",".join(chosen), "--base", str(base), *PATIENT
    )["rows"]
    for pair, row in zip(chosen, rows, strict=True):
        allocator, mapper = pair.split("+")
        words = ("--allocator", allocator, "--mapper", mapper, "--base", str(base), *PATIENT, "-o", "json")
        threads = json.loads(scene.headgate("plan", "linear", "--rate", "100", *words))["changes"]["threads"]
        assert row["moves"] == threads["start"] + threads["stop"] + 2 * threads["move"] > 0
    assert compare(scene, "linear", "--rates", "100", "--pairs", "mba+sam")["rows"][0]["moves"] is None
    table = scene.headgate(
        "compare", "linear", "--rates", "90", "--pairs", "optimal+optimal", "--base", str(base), *PATIENT
    )
    (line,) = [line for line in table.splitlines() if line.startswith("optimal+optimal")]
    assert line.split()[table.splitlines()[1].split().index("moves")] == "0", "it is in force already"
    of_another = ("--models", str(MODELS), "--base", str(base))
    scene.headgate("compare", "star", "--rates", "90", *of_another, code=3)
    assert "is a plan of 'linear', not of 'star'" in scene.err


def test_all_pairs_stand_whole_on_eighty_columns(scene, tmp_path, monkeypatch):
    base = tmp_path / "base.json"
    base.write_text(scene.headgate("plan", "linear", "--rate", "90", "-o", "json"))
    monkeypatch.setenv("COLUMNS", "80")
    lines = scene.headgate(
        "compare",
        "linear",
        "--rates",
        "100",
        "--pairs",
        "all",
        "--base",
        str(base),
        "--search-seconds",
        "600",
    ).splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[1].split() == ["pair", "slots", "$/h", "weighted", "shuffle", "crossing", "moves", "s"]
    assert {line.split()[0] for line in lines[2:-1]} == set(pairs()), "no name is cut or folded"
    assert "limited_by" in lines[-1] and "-o json" in lines[-1]
