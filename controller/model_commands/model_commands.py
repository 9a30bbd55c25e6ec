"""`headgate model list|show|compare|import`: the performance models there are, and what they say."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, overload

import click

from headgate.topology_runtime.commands.number_options import Number
from headgate.topology_runtime.commands.output import Format, Row, emit, format_options, write_table
from headgate.topology_runtime.errors import InvalidInput, UsageError
from headgate.topology_runtime.wording import NAME, counted, did_you_mean, significant

if TYPE_CHECKING:
    from headgate.controller.model_commands.foreign_metrics import Metrics, Observed, ThreadUse
    from headgate.controller.model_commands.model_sets import ModelFile
    from headgate.controller.models.task_models import Model


# ── `headgate model import --from flink|storm`: models from the metrics of a job that runs elsewhere ────

SYSTEMS = {"flink": "Flink", "storm": "Storm"}
MAX_BYTES = 64 * 1024 * 1024
ASK = {
    "flink": "let rows flow for a minute, then `curl -s http://HOST:8081/jobs/JOB > job.json`",
    "storm": "let rows flow for ten minutes, then "
    "`curl -s 'http://HOST:8080/api/v1/topology/ID?window=600' > storm.json`",
}


class ForeignImport(NamedTuple):
    """What was asked. wanted: `TASK` or `TASK=OPERATOR`, none: every operator under its own name."""

    system: str
    files: tuple[Path, ...]
    to: Path
    force: bool
    wanted: tuple[str, ...]
    use: ThreadUse


def import_foreign(asked: ForeignImport, output: Format) -> None:
    """Write a model per operator, all or none. Raises InvalidInput with every fault."""
    from msgspec.structs import replace

    from headgate.controller.files.planning_inputs import write_model
    from headgate.controller.model_commands.foreign_metrics import LITTLE_BUSY, assumptions, model_from
    from headgate.topology_runtime.platform.clock import wall_ns
    from headgate.topology_runtime.wording import utc_iso

    tasks, sources = _observed(asked)
    files = ", ".join(str(path.resolve()) for path in asked.files)
    origin = {"imported_from": files, "imported_at": utc_iso(wall_ns())}
    rows: list[dict[str, Any]] = []
    for task, seen in tasks.items():
        model = model_from(task, SYSTEMS[asked.system], seen, asked.use)
        replaced = (asked.to / f"{task}.json").exists()
        path = write_model(asked.to, replace(model, more={**model.more, **origin}))
        point = model.points[0]
        rows.append(
            {
                "task": task,
                "operator": seen[0].name,
                "from": files,
                "file": str(path),
                "replaced": replaced,
                "rate_tps": point.rate_tps,
                "rate_spread": point.spread.relative if point.spread else None,
                "threads_seen": max(one.threads for one in seen),
                "busy_seen": max(one.busy for one in seen),
            }
        )
    notes = assumptions(SYSTEMS[asked.system], asked.use)
    emit(
        output,
        {
            "schema": "headgate/model-import/v1",
            "to": str(asked.to),
            "from": asked.system,
            "models": rows,
            "left_out": sources,
            "assumed": notes,
        },
        rows,
    )
    for row in rows:
        if row["busy_seen"] < LITTLE_BUSY:
            notes.append(
                f"{row['task']} was busy for {row['busy_seen']:.1%} of the time only: its rate is a guess."
            )
    if sources:
        names = ", ".join(sources)
        notes.append(f"Left out, as they take no rows: {names}; a source has a fixed size in the topology.")
    click.echo("\n".join(notes), err=True)


def _observed(asked: ForeignImport) -> tuple[dict[str, list[Observed]], list[str]]:
    """(task → what each file tells of it, operators that take no rows)."""
    from headgate.controller.files.planning_inputs import json_of

    faults: list[str] = []
    tasks: dict[str, list[Observed]] = {}
    sources: list[str] = []
    for path in asked.files:
        data, fault = json_of(path, MAX_BYTES)
        if fault is not None:
            faults.append(f"{path}: {fault}")
            continue
        found = _reader(asked.system)(data)
        sources += [name for name in found.sources if name not in sources]
        names = _foreign_names(asked.wanted, found)
        for operator, wrong in found.faults.items():
            if operator == "" or operator in names:
                faults += [f"{path}: {f'{operator}: ' if operator else ''}{text}" for text in wrong]
        faults += [f"{path}: {text}" for text in _name_faults(asked.wanted, names, found)]
        for one in found.seen:
            if task := names.get(one.name):
                tasks.setdefault(task, []).append(one)
    if not asked.force:
        faults += [f"{asked.to / task}.json: is there already" for task in tasks if _there(asked.to, task)]
    if faults or not tasks:
        raise _refused(asked, faults)
    return tasks, sources


def _refused(asked: ForeignImport, faults: Sequence[str]) -> InvalidInput:
    if any(fault.endswith("is there already") for fault in faults):
        hint = "--force replaces models that are there"
    elif faults:
        hint = f"{ASK[asked.system]}; --task TASK=OPERATOR imports only what you name"
    else:
        hint = ASK[asked.system]
    return InvalidInput(
        f"{counted(len(faults), 'fault')}, nothing was imported" if faults else "no operator to import",
        cause="a model needs rows and busy time of each operator, measured while rows flowed",
        faults=faults,
        hint=hint,
    )


def _reader(system: str) -> Callable[[Any], Metrics]:
    from headgate.controller.model_commands.foreign_metrics import flink_metrics, storm_metrics

    return {"flink": flink_metrics, "storm": storm_metrics}[system]


def _foreign_names(wanted: Sequence[str], found: Metrics) -> dict[str, str | None]:
    """Operator → task, of those to be imported; None: its name cannot be a task's."""
    from headgate.controller.model_commands.foreign_metrics import task_name

    there = dict.fromkeys([*(one.name for one in found.seen), *(name for name in found.faults if name)])
    if not wanted:
        return {name: task_name(name) for name in there}
    asked = dict(_pair(word) for word in wanted)
    names: dict[str, str | None] = {}
    for task, operator in asked.items():
        for name in there:
            if name == operator or (task == operator and task_name(name) == task):
                names[name] = task
    return names


