"""`headgate plan` with `--compare`, `--rates` and `--explain` on the shipped examples."""

from __future__ import annotations

import csv
import io
import json
import sys

import pytest

from headgate.controller.plan.schedulers import pairs
from headgate.controller.planning_commands.plan_sentences import sentences_of
from headgate.controller.planning_commands.planning_options import rates_of, with_progress_bar
from headgate.topology_runtime.api.shipped_examples import MODELS

PATIENT = ("--search-seconds", "600")  # however busy this machine is


def told(scene, *words):
    return json.loads(scene.headgate("plan", *words, "-o", "json"))


def test_a_row_per_rate_and_pair_in_that_order(scene):
    found = told(scene, "linear", "--rates", "50,100,200", "--compare", "lsa+dsm,mba+sam")
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
    found = told(scene, "linear", "--compare", "paper", "--slots", "20", "--max-rate", "--rate-step", "10")
    assert [row["pair"] for row in found["rows"]] == ["lsa+dsm", "lsa+rsm", "mba+dsm", "mba+rsm", "mba+sam"]
    planned = {row["pair"]: row["rate_tps"] for row in found["rows"]}
    assert (planned["lsa+dsm"], planned["mba+dsm"], planned["mba+sam"]) == (160, 280, 280)
    assert found["rows"][4]["weighted_tps"] == pytest.approx(280)
    assert all(row["weighted_tps"] < row["rate_tps"] for row in found["rows"][:4])
    assert all(row["shuffle_tps"] <= row["weighted_tps"] * (1 + 1e-9) for row in found["rows"])
    assert {row["slots"]["total"] for row in found["rows"]} == {20}


def test_what_does_not_fit_is_a_row_with_its_reason(scene):
    rows = told(scene, "star", "--rates", "50,900", "--slots", "12", "--compare", "mba+dsm,mba+sam")["rows"]
    assert [row["reason"] is None for row in rows] == [True, True, False, False]
    assert "fits into 12 slots" in rows[3]["reason"]
    assert (rows[3]["rate_tps"], rows[3]["slots"], rows[3]["weighted_tps"]) == (900, None, None)
    table = scene.headgate("plan", "star", "--rates", "900", "--slots", "12", "--compare", "mba+sam")
    assert "N/A" in table and "fits into 12 slots" in table
    never = told(scene, "star", "--slots", "1", "--max-rate", "--rate-step", "500", "--compare", "mba+sam")
    assert never["rows"][0]["rate_tps"] is None and never["rows"][0]["reason"]


def test_a_plan_that_costs_too_much_is_a_row_with_its_reason(scene):
    found = told(scene, "linear", "--rates", "50,200", "--compare", "mba+sam", "--max-usd-per-hour", "1")
    cheap, dear = found["rows"]
    assert cheap["usd_per_hour"] < 1
    assert "more than the $1 allowed" in dear["reason"]


def test_csv_of_pairs_has_numbers_in_columns(scene):
    text = scene.headgate("plan", "linear", "--rates", "50:100:50", "--compare", "mba+sam", "-o", "csv")
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [(row["rate_tps"], row["slots_total"], row["vms"]) for row in rows] == [
        ("50.0", "4", "4"), ("100.0", "7", "4,2,1"),
    ]  # fmt: skip


def test_every_wrong_pair_is_named(scene):
    scene.headgate("plan", "linear", "--rates", "50", "--compare", "lsa+rms,mba,lsa+sam,mab+sam", code=2)
    for fault in ("'lsa+rms': no mapper 'rms'", "'mba' is not ALLOCATOR+MAPPER", "'lsa+sam': sam maps",
                  "did you mean 'mba'?"):  # fmt: skip
        assert fault in scene.err


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ((), 2, "no input rate given"),
        (("--rates", "5", "--max-rate", "--slots", "4"), 2, "--rates and --max-rate exclude each other"),
        (("--max-rate",), 2, "--max-rate needs fixed VMs"),
        (("--max-rate", "--slots", "4", "--rate-step", "0"), 3, "--rate-step"),
        (("--rates", "50", "--rate-step", "5"), 2, "--rate-step needs --max-rate"),
        (("--rates", "1e-322"), 3, "'1e-322': expected 1e-06"),
        (("--rates", "1e-10:2e-10:1e-10"), 3, "expected 1e-06"),
        (("--rates", "5,1e300"), 3, "'1e300': expected 1e-06 to 1e+12 rows/s, got 1e+300"),
        (("--rates", "50,x"), 2, "'x' is neither a number nor FROM:TO:STEP"),
        (("--rates", "1:2"), 2, "'1:2'"),
        (("--rates", "nan,-3,5"), 3, "'-3': expected 1e-06 to 1e+12 rows/s, got -3"),
        (("--rates", "300:100:50"), 3, "TO must be at least FROM"),
        (("--rates", "1:100:1e-3"), 3, "at most 1000 steps"),
        (("--rates", "50", "--routing", "round"), 3, "round"),
        (("--rates", "50", "--plot", "x.gif"), 2, "no picture can be written"),
    ],
)
def test_pairs_that_make_no_sense_are_refused(scene, words, code, said):
    scene.headgate("plan", "linear", "--compare", "paper", *words, code=code)
    assert said in scene.err


