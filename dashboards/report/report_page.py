"""The page: HTML around sections, with everything inlined. All text is escaped; nothing is fetched."""

from __future__ import annotations

import html
import json
import os
from collections.abc import Callable, Iterator, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from headgate.dashboards.report import comparisons, model_sections, run_sections
from headgate.dashboards.report.analysis_files import Analysis, read
from headgate.dashboards.report.report_charts import TABLE_ROWS, Chart, Row, Section, Table, thinned
from headgate.dashboards.report.report_story import Chapter, PageHead, head_of, story
from headgate.dashboards.report.report_wording import cell, count, listed, number
from headgate.topology_runtime.commands.output import columns_of
from headgate.topology_runtime.errors import InvalidInput

# no request leaves the page, whatever is in it
POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline' 'self'; img-src data: blob:; "
    "font-src data:"
)
KINDS = {"came": "what came", "replan": "△ re-planned", "broke": "✕ went wrong", "fine": "✓ good", "cost": "cost",
         "next": "→ what next"}  # fmt: skip
LONG = 40  # characters of a cell from which on it may be broken


def safe_json(value: Any) -> str:
    """JSON that may stand in a script element: no `<` ends it early. NaN is refused."""
    text = json.dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def asset(name: str) -> str:
    """A file of this package."""
    return (files("headgate.dashboards.report") / name).read_text("utf-8")


def page(title: str, body: Sequence[str], scripts: Sequence[str], data: Sequence[str] = ()) -> str:
    """A whole document. scripts: elements for its head; data: elements before its end."""
    return "\n".join(
        [
            "<!DOCTYPE html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{html.escape(title)}</title>",
            f"<style>{asset('page.css')}</style>",
            *scripts,
            f"<script>{asset('page.js')}</script>",
            "</head>",
            "<body>",
            *body,
            *data,
            "</body>",
            "</html>\n",
        ]
    )


def body_of(
    titles: tuple[str, str], head: PageHead, chapters: list[Chapter], sections: list[Section]
) -> Iterator[str]:
    """Everything that is seen."""
    title, subtitle = titles
    yield '<a class="skip" href="#story">To the story</a>'
    yield f"<header><h1>{html.escape(title)}</h1><p class='soft'>{html.escape(subtitle)}</p>"
    yield from answers_html(head)
    tiles = [
        f"<div><dt>{html.escape(k)}</dt><dd>{html.escape(v)}</dd></div>" for k, v in head.numbers.items()
    ]
    yield f"<dl class='numbers'>{''.join(tiles)}</dl>"
    links = [("story", "Story"), *((section.name, section.title) for section in sections)]
    listed = "".join(f"<a href='#{name}'>{html.escape(words)}</a>" for name, words in links)
    yield f"<nav aria-label='Sections'>{listed}</nav></header>"
    yield "<main>"
    yield from story_html(chapters)
    for section in sections:
        yield from section_html(section)
    yield "</main>"
    yield "<footer>Made by <code>headgate analyze</code>. N/A: not recorded, or too little of it.</footer>"


def answers_html(head: PageHead) -> Iterator[str]:
    """Questions with their answers, per run."""
    for n, (run, answers) in enumerate(head.answers.items(), 1):
        if len(head.answers) > 1:
            yield f"<h3 class='run'>{html.escape(f'Run {n}: {run}')}</h3>"
        lines = [
            f"<div class='{a.kind}'><dt>{html.escape(a.question)}</dt>{_lines(a.text)}</div>" for a in answers
        ]
        yield f"<dl class='answers'>{''.join(lines)}</dl>"
    if head.more:
        yield f"<p class='soft'>{html.escape(head.more)}</p>"


def _lines(text: str) -> str:
    return "".join(f"<dd>{html.escape(line)}</dd>" for line in text.splitlines())


