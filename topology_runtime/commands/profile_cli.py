"""`headgate model profile`: measure tasks on this machine and write their performance models."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headgate.topology_runtime.api.cluster import SLOT_CORES, SLOT_MEMORY_BYTES, refuse_small_slots
from headgate.topology_runtime.commands.number_options import Number
from headgate.topology_runtime.commands.output import Bars, Format, emit, format_options
from headgate.topology_runtime.commands.rare_settings import SettingsCommand, setting
from headgate.topology_runtime.wording import counted, significant

if TYPE_CHECKING:
    from headgate.topology_runtime.measuring.profile_steps import Next, ProfileChoice
    from headgate.topology_runtime.measuring.profile_subjects import Subjects
    from headgate.topology_runtime.measuring.task_profile import ProfileRecord

FAILED = 1


def _counts(context: click.Context, option: click.Parameter, value: str | None) -> tuple[int, ...]:
    if value is None:
        return ()
    try:
        counts = tuple(int(part) for part in value.split(","))
    except ValueError as error:
        raise click.BadParameter(f"{value!r} is no list of thread counts such as 1,2,4") from error
    if any(not 1 <= count <= 1000 for count in counts) or list(counts) != sorted(set(counts)):
        raise click.BadParameter(f"{value!r}: thread counts rise, from 1 to 1000")
    return counts


@click.command(cls=SettingsCommand)
@click.argument("tasks", nargs=-1, metavar="TASK…")
@click.option(
    "--topology", "of", metavar="TOPOLOGY", help="Profile tasks of this topology (TASK: their names)."
)
@click.option("--output", "folder", type=click.Path(path_type=Path, file_okay=False), default=Path("models"),
              show_default=True, help="The folder of models to write.")  # fmt: skip
@click.option("--slot-cores", type=Number(0.01, 1.0), default=SLOT_CORES, show_default=True)
@setting("--slot-memory", "slot_memory_bytes", type=click.IntRange(1), default=SLOT_MEMORY_BYTES,
              show_default=True, help="Bytes.")  # fmt: skip
@click.option(
    "--threads", callback=_counts, metavar="1,2,4", help="Only these counts (default: as the curve demands)."
)
@click.option("--budget", type=Number(0.1), metavar="MINUTES", help="Begin no measurement later than this.")
@setting(
    "--repeats",
    type=click.IntRange(1, 20),
    default=3,
    show_default=True,
    help="Probes per thread count.",
)
@setting(
    "--probe-seconds",
    "seconds",
    type=Number(0.5, 120),
    default=3.0,
    show_default=True,
    help="Of a probe, at least.",
)
@setting("--quick", is_flag=True, help="One probe per count, no open-loop trials: half a minute a task.")
@click.option("--input", "events", type=click.Path(path_type=Path), help="Sample events, one per line.")
@setting(
    "--param",
    "params",
    multiple=True,
    metavar="KEY=VALUE",
    help="For every TASK; may be repeated.",
)
@setting("--key-by", "key", help="Of keyed tasks: a position, a field or module:function.")
@setting("--at-once", type=click.IntRange(1), help="Tasks side by side (default: what leaves room).")
@setting("--again", is_flag=True, help="Forget what was measured before.")
@format_options
def profile(tasks: tuple[str, ...], of: str | None, folder: Path, output: Format, **options: Any) -> None:
    """Measure how each TASK behaves with more threads in one slot, and write its model.

    TASK is file.py:function, module:Class, or a ready-made task's name; NAME=TASK gives the model another
    name. The task really runs, side effects included, on sample events. What was measured is kept: the
    same command again goes on where it was stopped."""
    from headgate.topology_runtime.errors import UsageError

    if not tasks and of is None:
        raise UsageError("nothing to profile", hint="name a TASK, or --topology TOPOLOGY")
    refuse_small_slots(options["slot_memory_bytes"])
    began_s = time.monotonic()
    subjects = _subjects(tasks, of, options)
    records = _measured(subjects, folder, options)
    _print(folder, records, time.monotonic() - began_s, output)
    if any(record.failed for record in records):
        raise SystemExit(FAILED)


def _subjects(tasks: Sequence[str], of: str | None, options: dict[str, Any]) -> Subjects:
    from headgate.topology_runtime.measuring import profile_subjects as subjects

    if of is not None:
        return subjects.of_topology(of, tasks)
    found = subjects.of_references(
        tasks, subjects.params_of(options["params"]), options["events"], options["key"]
    )
    for task, form in found.forms.items():
        click.echo(f"{task}: takes {form} events", err=True)
    return found


def _measured(subjects: Subjects, folder: Path, options: dict[str, Any]) -> list[ProfileRecord]:
    from msgspec.structs import replace

    from headgate.topology_runtime.measuring.profile_steps import QUICK, ProfileChoice
    from headgate.topology_runtime.measuring.task_profile import RECORDS, ProfileRequest, profile

    if options["again"]:
        for task in subjects.tasks:
            (folder / RECORDS / f"{task.model_name}.jsonl").unlink(missing_ok=True)
    wish = QUICK if options["quick"] else ProfileChoice(repeats=options["repeats"])
    wish = replace(wish, threads=options["threads"])
    asked = ProfileRequest(
        subjects.topology,
        subjects.tasks,
        subjects.user_paths,
        folder.resolve(),
        options["slot_cores"],
        options["slot_memory_bytes"],
        wish,
        options["seconds"],
        60 * options["budget"] if options["budget"] else float("inf"),
        options["at_once"],
    )
    with Bars(stay=True) as bars:

        def tell(record: ProfileRecord, step: Next | None) -> None:
            left_s = _left_s(record, wish, options["seconds"])
            text, left = words_of(record, step), _left(left_s) if step else ""
            done = len(record.probes) + len(record.trials)
            more = 0 if step is None else max(1, round(left_s / max(1.0, options["seconds"])))
            bars.show(record.task, text, done, done + more, left)
            if not bars.there:
                click.echo(f"{text}{left}", err=True)

        return profile(asked, tell)


def _left_s(record: ProfileRecord, wish: ProfileChoice, seconds: float) -> float:
    from headgate.topology_runtime.measuring.profile_steps import steps_left, waits
    from headgate.topology_runtime.stability.trial_evidence import LONGEST_S, LONGEST_WAITS_S

    probes, trials = steps_left(record.probes, record.trials, wish)
    trial_s = LONGEST_WAITS_S if record.probes and waits(record.probes) else LONGEST_S
    return probes * (seconds + 1.0) + trials * trial_s


def _left(seconds: float) -> str:
    return f" (about {seconds / 60:.1f} min left)" if seconds >= 60 else f" (about {seconds:.0f} s left)"


def words_of(record: ProfileRecord, step: Next | None) -> str:
    if step is not None:
        at = f" at {significant(step.rate_tps, 3)} rows/s" if step.rate_tps else ""
        return f"{record.task}: {step.what} with {counted(step.threads, 'thread')}{at}"
    if record.failed is not None:
        because = f": {record.failed.cause}" if record.failed.cause else ""
        return f"{record.task}: stopped, {record.failed.what}{because}"
    return f"{record.task}: done in {record.seconds:.0f} s"


def _print(folder: Path, records: Sequence[ProfileRecord], seconds: float, output: Format) -> None:
    import json

    models = [
        json.loads((folder / f"{record.task}.json").read_text("utf-8")) for record in records if record.probes
    ]
    failed = [
        {"task": record.task, "error": record.failed.what, "cause": record.failed.cause}
        for record in records
        if record.failed is not None
    ]
    rows = [{"task": model["task"], **_row(point)} for model in models for point in model["points"]]
    document = {
        "schema": "headgate/profile/v1",
        "models": models,
        "failed": failed,
        "folder": str(folder),
        "seconds": round(seconds, 1),
    }
    emit(output, document, rows, f"models in {folder}, {seconds:.0f} s")
    for record in records:
        for note in record.notes:
            click.echo(f"{record.task}: {note}", err=True)
        if record.failed is not None:
            click.echo(words_of(record, None), err=True)


def _row(point: dict[str, Any]) -> dict[str, Any]:
    return {
        "threads": point["threads"],
        "rate_tps": point["rate_tps"],
        "spread_tps": point.get("spread", {}).get("rate_tps"),
        "cpu": point["cpu"],
        "memory": point["memory"],
        "trials": point["trials"],
        "seconds": point["seconds"],
    }