def test_moves_are_the_threads_that_start_and_end_from_the_plan_in_force(scene, tmp_path):
    base = tmp_path / "base.json"
    base.write_text(
        scene.headgate("plan", "linear", "--rate", "90", "--planner", "optimal", *PATIENT, "-o", "json")
    )
    chosen = ("mba+sam", "optimal+optimal")
    rows = told(
        scene, "linear", "--rates", "100", "--compare", ",".join(chosen), "--base", str(base), *PATIENT
    )["rows"]
    for pair, row in zip(chosen, rows, strict=True):
        allocator, mapper = pair.split("+")
        words = ("--allocator", allocator, "--mapper", mapper, "--base", str(base), *PATIENT, "-o", "json")
        threads = json.loads(scene.headgate("plan", "linear", "--rate", "100", *words))["changes"]["threads"]
        assert row["moves"] == threads["start"] + threads["stop"] + 2 * threads["move"] > 0
    assert told(scene, "linear", "--rates", "100", "--compare", "mba+sam")["rows"][0]["moves"] is None
    table = scene.headgate(
        "plan", "linear", "--rates", "90", "--compare", "optimal+optimal", "--base", str(base), *PATIENT
    )
    (line,) = [line for line in table.splitlines() if line.startswith("optimal+optimal")]
    assert line.split()[table.splitlines()[1].split().index("moves")] == "0", "it is in force already"
    of_another = ("--models", str(MODELS), "--base", str(base))
    scene.headgate("plan", "star", "--compare", "paper", "--rates", "90", *of_another, code=3)
    assert "is a plan of 'linear', not of 'star'" in scene.err


