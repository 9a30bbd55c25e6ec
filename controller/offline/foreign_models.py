"""`headgate model import --from flink|storm`: models from the metrics of a job that runs elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from headgate.topology_runtime.errors import InvalidInput, UsageError
from headgate.topology_runtime.faults.words import NAME, counted, did_you_mean
from headgate.topology_runtime.output import Format, emit

if TYPE_CHECKING:
    from headgate.controller.offline.elsewhere.measured import Metrics, Observed, ThreadUse

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

    from headgate.controller.files.model_files import write_model
    from headgate.controller.offline.elsewhere.measured import LITTLE_BUSY, assumptions, model_from
    from headgate.topology_runtime.clock import wall_ns
    from headgate.topology_runtime.utc import utc_iso

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
    told = assumptions(SYSTEMS[asked.system], asked.use)
    emit(
        output,
        {
            "schema": "headgate/model-import/v1",
            "to": str(asked.to),
            "from": asked.system,
            "models": rows,
            "left_out": sources,
            "assumed": told,
        },
        rows,
    )
    for row in rows:
        if row["busy_seen"] < LITTLE_BUSY:
            told.append(
                f"{row['task']} was busy for {row['busy_seen']:.1%} of the time only: its rate is a guess."
            )
    if sources:
        names = ", ".join(sources)
        told.append(f"Left out, as they take no rows: {names}; a source has a fixed size in the topology.")
    click.echo("\n".join(told), err=True)


def _observed(asked: ForeignImport) -> tuple[dict[str, list[Observed]], list[str]]:
    """(task → what each file tells of it, operators that take no rows)."""
    from headgate.controller.files.contents import json_of

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
        names = _names(asked.wanted, found)
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
        f"{counted(len(faults), 'fault')}, nothing was imported"
        if faults
        else "there is no operator to import",
        cause="a model needs rows and busy time of each operator, measured while rows flowed",
        faults=faults,
        hint=hint,
    )


def _reader(system: str) -> Callable[[Any], Metrics]:
    from headgate.controller.offline.elsewhere.from_flink import flink_metrics
    from headgate.controller.offline.elsewhere.from_storm import storm_metrics

    return {"flink": flink_metrics, "storm": storm_metrics}[system]


def _names(wanted: Sequence[str], found: Metrics) -> dict[str, str | None]:
    """Operator → task, of those to be imported; None: its name cannot be a task's."""
    from headgate.controller.offline.elsewhere.measured import task_name

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
    told = [
        f"{name!r}: no task can be called so; name it with --task TASK={name!r}"
        for name, task in names.items()
        if task is None
    ]
    having: dict[str, str] = {}
    for name, task in names.items():
        if task is not None and having.setdefault(task, name) != name:
            told.append(f"{having[task]!r} and {name!r} would both be task {task!r}; name them with --task")
    for word in wanted:
        task, operator = _pair(word)
        if task not in names.values():
            there = [*(one.name for one in found.seen), *found.faults, *found.sources]
            told.append(f"there is no operator {operator!r}{did_you_mean(operator, there)}")
    return told


def _there(to: Path, task: str) -> bool:
    return (to / f"{task}.json").exists()
