"""`headgate analyze TRACE…`: traces to answers."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from headgate.dashboards.analytics.storage import trace_runs
from headgate.dashboards.analytics.storage.result_tables import CARRIES, PolicyTried
from headgate.dashboards.analytics.storage.trace_runs import TraceRun
from headgate.dashboards.runs.connection import contact_of, controller_option
from headgate.dashboards.traces.lineage import lineage
from headgate.topology_runtime.commands.output import Format, emit, format_options
from headgate.topology_runtime.commands.rare_settings import SettingsCommand, setting
from headgate.topology_runtime.errors import HeadgateError, UsageError
from headgate.topology_runtime.wording import counted

if TYPE_CHECKING:
    from headgate.dashboards.analytics.analyses.earlier_run import ComparedWith
    from headgate.dashboards.analytics.analysis_pipeline import AnalysisSettings, Tell
    from headgate.dashboards.analytics.storage.data_folders import DataPlace
    from headgate.dashboards.analytics.storage.trace_runs import TraceRun

REPORT = "report.html"


@click.command(cls=SettingsCommand)
@click.argument("traces", nargs=-1, required=True, metavar="TRACE…")
@click.option(
    "--output",
    "folder",
    metavar="DIR",
    help="Folder for what comes of it (default: `analysis/NAME` beside TRACE).",
)
@click.option(
    "--master", metavar="URL", help="Work on Spark there: any Spark URL (default: DuckDB, in this process)."
)
@setting("--memory", default="2g", show_default=True, help="Memory of this process, or of Spark's driver.")
@setting("--spark", multiple=True, metavar="KEY=VALUE", help="A setting of Spark; repeat it.")
@setting("--strict", is_flag=True, help="End with 3 when any file cannot be used.")
@setting("--again", is_flag=True, help="Analyze again, also if nothing has changed.")
@click.option(
    "-f",
    "--follow",
    "follows",
    is_flag=True,
    help="Keep the analysis of a run up to date until it is over.",
)
@setting(
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
    "--policy",
    "policies",
    multiple=True,
    metavar="P",
    help="What this policy would have done with the same offer, as `headgate replay --policy` says; repeat it.",
)
@click.option(
    "--report",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE.html",
    help="Write the report here too (it is always in the folder of --output); its plots go into a folder beside it.",
)
@click.option(
    "--report-only",
    is_flag=True,
    help="Write only the report of an analysis that is there already. TRACE is the run, or the folder of the analysis.",
)
@format_options
def analyze(
    traces: tuple[str, ...],
    folder: str | None,
    follows: bool,
    offers: bool,
    controller: str | None,
    report: Path | None,
    report_only: bool,
    output: Format,
    **options: Any,
) -> None:
    """What runs did, from their traces: stability, predicted against actual, latency, bottlenecks, cost.

    TRACE is the folder of a run, of a topology's runs, or of all traces; a path, or a URI that Spark reads. Files
    that cannot be used are listed with the reason, and left out."""
    if report_only:
        write_report(traces, report, output)
        return
    from headgate.dashboards.analytics.analysis_pipeline import AnalysisSettings, run
    from headgate.dashboards.analytics.storage.output_folder import default_output

    if offers and not follows:
        raise UsageError("--offer goes with --follow: what is over is offered to nobody")
    if controller is not None and not offers:
        raise UsageError("--controller is where --offer goes", hint="headgate analyze --follow TRACE --offer")
    options["spark"] = dict(_setting(text) for text in options["spark"])
    against, policies = options.pop("against"), ",".join(options.pop("policies"))
    if policies and follows:
        raise UsageError(
            "--policy and --follow exclude each other: policies are tried with runs that are over"
        )
    to, settings = folder or default_output(traces), AnalysisSettings(**options)
    settings = replace(settings, before=_beside(traces, against, policies, settings))
    with lineage(traces, to):
        if follows:
            from headgate.dashboards.analytics.follow_run import follow_traces

            contact = contact_of(controller) if offers else None
            analysis = follow_traces(traces, to, settings, _line_on_stderr, report_of, contact)
        else:
            with progress() as tell:
                analysis = run(traces, to, settings, tell, report_of)
    for row in analysis["left_out"][:20] if output == "table" else []:
        click.echo(f"left out: {row['file']}: {row['kind']}: {row['reason']}", err=True)
    made = Path(to, REPORT)
    analysis["report"] = str(made) if "://" not in to and made.is_file() else None
    if report is not None and analysis["report"]:
        analysis["report"] = str(_build(Path(to), report))
    emit(output, analysis, lines_of(analysis), "")
    if output == "table":
        click.echo(f"\nall of it: {to}/analysis.json; refitted models: {analysis['models']}", err=True)
        if analysis["report"]:
            click.echo(f"to read: {analysis['report']}", err=True)


def write_report(traces: tuple[str, ...], report: Path | None, output: Format) -> None:
    """The report alone, of an analysis that is there. Raises UsageError, InvalidInput."""
    from headgate.dashboards.report.analysis_files import analysis_of

    if len(traces) != 1:
        raise UsageError("--report-only takes one TRACE", hint="name one run, or the folder of one analysis")
    made = str(_build(analysis_of(Path(traces[0])), report))
    if output == "table":
        click.echo(made)
    else:
        emit(output, {"schema": "headgate/report/v1", "report": made}, [{"report": made}])


def _build(analysis: Path, report: Path | None) -> Path:
    from headgate.dashboards.report import build

    return build(analysis, report)


def _beside(
    traces: tuple[str, ...], against: str | None, policies: str | None, settings: AnalysisSettings
) -> ComparedWith:
    """The run before, or the one that was named, analysed now if that has to be; and what policies would have done."""
    from headgate.dashboards.analytics.analyses.earlier_run import ComparedWith, compared_with
    from headgate.dashboards.analytics.analysis_pipeline import run

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
        raise UsageError(f"invalid Spark setting {text!r}", hint="write --set spark=spark.KEY=VALUE")
    return key, value


def _line_on_stderr(step: str) -> None:
    click.echo(f"analyze: {step}", err=True)


@contextmanager
def progress() -> Iterator[Tell]:
    """Steps on stderr: a bar on a terminal, a line each elsewhere."""
    from headgate.dashboards.analytics.analysis_pipeline import STEPS

    if not sys.stderr.isatty():
        yield _line_on_stderr
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from headgate.topology_runtime.commands.output import console

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console(sys.stderr), transient=True) as shown:
        task = shown.add_task("analyze", total=STEPS)
        yield lambda step: shown.update(task, description=step, advance=1)


# ── What `headgate analyze` prints of an analysis: a line each, short enough for a terminal of 80 columns ───

Line = dict[str, Any]
Analysis = dict[str, Any]
EPISODES_MOST, FOUND_MOST, BUSIEST_MOST = 5, 5, 10


def lines_of(analysis: Analysis) -> list[Line]:
    """The analysis in lines: what, how much, and a remark. Of several runs each has a number, given with its hours."""
    number = {run: f", run {n}" for n, run in enumerate(analysis["runs"], 1)}
    of = number if len(number) > 1 else dict.fromkeys(number, "")
    known = [row["stable"] for row in analysis["stability"]]
    words = f"{known.count(False)} unstable, {known.count(None)} too short to judge"
    refitted = [row["task"] for row in analysis["refitted"] if row["file"]]
    bottlenecks = [row for row in analysis["bottlenecks"] if row["rank"] == 1]
    return [
        _line("rows", analysis["rows"], f"of samples, of {counted(len(number), 'run')}"),
        *(_fit(analysis[kind], kind) for kind in ("rate", "cpu", "memory")),
        _line("stable epochs, paths", known.count(True), f"of {len(known)}; {words}"),
        *(_line(f"latency {name}, ms", value) for name, value in analysis["latency_ms"].items()),
        *_episodes(analysis["episodes"], of),
        *(line for kind in FINDINGS for line in kind.of(analysis[kind.key], of)),
        _line("re-plans", len(analysis["replans"]), _reasons(analysis["replans"])),
        *(_bottleneck(row, of) for row in bottlenecks[:BUSIEST_MOST]),
        *_hours(analysis["cost"], of),
        *(_policy(row, of) for row in analysis["policies_tried"]),
        _line("models refitted", len(refitted), ", ".join(refitted) or "no task was busy all along, alone"),
        _line("left out", len(analysis["left_out"]), "files, columns or models"),
    ]


def _fit(fit: dict[str, Any], kind: str) -> Line:
    median, p95, worst = (_short(fit[f"{name}_error"]) for name in ("median", "p95", "worst"))
    return _line(f"{kind}: R² predicted", fit["r2"], f"off by {median}, 95 % {p95}, worst {worst}")


def _episodes(episodes: list[Line], of: dict[str, str]) -> Iterator[Line]:
    """Those in which rows waited longest; each with when, for how long at most, and who held them up."""
    worst = max((one["peak_s"] for one in episodes), default=None)
    longest = "rows never waited for long" if worst is None else f"rows took up to {worst:,.3g} s"
    yield _line("episodes of overload", len(episodes), longest)
    for one in sorted(episodes, key=lambda one: -one["peak_s"])[:EPISODES_MOST]:
        who = "nobody alone" if one["task"] is None else f"{one['task']} in {_place(one)}"
        when = f"{one['from_s']:,.0f} to {one['to_s']:,.0f} s, due to {who}"
        yield _line(f"  longest, s{of[one['run']]}", one["peak_s"], when)


@dataclass(frozen=True)
class FindingLines:
    """A kind of finding: its key in the analysis, the name of one value and of the order (the first shown first), and
    what is said of one."""

    key: str
    title: str
    value: str
    order: str
    descending: bool
    what: str
    remark: str

    def of(self, rows: list[Line], of: dict[str, str]) -> Iterator[Line]:
        """How many there are, and a line for each of the worst."""
        yield _line(self.title, len(rows), "" if rows else "none was found")
        for row in sorted(rows, key=lambda row: row[self.order], reverse=self.descending)[:FOUND_MOST]:
            place = f"VM {row.get('vm')}" if row.get("slot") is None else _place(row)
            what, words = self.what.format(**row) + of[row["run"]], row | {"place": place}
            yield _line(what, row[self.value], self.remark.format(**words))


FINDINGS = (
    FindingLines("slow_slots", "slow slots", "speed", "speed", False, "  speed, ×",
                 "that of others ({low:.3g} to {high:.3g}): {place}"),
    FindingLines("disturbing_pairs", "disturbing pairs", "factor", "factor", True, "  a row costs, ×",
                 "({low:.3g} to {high:.3g}) CPU: {task} beside {beside}"),
    FindingLines("leaks", "leaks", "held", "full_in_s", False, "  held",
                 "of {place} at {to_s:,.0f} s; full {full_in_s:,.0f} s later"),
    FindingLines("skewed_threads", "skewed threads", "times", "times", True, "  thread {thread}, ×",
                 "what {task} has planned: epoch {epoch}, {place}"),
)  # fmt: skip


def _bottleneck(row: Line, of: dict[str, str]) -> Line:
    words = f"{row['task']} in {_place(row)}: the bottleneck"
    return _line(f"load, epoch {row['epoch']}{of[row['run']]}", row["load"], words)


def _hours(cost: list[Line], of: dict[str, str]) -> Iterator[Line]:
    for row in cost:
        if row["epoch"] is None:
            price = "no price" if row["usd"] is None else f"{row['usd']:.4g} USD"
            yield _line(f"slot-hours{of[row['run']]}", row["slot_hours"], f"{price}: {row['run']}")


def _policy(row: Line, of: dict[str, str]) -> Line:
    """Of a policy that was tried, or of the run itself, the same by the models."""
    what = f"  by policy{of[row['run']]}"
    if row["why"] is not None:
        return _line(what, None, f"{row['policy']}: {row['why']}")
    short = f"{row['violated_tuples']:,.0f} rows short" if row["violated_tuples"] else "never short"
    return _line(what, row["slot_hours"], f"{row['policy']}: {short}")


def _place(row: Line) -> str:
    return f"{row['vm']}/{row['slot']}"


def _line(what: str, value: Any, remark: str = "") -> Line:
    return {"what": what, "value": value, "remark": remark}


def _reasons(replans: list[Line]) -> str:
    reasons = [row["reason"] for row in replans]
    return ", ".join(f"{reasons.count(reason)} {reason}" for reason in sorted(set(reasons)))


def _short(value: float | None) -> str:
    return "N/A" if value is None else f"{value:.2g}"


# ── What other policies would have done with what a run was offered: `headgate replay` is asked, its
# answers ranked

LATENCIES = ("p50_ms", "p95_ms", "p99_ms")
DIFFERENT = 8  # what `replay` ends with when the run decides otherwise now
TellPolicy = Callable[[str], None]


def policies_tried(traces: Sequence[str], names: str, tell: TellPolicy) -> tuple[PolicyTried, ...]:
    """These policies with every run of the traces. Raises HeadgateError when no run could be replayed."""
    runs, _ = trace_runs.find(list(traces))
    found: list[PolicyTried] = []
    failed: HeadgateError | None = None
    for run in runs:
        try:
            found += ranked(run.key, _replayed(run, names))
        except HeadgateError as error:
            failed = error
            tell(f"no policy was tried with {run.key}: {error.cause}")
    if not found and failed is not None:
        raise failed
    return tuple(found)


def _replayed(run: TraceRun, names: str) -> dict[str, Any]:
    """What `headgate replay` says of it; its bars and words are on stderr. Raises HeadgateError."""
    if not run.place.local:
        raise HeadgateError("no policy can be tried", cause=f"{run.place.uri} is not on this machine")
    command = [
        sys.executable,
        "-P",
        "-m",
        "headgate",
        "replay",
        str(Path(run.place.path)),
        "--policy",
        names,
    ]
    done = subprocess.run([*command, "-o", "json"], stdout=subprocess.PIPE, check=False)
    if done.returncode not in (0, DIFFERENT):
        error = HeadgateError(
            "no policy can be tried", cause=f"`headgate replay` ended with {done.returncode}"
        )
        error.exit_code = done.returncode
        raise error
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def ranked(run: str, answer: dict[str, Any]) -> list[PolicyTried]:
    """The run's own line first, then the policies by their rank."""
    own, *others = (_row(run, row) for row in [answer["recorded"], *answer["policies"]])
    begun = sorted((row for row in others if row.why is None), key=_order)
    places = [msgspec.structs.replace(row, rank=place) for place, row in enumerate(begun, 1)]
    return [own, *places, *(row for row in others if row.why is not None)]


def _order(row: PolicyTried) -> tuple[bool, float, float, str]:
    short = row.violated_tuples > CARRIES * row.offered
    return short, row.violated_tuples if short else row.slot_hours, row.slot_hours, row.policy


def _row(run: str, row: dict[str, Any]) -> PolicyTried:
    names: tuple[str, ...] = (
        "slot_hours", "usd", "violations_s", "violated_tuples", "offered", "replans", "moves",
    )  # fmt: skip
    measured = ("s", "tuples", *LATENCIES)
    names += LATENCIES + tuple(f"measured_{name}" for name in measured)
    numbers = {name: row[name] for name in names}
    return PolicyTried(
        run=run, policy=row["policy"], rank=None, note=row.get("note"), why=row.get("error"), **numbers
    )
