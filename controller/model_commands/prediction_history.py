"""`headgate history` of the prediction ledger: what plans were predicted to do, beside what they did."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headgate.topology_runtime.commands.output import Format, Row, emit, write_table
from headgate.topology_runtime.errors import InvalidInput
from headgate.topology_runtime.traces.trace_tables import LEDGER
from headgate.topology_runtime.wording import significant

if TYPE_CHECKING:
    from headgate.controller.analyze.model_bias import LearnedFactor, ModelBias
    from headgate.controller.models.prediction_ledger import LedgerEntry

ID_SHOWN = 8
TESTED = {"no": "", "carried": "carries it", "short": "falls short"}

FOUND_NOTHING = "no plan was in force for long enough in any run below {}"


def show(what: str, traces: Path, topology: str | None, last: int, plot: Path | None, output: Format) -> None:
    """Print what plans were predicted to do beside what they did (`plans`), or by how much models were off (`models`).

    Lines of a ledger that cannot be read are named and left out."""
    from headgate.controller.planning_commands.plan_request import refuse_picture

    refuse_picture(plot)
    entries, faults = entries_of(traces, topology)
    if what == "models":
        _show_models(entries, faults, traces, output)
    else:
        _show_plans(entries[-last:], faults, traces, output)
    for fault in faults:
        click.echo(fault, err=True)
    if plot is not None:
        from headgate.controller.pictures.model_pictures import ledger_picture

        ledger_picture(entries[-last:], plot)


def _show_plans(entries: Sequence[LedgerEntry], faults: Sequence[str], traces: Path, output: Format) -> None:
    """A rate says something of a plan only where about as much was offered as it carries, or it fell short. CPU is a
    mean over its slots."""
    rows = [plan_row(entry) for entry in entries]
    if output != "table":
        emit(output, {"schema": "headgate/ledger-list/v1", "plans": rows, "faults": faults}, rows)
        return
    write_table([shown(row) for row in rows])
    if not rows:
        click.echo(FOUND_NOTHING.format(traces), err=True)


def of_plan(beginning: str, traces: Path, topology: str | None) -> list[dict[str, Any]]:
    """All that is recorded of the plans whose id begins so, as data: rate, tasks and slots, predicted and measured."""
    import msgspec

    found, faults = entries_of(traces, topology)
    for fault in faults:
        click.echo(fault, err=True)
    return [msgspec.to_builtins(entry) for entry in found if entry.plan.startswith(beginning)]


def print_plan(data: dict[str, Any]) -> None:
    """One of `of_plan`, for people."""
    import msgspec

    from headgate.controller.models.prediction_ledger import LedgerEntry

    entry = msgspec.convert(data, LedgerEntry)
    click.echo(words_of(entry))
    write_table(task_rows(entry), "tasks")
    write_table(slot_rows(entry), "slots")


def _show_models(entries: list[LedgerEntry], faults: Sequence[str], traces: Path, output: Format) -> None:
    """By how much models and VMs were off, over all runs: what a row cost, measured / predicted, and how surely.

    factor: what a plan is corrected by once a model is surely off (more than × 1.25, with two errors to spare); what
    may be chance is taken off, and of factors beyond × 5 no more is believed. spread: from run to run."""
    from headgate.controller.analyze.model_bias import biases, slow_vms

    slow = slow_vms(entries)
    rows = [
        *(model_row(bias) for _, bias in sorted(biases(entries, slow).items())),
        *(learned_row("VM", vm, "", "cpu", how) for vm, how in slow.items()),
    ]
    if output != "table":
        emit(output, {"schema": "headgate/ledger-models/v1", "learned": rows, "faults": faults}, rows)
        return
    write_table([for_people(row) for row in rows])
    if not rows:
        click.echo(f"nothing is known yet: {FOUND_NOTHING.format(traces)}", err=True)


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
    from headgate.controller.recording.prediction_ledger_file import read_ledger

    if not traces.exists():
        hint = "record some with `headgate up`, or name others with `history --traces`"
        raise InvalidInput(f"no traces in {traces}", hint=hint)
    paths = [traces] if traces.is_file() else sorted(traces.glob(f"{topology or '*'}/{LEDGER}"))
    read = [read_ledger(path) for path in paths]
    entries = [e for one in read for e in one.entries if topology is None or e.topology == topology]
    return sorted(entries, key=lambda entry: entry.time), [fault for one in read for fault in one.faults]


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
        "predicted_tps": rate.told_tps,
        "tested": rate.tested,
        "cpu": sum(slot.cpu for slot in entry.slots) / count,
        "predicted_cpu": sum(slot.predicted_cpu for slot in entry.slots) / count,
        "memory": sum(slot.memory for slot in entry.slots) / count,
        "predicted_memory": sum(slot.predicted_memory for slot in entry.slots) / count,
        "p50_ms": entry.latency_ms.get("p50"),
        "p99_ms": entry.latency_ms.get("p99"),
        "predicted_p50_ms": entry.predicted_latency_ms.get("p50"),
        "predicted_p99_ms": entry.predicted_latency_ms.get("p99"),
    }


def shown(row: Row) -> Row:
    """As a line of a table of 80 columns."""
    return {
        "plan": row["plan"][:ID_SHOWN],
        "time": row["time"][:16].replace("T", " "),
        "for s": round(row["seconds"]),
        "offered": round(row["offered_tps"], 1),
        "predicted": None if row["predicted_tps"] is None else round(row["predicted_tps"], 1),
        "it": TESTED[row["tested"]],
        "cpu %": round(100 * row["cpu"], 1),
        "predicted %": round(100 * row["predicted_cpu"], 1),
        "p99 ms": row["p99_ms"] and round(row["p99_ms"], 1),
        "said": row["predicted_p99_ms"] and round(row["predicted_p99_ms"], 1),
    }


def task_rows(entry: LedgerEntry) -> list[Row]:
    return [
        {
            "task": task.task,
            "model": task.model,
            "version": task.version,
            "rows/s": round(task.rate_tps, 2),
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
        "no": "so little was offered that it does not show what the plan carries",
        "carried": "it carried what was offered, about as much as predicted",
        "short": f"it did not keep up and carried {significant(rate.carried_tps)}",
    }
    predicted = "not known yet" if rate.told_tps is None else f"{significant(rate.told_tps)} rows/s"
    return (
        f"plan {entry.plan} of {entry.topology}, run {entry.run}, for {entry.seconds:.0f} s: predicted to carry "
        f"{predicted}, {significant(rate.offered_tps)} were offered; "
        f"{tested[rate.tested]}{latency_words(entry)}"
    )


def latency_words(entry: LedgerEntry) -> str:
    """`; p50 4.8 ms (4.5 predicted), p99 6.9 ms (4.5 predicted)`; nothing where nothing was predicted."""
    pairs = [
        f"{name} {significant(entry.latency_ms[name], 3)} ms ({significant(said, 3)} predicted)"
        for name, said in entry.predicted_latency_ms.items()
        if name in entry.latency_ms
    ]
    return f"; {', '.join(pairs)}" if pairs else ""
