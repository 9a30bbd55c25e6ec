"""`headgate analyze TRACE…`: traces to answers, with Spark."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from topology_runtime.errors import UsageError
from topology_runtime.faults.words import counted
from topology_runtime.output import emit, format_or_folder, split

if TYPE_CHECKING:
    from dashboards.analytics.data_places import DataPlace
    from dashboards.analytics.pipeline import Tell

REPORT = "report.html"


@click.command()
@click.argument("traces", nargs=-1, required=True, metavar="TRACE…")
@click.option(
    "--to",
    "folder",
    metavar="DIR",
    help="Folder for what comes of it (default: `analysis/NAME` beside TRACE).",
)
@click.option("--master", default="local[*]", show_default=True, help="Where Spark runs: any Spark URL.")
@click.option("--memory", default="2g", show_default=True, help="Of Spark's driver.")
@click.option("--spark", multiple=True, metavar="KEY=VALUE", help="A setting of Spark; repeat it.")
@click.option("--strict", is_flag=True, help="End with 3 when any file cannot be used.")
@click.option("--again", is_flag=True, help="Aggregate and answer anew, also if nothing has changed.")
@click.option(
    "--follow", "follows", is_flag=True, help="Keep the analysis of a run up to date until it is over."
)
@format_or_folder
def analyze(
    traces: tuple[str, ...], folder: str | None, follows: bool, outputs: tuple[str, ...], **options: Any
) -> None:  # fmt: skip
    """What runs did, from their traces: stability, predicted against actual, latency, bottlenecks, cost.

    TRACE is the folder of a run, of a topology's runs, or of all traces; a path or a URI that Spark reads. Files
    that cannot be used are listed with the reason, and left out."""
    from dashboards.analytics.output_folder import default_output
    from dashboards.analytics.pipeline import AnalysisSettings, run

    output, folder = split(outputs, folder)
    options["spark"] = dict(_setting(text) for text in options["spark"])
    to, settings = folder or default_output(traces), AnalysisSettings(**options)
    if follows:
        from dashboards.analytics.follow import follow_traces

        analysis = follow_traces(traces, to, settings, _line_on_stderr, report_of)
    else:
        with progress() as tell:
            analysis = run(traces, to, settings, tell, report_of)
    for row in analysis["left_out"][:20] if output == "table" else []:
        click.echo(f"left out: {row['file']}: {row['kind']}: {row['reason']}", err=True)
    report = Path(to, REPORT)
    analysis["report"] = str(report) if "://" not in to and report.is_file() else None
    emit(output, analysis, rows_of(analysis), "")
    if output == "table":
        click.echo(f"\nall of it: {to}/analysis.json; refitted models: {analysis['models']}", err=True)
        if analysis["report"]:
            click.echo(f"to read: {analysis['report']}", err=True)


def report_of(draft: DataPlace) -> None:
    """The report as one page, where it can be built; a word on stderr where it cannot."""
    from dashboards.report import build
    from topology_runtime.errors import InvalidInput

    if not draft.local:
        click.echo(f"no report: {draft.parent.uri} is not on this machine", err=True)
        return
    try:
        build(Path(draft.path))
    except InvalidInput as error:
        click.echo("\n".join(["no report:", *error.lines()]), err=True)


def rows_of(analysis: dict[str, Any]) -> list[dict[str, Any]]:
    """The analysis in lines: what, how much, and a remark."""
    rows = [_line("rows", analysis["rows"], f"of samples, of {counted(len(analysis['runs']), 'run')}")]
    for of in ("rate", "cpu", "memory"):
        fit = analysis[of]
        median, p95, worst = (_short(fit[f"{name}_error"]) for name in ("median", "p95", "worst"))
        words = f"median error {median}, 95 % {p95}, worst {worst}"
        rows.append(_line(f"{of}: R² predicted / actual", fit["r2"], words))
    known = [row["stable"] for row in analysis["stability"]]
    words = f"of {len(known)} epochs and paths; {known.count(False)} unstable, {known.count(None)} too short to tell"
    rows.append(_line("stable", known.count(True), words))
    rows += [_line(f"latency {name}, ms", value, "") for name, value in analysis["latency_ms"].items()]
    rows.append(_line("re-plans", len(analysis["replans"]), _reasons(analysis["replans"])))
    rows += [_bottleneck(row) for row in analysis["bottlenecks"] if row["rank"] == 1][:10]
    for row in analysis["cost"]:
        if row["epoch"] is None:
            price = "no price known" if row["usd"] is None else f"{row['usd']:.4g} USD"
            rows.append(_line(f"slot-hours of {row['run']}", row["slot_hours"], price))
    refitted = [row["task"] for row in analysis["refitted"] if row["file"]]
    rows.append(
        _line("models refitted", len(refitted), ", ".join(refitted) or "no task was busy all the time, alone")
    )
    rows.append(_line("left out", len(analysis["left_out"]), "files, columns or models"))
    return rows


def _bottleneck(row: dict[str, Any]) -> dict[str, Any]:
    words = f"{row['task']} on {row['vm']}/{row['slot']}"
    return _line(f"busiest in epoch {row['epoch']} of {row['run']}", row["busy_share"], words)


def _line(what: str, value: Any, remark: str) -> dict[str, Any]:
    return {"what": what, "value": value, "remark": remark}


def _reasons(replans: list[dict[str, Any]]) -> str:
    reasons = [row["reason"] for row in replans]
    return ", ".join(f"{reasons.count(reason)} {reason}" for reason in sorted(set(reasons)))


def _short(value: float | None) -> str:
    return "N/A" if value is None else f"{value:.3g}"


def _setting(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not (key.startswith("spark.") and equals):
        raise UsageError(f"--spark: {text!r} is not spark.KEY=VALUE")
    return key, value


def _line_on_stderr(step: str) -> None:
    click.echo(f"analyze: {step}", err=True)


@contextmanager
def progress() -> Iterator[Tell]:
    """Steps on stderr: a bar on a terminal, a line each elsewhere."""
    from dashboards.analytics.pipeline import STEPS

    if not sys.stderr.isatty():
        yield _line_on_stderr
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from topology_runtime.output import console

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console(sys.stderr), transient=True) as shown:
        task = shown.add_task("analyze", total=STEPS)

        step_now = ["analyze"]

        def tell(step: str) -> None:
            step_now[0] = step
            shown.update(task, description=step, advance=1)

        with _often(lambda: shown.update(task, description=step_now[0] + _tasks())):
            yield tell


def _tasks() -> str:
    """How far Spark is within a step."""
    from dashboards.analytics.spark import tasks_running

    found = tasks_running() if "pyspark" in sys.modules else None
    return f" ({found[0]} of {found[1]} tasks)" if found and found[1] > 1 else ""


@contextmanager
def _often(show: Callable[[], None]) -> Iterator[None]:
    """Call it twice a second meanwhile."""
    over = threading.Event()

    def work() -> None:
        while not over.wait(0.5):
            show()

    thread = threading.Thread(target=work, name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
