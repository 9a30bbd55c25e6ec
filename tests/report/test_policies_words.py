"""What the report says of policies that were tried, held to the rows that it is made of."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace
from report_made import RUN, tables, write

from headgate.dashboards.analytics.run_figures import PolicyTried
from headgate.dashboards.report.analysis_files import Analysis, read
from headgate.dashboards.report.answers import answers
from headgate.dashboards.report.building import sections_of

QUESTION = "What would other policies have done?"
OWN = PolicyTried(RUN, "recorded", None, 0.2, 0.01, 5.4, 172.0, 10_000.0, 4, 12, 10.0, 205.0)
LARGE = PolicyTried(RUN, "static-max", 1, 0.25, 0.02, 0.0, 0.0, 10_000.0, 0, 0)
FAILING = PolicyTried(RUN, "lsa+rsm", 2, 0.167, None, 98.0, 7_704.0, 10_000.0, 1, 3, note="it began so")
NEVER = PolicyTried(RUN, "lsa+dsm", None, 0.0, None, 0.0, 0.0, 0.0, 0, 0, why="no plan came into force")


def analysis(folder: Path, *rows: PolicyTried) -> Analysis:
    return read(write(folder / "a", tables() | {"policies_tried": list(rows)}))


def answer(folder: Path, *rows: PolicyTried) -> list[str]:
    found = [a for a in answers(analysis(folder, *rows), RUN) if a.question == QUESTION]
    return [line for a in found for line in a.text.splitlines()]


def test_nothing_is_said_where_none_was_tried(tmp_path: Path) -> None:
    assert answer(tmp_path) == []
    assert "policies" not in {section.name for section in sections_of(read(tmp_path / "a"))}


def test_what_would_have_helped_is_told_with_what_it_costs(tmp_path: Path) -> None:
    assert answer(tmp_path, OWN, NEVER, FAILING, LARGE) == [
        "static-max would have fallen short by 172 fewer tuples than the run's plans, for 25 % more slot-hours.",
        "The run, by its plans: 0.2 slot-hours, 0.01 USD, short for 5.4 s (172 of 10,000 tuples), 4 re-plans; measured"
        ": 10 s, 205 tuples.",
        "1. static-max: 0.25 slot-hours, 0.02 USD, never short, no re-plans.",
        "2. lsa+rsm: 0.167 slot-hours, short for 98 s (7,704 of 10,000 tuples), 1 re-plan.",
        "lsa+dsm: not begun (no plan came into force).",
    ]


def test_one_that_needs_less_is_told_by_how_much(tmp_path: Path) -> None:
    [first, *_] = answer(tmp_path, OWN, replace(LARGE, slot_hours=0.15))
    assert first == "static-max carries what was offered with 25 % fewer slot-hours than the run's plans."


def test_that_none_needs_less_is_said(tmp_path: Path) -> None:
    fine = replace(OWN, violations_s=0.0, violated_tuples=0.0)
    [first, *_] = answer(tmp_path, fine, LARGE)
    assert (
        first
        == "None carries what was offered with fewer slot-hours than the run's plans; the next is static-max."
    )


def test_that_none_carries_it_is_said(tmp_path: Path) -> None:
    [first, *_] = answer(tmp_path, OWN, replace(FAILING, rank=1))
    assert first == "No policy carries what was offered; lsa+rsm falls short by least."
    write_over = answer(tmp_path / "none", OWN, NEVER)
    assert write_over[0] == "No policy could begin."


def test_what_was_not_measured_is_said_to_be_unknown(tmp_path: Path) -> None:
    lines = answer(tmp_path, replace(OWN, measured_s=None, measured_tuples=None), LARGE)
    assert lines[1].endswith("; what it really failed to finish was not recorded.")


def test_the_ranking_is_a_table(tmp_path: Path) -> None:
    found = analysis(tmp_path, OWN, LARGE, FAILING, NEVER)
    [section] = [section for section in sections_of(found) if section.name == "policies"]
    rows = section.tables[0].rows
    assert [(row["rank"], row["policy"]) for row in rows] == [
        (None, "recorded"), (1, "static-max"), (2, "lsa+rsm"), (None, "lsa+dsm"),
    ]  # fmt: skip
    assert [row["remark"] for row in rows] == ["", "", "it began so", "no plan came into force"]
    assert rows[0]["measured, tuples"] == 205.0
