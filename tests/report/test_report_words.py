"""Every sentence of the head and the story, held to the rows that it is made of; also where there are none."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from report_made import END_S, RUN, tables, write

from headgate.dashboards.analytics.storage import result_tables as r
from headgate.dashboards.analytics.storage.result_tables import NOISE, PolicyTried, RunChange
from headgate.dashboards.report.analysis_files import Analysis, read
from headgate.dashboards.report.comparisons import FIGURES
from headgate.dashboards.report.findings import errs_most, findings
from headgate.dashboards.report.report_page import sections_of
from headgate.dashboards.report.report_story import answers, head_of, story
from headgate.dashboards.report.report_wording import cell, count, duration, listed, number, percent

Tables = dict[str, list[Any]]


def analysis_of(folder: Path, found: Tables, **more: Any) -> Analysis:
    return read(write(folder / "a", found, **more))


def answer(analysis: Analysis, question: str) -> tuple[str, str]:
    return next((a.kind, a.text) for a in answers(analysis, RUN) if a.question.startswith(question))


def told(analysis: Analysis) -> list[str]:
    return [text for chapter in story(analysis) for _, text in chapter.sentences]


def reading(analysis: Analysis, chart: str) -> str:
    return next(c.alt for section in sections_of(analysis) for c in section.charts if c.name == chart)


def calm() -> Tables:
    """The made run without anything that went wrong."""
    found = tables()
    found["stability"] = [replace(row, stable=True) for row in found["stability"]]
    found["episodes"] = []
    found["replans"] = found["replans"][:1]
    found["run_notes"] = []
    found["tuples_told"] = [replace(found["tuples_told"][0], offered=9_900, dead_lettered=0, replayed=0, duplicates=0,
                                    in_flight=0)]  # fmt: skip
    found["slot_speeds"] = [
        replace(row, speed=1.0, low=0.97, high=1.03, slow=False) for row in found["slot_speeds"]
    ]
    found["pair_costs"] = [
        replace(row, factor=1.0, low=0.9, high=1.05, disturbs=False) for row in found["pair_costs"]
    ]
    found["leaks"], found["skewed_threads"] = [], []
    return found


def test_the_story_is_told_in_these_words(tmp_path: Path) -> None:
    sentences = told(analysis_of(tmp_path, tables()))
    planned = (
        "planned for {} rows/s on {} slots instead of {}; 8 threads started or left, it was in force after "
    )
    planned += "800 ms"
    paused = " and output paused for at most 40 ms."
    assert sentences[0].endswith("; 9,876 rows were finished.")
    assert sentences[1:8] == [
        "It began with a plan for 80 rows/s on 4 slots.",
        "It re-planned 4 times: 3 because the rate changed and 1 because it was overloaded.",
        "At 20 s (epoch 2) it re-planned because the rate changed: " + planned.format(24, 2, 4) + paused,
        "At 32 s (epoch 3) it re-planned because the rate changed: " + planned.format(100, 4, 2) + paused,
        "At 60 s (epoch 4) it re-planned because the rate changed: " + planned.format(210, 7, 4)
        + ", a task was silent for 3.1 s and 12 % fewer rows came through in the 5 s after it.",
        "At 95 s (epoch 5) it re-planned because it was overloaded: " + planned.format(290, 8, 7) + paused,
        "Latency grew fastest in epoch 3: by 0.31 s per second, from 32 s to 60 s.",
    ]  # fmt: skip
    assert "At 40.2 s: vm2 is silent." in sentences
    assert "The longest silence of a task was 3.1 s, around epoch 4." in sentences
    assert sentences[-3:] == [
        "The rate repeats every 120 s (strength 0.93 of 1).",
        "On its end, which it had not seen, the forecast was off by 5 % (by “last season”).",
        "Left out: 1 file (1 truncated).",
    ]


def test_an_episode_is_told_with_who_it_was_and_what_happened(tmp_path: Path) -> None:
    analysis = analysis_of(tmp_path, tables())
    text = answer(analysis, "Where did it hurt")[1]
    assert text == (
        "From 41 s to 63.5 s rows took up to 2.4 s (outside of such stretches 9 in 10 took less than 300 ms): score in "
        "slot vm1/2 held them up, for 1.7 s each on average. Around that time: at 32 s it re-planned (epoch 3), at "
        "40.2 s vm2 is silent and at 60 s it re-planned (epoch 4)."
    )
    assert text in told(analysis)
    kind, text = answer(analysis, "Did it keep up")
    assert kind == "broke"
    assert text.startswith("No: not in epoch 3; for 22.5 s of 125 s rows waited for long.")


@pytest.mark.parametrize(
    ("lasting", "words"),
    [((5.0, 10.0), "Mostly: for 5 s of 125 s rows waited for long, and then no longer."),
     ((5.0, 65.0), "Not always: for 60 s of 125 s rows waited for long, and then no longer."),
     ((115.0, 125.0), "Mostly: for 10 s of 125 s rows waited for long, to its end.")],
)  # fmt: skip
def test_one_that_mostly_kept_up(tmp_path: Path, lasting: tuple[float, float], words: str) -> None:
    found = calm()
    found["episodes"] = [
        replace(tables()["episodes"][0], from_s=lasting[0], to_s=lasting[1])
    ] * 2  # of two paths
    assert answer(analysis_of(tmp_path, found), "Did it keep up") == ("broke", words)


def test_what_was_due_and_never_read_is_no_keeping_up(tmp_path: Path) -> None:
    found = calm()
    found["tuples_told"] = [replace(found["tuples_told"][0], offered=12_000)]
    words = "No. 2,100 of 12,000 rows that were due (17.5 %) had not been read when the run ended."
    assert answer(analysis_of(tmp_path, found), "Did it keep up") == ("broke", words)


def test_a_calm_run_is_told_as_one(tmp_path: Path) -> None:
    analysis = analysis_of(tmp_path, calm())
    assert answer(analysis, "Did it keep up") == ("fine", "Yes: rows never waited for long.")
    assert answer(analysis, "Where did it hurt") == ("fine", "Nowhere: no row waited for long.")
    assert answer(analysis, "Was anything lost") == (
        "fine",
        "Of 9,900 rows that were read, 9,876 were processed whole. None was counted as lost, sent again or seen "
        "twice at a sink.",
    )
    assert answer(analysis, "What would have helped")[1].startswith("Nothing that this run could show")
    assert "It never re-planned. The first plan was good to the end." in told(analysis)
    assert [kind for kind, _ in findings(analysis, RUN)] == [None] * 4
    assert [text for _, text in findings(analysis, RUN)] == [
        "No slot was found to be slow: 4 of 4 slots surely are not.",
        "No task was found to disturb another in its slot: 2 of 2 pairs surely do not.",
        "No slot's memory only grew.",
        "No thread took in twice what others of its task did.",
    ]


def test_a_first_plan_is_not_good_to_the_end_when_rows_waited(tmp_path: Path) -> None:
    found = calm()
    found["episodes"] = tables()["episodes"]
    found["run_notes"] = [note for note in tables()["run_notes"] if note.kind == "advice"]
    analysis = analysis_of(tmp_path, found)
    assert "It never re-planned. The controller advised to." in told(analysis)
    assert answer(analysis, "What would have helped")[1] == (
        "What the controller advised at 44 s: 8 slots for 240.0 rows/s. No plan followed."
    )


def test_what_is_not_recorded_is_unknown_and_not_none(tmp_path: Path) -> None:
    found = calm() | {
        "tuples_told": [],
        "latency_epochs": [],
        "stability": [],
        "cost": [],
        "rate_windows": [],
    }
    analysis = analysis_of(tmp_path, found, latency_ms=None)
    for question in ("Did it keep up", "Where did it hurt", "Was anything lost"):
        kind, text = answer(analysis, question)
        assert kind == "unknown" and text.startswith("That is not known: "), question
    numbers = head_of(analysis).numbers
    assert {
        numbers[name] for name in ("rows waited for long", "lost", "duplicates, at least", "slot-hours")
    } == {"N/A"}


def test_epochs_that_are_too_short_are_no_yes(tmp_path: Path) -> None:
    found = calm()
    found["stability"] = [replace(row, stable=None) for row in found["stability"]]
    kind, text = answer(analysis_of(tmp_path, found), "Did it keep up")
    assert kind == "unknown" and "no epoch lasted long enough" in text


def test_every_count_of_tuples_is_told(tmp_path: Path) -> None:
    found = tables()
    found["tuples_told"] = [r.TuplesTold(RUN, END_S, False, 100, 100, 80, 5, 3, 4, 6, 7)]
    kind, text = answer(analysis_of(tmp_path, found), "Was anything lost")
    assert kind == "broke"
    assert text == (
        "Of 100 rows that were read, 80 were processed whole; 3 were lost, 4 failed three times and were set aside "
        "as dead letters, 6 were sent once more and at least 7 reached a sink more than once. 5 were still on their "
        "way when its record ended."
    )


@pytest.mark.parametrize(
    ("usd", "words"),
    [
        (None, "what that is in dollars is not known: no prices"),
        (0.0, "its VMs have a price of 0 USD"),
        (0.25, "0.25 USD"),
    ],
)
def test_a_price_of_nothing_is_not_an_unknown_one(tmp_path: Path, usd: float | None, words: str) -> None:
    found = tables()
    found["cost"] = [replace(row, usd=usd) for row in found["cost"]]
    text = answer(analysis_of(tmp_path, found), "What did it cost")[1]
    assert text.startswith("It used 0.181 slot-hours, 5.2 slots in the mean") and words in text
    assert text.endswith("Its largest plan all the time would have taken 0.278.")


def test_what_was_found_is_told_with_its_numbers_and_what_it_would_have_taken(tmp_path: Path) -> None:
    analysis = analysis_of(tmp_path, tables())
    found = list(findings(analysis, RUN))
    assert [kind for kind, _ in found] == ["slow", "pair", "leak", "skew"]
    assert found[0][1] == (
        "Slot vm1/1 is slow: it does 70 % of what the others do with the same CPU time (67 % to 73 %)."
    )
    assert found[1][1] == "A row of parse costs × 1.4 the CPU time with score in its slot (× 1.3 to 1.5)."
    assert found[2][1] == (
        "The memory of slot vm1/3 (parse) only grew by 244 KiB/s, from 5 s to 120 s: 31 % of it was held then, and "
        "24.7 min later it would have been full."
    )
    assert found[3][1] == (
        "A thread of score took in 3 times what its median thread did: in epoch 3 thread 17 in vm1/2 90 rows/s "
        "against 30."
    )
    helping = answer(analysis, "What would have helped")[1].splitlines()
    assert helping[0].startswith("What the controller advised at 44 s: 8 slots for 240.0 rows/s.")
    assert "No plan followed" not in helping[0], "epoch 4 came after it"
    assert [line for line in helping if line.startswith(found[0][1])]


def test_intervals_that_are_too_wide_are_no_acquittal(tmp_path: Path) -> None:
    found = calm()
    found["slot_speeds"] = [replace(row, low=0.5, high=1.8) for row in found["slot_speeds"]]
    found["pair_costs"] = [found["pair_costs"][0], replace(found["pair_costs"][1], high=1.4)]
    texts = [text for _, text in findings(analysis_of(tmp_path, found), RUN)]
    assert (
        texts[0]
        == "Whether a slot was slow cannot be determined: the speeds of 4 slots are known too roughly."
    )
    assert texts[1].endswith("1 of 2 pairs surely do not, of the other one it cannot be determined.")


def test_a_predicted_rate_that_was_never_tried_is_neither_right_nor_wrong(tmp_path: Path) -> None:
    found = tables()
    found["rate_windows"] = [
        replace(row, tried=False, offered_tps=60.0, predicted_tps=80.0 if row.at_s < 50 else 120.0)
        for row in found["rate_windows"]
    ]
    analysis = analysis_of(tmp_path, found, rate={"r2": None, "n": 0, "mae": None})
    words = "he predicted rate was never tried: at most 75 % of it was offered (60 of 80 rows/s)"
    assert f"T{words}." in told(analysis)
    assert reading(analysis, "scatter-rate") == f"N/A: t{words}"


def test_errors_are_means_of_absolute_ones(tmp_path: Path) -> None:
    """Two slots: the one errs by 20 points up and down, the other by 5 points always up."""
    found = tables()
    found["residuals"] = [
        r.Residuals("cpu", "slot", "vm1/0", 40, 0.1, 0.2, 0.2, 0.3, 0.4, 0.0),
        r.Residuals("cpu", "slot", "vm1/1", 40, 0.1, 0.05, 0.05, 0.06, 0.07, 0.05),
        r.Residuals("cpu", "all", "", 80, 0.4, 0.125, 0.1, 0.3, 0.4, 0.025),
    ]
    found["residual_map"] = [r.ResidualCell(RUN, "parse", "vm1", 0, 0.4, 0.0, 40),
                             r.ResidualCell(RUN, "parse", "vm1", 1, 0.4, 0.05, 40)]  # fmt: skip
    analysis = analysis_of(tmp_path, found, cpu={"r2": 0.4, "mae": 0.125, "n": 80}, memory=None)
    sentences = told(analysis)
    assert (
        "The predictions of slots were off by, in the mean: CPU by 12.5 points of the slot (R² 0.4)."
        in sentences
    )
    worst = "CPU was predicted worst in slot vm1/0, off by 20 points of the slot in the mean: now more was used than "
    assert worst + "predicted, now less." in sentences
    assert "Errors in both directions cancel here" in reading(analysis, "residual-map")
    assert reading(analysis, "scatter-cpu").startswith(
        "Off by 12.5 points of the slot in the mean over 80 samples"
    )


@pytest.mark.parametrize(("mean", "words"), [(0.13, "13 points more"), (-0.08, "8 points less")])
def test_which_way_a_prediction_errs_is_said_where_it_errs_one_way(mean: float, words: str) -> None:
    slot = r.Residuals("cpu", "slot", "vm2/3", 90, 0.9, 0.14, 0.1, 0.3, 0.4, mean)
    assert errs_most(slot).endswith(
        f"by 14 points of the slot in the mean: on average {words} was used than predicted."
    )


def test_what_was_not_counted_of_one_run_is_not_called_none_of_all(tmp_path: Path) -> None:
    found = tables()
    assert head_of(analysis_of(tmp_path / "1", found)).numbers["duplicates, at least"] == "12"
    found["tuples_told"] = [replace(row, lost=1234, duplicates=None) for row in found["tuples_told"]]
    numbers = head_of(analysis_of(tmp_path / "2", found)).numbers
    assert (numbers["lost"], numbers["duplicates, at least"]) == ("1,234", "N/A")


def test_what_grew_by_nothing_is_not_said_to_grow(tmp_path: Path) -> None:
    """An epoch that its episodes make unstable, whose latency did not grow as a whole."""
    found = tables()
    found["stability"] = [
        replace(row, slope=-4.5e-6, slope_low=-1e-5, slope_high=1e-5) for row in found["stability"]
    ]
    analysis = analysis_of(tmp_path, found)
    assert not any("grew fastest" in sentence for sentence in told(analysis))
    assert reading(analysis, "stability").startswith(
        "Unstable, rows waited for long in it or queues grew: epoch 3."
    )


def test_the_timeline_shades_episodes_and_has_gaps_where_nothing_was_recorded(tmp_path: Path) -> None:
    found = tables()
    found["rate_windows"] = [row for row in found["rate_windows"] if not 70 <= row.at_s < 80]
    found["rate_windows"][-1] = replace(found["rate_windows"][-1], offered_tps=0.1)  # the run was over in it
    analysis = analysis_of(tmp_path, found)
    chart = next(c for s in sections_of(analysis) for c in s.charts if c.name == "timeline")
    shaded = [
        (shape["x0"], shape["x1"]) for shape in chart.figure["layout"]["shapes"] if shape["type"] == "rect"
    ]
    assert shaded == [(41.0, 63.5)] and "from 41 s to 63.5 s" in chart.alt
    lines = {trace["name"]: trace for trace in chart.figure["data"]}
    gaps = [x for x, y in zip(lines["offered"]["x"], lines["offered"]["y"], strict=True) if y is None]
    assert gaps == [80.5]
    assert not re.search(r"\b0\.1 to ", chart.alt) and not re.search(r"\b0\.1 to ", told(analysis)[0])


def test_a_slot_that_is_full_is_told_and_not_a_task_that_idles_in_it(tmp_path: Path) -> None:
    found = tables()
    full = r.BottleneckAnswer(RUN, 2, 1, "events", "vm1", 0, 1.0, 0.0, 0.985, 0.1, 0.0, 0.985)
    found["bottlenecks"] = [full, replace(full, rank=2, task="parse", busy_share=0.05)]
    sentences = told(analysis_of(tmp_path, found))
    assert (
        "The tightest place was slot vm1/0, with 98.5 % of its CPU used (by events and parse and whatever else is in "
        "it), in epoch 2."
    ) in sentences
    low = [replace(row, cpu_share=0.3, load=0.3) for row in found["bottlenecks"]]
    sentences = told(analysis_of(tmp_path / "low", found | {"bottlenecks": low}))
    assert any(sentence.startswith("Nothing was near its limit in the mean") for sentence in sentences)


def test_a_forecast_without_a_season_promises_nothing(tmp_path: Path) -> None:
    found = tables()
    found["seasons"] = [r.Season(RUN, None, None, None, "last value", 25.0, 1.4, 0.02, 1.4, "too few")]
    analysis = analysis_of(tmp_path, found)
    assert not any("forecast" in sentence or "repeats" in sentence for sentence in told(analysis))
    assert reading(analysis, "forecast").endswith("the last value for want of a season.")


def test_a_forecast_that_is_no_better_than_the_last_value_is_not_praised(tmp_path: Path) -> None:
    found = tables()
    found["seasons"] = [replace(found["seasons"][0], mae_tps=30.0, naive_mae_tps=21.0)]
    sentences = told(analysis_of(tmp_path, found))
    assert "The rate repeats every 120 s (strength 0.93 of 1)." in sentences
    assert not any("the forecast was off" in sentence for sentence in sentences)


def test_what_happened_long_before_a_wait_is_not_told_with_it(tmp_path: Path) -> None:
    found = tables()
    found["replans"] = found["replans"][:1]
    found["run_notes"] = [replace(found["run_notes"][0], at_s=at_s) for at_s in (10.0, 90.0)]
    analysis = analysis_of(tmp_path, found)
    assert "Around that time" not in answer(analysis, "Where did it hurt")[1]
    assert (
        "More room for score: it held up the rows in the only stretch." in answer(analysis, "What would")[1]
    )


def test_what_was_offered_once_the_run_was_ending_is_not_the_least_that_was(tmp_path: Path) -> None:
    found = tables()
    found["rate_windows"] = [
        replace(row, offered_tps=60.0 if row.at_s + row.window_s <= 100 else 1.0)
        for row in found["rate_windows"]
    ]
    found["run_notes"] = [r.RunNote(RUN, 100.0, 5, "ending", "the run ends: 100 s are over")]
    analysis = analysis_of(tmp_path, found)
    assert told(analysis)[0] == ("The run lasted 125 s. It was offered 60 rows/s; 9,876 rows were finished.")


def test_counts_that_were_not_recorded_are_unknown(tmp_path: Path) -> None:
    found = tables()
    found["tuples_told"] = [r.TuplesTold(RUN, *[None] * 10)]
    analysis = analysis_of(tmp_path, found)
    assert answer(analysis, "Was anything lost")[0] == "unknown"
    assert head_of(analysis).numbers["lost"] == "N/A"


# ── What the report says has changed since the run before, held to the rows that it is made of ──────────

CHANGES_QUESTION = "What changed since the last run?"
BEFORE = "demo/run-0"


def row(figure: str, value: float | None, before: float | None, differs: bool | None = True) -> RunChange:
    return RunChange(RUN, BEFORE, figure, NOISE[figure].unit, value, before, differs)


def changes_analysis(folder: Path, *rows: RunChange) -> Analysis:
    return read(write(folder / "a", tables() | {"run_changes": list(rows)}))


def changes_answer(folder: Path, *rows: RunChange) -> list[str]:
    found = [a for a in answers(changes_analysis(folder, *rows), RUN) if a.question == CHANGES_QUESTION]
    assert all(a.kind == "plain" for a in found)
    return [line for a in found for line in a.text.splitlines()]


def test_without_a_run_before_nothing_is_said(tmp_path: Path) -> None:
    assert changes_answer(tmp_path) == []
    assert "changes" not in {section.name for section in sections_of(read(tmp_path / "a"))}


def test_what_differs_is_told_with_what_it_was(tmp_path: Path) -> None:
    assert changes_answer(
        tmp_path,
        row("offered_tps", 120.0, 60.0),
        row("p95_s", 0.25, 1.0),
        row("waited_s", 12.0, 0.0),
        row("lost", 3, 0),
        row("replans", 0, 2),
        row("usd", None, 0.5, None),
        row("slots", 4.0, 4.05, False),
        row("slot_hours", 0.4, 0.404, False),
    ) == [
        f"Against {BEFORE} (the other 2 figures differ by no more than runs differ anyway):",
        "Offered: 120 rows/s, was 60 rows/s (+100 %).",
        "95 % of the rows took at most: 250 ms, was 1 s (−75 %).",
        "Rows waited for long for: 12 s, was not at all.",
        "Lost rows: 3, was none.",
        "Re-plans: none, was 2.",
    ]


def test_that_nothing_differs_is_said_with_how_much_was_compared(tmp_path: Path) -> None:
    rows = [row("slots", 4.0, 4.0, False), row("lost", 0, 0, False), row("usd", None, None, None)]
    [line] = changes_answer(tmp_path, *rows)
    assert line == f"Nothing by more than runs differ anyway, against {BEFORE} (2 figures compared)."


def test_all_figures_are_in_a_table_of_their_own(tmp_path: Path) -> None:
    found = changes_analysis(tmp_path, row("slots", 4.0, 4.05, False), row("usd", None, 0.5, None))
    [section] = [section for section in sections_of(found) if section.name == "changes"]
    assert [line["value"] for line in section.tables[0].rows] == [4.0, None]
    assert [line["differs"] for line in section.tables[0].rows] == [False, None]


@pytest.mark.parametrize("figure", list(NOISE))
def test_every_figure_has_words(figure: str, tmp_path: Path) -> None:
    assert set(FIGURES) == set(NOISE)
    assert changes_answer(tmp_path, row(figure, 2, 1))[1].startswith(FIGURES[figure][0])


# ── What the report says of policies that were tried, held to the rows that it is made of ───────────────

POLICIES_QUESTION = "What would other policies have done?"
OWN = PolicyTried(RUN, "recorded", None, 0.2, 0.01, 5.4, 172.0, 10_000.0, 4, 12, 10.0, 205.0)
LARGE = PolicyTried(RUN, "static-max", 1, 0.25, 0.02, 0.0, 0.0, 10_000.0, 0, 0)
FAILING = PolicyTried(RUN, "lsa+rsm", 2, 0.167, None, 98.0, 7_704.0, 10_000.0, 1, 3, note="it began so")
NEVER = PolicyTried(RUN, "lsa+dsm", None, 0.0, None, 0.0, 0.0, 0.0, 0, 0, why="no plan came into force")


def policies_analysis(folder: Path, *rows: PolicyTried) -> Analysis:
    return read(write(folder / "a", tables() | {"policies_tried": list(rows)}))


def policies_answer(folder: Path, *rows: PolicyTried) -> list[str]:
    found = [a for a in answers(policies_analysis(folder, *rows), RUN) if a.question == POLICIES_QUESTION]
    return [line for a in found for line in a.text.splitlines()]


def test_nothing_is_said_where_none_was_tried(tmp_path: Path) -> None:
    assert policies_answer(tmp_path) == []
    assert "policies" not in {section.name for section in sections_of(read(tmp_path / "a"))}


def test_what_would_have_helped_is_told_with_what_it_costs(tmp_path: Path) -> None:
    assert policies_answer(tmp_path, OWN, NEVER, FAILING, LARGE) == [
        "static-max would have fallen short by 172 fewer rows than the run's plans, for 25 % more slot-hours.",
        "The run, by its plans: 0.2 slot-hours, 0.01 USD, short for 5.4 s (172 of 10,000 rows), 4 re-plans; measured"
        ": 10 s, 205 rows.",
        "1. static-max: 0.25 slot-hours, 0.02 USD, never short, no re-plans.",
        "2. lsa+rsm: 0.167 slot-hours, short for 98 s (7,704 of 10,000 rows), 1 re-plan.",
        "lsa+dsm: not started (no plan came into force).",
    ]


def test_one_that_needs_less_is_told_by_how_much(tmp_path: Path) -> None:
    [first, *_] = policies_answer(tmp_path, OWN, replace(LARGE, slot_hours=0.15))
    assert first == "static-max carries what was offered with 25 % fewer slot-hours than the run's plans."


def test_that_none_needs_less_is_said(tmp_path: Path) -> None:
    fine = replace(OWN, violations_s=0.0, violated_tuples=0.0)
    [first, *_] = policies_answer(tmp_path, fine, LARGE)
    assert (
        first
        == "None carries what was offered with fewer slot-hours than the run's plans; the next is static-max."
    )


def test_that_none_carries_it_is_said(tmp_path: Path) -> None:
    [first, *_] = policies_answer(tmp_path, OWN, replace(FAILING, rank=1))
    assert first == "No policy carries what was offered; lsa+rsm falls short by least."
    write_over = policies_answer(tmp_path / "none", OWN, NEVER)
    assert write_over[0] == "No policy could begin."


def test_what_was_not_measured_is_said_to_be_unknown(tmp_path: Path) -> None:
    lines = policies_answer(tmp_path, replace(OWN, measured_s=None, measured_tuples=None), LARGE)
    assert lines[1].endswith("; what it really failed to finish was not recorded.")


def test_the_ranking_is_a_table(tmp_path: Path) -> None:
    found = policies_analysis(tmp_path, OWN, LARGE, FAILING, NEVER)
    [section] = [section for section in sections_of(found) if section.name == "policies"]
    rows = section.tables[0].rows
    assert [(row["rank"], row["policy"]) for row in rows] == [
        (None, "recorded"), (1, "static-max"), (2, "lsa+rsm"), (None, "lsa+dsm"),
    ]  # fmt: skip
    assert [row["remark"] for row in rows] == ["", "", "it began so", "no plan came into force"]
    assert rows[0]["measured, rows"] == 205.0


# ── Numbers and lists as they are said ──────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "N/A"), (math.nan, "N/A"), (math.inf, "N/A"), (0.0, "0"), (1234.5, "1,234"), (12.345, "12.3"),
        (100.0, "100"), (0.012345, "0.0123"), (-0.5, "-0.5"), (1e-12, "0"), (999.9, "1000"),
    ],
)  # fmt: skip
def test_numbers(value: float | None, text: str) -> None:
    assert number(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "N/A"), (0.04, "40 ms"), (1.25, "1.25 s"), (125, "125 s"), (3600, "60 min"), (7200, "2 h"),
     (200_000, "2.31 days"), (0, "0 ms")],
)  # fmt: skip
def test_durations(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text


def test_shares_counts_and_lists() -> None:
    assert percent(0.1234) == "12.3 %" and percent(None) == "N/A"
    assert [count(n, "slot") for n in (0, 1, 2000)] == ["no slots", "1 slot", "2,000 slots"]
    assert listed([]) == "" and listed(["a"]) == "a" and listed(["a", "b", "c"]) == "a, b and c"
    assert listed(list("abcdefgh"), 2) == "a, b and 6 more"
    assert [cell(v) for v in (None, True, 1.23456, 12000, ["x", None])] == [
        "N/A",
        "yes",
        "1.235",
        "12,000",
        "x, N/A",
    ]
