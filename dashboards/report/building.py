"""Builds the report: one HTML file with plotly.js in it, and a folder with every plot on a page of its own."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from headgate.dashboards.report import changes, costs, fidelity, latency, other_policies, strain, timeline
from headgate.dashboards.report.analysis_files import Analysis, read
from headgate.dashboards.report.charts import Chart, Section
from headgate.dashboards.report.head import PageHead, head_of
from headgate.dashboards.report.page import body_of, chart_html, figure_data, page, safe_json
from headgate.dashboards.report.story import Chapter, story
from headgate.dashboards.report.wording import count, listed, number
from headgate.topology_runtime.errors import InvalidInput

SCHEMA = "headgate/report/v1"
DEFAULT = "report.html"
PLOTLY = "plotly.min.js"


def build(folder: Path, output: Path | None = None) -> Path:
    """Write the report of the analysis in `folder` to `output` (default: report.html in it), with the folder
    of plots beside it; the path of the HTML file. Raises InvalidInput."""
    analysis, path = read(folder), output or folder / DEFAULT
    sections = sections_of(analysis)
    chapters, head = story(analysis), head_of(analysis)
    charts = [chart for section in sections for chart in section.charts if chart.figure is not None]
    script = plotly_js()
    title, subtitle = titles(analysis)
    plots = path.parent / ("plots" if path.name == DEFAULT else f"{path.stem}-plots")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        summary = summary_of(analysis, head, chapters, charts)
        data = [_summary_html(summary), *(figure_data(chart) for chart in charts)]
        body = list(body_of((title, subtitle), head, chapters, sections))
        _write(path, page(title, body, [f"<script>{script}</script>"], data))
        write_plots(plots, charts, script, title)
    except OSError as error:
        raise InvalidInput(f"the report {path} cannot be written", cause=error.strerror) from error
    return path


def sections_of(analysis: Analysis) -> list[Section]:
    makers: list[Callable[[Analysis], Section]] = [
        timeline.section, fidelity.section, latency.section, strain.section, costs.cost_section,
        costs.forecast_section, other_policies.section, changes.section, costs.sources_section,
    ]  # fmt: skip
    made = [make(analysis) for make in makers]
    return [section for section in made if section.title]


def titles(analysis: Analysis) -> tuple[str, str]:
    """(of the page, the line below it)."""
    runs = analysis.runs
    title = runs[0] if len(runs) == 1 else count(len(runs), "run")
    about = f"{number(analysis.document.get('rows'))} samples of threads were read"
    which = f"; run {listed([f'{n}: {run}' for n, run in enumerate(runs, 1)])}" if len(runs) > 1 else ""
    return f"headgate: {title}", about + which


def summary_of(
    analysis: Analysis, head: PageHead, chapters: list[Chapter], charts: list[Chart]
) -> dict[str, Any]:
    """What a program finds in the page: the analysis, the answers, the story, what there is of everything."""
    return {
        "schema": SCHEMA,
        "runs": analysis.runs,
        "analysis": analysis.document,
        "answers": [
            {"run": run, "answers": [{"question": a.question, "kind": a.kind, "text": a.text} for a in its]}
            for run, its in head.answers.items()
        ],
        "story": [
            {"run": chapter.run or None, "sentences": [{"kind": k, "text": text} for k, text in chapter.sentences]}
            for chapter in chapters
        ],
        "rows": {name: len(rows) for name, rows in analysis.tables.items()},
        "plots": [{"name": chart.name, "title": chart.title, "words": chart.alt} for chart in charts],
    }  # fmt: skip


def _summary_html(summary: dict[str, Any]) -> str:
    return f'<script type="application/json" id="summary">{safe_json(summary)}</script>'


def write_plots(folder: Path, charts: list[Chart], script: str, title: str) -> None:
    """Each plot as a small page (plotly.js once beside them) and as data that plotly reads."""
    folder.mkdir(parents=True, exist_ok=True)
    _write(folder / PLOTLY, script)
    for chart in charts:
        body = [f"<main>{chart_html(chart)}</main>"]
        scripts = [f'<script src="{PLOTLY}"></script>']
        _write(
            folder / f"{chart.name}.html",
            page(f"{chart.title} – {title}", body, scripts, [figure_data(chart)]),
        )
        _write(folder / f"{chart.name}.json", safe_json(chart.figure) + "\n")


def plotly_js() -> str:
    """The library that draws, from the installed package. Raises InvalidInput when it is not there."""
    from importlib.util import find_spec

    found = find_spec("plotly")
    path = Path(found.origin or "").parent / "package_data" / PLOTLY if found else None
    if path is None or not path.exists():
        raise InvalidInput(
            "plotly is not installed, which draws the report", hint="pip install 'headgate[report]'"
        )
    return path.read_text("utf-8")


def _write(path: Path, text: str) -> None:
    """By rename, so that nobody reads half of it."""
    new = path.with_name(f"{path.name}.new")
    new.write_text(text, "utf-8")
    os.replace(new, path)