def _pair(word: str) -> tuple[str, str]:
    """`TASK=OPERATOR`, or `TASK` for an operator of that name. Raises UsageError."""
    task, equals, operator = word.partition("=")
    if not NAME.fullmatch(task) or (equals and not operator):
        raise UsageError(f"--task: {word!r} is neither TASK nor TASK=OPERATOR", hint="--task 'out=Sink: out'")
    return task, operator or task


def _name_faults(wanted: Sequence[str], names: dict[str, str | None], found: Metrics) -> list[str]:
    notes = [
        f"{name!r}: no task can be called so; name it with --task TASK={name!r}"
        for name, task in names.items()
        if task is None
    ]
    having: dict[str, str] = {}
    for name, task in names.items():
        if task is not None and having.setdefault(task, name) != name:
            notes.append(f"{having[task]!r} and {name!r} would both be task {task!r}; name them with --task")
    for word in wanted:
        task, operator = _pair(word)
        if task not in names.values():
            there = [*(one.name for one in found.seen), *found.faults, *found.sources]
            notes.append(f"no operator {operator!r}{did_you_mean(operator, there)}")
    return notes


def _there(to: Path, task: str) -> bool:
    return (to / f"{task}.json").exists()


DAY_S = 86_400.0
_folder = click.Path(path_type=Path)
FRACTION = Number(0, 1, min_open=True)
_plot = click.option("--plot", type=_folder, metavar="FILE", help="Draw the curves: FILE.svg, .png or .pdf.")
_code = click.option(
    "--path", "paths", multiple=True, metavar="DIR", help="Where the tasks' code is, to see if it changed."
)


