"""What `headgate top` makes of a controller's answers, recorded from a real run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headgate.dashboards.terminal.live_view import headline
from headgate.dashboards.terminal.top_rows import VIEWS, Column, SortOrder, StatusReading, ordered, table

RECORDED = [
    StatusReading(**one)
    for one in json.loads((Path(__file__).parent / "recorded_run.json").read_text("utf-8"))
]
FIRST, ENACTING, STABLE = RECORDED  # before any sample, after a re-plan, at the end
TASKS, SLOTS, VMS, DECISIONS, EVENTS = VIEWS
NOTHING = StatusReading({})


def texts(view, reading, order=None, words=""):
    return table(view, reading, order or SortOrder(), words)


@pytest.mark.parametrize("view", VIEWS, ids=lambda view: view.name)
@pytest.mark.parametrize("reading", [*RECORDED, NOTHING])
def test_every_row_fills_every_column(view, reading):
    for row in texts(view, reading):
        assert len(row) == len(view.columns)
        assert not {"", "None", "nan"} & set(row)


def test_the_run_is_told_in_a_sentence():
    assert headline(STABLE.status) == (
        "trial: stable, slope -2.1 ms/s, plan #2 committed, 3 of 8 slots, 120 t/s in, headroom 30 t/s, "
        "p50 26.4 ms, p99 1,047.3 ms, 0 lost"
    )
    assert headline({}).startswith("no topology yet: unknown, plan #0 unknown, 0 of 0 slots, N/A t/s in")


def test_tasks_stand_beside_their_models():
    rows = {row[0]: row for row in texts(TASKS, STABLE)}
    assert list(rows) == ["source", "work", "wait", "store"]
    assert rows["work"][1:6] == ("3.0", "69.6", "69.6", "+19%", "0.0")
    assert rows["source"][4] == "N/A"


def test_a_task_is_as_loaded_as_the_controller_says():
    titles = [column.title for column in TASKS.columns]
    status = json.loads(json.dumps(STABLE.status))
    for task in status["tasks"]:
        if task["task"] != "source":
            task |= {"load": 0.58, "load_slot": "vm1/0", "grows": False}
    shown = {row[0]: dict(zip(titles, row, strict=True)) for row in texts(TASKS, StatusReading(status))}
    assert (shown["store"]["load"], shown["store"]["of slot"]) == ("58%", "vm1/0")
    assert (shown["source"]["busy"], shown["source"]["load"], shown["source"]["of slot"]) == ("N/A",) * 3


def test_slots_show_measured_beside_predicted_and_what_runs_there():
    rows = {row[0]: row for row in texts(SLOTS, STABLE)}
    assert len(rows) == 8
    assert rows["vm1/0"] == ("vm1/0", "running", "58%", "40%", "5%", "26%", "0", "source×1 wait×4 store×1")
    assert rows["vm2/3"] == ("vm2/3", "empty", "N/A", "N/A", "N/A", "N/A", "0", "–")


def test_vms_are_summed_up():
    assert texts(VMS, STABLE)[0][:6] == ("vm1", "joined", "3", "4", "8", "38%"), "the idle slot counts"
    assert texts(VMS, STABLE)[1][:6] == ("vm2", "joined", "0", "4", "0", "N/A")


def test_a_vm_that_left_is_not_shown():
    gone = json.loads(json.dumps(STABLE.status))
    gone["vms"][1]["state"] = "left"
    assert [row[0] for row in texts(VMS, StatusReading(gone))] == ["vm1"]


def test_decisions_and_events_come_newest_first():
    assert [row[2] for row in texts(DECISIONS, STABLE)] == ["fine", "rate_changed", "start"]
    numbers = [int(row[0]) for row in texts(EVENTS, STABLE)]
    assert numbers == sorted(numbers, reverse=True) and numbers[-1] == 1


def test_a_decision_is_not_shown_twice():
    assert [row[2] for row in texts(DECISIONS, FIRST)].count("start") == 1


@pytest.mark.parametrize("descending", [False, True])
def test_numbers_are_sorted_as_numbers_and_unknown_ones_come_last(descending):
    rows = [(9.0, "b"), (None, "a"), (10.0, "c")]
    found = [row[0] for row in ordered(rows, SortOrder(0, descending))]
    assert found == ([10.0, 9.0, None] if descending else [9.0, 10.0, None])
    assert ordered(rows, SortOrder(None, descending)) == (rows[::-1] if descending else rows)


def test_only_rows_with_all_the_words_are_shown_whatever_their_case():
    assert [row[0] for row in texts(SLOTS, STABLE, words="VM1 work")] == ["vm1/1", "vm1/2"]
    assert texts(SLOTS, STABLE, words="nothing has this") == []


def test_a_cell_that_is_not_known_says_so():
    assert Column("x", lambda value: f"{value:.0%}").text(None) == "N/A"
    assert Column("x").text("word") == "word"
