"""Every sentence of the head and the story, held to the rows that it is made of; also where there are none."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from report_made import END_S, RUN, tables, write

from headgate.dashboards.analytics.storage import result_tables as r
from headgate.dashboards.analytics.storage.result_tables import NOISE, PolicyTried, RunChange
from headgate.dashboards.report.analysis_files import Analysis, read
from headgate.dashboards.report.report_charts import Chart
from headgate.dashboards.report.report_facts import headline
from headgate.dashboards.report.report_page import sections_of
from headgate.dashboards.report.report_sentences import Said, sentences
from headgate.dashboards.report.report_wording import cell, count, duration, listed, number, percent
from headgate.dashboards.tables.recorded_time import RecordedTime, RecordGap

Tables = dict[str, list[Any]]
KEPT_UP, HURT, LOST, COST, HELPED, POLICIES, CHANGED = (
    "Did it keep up?", "Where did it hurt?", "Was anything lost?", "What did it cost?", "What would have helped?",
    "What would other policies have done?", "What changed since the last run?",
)  # fmt: skip


def analysis_of(folder: Path, found: Tables, **more: Any) -> Analysis:
    return read(write(folder / "a", found, **more))


def said(analysis: Analysis, topic: str) -> list[Said]:
    """Of the made run, and of all runs."""
    found = sentences(analysis)
    return [*found.runs[RUN].get(topic, []), *(found.whole["story"] if topic == "story" else [])]


def story(analysis: Analysis) -> list[str]:
    return [text for _, text in said(analysis, "story")]


def drawn(analysis: Analysis, name: str) -> Chart:
    return next(chart for _, charts, _ in sections_of(analysis) for chart in charts if chart.name == name)


def tables_in(analysis: Analysis, name: str) -> list[Any]:
    return [tables for section, _, tables in sections_of(analysis) if section.name == name]


def test_a_gap_of_the_record_is_told_with_where_its_counts_come_from(tmp_path: Path) -> None:
    gap = RecordGap(2, 9.0, "", True)
    found = analysis_of(tmp_path, tables())
    whole = next(row for row in found.rows(r.Cost, RUN) if row.epoch is None)
    recorded = RecordedTime(whole.seconds + 9.0, (gap,))
    of_gap = dataclasses.replace(found, recorded={RUN: recorded})
    (lasted,) = [text for text in story(of_gap) if text.startswith("The run lasted")]
    assert "; 9 s of it were not recorded, in 1 gap: their counts come from the journal" in lasted
    (cost,) = [text for _, text in said(of_gap, COST)]
    assert f"slot-hours in the {duration(whole.seconds)} that were recorded, " in cost
    for other in (found, dataclasses.replace(found, recorded={RUN: dataclasses.replace(recorded, gaps=())})):
        assert not any("recorded, in" in text or "that were recorded" in text for text in story(other))
    unknown = dataclasses.replace(of_gap, tables=of_gap.tables | {"tuples_told": []})
    assert not any("journal" in text for text in story(unknown))


def with_all(found: Tables, table: str, **changes: Any) -> Tables:
    return found | {table: [replace(row, **changes) for row in found[table]]}


def calm() -> Tables:
    """The made run without anything that went wrong."""
    found = tables() | {"episodes": [], "run_notes": [], "leaks": [], "skewed_threads": []}
    found["replans"] = found["replans"][:1]
    found = with_all(found, "stability", stable=True)
    found = with_all(
        found, "tuples_told", offered=9_900, dead_lettered=0, replayed=0, duplicates=0, in_flight=0
    )
    found = with_all(found, "slot_speeds", speed=1.0, low=0.97, high=1.03, slow=False)
    return with_all(found, "pair_costs", factor=1.0, low=0.9, high=1.05, disturbs=False)


def lasting(from_s: float, to_s: float) -> Tables:
    one = replace(tables()["episodes"][0], from_s=from_s, to_s=to_s)
    return calm() | {"episodes": [one, one]}  # of two paths


def too_wide() -> Tables:
    found = with_all(calm(), "slot_speeds", low=0.5, high=1.8)
    return found | {"pair_costs": [found["pair_costs"][0], replace(found["pair_costs"][1], high=1.4)]}


def advised() -> Tables:
    notes = [note for note in tables()["run_notes"] if note.kind == "advice"]
    return calm() | {"episodes": tables()["episodes"], "run_notes": notes}


def long_before() -> Tables:
    found = tables()
    notes = [replace(found["run_notes"][0], at_s=at_s) for at_s in (10.0, 90.0)]
    return found | {"replans": found["replans"][:1], "run_notes": notes}


def ending() -> Tables:
    found = tables()
    found["rate_windows"] = [
        replace(row, offered_tps=60.0 if row.at_s + row.window_s <= 100 else 1.0)
        for row in found["rate_windows"]
    ]
    return found | {"run_notes": [r.RunNote(RUN, 100.0, 5, "ending", "the run ends: 100 s are over")]}


def full_slot(load: float) -> Tables:
    full = r.BottleneckAnswer(RUN, 2, 1, "events", "vm1", 0, 1.0, 0.0, load, 0.1, 0.0, load)
    return tables() | {"bottlenecks": [full, replace(full, rank=2, task="parse", busy_share=0.05)]}


def counted(*counts: int | None, over: bool | None = False) -> Tables:
    return tables() | {"tuples_told": [r.TuplesTold(RUN, END_S, over, *counts)]}


NOWHERE = "nowhere said"
EPISODE = (
    "From 41 s to 63.5 s rows took up to 2.4 s (outside of such stretches 9 in 10 took less than "
    "300 ms): score in slot "
    "vm1/2 held them up, for 1.7 s each on average. Around that time: at 32 s it re-planned (epoch "
    "3), at 40.2 s vm2 is "
    "silent and at 60 s it re-planned (epoch 4)."
)
PLANNED = (
    "At {} s (epoch {}) it re-planned because {}: planned for {} rows/s on {} slots instead of {}; "
    "8 threads started or "
    "left, it was in force after 800 ms"
)
PAUSED = " and output paused for at most 40 ms."
USED = "It used 0.181 slot-hours, 5.2 slots in the mean"
LARGEST = ". Its largest plan all the time would have taken 0.278."
SAID: list[tuple[Callable[[], Tables], str, str, str]] = [  # what is recorded, topic, kind, sentence
    (tables, KEPT_UP, "broke", "No: not in epoch 3; for 22.5 s of 125 s rows waited for long. 100 of 10,000 rows that "
     "were due (1 %) had not been read when the run ended."),
    (tables, HURT, "broke", EPISODE),
    (tables, "story", "broke", EPISODE),
    (tables, "story", "came", "It began with a plan for 80 rows/s on 4 slots."),
    (tables, "story", "came", "It re-planned 4 times: 3 because the rate changed and 1 because it was overloaded."),
    (tables, "story", "replan", PLANNED.format(20, 2, "the rate changed", 24, 2, 4) + PAUSED),
    (tables, "story", "replan", PLANNED.format(60, 4, "the rate changed", 210, 7, 4) +
     ", a task was silent for 3.1 s and 12 % fewer rows came through in the 5 s after it."),
    (tables, "story", "replan", PLANNED.format(95, 5, "it was overloaded", 290, 8, 7) + PAUSED),
    (tables, "story", "broke", "Latency grew fastest in epoch 3: by 0.31 s per second, from 32 s to 60 s."),
    (tables, "story", "broke", "At 40.2 s: vm2 is silent."),
    (tables, "story", "broke", "The longest silence of a task was 3.1 s, around epoch 4."),
    (tables, "story", "next", "The rate repeats every 120 s (strength 0.93 of 1)."),
    (tables, "story", "next", "On its end, which it had not seen, the forecast was off by 5 % (by “last season”)."),
    (tables, "story", "broke", "Left out: 1 file (1 truncated)."),
    (tables, "findings", "slow", "Slot vm1/1 is slow: it does 70 % of what the others do with the same CPU time (67 % "
     "to 73 %)."),
    (tables, "findings", "pair", "A row of parse costs × 1.4 the CPU time with score in its slot (× 1.3 to 1.5)."),
    (tables, "findings", "leak", "The memory of slot vm1/3 (parse) only grew by 244 KiB/s, from 5 s to 120 s: 31 % of "
     "it was held then, and 24.7 min later it would have been full."),
    (tables, "findings", "skew", "A thread of score took in 3 times what its plan gives it: in epoch 3 thread 17 "
     "in vm1/2 90 rows/s against 30."),
    (tables, HELPED, "plain", "What the controller advised at 44 s: 8 slots for 240.0 rows/s."),
    (tables, HELPED, "plain", "A row of parse costs × 1.4 the CPU time with score in its slot (× 1.3 to 1.5). Place "
     "them in different slots."),
    (lambda: lasting(5, 10), KEPT_UP, "broke", "Mostly: for 5 s of 125 s rows waited for long, and then no longer."),
    (lambda: lasting(5, 65), KEPT_UP, "broke", "Not always: for 60 s of 125 s rows waited for long, "
     "and then no longer."),
    (lambda: lasting(115, 125), KEPT_UP, "broke", "Mostly: for 10 s of 125 s rows waited for long, to its end."),
    (lambda: with_all(calm(), "tuples_told", offered=12_000), KEPT_UP, "broke", "No. 2,100 of 12,000 rows that were "
     "due (17.5 %) had not been read when the run ended."),
    (lambda: with_all(calm(), "stability", stable=None), KEPT_UP, "unknown", "Rows never waited for long, but no "
     "epoch lasted long enough to judge whether it was stable."),
    (calm, KEPT_UP, "fine", "Yes: rows never waited for long."),
    (calm, HURT, "fine", "Nowhere: no row waited for long."),
    (calm, LOST, "fine", "Of 9,900 rows that were read, 9,876 were processed whole. None was counted as lost, sent "
     "again or seen twice at a sink."),
    (calm, HELPED, "plain", "Nothing that this run could show: it has no episode, and no slot, pair or thread stands "
     "out."),
    (calm, "story", "came", "It never re-planned. The first plan was good to the end."),
    (calm, "findings", "none", "No slot was found to be slow: 4 of 4 slots surely are not."),
    (calm, "findings", "none", "No task was found to disturb another in its slot: 2 of 2 pairs surely do not."),
    (calm, "findings", "none", "No slot's memory only grew."),
    (calm, "findings", "none", "No thread took in twice what its plan gives it."),
    (too_wide, "findings", "none", "Whether a slot was slow cannot be determined: the speeds of 4 slots are known too "
     "roughly."),
    (too_wide, "findings", "none", "No task was found to disturb another in its slot: 1 of 2 pairs surely do not, of "
     "the other one it cannot be determined."),
    (advised, "story", "came", "It never re-planned. The controller advised to."),
    (advised, HELPED, "plain", "What the controller advised at 44 s: 8 slots for 240.0 rows/s. No plan followed."),
    (lambda: counted(100, 100, 80, 5, 3, 4, 6, 7), LOST, "broke", "Of 100 rows that were read, 80 were processed "
     "whole; 3 were lost, 4 failed three times and were set aside as dead letters, 6 were sent once more and at least "
     "7 reached a sink more than once. 5 were still on their way when its record ended."),
    (lambda: counted(*[None] * 8, over=None), LOST, "unknown", "That is not known: what the controller counted is not "
     "in the trace."),
    (lambda: with_all(tables(), "cost", usd=None), COST, "plain", USED + "; what that is in dollars is not known: no "
     "prices" + LARGEST),
    (lambda: with_all(tables(), "cost", usd=0.0), COST, "plain", USED + "; its VMs have a price of 0 USD" + LARGEST),
    (lambda: with_all(tables(), "cost", usd=0.25), COST, "plain", USED + ", 0.25 USD" + LARGEST),
    (lambda: with_all(tables(), "cost", usd=0.25), "story", "cost", USED + ", 0.25 USD" + LARGEST),
    (lambda: full_slot(0.985), "story", "came", "The tightest place was slot vm1/0, with 98.5 % of its CPU used (by "
     "events and parse and whatever else is in it), in epoch 2."),
    (lambda: full_slot(0.3), "story", "came", "Nothing was near its limit in the mean: the tightest was slot vm1/0, "
     "with 30 % of its CPU used (by events and parse and whatever else is in it), in epoch 2."),
    (long_before, HELPED, "plain", "More room for score: it held up the rows in the only stretch."),
    (long_before, HURT, "broke", EPISODE.split(" Around")[0]),
    (ending, "story", "came", "The run lasted 125 s. It was offered 60 rows/s; 9,876 rows were finished."),
    (lambda: tables() | {"replans": []}, "story", "came", "Whether it re-planned is not known: its decisions were not "
     "recorded."),
]  # fmt: skip


@pytest.mark.parametrize(("recorded", "topic", "kind", "text"), SAID)
def test_what_is_recorded_is_said_in_these_words(
    tmp_path: Path, recorded: Callable[[], Tables], topic: str, kind: str, text: str
) -> None:
    assert (kind, text) in said(analysis_of(tmp_path, recorded()), topic)


NOT_SAID: list[tuple[Callable[[], Tables], str]] = [
    (lambda: tables() | {"replans": []}, "never"),
    (lambda: with_all(tables(), "stability", slope=-4.5e-6, slope_low=-1e-5, slope_high=1e-5), "grew fastest"),
    (lambda: tables() | {"seasons": [r.Season(RUN, None, None, None, "last value", 25.0, 1.4, 0.02, 1.4, "few")]},
     "forecast|repeats"),
    (lambda: with_all(tables(), "seasons", mae_tps=30.0, naive_mae_tps=21.0), "the forecast was off"),
    (lambda: with_all(tables(), "replans", dip=0.01), "fewer rows"),
]  # fmt: skip


@pytest.mark.parametrize(("recorded", "words"), NOT_SAID)
def test_what_does_not_follow_is_not_said(tmp_path: Path, recorded: Callable[[], Tables], words: str) -> None:
    assert [text for text in story(analysis_of(tmp_path, recorded())) if re.search(words, text)] == []


def test_fewer_rows_after_planning_for_fewer_are_no_cost_of_it(tmp_path: Path) -> None:
    before, later = (row for row in tables()["replans"] if row.epoch in (1, 2))
    for rate_tps, cost in ((later.rate_tps, False), (before.rate_tps, True)):
        found = tables() | {"replans": [before, replace(later, dip=0.4, rate_tps=rate_tps)]}
        texts = story(analysis_of(tmp_path / str(cost), found))
        assert any("40 % fewer rows" in text for text in texts) is cost


def test_what_is_not_recorded_is_unknown_and_not_none(tmp_path: Path) -> None:
    gone = ("tuples_told", "latency_epochs", "stability", "cost", "rate_windows")
    analysis = analysis_of(tmp_path, calm() | {name: [] for name in gone}, latency_ms=None)
    for question in (KEPT_UP, HURT, LOST):
        [(kind, text)] = said(analysis, question)
        assert kind == "unknown" and text.startswith("That is not known: "), question
    numbers = headline(analysis)
    names = ("rows waited for long", "lost", "duplicates, at least", "slot-hours")
    assert {numbers[name] for name in names} == {"N/A"}


def test_what_was_not_counted_of_one_run_is_not_called_none_of_all(tmp_path: Path) -> None:
    assert headline(analysis_of(tmp_path / "1", tables()))["duplicates, at least"] == "12"
    numbers = headline(
        analysis_of(tmp_path / "2", with_all(tables(), "tuples_told", lost=1234, duplicates=None))
    )
    assert (numbers["lost"], numbers["duplicates, at least"]) == ("1,234", "N/A")


def test_a_predicted_rate_that_was_never_tried_is_neither_right_nor_wrong(tmp_path: Path) -> None:
    found = tables()
    found["rate_windows"] = [
        replace(row, tried=False, offered_tps=60.0, predicted_tps=80.0 if row.at_s < 50 else 120.0)
        for row in found["rate_windows"]
    ]
    analysis = analysis_of(tmp_path, found, rate={"r2": None, "n": 0, "mae": None})
    words = "he predicted rate was never tried: at most 75 % of it was offered (60 of 80 rows/s)"
    assert ("came", f"T{words}.") in said(analysis, "story")
    assert drawn(analysis, "scatter-rate").alt == f"N/A: t{words}"


def errors(mean: float) -> Tables:
    """Two slots: the one errs by 20 points, the other by 5 points always up."""
    found = tables()
    found["residuals"] = [
        r.Residuals("cpu", "slot", "vm1/0", 40, 0.1, 0.2, 0.2, 0.3, 0.4, mean),
        r.Residuals("cpu", "slot", "vm1/1", 40, 0.1, 0.05, 0.05, 0.06, 0.07, 0.05),
        r.Residuals("cpu", "all", "", 80, 0.4, 0.125, 0.1, 0.3, 0.4, 0.025),
    ]
    found["residual_map"] = [r.ResidualCell(RUN, "parse", "vm1", n, 0.4, n / 20, 40) for n in (0, 1)]
    return found


@pytest.mark.parametrize(
    ("mean", "words"),
    [
        (0.0, "now more was used than predicted, now less."),
        (0.13, "on average 13 points more was used than predicted."),
        (-0.12, "on average 12 points less was used than predicted."),
    ],
)
def test_errors_are_means_of_absolute_ones(tmp_path: Path, mean: float, words: str) -> None:
    analysis = analysis_of(tmp_path, errors(mean), cpu={"r2": 0.4, "mae": 0.125, "n": 80}, memory=None)
    texts = story(analysis)
    assert (
        "The predictions of slots were off by, in the mean: CPU by 12.5 points of the slot (R² 0.4)." in texts
    )
    worst = "CPU was predicted worst in slot vm1/0, off by 20 points of the slot in the mean: "
    assert worst + words in texts
    assert "Errors in both directions cancel here" in drawn(analysis, "residual-map").alt
    alt = drawn(analysis, "scatter-cpu").alt
    assert alt.startswith("Off by 12.5 points of the slot in the mean over 80 samples")


def test_charts_say_why_an_epoch_is_unstable_and_what_a_forecast_is(tmp_path: Path) -> None:
    found = with_all(tables(), "stability", slope=-4.5e-6, slope_low=-1e-5, slope_high=1e-5)
    found["seasons"] = [r.Season(RUN, None, None, None, "last value", 25.0, 1.4, 0.02, 1.4, "too few")]
    analysis = analysis_of(tmp_path, found)
    alt = drawn(analysis, "stability").alt
    assert alt.startswith("Unstable, rows waited for long in it or queues grew: epoch 3.")
    assert drawn(analysis, "forecast").alt.endswith("the last value for want of a season.")


def test_the_timeline_shades_episodes_and_has_gaps_where_nothing_was_recorded(tmp_path: Path) -> None:
    found = tables()
    found["rate_windows"] = [row for row in found["rate_windows"] if not 70 <= row.at_s < 80]
    found["rate_windows"][-1] = replace(found["rate_windows"][-1], offered_tps=0.1)  # the run was over in it
    analysis = analysis_of(tmp_path, found)
    chart = drawn(analysis, "timeline")
    assert chart.figure is not None
    shapes = [shape for shape in chart.figure["layout"]["shapes"] if shape["type"] == "rect"]
    assert [(shape["x0"], shape["x1"]) for shape in shapes] == [(41.0, 63.5)]
    assert "from 41 s to 63.5 s" in chart.alt
    lines = {trace["name"]: trace for trace in chart.figure["data"]}
    gaps = [x for x, y in zip(lines["offered"]["x"], lines["offered"]["y"], strict=True) if y is None]
    assert gaps == [80.5]
    assert not re.search(r"\b0\.1 to ", chart.alt) and not re.search(r"\b0\.1 to ", story(analysis)[0])


# ── What changed since the run before ───────────────────────────────────────────────────────────────────

BEFORE = "demo/run-0"


def row(figure: str, value: float | None, before: float | None, differs: bool | None = True) -> RunChange:
    return RunChange(RUN, BEFORE, figure, NOISE[figure].unit, value, before, differs)


CHANGES: list[tuple[list[RunChange], list[str]]] = [
    ([], []),
    (
        [
            row("offered_tps", 120.0, 60.0), row("p95_s", 0.25, 1.0), row("waited_s", 12.0, 0.0), row("lost", 3, 0),
            row("replans", 0, 2), row("usd", None, 0.5, None), row("slots", 4.0, 4.05, False),
            row("slot_hours", 0.4, 0.404, False),
        ],
        [
            f"Against {BEFORE} (the other 2 figures differ by no more than runs differ anyway):",
            "Offered: 120 rows/s, was 60 rows/s (+100 %).",
            "95 % of the rows took at most: 250 ms, was 1 s (−75 %).",
            "Rows waited for long for: 12 s, was not at all.",
            "Lost rows: 3, was none.",
            "Re-plans: none, was 2.",
        ],
    ),
    (
        [row("slots", 4.0, 4.0, False), row("lost", 0, 0, False), row("usd", None, None, None)],
        [f"Nothing by more than runs differ anyway, against {BEFORE} (2 figures compared)."],
    ),
]  # fmt: skip


@pytest.mark.parametrize(("rows", "lines"), CHANGES)
def test_what_differs_is_told_with_what_it_was(
    tmp_path: Path, rows: list[RunChange], lines: list[str]
) -> None:
    analysis = analysis_of(tmp_path, tables() | {"run_changes": rows})
    assert said(analysis, CHANGED) == [("plain", line) for line in lines]
    shown = [row for [table] in tables_in(analysis, "changes") for row in table.rows]
    assert [(line["value"], line["differs"]) for line in shown] == [(one.value, one.differs) for one in rows]


# ── What rows were predicted to take, and what they took ────────────────────────────────────────────────


def foreseen(p50_error: float, p99_error: float | None) -> r.LatencyForeseen:
    p95 = (0.02, 0.02, 0.0)
    p99_s = 0.04 * (1 + (p99_error or 0.0))
    return r.LatencyForeseen(
        RUN, 1, "plan1", "archive", 80.0, 20.0, 60.0, 900.0,
        0.01, 0.01 * (1 + p50_error), p50_error, *p95, 0.04, p99_s, p99_error,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("rows", "kind", "off"),
    [
        (
            [foreseen(0.1, 0.3), foreseen(-0.2, None)],
            "fine",
            "the median by 15 %, 95 % by 0 % and 99 % by 30 %",
        ),
        ([foreseen(0.1, -0.5)], "broke", "the median by 10 %, 95 % by 0 % and 99 % by 50 %"),
        ([foreseen(0.3, None)], "broke", "the median by 30 % and 95 % by 0 %"),
    ],
)
def test_latency_is_told_beside_what_was_predicted(
    tmp_path: Path, rows: list[r.LatencyForeseen], kind: str, off: str
) -> None:
    analysis = analysis_of(tmp_path, tables() | {"latency_foreseen": rows})
    many = count(len(rows), "time")
    text = f"Latency was predicted and then measured {many} (for a plan, a rate and a sink). The predictions were off "
    found = [one for one in sentences(analysis).runs[RUN]["story"] if one[1].startswith("Latency was")]
    assert found == [(kind, f"{text}by, in the mean: {off}.")]
    near = sum(abs(row.p50_error or 0.0) <= 0.2 for row in rows)
    alt = drawn(analysis, "latency-foreseen").alt
    assert f"within 20 % of the measured one in {near} of {count(len(rows), 'prediction')}" in alt
    [shown] = [table for [*_, table] in tables_in(analysis, "latency")]
    assert len(shown.rows) == len(rows)


def test_where_no_latency_was_predicted_nothing_is_said_of_it(tmp_path: Path) -> None:
    analysis = analysis_of(tmp_path, tables() | {"latency_foreseen": []})
    assert [text for text in story(analysis) if text.startswith("Latency was predicted")] == []
    assert drawn(analysis, "latency-foreseen").figure is None


def test_what_rows_are_predicted_to_take_is_told_of_each_policy(tmp_path: Path) -> None:
    ms = {"p50_ms": 20.0, "p95_ms": 30.0, "p99_ms": 45.0}
    took = {f"measured_{name}": 2 * value for name, value in ms.items()}
    rows = [replace(OWN, **ms, **took), replace(LARGE, **ms)]
    lines = [text for _, text in said(analysis_of(tmp_path, tables() | {"policies_tried": rows}), POLICIES)]
    told = "rows predicted to take 20 ms (median), 30 ms (95 %), 45 ms (99 %)"
    assert lines[2] == f"1. static-max: 0.25 slot-hours, 0.02 USD, never short, no re-plans, {told}."
    measured = "while latency was predicted, rows took 40 ms (median), 60 ms (95 %), 90 ms (99 %)"
    assert lines[1].endswith(f"4 re-plans, {told}; measured: 10 s, 205 rows; {measured}.")


# ── What other policies would have done ─────────────────────────────────────────────────────────────────

OWN = PolicyTried(RUN, "recorded", None, 0.2, 0.01, 5.4, 172.0, 10_000.0, 4, 12, 10.0, 205.0)
LARGE = PolicyTried(RUN, "static-max", 1, 0.25, 0.02, 0.0, 0.0, 10_000.0, 0, 0)
FAILING = PolicyTried(RUN, "lsa+rsm", 2, 0.167, None, 98.0, 7_704.0, 10_000.0, 1, 3, note="it began so")
NEVER = PolicyTried(RUN, "lsa+dsm", None, 0.0, None, 0.0, 0.0, 0.0, 0, 0, why="no plan came into force")
TRIED: list[tuple[list[PolicyTried], list[str]]] = [
    ([], []),
    ([OWN, NEVER, FAILING, LARGE], [
        "static-max would have fallen short by 172 fewer rows than the run's plans, for 25 % more slot-hours.",
        "The run, by its plans: 0.2 slot-hours, 0.01 USD, short for 5.4 s (172 of 10,000 rows), 4 re-plans; measured"
        ": 10 s, 205 rows.",
        "1. static-max: 0.25 slot-hours, 0.02 USD, never short, no re-plans.",
        "2. lsa+rsm: 0.167 slot-hours, short for 98 s (7,704 of 10,000 rows), 1 re-plan.",
        "lsa+dsm: not started (no plan came into force).",
    ]),
    ([OWN, replace(LARGE, slot_hours=0.15)], [
        "static-max carries what was offered with 25 % fewer slot-hours than the run's plans."
    ]),
    ([replace(OWN, violations_s=0.0, violated_tuples=0.0), LARGE], [
        "None carries what was offered with fewer slot-hours than the run's plans; the next is static-max."
    ]),
    ([OWN, replace(FAILING, rank=1)], ["No policy carries what was offered; lsa+rsm falls short by least."]),
    ([OWN, NEVER], ["No policy could begin."]),
    ([replace(OWN, measured_s=None, measured_tuples=None), NEVER], [
        "No policy could begin.",
        "The run, by its plans: 0.2 slot-hours, 0.01 USD, short for 5.4 s (172 of 10,000 rows), 4 re-plans; what it "
        "really failed to finish was not recorded.",
    ]),
]  # fmt: skip


@pytest.mark.parametrize(("rows", "lines"), TRIED)
def test_policies_are_told_with_what_they_cost(
    tmp_path: Path, rows: list[PolicyTried], lines: list[str]
) -> None:
    analysis = analysis_of(tmp_path, tables() | {"policies_tried": rows})
    assert [text for _, text in said(analysis, POLICIES)][: len(lines)] == lines
    shown = [row for [table] in tables_in(analysis, "policies") for row in table.rows]
    assert [(row["rank"], row["policy"], row["note"], row["why"], row["measured rows"]) for row in shown] == [
        (one.rank, one.policy, one.note, one.why, one.measured_tuples) for one in rows
    ]


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