# ── list ────────────────────────────────────────────────────────────────────────────────────────


@click.command("list")
@click.argument("directory", required=False, type=_folder)
@_code
@format_options
def list_models(directory: Path | None, paths: tuple[str, ...], output: Format) -> None:
    """The models in DIRECTORY and below (default: those measured on this machine).

    "stale" says why a model may no longer hold: another machine, or the task's code has changed. Exit
    code 3 when a file is no model; the others are listed all the same."""
    from headgate.controller.model_commands import model_sets
    from headgate.topology_runtime.measuring.model_store import machine

    place = model_sets.cache() if directory is None else directory
    if directory is not None and not directory.is_dir():
        raise InvalidInput(f"no folder {str(directory)!r}")
    found = model_sets.in_tree(place)
    rows = [_listed(entry, paths) for entry in found.models]
    document = {
        "schema": "headgate/models/v1",
        "directory": str(place),
        "machine": machine(),
        "models": rows,
        "faults": found.faults,
    }
    if output == "table":
        _write_sets(rows)
    else:
        emit(output, document, rows)
    if not found.models and not found.faults:
        hint = "; `headgate up` measures those of its topology" if directory is None else ""
        click.echo(f"no models in {place}{hint}", err=True)
    model_sets.sound(found, f"models under {str(place)!r}")


def _listed(entry: ModelFile, paths: Sequence[str]) -> dict[str, Any]:
    from headgate.controller.files.planning_inputs import stale
    from headgate.controller.model_commands import model_sets
    from headgate.controller.model_commands.model_facts import summary
    from headgate.topology_runtime.platform.clock import wall_ns

    return {
        **summary(entry.model),
        "age_s": model_sets.age_s(entry.model, wall_ns()),
        "stale": stale(entry.model, [*paths, os.getcwd()]),
        "folder": str(entry.file.parent),
    }


def _write_sets(rows: Sequence[Row]) -> None:
    """A table per folder."""
    for number, (folder, members) in enumerate(groupby(rows, key=lambda row: str(row["folder"]))):
        if number:
            click.echo()
        write_table(_without_empty([_listed_for_people(row) for row in members]), folder)


def _listed_for_people(row: Row) -> Row:
    age_s = row["age_s"]
    return {
        "task": row["task"],
        "points": row["points"],
        "peak tps": row["peak_tps"],
        "at threads": row["peak_threads"],
        "cpu %": _percent(row["cpu"]),
        "memory %": _percent(row["memory"]),
        "spread ±%": _percent(row["spread"]),
        "slot": _slot_words(row),
        "measured": None if row["measured_at"] is None else str(row["measured_at"])[:10],
        "age": None if age_s is None else f"{age_s / DAY_S:.0f} d" if age_s >= DAY_S else "today",
        "stale": "; ".join(row["stale"]) or "no",
    }


# ── show ────────────────────────────────────────────────────────────────────────────────────────


@click.command("show")
@click.argument("names", nargs=-1, metavar="[TASK|FILE|DIR]...")
@click.option("--models", type=_folder, metavar="DIR", help="Where tasks are looked for (default: all here).")
@_code
@_plot
@format_options
def show(
    names: tuple[str, ...], models: Path | None, paths: tuple[str, ...], plot: Path | None, output: Format
) -> None:
    """Every point of some models, and what follows from them.

    Without a name all models of --models DIR. The same task in several places: the one measured last."""
    _check_plot(plot)
    chosen = _chosen(names, models)
    from headgate.controller.model_commands.model_facts import point_rows
    from headgate.controller.models.model_data import model_data

    rows = [row for entry in chosen for row in point_rows(entry.model)]
    if output == "table":
        for entry in chosen:
            click.echo(_sentences(_listed(entry, paths)))
            write_table(_without_empty([_point_for_people(row) for row in point_rows(entry.model)]))
    else:
        listed = [{**_listed(entry, paths), "model": model_data(entry.model)} for entry in chosen]
        emit(output, {"schema": "headgate/model-details/v1", "models": listed}, rows)
    if plot is not None:
        from headgate.controller.pictures.model_pictures import model_picture

        model_picture([entry.model for entry in chosen], plot)


