"""`headgate ledger`: what plans of all runs were predicted to do, beside what they did."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headgate.topology_runtime.errors import InvalidInput
from headgate.topology_runtime.faults.words import significant
from headgate.topology_runtime.output import Format, Row, emit, format_options, write_table
from headgate.topology_runtime.trace_tables import LEDGER

if TYPE_CHECKING:
    from headgate.controller.analyze.bias import LearnedFactor, ModelBias
    from headgate.controller.knowledge.prediction_ledger import LedgerEntry

TRACES = Path("traces")  # where `up` writes them, below where it was started
LAST, ID_SHOWN, ID_LEAST = 30, 8, 4
TESTED = {"no": "", "carried": "carries it", "short": "falls short"}

_traces = click.option(
    "--traces",
    type=click.Path(path_type=Path),
    default=TRACES,
    show_default=True,
    help="The folder of traces, or a ledger.",
)
_topology = click.option("--topology", help="Only plans of this topology.")


@click.command("list")
@_traces
@_topology
@click.option(
    "--last", type=click.IntRange(1, 100_000), default=LAST, show_default=True, help="So many plans."
)
@click.option("--plot", type=click.Path(path_type=Path), metavar="FILE", help="Draw it: .svg, .png or .pdf.")
@format_options
def list_plans(traces: Path, topology: str | None, last: int, plot: Path | None, output: Format) -> None:
    """List the plans that were in force for a while: what they were predicted to carry and use, and what they did.

    A rate says something of a plan only where about as much was offered as it carries, or it fell short. CPU is a
    mean over its slots. Lines of a ledger that are none are named and left out."""
    from headgate.controller.offline.answers import refuse_picture

    refuse_picture(plot)
    entries, faults = entries_of(traces, topology)
    rows = [plan_row(entry) for entry in entries][-last:]
    if output == "table":
        write_table([shown(row) for row in rows])
        if not rows:
            click.echo(f"no plan was in force for long enough in any run below {traces}", err=True)
    else:
        emit(output, {"schema": "headgate/ledger-list/v1", "plans": rows, "faults": faults}, rows)
    say_faults(faults)
    if plot is not None:
        from headgate.controller.offline.pictures.predicted_measured import ledger_picture

        ledger_picture(entries[-last:], plot)


@click.command("show")
@click.argument("plan")
@_traces
@_topology
@format_options
def show_plan(plan: str, traces: Path, topology: str | None, output: Format) -> None:
    """All that is kept of PLAN (the beginning of its id): its rate, its tasks and its slots, predicted and measured."""
    if len(plan) < ID_LEAST:
        raise InvalidInput(f"{plan!r} names no plan", cause=f"give at least {ID_LEAST} letters of its id")
    found, faults = entries_of(traces, topology)
    entries = [entry for entry in found if entry.plan.startswith(plan)]
    if not entries:
        raise InvalidInput(f"no plan that begins with {plan!r} is kept", hint="`headgate ledger list`")
    import msgspec

    if output != "table":
        plain = [msgspec.to_builtins(entry) for entry in entries]
        rows = [row for entry in entries for row in task_rows(entry)]
        emit(output, {"schema": "headgate/ledger-plan/v1", "plans": plain, "faults": faults}, rows)
    else:
        for entry in entries:
            click.echo(words_of(entry))
            write_table(task_rows(entry), "tasks")
            write_table(slot_rows(entry), "slots")
    say_faults(faults)


@click.command("models")
@_traces
@_topology
@format_options
def list_models(traces: Path, topology: str | None, output: Format) -> None:
    """By how much models and VMs were off, over all runs: what a row cost, measured / said, and how surely.

    factor: what a plan is corrected by once a model is surely off (more than × 1.25, with two errors to spare); what
    may be chance is taken off, and of factors beyond × 5 no more is believed. spread: from run to run."""
    from headgate.controller.analyze.bias import biases, slow_vms

    entries, faults = entries_of(traces, topology)
    slow = slow_vms(entries)
    rows = [
        *(model_row(bias) for _, bias in sorted(biases(entries, slow).items())),
        *(learned_row("VM", vm, "", "cpu", how) for vm, how in slow.items()),
    ]
    if output == "table":
        write_table([for_people(row) for row in rows])
        if not rows:
            click.echo(f"nothing is known yet: no plan was in force for long enough below {traces}", err=True)
    else:
        emit(output, {"schema": "headgate/ledger-models/v1", "learned": rows, "faults": faults}, rows)
    say_faults(faults)


def model_row(bias: ModelBias) -> dict[str, Any]:
    by = "time" if bias.by_time else "cpu"
    return learned_row("model", bias.model, bias.version, by, bias.cost)


def learned_row(what: str, name: str, version: str, by: str, how: LearnedFactor) -> dict[str, Any]:
    return {
        "what": what,
        "name": name,
        "version": version,
        "by": by,
        "measured": how.raw,
        "factor": how.factor,
        "error": how.error,
        "spread": how.spread,
        "runs": how.runs,
        "plans": how.plans,
        "off": how.off,
        "bounded": how.bounded,
    }


def for_people(row: Row) -> Row:
    return {
        "": row["what"],
        "name": row["name"],
        "version": row["version"][:ID_SHOWN],
        "a row's": row["by"],
        "measured / said": round(row["measured"], 3),
        "factor": round(row["factor"], 3),
        "± %": round(100 * row["error"], 1),
        "spread %": round(100 * row["spread"], 1),
        "runs": row["runs"],
        "plans": row["plans"],
        "it is": ("off, bounded" if row["bounded"] else "off") if row["off"] else "as it says",
    }


# ── reading ─────────────────────────────────────────────────────────────────────────────────────


def entries_of(traces: Path, topology: str | None) -> tuple[list[LedgerEntry], list[str]]:
    """(entries of all ledgers below the folder by their time, what is wrong with them). Raises InvalidInput."""
    from headgate.controller.recording.ledger_file import read_ledger

    if not traces.exists():
        hint = "`headgate up` writes some; --traces names others"
        raise InvalidInput(f"there are no traces in {traces}", hint=hint)
    paths = [traces] if traces.is_file() else sorted(traces.glob(f"{topology or '*'}/{LEDGER}"))
    read = [read_ledger(path) for path in paths]
    entries = [e for one in read for e in one.entries if topology is None or e.topology == topology]
    return sorted(entries, key=lambda entry: entry.time), [fault for one in read for fault in one.faults]


def say_faults(faults: list[str]) -> None:
    for fault in faults:
        click.echo(fault, err=True)


# ── rows and words ──────────────────────────────────────────────────────────────────────────────


def plan_row(entry: LedgerEntry) -> dict[str, Any]:
    """One plan. cpu: (measured, predicted) of its slots together, as a mean."""
    rate, count = entry.rate, max(1, len(entry.slots))
    return {
        "plan": entry.plan,
        "topology": entry.topology,
        "run": entry.run,
        "epoch": entry.epoch,
        "time": entry.time,
        "seconds": entry.seconds,
        "offered_tps": rate.offered_tps,
        "carried_tps": rate.carried_tps,
        "predicted_tps": rate.predicted_tps,
        "tested": rate.tested,
        "cpu": sum(slot.cpu for slot in entry.slots) / count,
        "predicted_cpu": sum(slot.predicted_cpu for slot in entry.slots) / count,
        "memory": sum(slot.memory for slot in entry.slots) / count,
        "predicted_memory": sum(slot.predicted_memory for slot in entry.slots) / count,
        "p50_ms": entry.latency_ms.get("p50"),
        "p99_ms": entry.latency_ms.get("p99"),
    }


def shown(row: Row) -> Row:
    """As a line of a table of 80 columns."""
    return {
        "plan": row["plan"][:ID_SHOWN],
        "time": row["time"][:16].replace("T", " "),
        "for s": round(row["seconds"]),
        "offered": round(row["offered_tps"], 1),
        "predicted": round(row["predicted_tps"], 1),
        "it": TESTED[row["tested"]],
        "cpu %": round(100 * row["cpu"], 1),
        "predicted %": round(100 * row["predicted_cpu"], 1),
        "p99 ms": row["p99_ms"] and round(row["p99_ms"], 1),
    }


def task_rows(entry: LedgerEntry) -> list[Row]:
    return [
        {
            "task": task.task,
            "model": task.model,
            "version": task.version,
            "t/s": round(task.rate_tps, 2),
            "cpu": round(task.cpu, 4),
            "predicted cpu": round(task.predicted_cpu, 4),
            "busy": round(task.busy, 4),
            "predicted busy": round(task.predicted_busy, 4),
            "decided by": "time" if task.waits else "cpu",
        }
        for task in entry.tasks
    ]


def slot_rows(entry: LedgerEntry) -> list[Row]:
    return [
        {
            "slot": f"{slot.vm}/{slot.slot}",
            "cpu": round(slot.cpu, 4),
            "predicted cpu": round(slot.predicted_cpu, 4),
            "memory": round(slot.memory, 4),
            "predicted memory": round(slot.predicted_memory, 4),
        }
        for slot in entry.slots
    ]


def words_of(entry: LedgerEntry) -> str:
    """The plan in a sentence or two."""
    rate = entry.rate
    tested = {
        "no": "so little was offered that it does not tell what the plan carries",
        "carried": "it carried what was offered, about as much as predicted",
        "short": f"it did not keep up and carried {significant(rate.carried_tps)}",
    }
    return (
        f"plan {entry.plan} of {entry.topology}, run {entry.run}, for {entry.seconds:.0f} s: predicted to carry "
        f"{significant(rate.predicted_tps)} tuples/s, {significant(rate.offered_tps)} were offered; "
        f"{tested[rate.tested]}"
    )