def test_all_pairs_stand_whole_on_eighty_columns(scene, tmp_path, monkeypatch):
    base = tmp_path / "base.json"
    base.write_text(scene.headgate("plan", "linear", "--rate", "90", "-o", "json"))
    monkeypatch.setenv("COLUMNS", "80")
    lines = scene.headgate(
        "plan",
        "linear",
        "--rates",
        "100",
        "--compare",
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


# ── `plan --rates` reads like an answer: what do I need, what will it cost, what breaks first? ───────


def test_each_rate_says_what_it_needs_costs_and_what_breaks_first(scene):
    found = told(scene, "linear", "--rates", "100:200:100")
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
    text = scene.headgate("plan", "linear", "--rates", "100,200")
    assert "From 100 to 200 rows/s it takes 7 to 15 slots, $0.69 to $1.47 an hour" in text
    assert "At 100 rows/s you need 7 slots (VMs of 4,2,1), $0.69 an hour, $500.78 a month" in text
    assert "The first thing to break is task blob on vm1/1: above 100 rows/s" in text
    assert "The same slots do no more than 100 rows/s; 1 slot more (8 slots, $0.78 an hour" in text


def test_slots_are_priced_by_their_cores(scene, tmp_path):
    """Models of slots of a fifth of a core: by hand, a fifth of the shipped list's $0.098 a slot."""
    folder = tmp_path / "fifths"
    folder.mkdir()
    for file in MODELS.glob("*.json"):
        model = json.loads(file.read_text())
        model["slot"]["cores"] = 0.2
        (folder / file.name).write_text(json.dumps(model))
    whole = told(scene, "linear", "--rates", "100", "--models", str(MODELS))["rows"][0]
    fifth = told(scene, "linear", "--rates", "100", "--models", str(folder))["rows"][0]
    assert fifth["slots"] == whole["slots"]
    assert fifth["usd_per_hour"] == pytest.approx(0.2 * 0.098 * 7) == pytest.approx(whole["usd_per_hour"] / 5)
    fixed = told(scene, "linear", "--rates", "100", "--models", str(folder), "--vms", "4,4")["rows"][0]
    assert fixed["usd_per_hour"] == pytest.approx(0.2 * 0.098 * 8)


def test_fixed_vms_are_paid_for_anyhow(scene):
    found = told(scene, "linear", "--rates", "100,120", "--slots", "10")
    assert [(row["slots"]["used"], row["slots"]["total"]) for row in found["rows"]] == [(7, 10), (9, 10)]
    assert "you need 7 of the 10 slots there are ($0.98 an hour" in found["answers"][0]


def test_without_rates_ten_rising_ones_are_chosen(scene):
    rates = [row["rate_tps"] for row in told(scene, "diamond", "--rates", "auto", "--slots", "6")["rows"]]
    assert len(rates) == 10
    assert rates == pytest.approx([rates[0] * n for n in range(1, 11)])


def test_rates_that_do_not_fit_are_rows_with_their_reason(scene):
    found = told(scene, "linear", "--rates", "50,100000", "--slots", "8")
    assert found["rows"][0]["reason"] is None
    assert found["rows"][1]["slots"] is None and "fits into 8 slots" in found["rows"][1]["reason"]
    assert "No plan for 100,000 rows/s: " in found["answers"][-1]
    none = told(scene, "linear", "--rates", "100000", "--slots", "8")
    assert len(none["answers"]) == 1


def test_even_routing_is_told_with_what_weights_would_carry(scene):
    (answer,) = told(scene, "diamond", "--rates", "100", "--routing", "shuffle")["answers"]
    assert "The plan would carry 80 rows/s only" in answer
    assert "shuffle gives its 40 threads on vm1/0 25.0% of the rows, more than the 20 rows/s" in answer
    assert "weighted routing would carry 100 on the same slots" in answer


def test_a_baseline_without_a_plan_is_said_with_its_reason(scene):
    found = told(scene, "linear", "--rates", "200", "--max-usd-per-hour", "1.5")
    (row,) = found["rows"]
    assert (row["baseline"]["slots"], row["baseline"]["saved_part"]) == (None, None)
    assert "$1,073 a month; no LSA+RSM (a plan for 200 rows/s costs $" in found["answers"][0]


def test_spread_of_the_models_shows_as_an_interval(scene):
    spread = {"rate_tps": 5.0, "cpu": 0.01, "memory": 0.01}
    scene.model("parse", [{"threads": 1, "rate_tps": 50.0, "cpu": 0.3, "memory": 0.1, "spread": spread}])
    row = json.loads(scene.run("plan", "--rates", "50", "-o", "json"))["rows"][0]
    assert row["predicted_low_tps"] < row["predicted_tps"] < row["predicted_high_tps"]
    assert "between_tps" in scene.run("plan", "--rates", "50")
    assert "predicted to carry 50 rows/s (between 45 and 55)" in scene.run(
        "plan", "--explain", "--rate", "50"
    )


def test_slots_that_buy_nothing_are_said():
    row = {
        "rate_tps": 1.0, "reason": None, "vms": "1", "usd_per_hour": 0.1, "usd_per_month": 73.0,
        "slots": {"used": 1, "total": 1}, "more_slots": None, "limit": {"by": None, "rate_tps": 100.0},
        "same_slots": {"rate_tps": 1.0, "carried_tps": 1.0, "slots": 1},
        "baseline": {"pair": "lsa+rsm", "slots": 1, "saved_part": 0.0, "same_pair": False, "short_tps": 0},
    }  # fmt: skip
    (answer,) = sentences_of([row], fixed=False)
    assert (
        "you need 1 slot (VMs of 1), $0.10 an hour, $73.00 a month, as much as LSA+RSM with its 1 slot."
        in answer
    )
    assert answer.endswith("Nothing limits the rate: no task has a model. The same slots do no more than "
                           "1 rows/s, and a few slots more would not help.")  # fmt: skip


def test_csv_has_numbers_in_columns(scene):
    text = scene.headgate("plan", "linear", "--rates", "100", "-o", "csv")
    head, line = text.splitlines()
    cells = dict(zip(head.split(","), line.replace('"4,2,1"', "x").split(","), strict=False))
    assert cells["slots_total"] == "7" and cells["limit_task"] == "blob" and "{" not in line


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
    assert list(with_progress_bar([1, 2, 3], "planning", patience_s)) == [1, 2, 3]
    assert ("planning" in shown.getvalue()) == seen


def test_what_more_slots_would_buy_is_told_whatever_it_costs(scene):
    words = ("--rates", "100", "--max-usd-per-hour", "0.7", "-o", "json")
    row = json.loads(scene.headgate("plan", "linear", *words))["rows"][0]
    assert row["reason"] is None and row["usd_per_hour"] <= 0.7
    assert row["more_slots"]["usd_per_hour"] > 0.7


# ── `plan --explain`: threads, slots, limit, one more slot and what was rejected, with reasons ──────────


PUBLISHED = ("linear", "--models", str(MODELS))


def test_it_explains_the_plan_that_plan_makes(scene):
    words = ("diamond", "--rate", "100", "--routing", "shuffle", "--vm-sizes", "8,1")
    plan = told(scene, *words)
    found = told(scene, "--explain", *words)
    assert found["schema"] == "headgate/explanation/v1"
    assert (found["plan"], found["slots"]) == (plan["id"], plan["slots"])
    assert {why["task"]: why["threads"] for why in found["threads"]} == {
        task["task"]: task["threads"] for task in plan["allocation"]
    }
    assert found["limit"]["slot"] == plan["prediction"]["limited_by_slot"]
    placed = {}
    for row in found["placement"]:
        placed.setdefault((row["vm"], row["slot"]), {})[row["task"]] = row["threads"]
    assert placed == {(row["vm"], row["slot"]): row["threads"] for row in plan["placement"]}


def test_why_so_many_threads(scene):
    text = scene.headgate("plan", "--explain", "diamond", "--rate", "100")
    assert (
        "table sees 100 rows/s; one slot carries at most 40 with 60 threads (ω̂, τ̂); 2 full bundles carry 80; "
        "the remaining 20 need 40 threads (T(20), which can do 20): 160 threads."
    ) in text
    assert "source is of fixed size: 1 thread, CPU 0.10 and memory 0.15 of a slot" in text
    linear = scene.headgate(
        "plan", "--explain", "linear", "--rate", "50", "--allocator", "lsa", "--mapper", "dsm"
    )
    assert "blob sees 50 rows/s; as often as one thread, which carries 2 (I(1)), goes into that: 25" in linear


def test_why_this_slot(scene):
    text = scene.headgate("plan", "--explain", "linear", "--rate", "250")
    assert "vm1/1: 50 threads of blob, a full bundle: alone in the next empty slot." in text
    told = [line.split(" of ")[1].split(",")[0] for line in text.splitlines() if "vm1/0: " in line]
    assert told == ["source", "xml", "file", "sink", "table"]  # as they came
    assert (
        "vm1/0: 10 threads of table, in all CPU 0.112 and memory 0.035: best fit, the fullest slot with room "
        "(CPU 0.115 and memory 0.362 free); the next fullest was vm3/1 (CPU 0.736 and memory 0.994 free)."
    ) in text
    assert (
        "1 thread of pi, in all CPU 0.264 and memory 0.006: the next empty slot, since too little was free"
        in text
    )


def test_choices_are_numbered_as_they_were_made(scene):
    found = told(scene, "--explain", "linear", "--rate", "250")
    steps = sorted(choice["step"] for row in found["placement"] for choice in row["choices"])
    assert steps == list(range(1, len(found["placement"]) + 1))
    rest = next(row for row in found["placement"] if row["task"] == "table" and not row["full"])
    assert [slot["slot"] for slot in rest["choices"][0]["runners_up"]] == ["vm3/1"]


def test_many_full_bundles_are_told_in_one_line(scene):
    text = scene.headgate("plan", "--explain", "linear", "--rate", "600")
    assert "slots more: a full bundle alone in each, in the next empty slot." in text
    assert text.count("a full bundle: alone") == 0


def test_other_mappers_are_told_by_their_rule(scene):
    text = scene.headgate("plan", "--explain", "linear", "--rate", "50", "--mapper", "dsm")
    assert "DSM deals the threads out to the slots in turn" in text
    assert (
        told(scene, "--explain", "linear", "--rate", "50", "--mapper", "dsm")["placement"][0]["choices"] == []
    )


def test_what_one_more_slot_would_buy(scene):
    found = told(scene, "--explain", "linear", "--rate", "250")
    same, more = found["same_slots"], found["more_slots"]
    assert (same["slots"], same["rate_tps"], more["slots"]) == (18, 250, 19)
    again = json.loads(
        scene.headgate("plan", "linear", "--rate", f"{more['rate_tps']}", "--slots", "19", "-o", "json")
    )
    assert again["slots"]["total"] == 19
    beyond = more["rate_tps"] + found["rate_step_tps"]
    scene.headgate("plan", *PUBLISHED, "--rate", f"{beyond}", "--slots", "19", code=4)


def test_what_was_rejected(scene):
    found = told(scene, "--explain", "linear", "--rate", "250")
    pairs = {row["pair"]: row for row in found["rejected"]["pairs"]}
    assert list(pairs) == ["lsa+dsm", "lsa+rsm", "mba+dsm", "mba+rsm"]
    assert pairs["lsa+dsm"]["slots"]["total"] == 32
    mixes = {mix["mix"]: mix for mix in found["rejected"]["mixes"]}
    assert set(mixes) == {"exact", "cheapest", "covering"}
    assert mixes["exact"]["chosen"] and mixes["exact"]["slots"] == 18
    text = scene.headgate("plan", "--explain", "linear", "--rate", "250")
    assert (
        "LSA+DSM: 32 slots, $3.14 an hour, would carry 119.7 rows/s (blob on vm1/0 limits it): 14 slots more"
        in text
    )


def test_mixes_have_the_slots_that_the_mapper_needed(scene):
    found = told(scene, "--explain", "linear", "--rate", "200")
    assert found["slots"] == {"estimated": 14, "extra": 1, "total": 15, "used": 15}
    slots = {mix["mix"]: (mix["slots"], mix["vms"]) for mix in found["rejected"]["mixes"]}
    assert (slots["exact"], slots["covering"]) == ((15, "4,4,4,2,1"), (16, "4,4,4,4"))


def test_fixed_vms_have_no_other_mixes(scene):
    found = told(scene, "--explain", "linear", "--rate", "100", "--vms", "4,4")
    assert found["fixed"] and found["rejected"]["mixes"] == []


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ((), 2, "no input rate given"),
        (("--rate", "500", "--slots", "4"), 4, "no plan for 500 rows/s fits into 4 slots"),
        (("--rate", "nan"), 2, "--rate"),
    ],
)
def test_what_cannot_be_explained_is_refused(scene, words, code, said):
    scene.headgate("plan", "--explain", *PUBLISHED, *words, code=code)
    assert said in scene.err


