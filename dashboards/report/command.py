"""`headgate report`: one HTML file of a run that is over, or of an analysis of many."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import click

from headgate.dashboards.analytics.output_folder import default_output
from headgate.topology_runtime.errors import HeadgateError, InvalidInput, UsageError
from headgate.topology_runtime.output import Format, emit, short_format_options
from headgate.topology_runtime.trace_tables import RUN_FILE

ANALYSIS = "analysis.json"


@click.command()
@click.argument("folder", metavar="RUN|FOLDER", type=click.Path(path_type=Path))
@click.option("--output", "path", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE.html",
              help="Default: report.html in the analysis; its plots go into a folder beside it.")  # fmt: skip
@click.option("--again", is_flag=True, help="Analyse the run again, also if it was.")
@short_format_options
def report(folder: Path, path: Path | None, again: bool, output: Format) -> None:
    """Write the report of an analysis (the folder of `headgate analyze`), or of a RUN (a trace, for example
    traces/demo/20260101-120000-1), which is analysed first if it was not: one HTML file that needs no network."""
    from headgate.dashboards.report import build

    made = build(analysis_of(folder, again), path)
    if output == "table":
        click.echo(made)
    else:
        emit(output, {"schema": "headgate/report/v1", "report": str(made)}, [{"report": str(made)}])


def analysis_of(folder: Path, again: bool = False) -> Path:
    """The folder of the analysis: this one, or that of the run, made now if need be. Raises InvalidInput."""
    there = (folder / ANALYSIS).is_file()
    if there and not again:
        return folder
    if not (folder / RUN_FILE).is_file():
        if there:
            raise UsageError(
                f"--again: {folder} is an analysis, and does not tell where its traces are",
                hint=f"headgate analyze TRACE… --output {folder}",
            )
        what = "is neither an analysis nor a run" if folder.is_dir() else "does not exist"
        raise InvalidInput(f"{folder} {what}", hint=_near(folder))
    its = folder if there else Path(default_output([str(folder)]))
    if again or not _is_of(its / ANALYSIS, folder.absolute()):
        _analyse(folder, its, again)
    return its


def _near(folder: Path) -> str:
    """What could have been meant."""
    runs = sorted(folder.glob(f"*/*/{RUN_FILE}")) + sorted(folder.glob(f"*/{RUN_FILE}"))
    if runs:
        return f"name one run, for example {runs[-1].parent}; or all: `headgate analyze {folder}`"
    return "name the folder of a trace (traces/TOPOLOGY/RUN) or of `headgate analyze`"


def _is_of(analysis: Path, trace: Path) -> bool:
    """Is it an analysis of this run alone, made after its last segment was written?"""
    try:
        runs = json.loads(analysis.read_bytes()).get("runs")
        made_s = analysis.stat().st_mtime
    except (OSError, ValueError, AttributeError):
        return False
    last_s = max((file.stat().st_mtime for file in trace.glob("*/*.parquet")), default=0.0)
    return made_s >= last_s and runs == [f"{trace.parent.name}/{trace.name}"]


def _analyse(trace: Path, output: Path, again: bool) -> None:
    """`headgate analyze` in a process of its own. Raises what it ended with."""
    if find_spec("pyspark") is None:
        raise InvalidInput(
            f"{trace} was not analysed yet, and Spark is not installed",
            hint=f"pip install 'headgate[spark]', or on another machine `headgate analyze {trace} --output DIR`",
        )
    click.echo(f"analysing {trace} first", err=True)
    words = [
        "-P",
        "-m",
        "headgate.dashboards.cli",
        "analyze",
        str(trace),
        "--output",
        str(output),
        "-o",
        "json",
    ]
    words += ["--again"] if again else []
    code = subprocess.run([sys.executable, *words], stdout=subprocess.DEVNULL).returncode
    if code:
        error = HeadgateError(f"{trace} could not be analysed", cause=f"`headgate analyze` ended with {code}")
        error.exit_code = code
        raise error