def _chosen(names: Sequence[str], directory: Path | None) -> list[ModelFile]:
    """The models asked for, in that order, each file once."""
    from headgate.controller.model_commands import model_sets

    if not names:
        if directory is None:
            raise UsageError("no model named", hint="name one of those that `headgate model list` shows")
        return model_sets.sound(model_sets.at(directory), f"models of {str(directory)!r}")
    chosen: list[ModelFile] = []
    for name in names:
        if os.sep in name or name.endswith(".json") or Path(name).is_dir():
            chosen += model_sets.sound(model_sets.at(Path(name)), f"models of {name!r}")
        else:
            chosen.append(_of_task(name, directory))
    return list({(entry.file, entry.model.task): entry for entry in chosen}.values())


def _of_task(task: str, directory: Path | None) -> ModelFile:
    from headgate.controller.model_commands import model_sets
    from headgate.topology_runtime.wording import did_you_mean

    place = model_sets.cache() if directory is None else directory
    found = model_sets.in_tree(place) if directory is None or place.is_dir() else model_sets.at(place)
    having = [entry for entry in found.models if entry.model.task == task]
    if not having:
        near = did_you_mean(task, {entry.model.task for entry in found.models})
        raise InvalidInput(
            f"no model of {task!r} in {str(place)!r}{near}",
            faults=found.faults,
            hint="`headgate model list` shows what there is; --models DIR looks elsewhere",
        )
    best = model_sets.newest(having)
    if len(having) > 1:
        click.echo(f"{task}: {len(having)} models; this one was measured last: {best.file}", err=True)
    return best


def _sentences(row: Row) -> str:
    """The model in words, over its points."""
    spread = f" (±{100 * row['spread']:.1f} %)" if row["spread"] else ""
    lines = [
        f"{row['task']}: at most {significant(row['peak_tps'], 6)} rows/s{spread} in one slot, with "
        f"{counted(row['peak_threads'], 'thread')}, {_percent(row['cpu']):g} % of its CPU and "
        f"{_percent(row['memory']):g} % of its memory",
        f"  slot of {_slot_words(row)} on "
        f"{row['machine'] or 'a machine not named'}"
        + (f", measured {row['measured_at']}" if row["measured_at"] else ""),
    ]
    lines += [f"  imported from {row['imported_from']}"] if row["imported_from"] else []
    if row["corrected"] is not None:
        lines.append(
            f"  corrected by what rows really cost: its rates are those that were measured ÷ {row['corrected']:.3g}"
        )
    lines += [f"  stale: {reason}" for reason in row["stale"]]
    return "\n".join(lines)


def _point_for_people(row: Row) -> Row:
    return {
        "threads": row["threads"],
        "tps": row["rate_tps"],
        "±tps": row["rate_spread_tps"],
        "cpu %": _percent(row["cpu"]),
        "±cpu": _percent(row["cpu_spread"]),
        "memory %": _percent(row["memory"]),
        "±memory": _percent(row["memory_spread"]),
        "× one thread": row["gain"],
        "peak": "peak" if row["peak"] else "",
    }


# ── compare ─────────────────────────────────────────────────────────────────────────────────────