# ── an option that says nothing about the question is refused ───────────────────────────────────────────


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--rates", "5", "--rate", "5"), "--rates does not take --rate"),
        (("--rates", "5", "--max-rate"), "--rates does not take --max-rate"),
        (("--compare", "paper", "--rate", "5", "--mapper", "sam"), "--compare does not take --mapper"),
        (("--explain", "--rate", "5", "--for", "flink"), "--explain does not take --for"),
        (("--placement", "x", "--vms", "4", "--base", "b"), "--placement does not take --base, --vms"),
        (("--rate", "5", "--usage", "peak"), "--rate does not take --usage"),
        (("--max-rate", "--slots", "4", "--rate-step", "often"), "invalid --rate-step 'often'"),
    ],
)
def test_options_of_another_question_are_refused(scene, words, said):
    scene.headgate("plan", "linear", *words, code=2)
    assert said in scene.err


def test_one_rate_is_compared_too(scene):
    one, other = (
        told(scene, "linear", word, "50", "--compare", "mba+sam")["rows"] for word in ("--rate", "--rates")
    )
    assert [{**row, "planned_s": 0} for row in one] == [{**row, "planned_s": 0} for row in other]


@pytest.mark.parametrize(
    "words",
    [
        ("--rate", "50"),
        ("--rate", "50", "--explain"),
        ("--rates", "50,100"),
        ("--rates", "50,100", "--compare", "paper"),
    ],
)
def test_a_picture_of_the_answer_is_drawn(scene, words):
    path = scene.folder / "answer.svg"
    scene.headgate("plan", "linear", *words, "--plot", str(path))
    assert "<svg" in path.read_text()