def story_html(chapters: list[Chapter]) -> Iterator[str]:
    yield "<section aria-labelledby='story'><h2 id='story'>The story</h2>"
    many = sum(bool(chapter.run) for chapter in chapters) > 1
    for n, chapter in enumerate(chapters, 1):
        if many:
            title = f"Run {n}: {chapter.run}" if chapter.run else "All runs together"
            yield f"<h3 class='run'>{html.escape(title)}</h3>"
        yield "<ol class='story'>"
        for kind, sentence in chapter.sentences:
            mark = f"<span class='kind'>{html.escape(KINDS[kind])}</span>"
            yield f"<li class='{kind}'>{mark}<span>{html.escape(sentence)}</span></li>"
        yield "</ol>"
    yield "</section>"


def section_html(section: Section) -> Iterator[str]:
    yield f"<section aria-labelledby='{section.name}'><h2 id='{section.name}'>{html.escape(section.title)}</h2>"
    for words in section.words:
        yield f"<p>{html.escape(words)}</p>"
    yield "<div class='charts'>"
    for chart in section.charts:
        yield chart_html(chart)
    yield "</div>"
    for table in section.tables:
        yield folded(table)
    yield "</section>"


def chart_html(chart: Chart) -> str:
    """A figure with its words above it and its numbers below."""
    words = f"<figcaption><h3>{html.escape(chart.title)}</h3><p>{html.escape(chart.alt)}</p></figcaption>"
    if chart.figure is None:
        return f"<figure class='none wide' id='plot-{chart.name}'>{words}</figure>"
    spoken = html.escape(f"{chart.title}. {chart.alt}", quote=True)
    plot = f"<div class='plot' role='img' aria-label=\"{spoken}\" data-figure='figure-{chart.name}'></div>"
    wide = " class='wide'" if chart.wide else ""
    numbers = folded(Table("These numbers as a table", chart.rows))
    return f"<figure{wide} id='plot-{chart.name}'>{words}{plot}{numbers}</figure>"


def figure_data(chart: Chart) -> str:
    """The figure, for the script that draws it."""
    return f'<script type="application/json" id="figure-{chart.name}">{safe_json(chart.figure)}</script>'


def folded(table: Table) -> str:
    """A table behind its title."""
    if not table.rows:
        return f"<p class='soft'>{html.escape(table.title)}: {html.escape(table.empty)}</p>"
    shown = thinned(table.rows)
    less = (
        f" ({len(shown)} of {len(table.rows):,} rows, evenly chosen)" if len(table.rows) > TABLE_ROWS else ""
    )
    head = f"<summary>{html.escape(table.title)}{less}</summary>"
    scroll = f"<div class='scroll' tabindex='0' role='region' aria-label=\"{html.escape(table.title, quote=True)}\">"
    return f"<details>{head}{scroll}{table_html(shown)}</div></details>"


def table_html(rows: Sequence[Row]) -> str:
    columns = columns_of(rows)
    numeric = {c for c in columns if all(isinstance(row.get(c), int | float | None) for row in rows)}
    head = "".join(f"<th scope='col'{_right(c in numeric)}>{html.escape(c)}</th>" for c in columns)
    lines = []
    for row in rows:
        cells = ((cell(row.get(column)), column in numeric) for column in columns)
        texts = (f"<td{_long(text) or _right(right)}>{html.escape(text)}</td>" for text, right in cells)
        lines.append(f"<tr>{''.join(texts)}</tr>")
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table>"


def _right(numeric: bool) -> str:
    return " class='number'" if numeric else ""


def _long(text: str) -> str:
    return " class='long'" if len(text) > LONG else ""


# ── Builds the report: one HTML file with plotly.js in it, and a folder with every plot on a page of its
# own

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
        run_sections.timeline_section,
        model_sections.fidelity_section,
        run_sections.latency_section,
        run_sections.strain_section,
        model_sections.cost_section,
        model_sections.forecast_section,
        comparisons.policies_section,
        comparisons.changes_section,
        model_sections.sources_section,
    ]
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
