"""`headgate traces compact|expire`: what is done with traces on a disk."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headgate.topology_runtime.commands.output import Bars, Format, emit, format_options
from headgate.topology_runtime.errors import Conflict, HeadgateError, InvalidInput
from headgate.topology_runtime.traces.old_traces import (
    Old,
    excess,
    finish_removals,
    is_trace,
    remove,
    traces_in,
)
from headgate.topology_runtime.wire.run_options import DEFAULT_KEEP, parse_keep
from headgate.topology_runtime.wording import counted

if TYPE_CHECKING:
    from headgate.dashboards.analytics.storage.trace_runs import TraceRun
    from headgate.dashboards.traces.compaction import Compacted

Row = dict[str, Any]


@click.command()
@click.argument("traces", nargs=-1, required=True, metavar="TRACE…")
@format_options
def compact(traces: tuple[str, ...], output: Format) -> None:
    """Make few large Parquet files of the many small ones of runs that are over.

    TRACE is a run, all runs of a topology, or all traces. A run that still records is left alone. The same rows are
    there for whoever reads meanwhile. A table is done or not: a kill at any point loses nothing."""
    from headgate.dashboards.analytics.storage import trace_runs
    from headgate.dashboards.analytics.storage.data_folders import place

    away = [text for text in traces if not place(text).local]
    if away:
        raise InvalidInput(
            f"{away[0]} is not on this machine",
            cause="an object store cannot replace many files by one in a single step",
            hint="compact traces before they are copied there",
        )
    try:
        runs, left = trace_runs.find(traces)
    except InvalidInput as error:
        hint = "headgate traces compact traces/TOPOLOGY/RUN"
        raise InvalidInput("there is nothing to compact", faults=error.faults, hint=hint) from error
    for row in left:
        if row.kind not in ("models", "duplicate"):
            click.echo(f"left as it is: {row.file}: {row.reason}", err=True)
    rows, faults = _compacted(runs)
    emit(output, {"schema": "headgate/compact/v1", "runs": rows}, rows)
    if faults:
        raise HeadgateError(f"{counted(len(faults), 'run')} could not be compacted", faults=faults)


def _compacted(runs: Sequence[TraceRun]) -> tuple[list[Row], list[str]]:
    """(a row for each run, what went wrong)."""
    from headgate.dashboards.traces import compaction

    rows, faults = [], []
    with Bars() as bars:
        for run in runs:

            def tell(read: int, of: int, name: str = run.key) -> None:
                bars.show("compact", name, read, of, f"{read:,} of {of:,} files")

            try:
                done = compaction.compact(run, time.time(), tell)
            except (OSError, Conflict) as error:
                faults.append(f"{run.key}: {error}")
                continue
            for file in done.left:
                click.echo(f"left as it is: {file.file}: {file.reason}", err=True)
            rows.append(_row(done))
    return rows, faults


def _row(done: Compacted) -> Row:
    return {
        "run": done.run,
        "files_before": done.files_before,
        "files": done.files_after,
        "bytes_before": done.bytes_before,
        "bytes": done.bytes_after,
        "left_alone": done.why,
    }


@click.command()
@click.argument("traces", nargs=-1, required=True, metavar="TRACES…", type=click.Path(path_type=Path))
@click.option(
    "--keep",
    required=True,
    metavar="LIMITS",
    help=f"What stays of each topology, as `up --set trace-keep`: {DEFAULT_KEEP}; also days=N.",
)
@click.option("--yes", is_flag=True, help="Do not ask.")
@format_options
def expire(traces: tuple[Path, ...], keep: str, yes: bool, output: Format) -> None:
    """Remove the oldest runs of each topology until the rest is within --keep.

    TRACES is the folder of a topology's runs, or of all traces. First it lists what would go. Without --yes it asks,
    or, off a terminal, removes nothing. A run that still records stays, and so does what is no trace."""
    limits, now_s = parse_keep(keep, "--keep"), time.time()
    folders = list(dict.fromkeys(folder for one in traces for folder in _topologies(one)))
    found: list[Old] = []
    for folder in folders:
        there = traces_in(folder)
        found += excess(there, limits, now_s, len(there))
    words = f"{counted(len(found), 'run')}, {sum(old.size_bytes for old in found) / 1e6:,.1f} MB"
    sure = yes or not found
    if not sure and sys.stdin.isatty():
        for old in found:
            click.echo(f"{_name(old)}, last written to {_time(old)}", err=True)
        click.confirm(f"Remove {words}?", abort=True, err=True)
        sure = True
    removed, faults = _removed(folders, found) if sure else ({}, [])
    rows = [
        {
            "run": _name(old),
            "bytes": old.size_bytes,
            "changed": _time(old),
            "removed": removed.get(old.folder, False),
        }
        for old in found
    ]
    emit(output, {"schema": "headgate/expire/v1", "runs": rows}, rows)
    if not sure:
        click.echo(f"nothing is removed; --yes removes {words}", err=True)
    if faults:
        raise HeadgateError(f"{counted(len(faults), 'run')} could not be removed", faults=faults)


def _topologies(folder: Path) -> Iterator[Path]:
    """The folders with runs in them. Raises InvalidInput when there is none."""
    hint = "headgate traces expire traces/TOPOLOGY --keep runs=100"
    if not folder.is_dir():
        raise InvalidInput(f"{folder}: there is no such folder", hint=hint)
    if is_trace(folder):
        raise InvalidInput(f"{folder} is one run", cause="the oldest of several runs go", hint=hint)
    inside = [one for one in sorted(folder.iterdir()) if one.is_dir() and not one.is_symlink()]
    found = (
        [folder]
        if any(map(is_trace, inside))
        else [one for one in inside if any(is_trace(run) for run in one.iterdir() if run.is_dir())]
    )
    if not found:
        raise InvalidInput(f"{folder}: no run is in it", hint=hint)
    yield from (one.resolve() for one in found)


def _removed(folders: Sequence[Path], found: Sequence[Old]) -> tuple[dict[Path, bool], list[str]]:
    """(which are gone, what went wrong)."""
    gone, faults = {}, []
    for folder in folders:
        finish_removals(folder)
    with Bars() as bars:
        for n, old in enumerate(found):
            bars.show("expire", _name(old), n, len(found))
            try:
                gone[old.folder] = remove(old.folder)
            except OSError as error:
                faults.append(f"{_name(old)}: {error}")
                continue
            if not gone[old.folder]:
                click.echo(f"{_name(old)} still records: it stays", err=True)
    return gone, faults


def _name(old: Old) -> str:
    return f"{old.folder.parent.name}/{old.folder.name}"


def _time(old: Old) -> str:
    return datetime.fromtimestamp(old.changed_s, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