@click.command("compare")
@click.argument("a", type=_folder)
@click.argument("b", type=_folder)
@_plot
@format_options
def compare(a: Path, b: Path, plot: Path | None, output: Format) -> None:
    """Two sets of models (folders or files): rate, CPU and memory of each task at each thread count.

    Where only one of them was measured at a count, the other is read from between its points."""
    _check_plot(plot)
    from headgate.controller.model_commands import model_sets
    from headgate.controller.model_commands.model_facts import compared

    first = {k.model.task: k.model for k in model_sets.sound(model_sets.at(a), f"models of {str(a)!r}")}
    second = {k.model.task: k.model for k in model_sets.sound(model_sets.at(b), f"models of {str(b)!r}")}
    both = [task for task in first if task in second]
    alone = {"a": sorted(first.keys() - second.keys()), "b": sorted(second.keys() - first.keys())}
    if not both:
        raise InvalidInput(
            "no task has a model in both",
            faults=[f"{str(place)!r}: {', '.join(found)}" for place, found in ((a, first), (b, second))],
        )
    notes = [note for task in both for note in _slot_notes(first[task], second[task])]
    rows = [row for task in both for row in compared(first[task], second[task])]
    document = {
        "schema": "headgate/model-comparison/v1",
        "a": str(a),
        "b": str(b),
        "rows": rows,
        "only_in": alone,
        "notes": notes,
    }
    shown = _without_empty([_compared_for_people(row) for row in rows])
    emit(output, document, shown if output == "table" else rows)
    for place, tasks in ((a, alone["a"]), (b, alone["b"])):
        notes += [f"only in {place}: {', '.join(tasks)}"] if tasks else []
    for note in notes:
        click.echo(note, err=True)
    if plot is not None:
        from headgate.controller.pictures.model_pictures import model_pairs_picture

        model_pairs_picture([(first[task], second[task]) for task in both], _names(a, b), plot)


def _slot_notes(a: Model, b: Model) -> list[str]:
    """What makes two models of a task hard to compare: slots that differ."""
    if (a.slot.cores, a.slot.memory_bytes) == (b.slot.cores, b.slot.memory_bytes):
        return []
    sizes = [
        _slot_words({"slot_cores": slot.cores, "slot_memory_bytes": slot.memory_bytes})
        for slot in (a.slot, b.slot)
    ]
    return [f"{a.task}: the slots differ: {sizes[0]} against {sizes[1]}"]


def _names(a: Path, b: Path) -> tuple[str, str]:
    """The last parts of both paths, or all of them where those are equal."""
    short = (a.resolve().name, b.resolve().name)
    return short if short[0] != short[1] else (str(a), str(b))


def _compared_for_people(row: Row) -> Row:
    return {
        "task": row["task"],
        "threads": row["threads"],
        "a tps": row["rate_a_tps"],
        "b tps": row["rate_b_tps"],
        "b − a %": _percent(row["rate_difference"]),
        "within spread": row["within_spread"],
        "a cpu %": _percent(row["cpu_a"]),
        "b cpu %": _percent(row["cpu_b"]),
        "cpu points": _percent(row["cpu_difference"]),
        "a memory %": _percent(row["memory_a"]),
        "b memory %": _percent(row["memory_b"]),
        "memory points": _percent(row["memory_difference"]),
        "interpolated": ", ".join(row["interpolated"]) or None,
    }


# ── import ──────────────────────────────────────────────────────────────────────────────────────


