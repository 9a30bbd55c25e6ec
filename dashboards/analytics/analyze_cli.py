"""`headgate analyze TRACE…`: traces to answers, with Spark."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headgate.dashboards.terminal.connection import contact_of, controller_option
from headgate.topology_runtime.errors import UsageError
from headgate.topology_runtime.output import emit, format_or_folder, split

if TYPE_CHECKING:
    from headgate.dashboards.analytics.data_places import DataPlace
    from headgate.dashboards.analytics.earlier import ComparedWith
    from headgate.dashboards.analytics.pipeline import AnalysisSettings, Tell
    from headgate.dashboards.analytics.trace_runs import TraceRun

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
@click.option(
    "--against",
    metavar="TRACE",
    help="The run to compare with (default: the one of the same topology before it; none: not at all).",
)
@click.option(
    "--offer",
    "offers",
    is_flag=True,
    help="With --follow: offer refitted models and a season to the run's controller, which takes what it believes "
    "(an operator's key is needed).",
)
@controller_option
@click.option(
    "--policies",
    metavar="P,…",
    help="What these would have done with the same offer, as `headgate replay --policy` says, ranked.",
)
@format_or_folder
def analyze(
    traces: tuple[str, ...],
    folder: str | None,
    follows: bool,
    offers: bool,
    controller: str | None,
    outputs: tuple[str, ...],
    **options: Any,
) -> None:
    """What runs did, from their traces: stability, predicted against actual, latency, bottlenecks, cost.

    TRACE is the folder of a run, of a topology's runs, or of all traces; a path or a URI that Spark reads. Files
    that cannot be used are listed with the reason, and left out."""
    from headgate.dashboards.analytics.output_folder import default_output
    from headgate.dashboards.analytics.pipeline import AnalysisSettings, run
    from headgate.dashboards.analytics.printed_lines import lines_of

    if offers and not follows:
        raise UsageError("--offer goes with --follow: what is over is offered to nobody")
    if controller is not None and not offers:
        raise UsageError("--controller is where --offer goes", hint="headgate analyze --follow TRACE --offer")
    output, folder = split(outputs, folder)
    options["spark"] = dict(_setting(text) for text in options["spark"])
    against, policies = options.pop("against"), options.pop("policies")
    if policies and follows:
        raise UsageError("--policies and --follow exclude each other: it is tried with runs that are over")
    to, settings = folder or default_output(traces), AnalysisSettings(**options)
    settings = replace(settings, before=_beside(traces, against, policies, settings))
    if follows:
        from headgate.dashboards.analytics.follow import follow_traces

        contact = contact_of(controller) if offers else None
        analysis = follow_traces(traces, to, settings, _line_on_stderr, report_of, contact)
    else:
        with progress() as tell:
            analysis = run(traces, to, settings, tell, report_of)
    for row in analysis["left_out"][:20] if output == "table" else []:
        click.echo(f"left out: {row['file']}: {row['kind']}: {row['reason']}", err=True)
    report = Path(to, REPORT)
    analysis["report"] = str(report) if "://" not in to and report.is_file() else None
    emit(output, analysis, lines_of(analysis), "")
    if output == "table":
        click.echo(f"\nall of it: {to}/analysis.json; refitted models: {analysis['models']}", err=True)
        if analysis["report"]:
            click.echo(f"to read: {analysis['report']}", err=True)


def _beside(
    traces: tuple[str, ...], against: str | None, policies: str | None, settings: AnalysisSettings
) -> ComparedWith:
    """The run before, or the one that was named, analysed now if that has to be; and what policies would have done."""
    from headgate.dashboards.analytics.earlier import ComparedWith, compared_with
    from headgate.dashboards.analytics.pipeline import run
    from headgate.dashboards.analytics.policies import policies_tried

    def analyse(other: TraceRun, folder: str) -> None:
        alone = replace(settings, strict=False, again=False, before=ComparedWith())
        run([other.place.uri], folder, alone, lambda step: None, report_of)

    found = compared_with(traces, against, analyse, _line_on_stderr)
    return replace(found, policies=policies_tried(traces, policies, _line_on_stderr)) if policies else found


def report_of(draft: DataPlace) -> None:
    """The report as one page, where it can be built; a word on stderr where it cannot."""
    from headgate.dashboards.report import build
    from headgate.topology_runtime.errors import InvalidInput

    if not draft.local:
        click.echo(f"no report: {draft.parent.uri} is not on this machine", err=True)
        return
    try:
        build(Path(draft.path))
    except InvalidInput as error:
        click.echo("\n".join(["no report:", *error.lines()]), err=True)


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
    from headgate.dashboards.analytics.pipeline import STEPS

    if not sys.stderr.isatty():
        yield _line_on_stderr
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from headgate.topology_runtime.output import console

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
    from headgate.dashboards.analytics.spark import tasks_running

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
