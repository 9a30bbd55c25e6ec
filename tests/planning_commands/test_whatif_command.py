"""`headgate whatif` reads like an answer: what do I need, what will it cost, what breaks first?"""

from __future__ import annotations

import io
import json
import sys

import pytest

from headgate.controller.offline.rate_list import rates_of
from headgate.controller.offline.waiting import waited
from headgate.controller.offline.whatif_words import sentences_of
from headgate.topology_runtime.examples import MODELS


def whatif(scene, *words):
    return json.loads(scene.headgate("whatif", *words, "-o", "json"))


def test_each_rate_says_what_it_needs_costs_and_what_breaks_first(scene):
    found = whatif(scene, "linear", "--rates", "100:200:100")
    assert found["schema"] == "headgate/whatif/v1"
    low, high = found["rows"]
    assert (low["rate_tps"], low["slots"]["total"], low["vms"]) == (100, 7, "4,2,1")
    assert (low["usd_per_hour"], low["usd_per_month"]) == (pytest.approx(0.686), pytest.approx(500.78))
    assert (low["predicted_tps"], low["headroom_tps"]) == (pytest.approx(100), pytest.approx(0, abs=1e-5))
    assert (low["limited_by"], low["limit"]["by"], low["limit"]["peak_tps"]) == ("blob", "peak", 30)
    assert low["baseline"]["pair"] == "lsa+rsm"
    saved = 1 - high["usd_per_hour"] / high["baseline"]["usd_per_hour"]
    assert high["baseline"]["saved_part"] == pytest.approx(saved) and 0.3 < saved < 0.49
    assert high["same_slots_up_to_tps"] == high["same_slots"]["rate_tps"] >= 200
    assert high["more_slots"]["rate_tps"] > high["same_slots_up_to_tps"]
    assert high["more_slots"]["usd_per_hour"] == pytest.approx(high["usd_per_hour"] + 0.098)


def test_the_sentences_follow_the_table(scene):
    text = scene.headgate("whatif", "linear", "--rates", "100,200")
    assert "From 100 to 200 tuples/s it takes 7 to 15 slots, $0.69 to $1.47 an hour" in text
    assert "At 100 tuples/s you need 7 slots (VMs of 4,2,1), $0.69 an hour, $500.78 a month" in text
    assert "The first thing to break is task blob on vm1/1: above 100 tuples/s" in text
    assert "The same slots do no more than 100 tuples/s; 1 slot more (8 slots, $0.78 an hour" in text


def test_slots_are_priced_by_their_cores(scene, tmp_path):
    """Models of slots of a fifth of a core: by hand, a fifth of the shipped list's $0.098 a slot."""
    folder = tmp_path / "fifths"
    folder.mkdir()
    for file in MODELS.glob("*.json"):
        model = json.loads(file.read_text())
        model["slot"]["cores"] = 0.2
        (folder / file.name).write_text(json.dumps(model))
    whole = whatif(scene, "linear", "--rates", "100", "--models", str(MODELS))["rows"][0]
    fifth = whatif(scene, "linear", "--rates", "100", "--models", str(folder))["rows"][0]
    assert fifth["slots"] == whole["slots"]
    assert fifth["usd_per_hour"] == pytest.approx(0.2 * 0.098 * 7) == pytest.approx(whole["usd_per_hour"] / 5)
    fixed = whatif(scene, "linear", "--rates", "100", "--models", str(folder), "--vms", "4,4")["rows"][0]
    assert fixed["usd_per_hour"] == pytest.approx(0.2 * 0.098 * 8)


def test_fixed_vms_are_paid_for_anyhow(scene):
    found = whatif(scene, "linear", "--rates", "100,120", "--slots", "10")
    assert [(row["slots"]["used"], row["slots"]["total"]) for row in found["rows"]] == [(7, 10), (9, 10)]
    assert "you need 7 of the 10 slots there are ($0.98 an hour" in found["answers"][0]


def test_without_rates_ten_rising_ones_are_chosen(scene):
    rates = [row["rate_tps"] for row in whatif(scene, "diamond", "--slots", "6")["rows"]]
    assert len(rates) == 10
    assert rates == pytest.approx([rates[0] * n for n in range(1, 11)])


def test_rates_that_do_not_fit_are_rows_with_their_reason(scene):
    found = whatif(scene, "linear", "--rates", "50,100000", "--slots", "8")
    assert found["rows"][0]["reason"] is None
    assert found["rows"][1]["slots"] is None and "fits into 8 slots" in found["rows"][1]["reason"]
    assert "No plan for 100,000 tuples/s: " in found["answers"][-1]
    none = whatif(scene, "linear", "--rates", "100000", "--slots", "8")
    assert len(none["answers"]) == 1