@click.command("import")
@click.argument("sources", nargs=-1, required=True, type=_folder, metavar="FROM...")
@click.option(
    "--output", "to", type=_folder, required=True, metavar="DIR", help="The folder that takes the models."
)
@click.option("--force", is_flag=True, help="Replace models that are there already.")
@click.option(
    "--from", "system", type=click.Choice(list(SYSTEMS)), help="FROM are metrics that this system answers."
)
@click.option("--task", "wanted", multiple=True, metavar="TASK[=OPERATOR]", help="… only of these operators.")
@click.option("--thread-cpu", type=FRACTION, metavar="F", help="… a busy thread takes F of a slot's CPU (1).")
@click.option("--thread-memory", type=FRACTION, metavar="F", help="… a thread takes F of its memory (0).")
@format_options
def import_models(sources: tuple[Path, ...], to: Path, force: bool, output: Format, **foreign: Any) -> None:
    """Check models and copy them into a folder, each with a note where it came from and when.

    FROM is a model file, a folder of models, or a trace (its models are in run.json). When one model is
    not sound, or is there already without --force, nothing is copied.

    \b
    headgate model import traces/demo/last --output models
    headgate model import --from flink job.json --output models       job.json: GET /jobs/JOB
    headgate model import --from storm storm.json --output models     storm.json: GET /api/v1/topology/ID?window=600

    What Flink and Storm measure makes one point per operator (docs/how-to/integrations.md)."""
    from headgate.controller.files.planning_inputs import write_model

    if foreign["system"] is not None:
        from headgate.controller.model_commands.foreign_metrics import ThreadUse

        use = ThreadUse(foreign["thread_cpu"], foreign["thread_memory"])
        wanted = ForeignImport(foreign["system"], sources, to, force, foreign["wanted"], use)
        import_foreign(wanted, output)
        return
    if given := [name for name, value in foreign.items() if value]:
        option = given[0].replace("wanted", "task").replace("_", "-")
        raise UsageError(f"--{option} needs --from", hint="add --from flink, or --from storm")

    incoming = _incoming(sources, to, force)
    rows = []
    for entry in incoming:
        replaced = (to / f"{entry.model.task}.json").exists()
        path = write_model(to, _with_origin(entry))
        row = {"task": entry.model.task, "from": str(entry.file), "file": str(path), "replaced": replaced}
        rows.append(row)
    emit(output, {"schema": "headgate/model-import/v1", "to": str(to), "models": rows}, rows)


def _incoming(sources: Sequence[Path], to: Path, force: bool) -> list[ModelFile]:
    """Every model of every source. Raises InvalidInput with all faults of all of them."""
    from headgate.controller.model_commands import model_sets

    found = model_sets.Found()
    for source in sources:
        try:
            found.add(model_sets.at(source))
        except InvalidInput as error:
            found.faults.append(error.what)
    taken: dict[str, Path] = {}
    for entry in found.models:
        task = entry.model.task
        if task in taken:
            found.faults.append(f"{entry.file}: a model of {task!r} comes from {taken[task]} too")
        taken.setdefault(task, entry.file)
    there = [task for task in taken if (to / f"{task}.json").exists()] if not force else []
    found.faults += [f"{to / task}.json: is there already" for task in there]
    if found.faults:
        raise InvalidInput(
            f"{counted(len(found.faults), 'fault')}, nothing was imported",
            faults=found.faults,
            hint="--force replaces models that are there" if there else None,
        )
    return found.models


def _with_origin(entry: ModelFile) -> Model:
    from msgspec.structs import replace

    from headgate.topology_runtime.platform.clock import wall_ns
    from headgate.topology_runtime.wording import utc_iso

    origin = {"imported_from": str(entry.file.resolve()), "imported_at": utc_iso(wall_ns())}
    return replace(entry.model, more={**entry.model.more, **origin})


# ── words ───────────────────────────────────────────────────────────────────────────────────────


@overload
def _percent(fraction: float) -> float: ...
@overload
def _percent(fraction: float | None) -> float | None: ...
def _percent(fraction: float | None) -> float | None:
    """In percent to a tenth, and no −0."""
    return None if fraction is None else round(100 * fraction, 1) + 0.0


def _slot_words(row: Row) -> str:
    cores = f"{row['slot_cores']:g} core{'' if row['slot_cores'] == 1 else 's'}"
    return f"{cores}, {row['slot_memory_bytes'] / 2**30:.3g} GiB"


def _without_empty(rows: Sequence[Row]) -> list[Row]:
    """The rows without columns of which nothing is known."""
    known = {key for row in rows for key, value in row.items() if value is not None}
    return [{key: value for key, value in row.items() if key in known} for row in rows]


def _check_plot(plot: Path | None) -> None:
    """Before anything is computed: can that file become a picture?"""
    if plot is not None:
        from headgate.controller.pictures.drawing import format_of

        format_of(plot)
