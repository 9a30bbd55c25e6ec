"""`headgate checkpoint`: state and positions of a run under a name, and what is there of them."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import click

from headgate.controller.files import run_checkpoints
from headgate.controller.moving import checkpoint_tables
from headgate.topology_runtime.commands.output import FILE, Format, answer, emit, format_options
from headgate.topology_runtime.connectors.object_folder import absolute, object_folder
from headgate.topology_runtime.errors import HeadgateError, InvalidInput
from headgate.topology_runtime.platform.clock import wall_ns
from headgate.topology_runtime.wording import counted, utc_iso
from headgate.topology_runtime.worker.keyed_state import checkpoints
from headgate.topology_runtime.worker.keyed_state.checkpoints import Checkpoint, OpenCheckpoint
from headgate.topology_runtime.worker.keyed_state.state_snapshots import contents_of, of_range

SCHEMA = "headgate/checkpoints/v1"
name_argument = click.argument("name")
state_option = click.option(
    "--state", "url", required=True, metavar="URL", help="As `up --state-to` of the run."
)


@click.command()
@name_argument
@state_option
@click.option(
    "--state-dir",
    type=FILE,
    metavar="DIR",
    help="Of the run, on its controller's host [the one in .headgate].",
)
@format_options
def create(name: str, url: str, state_dir: Path | None, output: Format) -> None:
    """Keep the state and the positions of a run as checkpoint NAME in URL. The run goes on, or is over.

    \b
    headgate up FLOW --state-to URL
    headgate checkpoint create before-upgrade --state URL
    headgate up FLOW --from-checkpoint URL/before-upgrade
    """
    checkpoints.folder_of(name)
    url, state = absolute(url), state_dir or _the_run()
    try:
        found = run_checkpoints.once_still(
            lambda: run_checkpoints.make(state, url, wall_ns()), partial(click.echo, err=True)
        )
        files = checkpoints.write(object_folder(url), name, found)
    except OSError as error:
        raise _unusable(url, error) from error
    size = sum(file.bytes for file in files)
    words = f"checkpoint {name}: {counted(len(files), 'file')}, {size:,} bytes in {url}"
    answer(output, SCHEMA, {"name": name, "files": len(files), "bytes": size}, words)


@click.command("list")
@state_option
@format_options
def list_checkpoints(url: str, output: Format) -> None:
    """The checkpoints in URL, each read whole."""
    place, rows = object_folder(absolute(url)), list[dict[str, Any]]()
    try:
        for name in checkpoints.names(place):
            try:
                found = checkpoints.read(place, name)
                about = {
                    "topology": found.topology.name,
                    "made": utc_iso(found.run.wall_ns),
                    "bytes": _size(found),
                }
                rows.append({"name": name, **about, "trouble": ""})
            except HeadgateError as error:
                about = {"topology": "", "made": "", "bytes": 0}
                rows.append({"name": name, **about, "trouble": f"{error.what}: {error.cause}"})
    except OSError as error:
        raise _unusable(url, error) from error
    if not rows and output == "table":
        click.echo(f"no checkpoints in {url}")
        return
    emit(output, {"schema": SCHEMA, "checkpoints": rows}, rows)


@click.command()
@name_argument
@state_option
@format_options
def inspect(name: str, url: str, output: Format) -> None:
    """Check every byte of checkpoint NAME, and show its tasks and positions."""
    try:
        found = checkpoints.read(object_folder(absolute(url)), name)
    except OSError as error:
        raise _unusable(url, error) from error
    tasks = [_about(found, task.name) for task in found.topology.tasks if task.state == "keyed"]
    positions = [
        {"source": p.source, "partition": p.partition, "position": p.position, "offset": p.offset or None}
        for p in found.positions
    ]
    if output != "table":
        about = {"run": found.run.run, "rows_of": found.run.rows_of, "made": utc_iso(found.run.wall_ns)}
        document = {"schema": SCHEMA, "name": name, "topology": found.topology.name, **about}
        emit(output, {**document, "tasks": tasks, "positions": positions}, [*tasks, *positions])
        return
    click.echo(f"{name}: whole, of topology {found.topology.name}, made {utc_iso(found.run.wall_ns)}")
    emit(output, {}, tasks)
    emit(output, {}, positions)


@click.command()
@name_argument
@click.argument("file", type=FILE)
@state_option
@click.option("--task", metavar="TASK", help="Whose state [the only keyed one].")
@format_options
def export(name: str, file: Path, url: str, task: str | None, output: Format) -> None:
    """Write the state of a keyed task in checkpoint NAME to the Parquet file FILE, one row per key.

    \b
    headgate checkpoint export before-upgrade counts.parquet --state URL --task count
    duckdb -c "select key, state from 'counts.parquet' order by key"
    """
    try:
        found = checkpoints.opened(object_folder(absolute(url)), name)
        task = task or _the_keyed(found)
        made = checkpoint_tables.export(found, task, file)
    except OSError as error:
        raise _unusable(f"{url} or {file}", error) from error
    words = f"{file}: {counted(made.rows, 'key')} of {task}, {made.bytes:,} bytes: {', '.join(made.columns)}"
    about = {"rows": made.rows, "row_groups": made.row_groups, "bytes": made.bytes, "columns": made.columns}
    answer(output, SCHEMA, {"name": name, "task": task, "file": str(file), **about}, words)


@click.command()
@name_argument
@state_option
def delete(name: str, url: str) -> None:
    """Remove checkpoint NAME, whole or damaged. Runs that have begun from it go on."""
    try:
        checkpoints.remove(object_folder(absolute(url)), name)
    except OSError as error:
        raise _unusable(url, error) from error
    click.echo(f"checkpoint {name} is deleted")


def _about(found: Checkpoint, task: str) -> dict[str, Any]:
    """Ranges and keys of a task."""
    keys, ranges = 0, 0
    for of, _, snapshot in found.snapshots():
        if of == task:
            ranges += len(snapshot.copies)
            keys += sum(sum(1 for _ in of_range(contents_of(copy).states)) for copy in snapshot.copies)
    sizes = [len(data) for (of, _), data in found.states.items() if of == task]
    version = next(one.state_version for one in found.topology.tasks if one.name == task)
    about = {"task": task, "state_version": version, "threads": len(sizes)}
    return {**about, "ranges": ranges, "keys": keys, "bytes": sum(sizes)}


def _the_keyed(found: OpenCheckpoint) -> str:
    """The only keyed task. Raises InvalidInput."""
    keyed = [task.name for task in found.topology.tasks if task.state == "keyed"]
    if len(keyed) == 1:
        return keyed[0]
    raise InvalidInput(
        "whose state is meant?", cause=f"keyed tasks: {', '.join(keyed) or 'none'}", hint="--task TASK"
    )


def _size(found: Checkpoint) -> int:
    return sum(map(len, found.states.values()))


def _the_run() -> Path:
    """The state directory below `.headgate`, if there is one alone. Raises InvalidInput."""
    there = sorted(path.parent for path in Path(".headgate").glob("*/run"))
    if len(there) == 1:
        return there[0]
    cause = ", ".join(map(str, there)) or "there is none in .headgate"
    raise InvalidInput("which run is meant?", cause=cause, hint="--state-dir DIR")


def _unusable(url: str, error: OSError) -> InvalidInput:
    return InvalidInput(
        f"{url} cannot be used",
        cause=f"{type(error).__name__}: {error}",
        hint="is it the URL of `up --state-to`, and may this user read and write there?",
    )
