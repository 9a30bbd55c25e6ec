"""`headgate explain TOPOLOGY`: threads, slots, limit, one more slot and what was rejected, with reasons."""

from __future__ import annotations

import json

import pytest

from headgate.dashboards import headgate_command as cli
from headgate.topology_runtime.api import shipped_examples as examples

PUBLISHED = ("linear", "--models", str(examples.MODELS))


def explain(scene, *words):
    return json.loads(scene.headgate("explain", *words, "-o", "json"))


def test_it_explains_the_plan_that_plan_makes(scene):
    words = ("diamond", "--rate", "100", "--routing", "shuffle", "--vm-sizes", "8,1")
    plan = json.loads(scene.headgate("plan", *words, "-o", "json"))
    found = explain(scene, *words)
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
    text = scene.headgate("explain", "diamond", "--rate", "100")
    assert (
        "table sees 100 tuples/s; one slot carries at most 40 with 60 threads (ω̂, τ̂); 2 full bundles carry 80; "
        "the remaining 20 need 40 threads (T(20), which can do 20): 160 threads."
    ) in text
    assert "source is of fixed size: 1 thread, CPU 0.10 and memory 0.15 of a slot" in text
    linear = scene.headgate("explain", "linear", "--rate", "50", "--allocator", "lsa", "--mapper", "dsm")
    assert (
        "blob sees 50 tuples/s; as often as one thread, which carries 2 (I(1)), goes into that: 25" in linear
    )


def test_why_this_slot(scene):
    text = scene.headgate("explain", "linear", "--rate", "250")
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
    found = explain(scene, "linear", "--rate", "250")
    steps = sorted(choice["step"] for row in found["placement"] for choice in row["choices"])
    assert steps == list(range(1, len(found["placement"]) + 1))
    rest = next(row for row in found["placement"] if row["task"] == "table" and not row["full"])
    assert [slot["slot"] for slot in rest["choices"][0]["runners_up"]] == ["vm3/1"]


def test_many_full_bundles_are_told_in_one_line(scene):
    text = scene.headgate("explain", "linear", "--rate", "600")
    assert "slots more: a full bundle alone in each, in the next empty slot." in text
    assert text.count("a full bundle: alone") == 0


def test_other_mappers_are_told_by_their_rule(scene):
    text = scene.headgate("explain", "linear", "--rate", "50", "--mapper", "dsm")
    assert "DSM deals the threads out to the slots in turn" in text
    assert explain(scene, "linear", "--rate", "50", "--mapper", "dsm")["placement"][0]["choices"] == []


def test_what_one_more_slot_would_buy(scene):
    found = explain(scene, "linear", "--rate", "250")
    same, more = found["same_slots"], found["more_slots"]
    assert (same["slots"], same["rate_tps"], more["slots"]) == (18, 250, 19)
    again = json.loads(
        scene.headgate("plan", "linear", "--rate", f"{more['rate_tps']}", "--slots", "19", "-o", "json")
    )
    assert again["slots"]["total"] == 19
    beyond = more["rate_tps"] + found["rate_step_tps"]
    scene.headgate("plan", *PUBLISHED, "--rate", f"{beyond}", "--slots", "19", code=4)


def test_what_was_rejected(scene):
    found = explain(scene, "linear", "--rate", "250")
    pairs = {row["pair"]: row for row in found["rejected"]["pairs"]}
    assert list(pairs) == ["lsa+dsm", "lsa+rsm", "mba+dsm", "mba+rsm"]
    assert pairs["lsa+dsm"]["slots"]["total"] == 32
    mixes = {mix["mix"]: mix for mix in found["rejected"]["mixes"]}
    assert set(mixes) == {"exact", "cheapest", "covering"}
    assert mixes["exact"]["chosen"] and mixes["exact"]["slots"] == 18
    text = scene.headgate("explain", "linear", "--rate", "250")
    assert (
        "LSA+DSM: 32 slots, $3.14 an hour, would carry 119.7 tuples/s (blob on vm1/0 limits it): 14 slots more"
        in text
    )


def test_mixes_have_the_slots_that_the_mapper_needed(scene):
    found = explain(scene, "linear", "--rate", "200")
    assert found["slots"] == {"estimated": 14, "extra": 1, "total": 15, "used": 15}
    slots = {mix["mix"]: (mix["slots"], mix["vms"]) for mix in found["rejected"]["mixes"]}
    assert (slots["exact"], slots["covering"]) == ((15, "4,4,4,2,1"), (16, "4,4,4,4"))


def test_fixed_vms_have_no_other_mixes(scene):
    found = explain(scene, "linear", "--rate", "100", "--vms", "4,4")
    assert found["fixed"] and found["rejected"]["mixes"] == []


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ((), 2, "--rate is missing"),
        (("--rate", "500", "--slots", "4"), 4, "no plan for 500 tuples/s fits into 4 slots"),
        (("--rate", "nan"), 3, "--rate"),
    ],
)
def test_what_cannot_be_explained_is_refused(scene, words, code, said):
    scene.headgate("explain", *PUBLISHED, *words, code=code)
    assert said in scene.err


# ── `headgate explain` explains a run, and with a topology or the planner's options a plan ──────────────


@pytest.mark.parametrize(
    "words",
    [
        "", "--all", "--last 5", "--last=5", "--trace traces/x", "--controller 127.0.0.1:1", "-o json",
        "-o csv", "--help", "--all --last 3 -o table",
    ],
)  # fmt: skip
def test_what_a_run_is_asked(words):
    assert not cli.explains_a_plan(words.split())


@pytest.mark.parametrize(
    "words",
    ["linear", "linear --help", "-o json linear", "--models DIR", "--rate 5 linear", "--last 5 flow.json"],
)
def test_what_a_plan_is_asked(words):
    assert cli.explains_a_plan(words.split())


def test_each_help_names_the_other(capsys):
    assert cli.main(["explain", "--help"]) == 0
    assert "TOPOLOGY" in capsys.readouterr().out
    assert cli.main(["explain", "linear", "--help"]) == 0
    assert "TOPOLOGY" in capsys.readouterr().out


def test_a_plan_is_explained(capsys):
    assert cli.main(["explain", "linear", "--rate", "100"]) == 0
    assert "blob" in capsys.readouterr().out