def test_even_routing_is_told_with_what_weights_would_carry(scene):
    (answer,) = whatif(scene, "diamond", "--rates", "100", "--routing", "shuffle")["answers"]
    assert "The plan would carry 80 tuples/s only" in answer
    assert "shuffle gives its 40 threads on vm1/0 25.0% of the rows, more than the 20 tuples/s" in answer
    assert "weighted routing would carry 100 on the same slots" in answer


def test_a_baseline_without_a_plan_is_said_with_its_reason(scene):
    found = whatif(scene, "linear", "--rates", "200", "--max-usd-per-hour", "1.5")
    (row,) = found["rows"]
    assert (row["baseline"]["slots"], row["baseline"]["saved_part"]) == (None, None)
    assert "$1,073 a month; no LSA+RSM (a plan for 200 tuples/s costs $" in found["answers"][0]


def test_spread_of_the_models_shows_as_an_interval(scene):
    spread = {"rate_tps": 5.0, "cpu": 0.01, "memory": 0.01}
    scene.model("parse", [{"threads": 1, "rate_tps": 50.0, "cpu": 0.3, "memory": 0.1, "spread": spread}])
    row = json.loads(scene.run("whatif", "--rates", "50", "-o", "json"))["rows"][0]
    assert row["predicted_low_tps"] < row["predicted_tps"] < row["predicted_high_tps"]
    assert "between_tps" in scene.run("whatif", "--rates", "50")
    assert "predicted to carry 50 tuples/s (between 45 and 55)" in scene.run("explain", "--rate", "50")


def test_slots_that_buy_nothing_are_said():
    row = {
        "rate_tps": 1.0, "reason": None, "vms": "1", "usd_per_hour": 0.1, "usd_per_month": 73.0,
        "slots": {"used": 1, "total": 1}, "more_slots": None, "limit": {"by": None},
        "same_slots": {"rate_tps": 1.0, "carried_tps": 1.0, "slots": 1},
        "baseline": {"pair": "lsa+rsm", "slots": 1, "saved_part": 0.0, "same_pair": False, "short_tps": 0},
    }  # fmt: skip
    (answer,) = sentences_of([row], fixed=False)
    assert (
        "you need 1 slot (VMs of 1), $0.10 an hour, $73.00 a month, as much as LSA+RSM with its 1 slot."
        in answer
    )
    assert answer.endswith("Nothing limits the rate: no task has a model. The same slots do no more than "
                           "1 tuples/s, and a few slots more would not help.")  # fmt: skip


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--rates", "0"), 3, "expected 1e-06 to 1e+12 tuples/s"),
        (("--mapper", "sma"), 3, "did you mean 'sam'"),
        (("--plot", "picture"), 2, "no picture can be written"),
    ],
)
def test_what_makes_no_sense_is_refused(scene, words, code, said):
    scene.headgate("whatif", "linear", *words, code=code)
    assert said in scene.err


def test_csv_has_numbers_in_columns(scene):
    text = scene.headgate("whatif", "linear", "--rates", "100", "-o", "csv")
    head, line = text.splitlines()
    cells = dict(zip(head.split(","), line.replace('"4,2,1"', "x").split(","), strict=False))
    assert cells["slots_total"] == "7" and cells["limit_task"] == "blob" and "{" not in line


def test_a_picture_is_written(scene):
    path = scene.folder / "rates.png"
    scene.headgate("whatif", "linear", "--rates", "50,100", "--plot", str(path))
    assert path.read_bytes().startswith(b"\x89PNG")


def test_rates_are_lists_and_ranges_with_their_end():
    assert rates_of("100:600:50") == tuple(range(100, 601, 50))
    assert rates_of("0.1:0.5:0.1") == (0.1, 0.2, 0.3, 0.4, 0.5)
    assert rates_of("50,10:30:10,20") == (50, 10, 20, 30)
    assert rates_of("7:8:5") == (7,)


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(("stream", "patience_s", "seen"), [
    (Terminal, 0.0, True), (Terminal, 60.0, False), (io.StringIO, 0.0, False),
])  # fmt: skip
def test_a_bar_is_for_those_who_wait_at_a_terminal(monkeypatch, stream, patience_s, seen):
    monkeypatch.setattr(sys, "stderr", shown := stream())
    assert list(waited([1, 2, 3], "planning", patience_s)) == [1, 2, 3]
    assert ("planning" in shown.getvalue()) == seen


def test_what_more_slots_would_buy_is_told_whatever_it_costs(scene):
    words = ("--rates", "100", "--max-usd-per-hour", "0.7", "-o", "json")
    row = json.loads(scene.headgate("whatif", "linear", *words))["rows"][0]
    assert row["reason"] is None and row["usd_per_hour"] <= 0.7
    assert row["more_slots"]["usd_per_hour"] > 0.7
