"""What the report says has changed since the run before, held to the rows that it is made of."""

from __future__ import annotations

from pathlib import Path

import pytest
from report_made import RUN, tables, write

from headgate.dashboards.analytics.run_figures import NOISE, RunChange
from headgate.dashboards.report.analysis_files import Analysis, read
from headgate.dashboards.report.answers import answers
from headgate.dashboards.report.building import sections_of
from headgate.dashboards.report.changes import FIGURES

QUESTION = "What changed since the last run?"
BEFORE = "demo/run-0"


def row(figure: str, value: float | None, before: float | None, differs: bool | None = True) -> RunChange:
    return RunChange(RUN, BEFORE, figure, NOISE[figure].unit, value, before, differs)


def analysis(folder: Path, *rows: RunChange) -> Analysis:
    return read(write(folder / "a", tables() | {"run_changes": list(rows)}))


def answer(folder: Path, *rows: RunChange) -> list[str]:
    found = [a for a in answers(analysis(folder, *rows), RUN) if a.question == QUESTION]
    assert all(a.kind == "plain" for a in found)
    return [line for a in found for line in a.text.splitlines()]


def test_without_a_run_before_nothing_is_said(tmp_path: Path) -> None:
    assert answer(tmp_path) == []
    assert "changes" not in {section.name for section in sections_of(read(tmp_path / "a"))}


def test_what_differs_is_told_with_what_it_was(tmp_path: Path) -> None:
    assert answer(
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
        "Offered: 120 tuples/s, was 60 tuples/s (+100 %).",
        "95 % of the tuples took at most: 250 ms, was 1 s (−75 %).",
        "Rows waited for long for: 12 s, was not at all.",
        "Lost tuples: 3, was none.",
        "Re-plans: none, was 2.",
    ]


def test_that_nothing_differs_is_said_with_how_much_was_compared(tmp_path: Path) -> None:
    rows = [row("slots", 4.0, 4.0, False), row("lost", 0, 0, False), row("usd", None, None, None)]
    [line] = answer(tmp_path, *rows)
    assert line == f"Nothing by more than runs differ anyway, against {BEFORE} (2 figures compared)."


def test_all_figures_are_in_a_table_of_their_own(tmp_path: Path) -> None:
    found = analysis(tmp_path, row("slots", 4.0, 4.05, False), row("usd", None, 0.5, None))
    [section] = [section for section in sections_of(found) if section.name == "changes"]
    assert [line["value"] for line in section.tables[0].rows] == [4.0, None]
    assert [line["differs"] for line in section.tables[0].rows] == [False, None]


@pytest.mark.parametrize("figure", list(NOISE))
def test_every_figure_has_words(figure: str, tmp_path: Path) -> None:
    assert set(FIGURES) == set(NOISE)
    assert answer(tmp_path, row(figure, 2, 1))[1].startswith(FIGURES[figure][0])
