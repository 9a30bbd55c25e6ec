"""Builds the report: one HTML file with plotly.js in it, and a folder with every plot on a page of its own. All text is
escaped by the template; nothing is fetched.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec

from headgate.dashboards.analytics.storage.result_tables import TABLES
from headgate.dashboards.report import model_charts, run_charts
from headgate.dashboards.report.analysis_files import Analysis, read
from headgate.dashboards.report.report_charts import RUNS_DRAWN, Chart, Row, Table, spelled, thinned
from headgate.dashboards.report.report_facts import headline
from headgate.dashboards.report.report_wording import cell, count, listed, number, seen
from headgate.topology_runtime.commands.output import columns_of
from headgate.topology_runtime.errors import InvalidInput
from headgate.topology_runtime.wording import UNSEEN

SCHEMA = "headgate/report/v1"
DEFAULT = "report.html"
PLOTLY = "plotly.min.js"
KINDS = {"came": "what came", "replan": "△ re-planned", "broke": "✕ went wrong", "fine": "✓ good", "cost": "cost",
         "next": "→ what next"}  # fmt: skip
NONE, UNKNOWN = "none was found", "cannot be determined from this run"


@dataclass(frozen=True)
class Section:
    """charts: of an analysis; tables: (title, result table, what is said when it is empty); optional: left out when its
    tables are empty."""

    name: str
    title: str
    charts: Callable[[Analysis], list[Chart]] | None
    tables: Sequence[tuple[str, str, str]]
    optional: bool = False

    def tables_of(self, analysis: Analysis) -> list[Table]:
        return [Table(title, rows_of(analysis, name), empty) for title, name, empty in self.tables]


SECTIONS = (
    Section("timeline", "Timeline", run_charts.timelines, (
        ("Plans, and what each cost", "replans", "no decisions were recorded"),
        ("What else happened, in the controller's words", "run_notes", "nothing, or not recorded"),
    )),
    Section("fidelity", "Predicted against actual", model_charts.fidelity, (
        ("Errors by task, slot, VM and pair", "residuals", "N/A"),
        ("Tasks in each epoch", "tasks_residuals", "N/A"),
    )),
    Section("latency", "Latency", run_charts.latencies, (
        ("Latency per epoch and path", "latency_epochs", "N/A"),
        ("Predicted latency beside measured, by plan, rate and sink", "latency_foreseen", "none was predicted"),
    )),
    Section("strain", "Bottlenecks and stability", run_charts.strains, (
        ("When rows waited for long, and before whom", "episodes", NONE),
        ("The busiest groups of threads (a task in a slot)", "bottlenecks", "N/A"),
        ("How fast each slot is, against the others", "slot_speeds", UNKNOWN),
        ("What tasks cost each other in a slot", "pair_costs", UNKNOWN),
        ("Memory that only grew", "leaks", NONE),
        ("Threads that took in twice what their plan gives them, or more", "skewed_threads", NONE),
        ("Stability", "stability", "N/A"),
        ("Traffic between tasks", "pairs", "N/A"),
    )),
    Section("cost", "Cost", run_charts.slots, (("Slot-hours, VM-hours and dollars", "cost", "N/A"),)),
    Section("forecast", "Season and forecast", run_charts.forecasts, ()),
    Section("policies", "Other policies", None, (("Ranking", "policies_tried", "N/A"),), optional=True),
    Section("changes", "Against the run before", None, (("All figures", "run_changes", "N/A"),), optional=True),
    Section("sources", "Models, and what was left out", None, (
        ("Refitted models", "refitted", "N/A"), ("Left out", "left_out", "N/A"),
    )),
)  # fmt: skip


def rows_of(analysis: Analysis, name: str) -> list[Row]:
    """Of whole epochs the stability, of paths with rows the latency; costs of whole runs first."""
    rows: list[Any] = analysis.rows(TABLES[name])
    if name == "stability":
        rows = [row for row in rows if row.scope == "epoch"]
    elif name == "latency_epochs":
        rows = [row for row in rows if row.tuples > 0]
    elif name == "cost":
        rows = sorted(rows, key=lambda row: row.epoch is not None)
    return [spelled(row) for row in rows]


def sections_of(analysis: Analysis) -> list[tuple[Section, list[Chart], list[Table]]]:
    made = [
        (section, section.charts(analysis) if section.charts else [], section.tables_of(analysis))
        for section in SECTIONS
    ]
    return [one for one in made if not one[0].optional or any(table.rows for table in one[2])]


def build(folder: Path, output: Path | None = None) -> Path:
    """Write the report of the analysis in `folder` to `output` (default: report.html in it), with the folder
    of plots beside it; the path of the HTML file. Raises InvalidInput."""
    plotly = plotly_js()
    from headgate.dashboards.report.report_sentences import sentences

    analysis, path = read(folder), output or folder / DEFAULT
    said, sections = sentences(analysis), sections_of(analysis)
    charts = [chart for _, its, _ in sections for chart in its if chart.figure is not None]
    runs = analysis.runs
    title = f"headgate: {runs[0] if len(runs) == 1 else count(len(runs), 'run')}"
    which = f"; run {listed([f'{n}: {run}' for n, run in enumerate(runs, 1)])}" if len(runs) > 1 else ""
    answers = {run: said.answers(run) for run in runs[:RUNS_DRAWN]}
    summary = {
        "schema": SCHEMA, "runs": runs, "analysis": analysis.document,
        "answers": [
            {"run": run, "answers": [{"question": q, "kind": k, "text": "\n".join(t)} for q, (k, t) in its.items()]}
            for run, its in answers.items()
        ],
        "story": [
            {"run": run or None, "sentences": [{"kind": kind, "text": text} for kind, text in its]}
            for run, its in said.story
        ],
        "rows": {name: len(rows) for name, rows in analysis.tables.items()},
        "plots": [{"name": chart.name, "title": chart.title, "words": chart.alt} for chart in charts],
    }  # fmt: skip
    shown = {
        "title": title, "about": f"{number(analysis.document.get('rows'))} samples of threads were read{which}",
        "many": len(runs), "answers": answers, "numbers": headline(analysis), "story": said.story, "said": said,
        "sections": sections, "charts": charts, "summary": summary, "plotly": plotly, "alone": None,
    }  # fmt: skip
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _write(path, _template().render(shown))
        plots = path.parent / ("plots" if path.name == DEFAULT else f"{path.stem}-plots")
        plots.mkdir(exist_ok=True)
        _write(plots / PLOTLY, plotly)
        for chart in charts:
            own = {"title": f"{chart.title} – {title}", "alone": chart, "charts": [chart]}
            _write(plots / f"{chart.name}.html", _template().render(own))
            _write(plots / f"{chart.name}.json", safe_json(chart.figure) + "\n")
    except OSError as error:
        raise InvalidInput(f"the report {path} cannot be written", cause=error.strerror) from error
    return path


@cache
def _template() -> Any:
    import jinja2

    here = jinja2.FileSystemLoader(Path(__file__).parent)
    known = jinja2.Environment(loader=here, undefined=jinja2.StrictUndefined, finalize=seen, autoescape=True)
    known.filters |= {"safe_json": safe_json, "cell": cell, "columns": columns_of, "thinned": thinned}
    known.filters |= {"numeric": _numeric, "asset": asset, "count": count}
    known.globals |= {"KINDS": KINDS, "PLOTLY": PLOTLY}
    return known.get_template("page.jinja")


def _numeric(rows: Sequence[Row], column: str) -> bool:
    return all(isinstance(row.get(column), int | float | None) for row in rows)


def safe_json(value: Any) -> str:
    """JSON that may stand in a script element: no `<` ends it early. NaN is refused."""
    text = json.dumps(
        value, allow_nan=False, ensure_ascii=False, separators=(",", ":"), default=msgspec.to_builtins
    )
    text = UNSEEN.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def asset(name: str) -> str:
    """A file of this package."""
    return (Path(__file__).parent / name).read_text("utf-8")


def plotly_js() -> str:
    """The library that draws, from the installed package. Raises InvalidInput when it is not there."""
    found = find_spec("plotly")
    path = Path(found.origin or "").parent / "package_data" / PLOTLY if found else None
    if path is None or not path.exists() or find_spec("jinja2") is None:
        raise InvalidInput(
            "plotly or jinja2 is not installed, which make the report", hint="pip install 'headgate[report]'"
        )
    return path.read_text("utf-8")


def _write(path: Path, text: str) -> None:
    """By rename, so that nobody reads half of it."""
    new = path.with_name(f"{path.name}.new")
    new.write_text(text, "utf-8")
    os.replace(new, path)
