"""`headgate explain`: each decision with its reason and evidence, from a live controller or from a trace."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from dashboards.terminal.connection import asked, controller_option
from topology_runtime.errors import InvalidInput, Unreachable
from topology_runtime.output import Format, emit, format_options, to_json, write_table
from topology_runtime.trace_tables import DECISIONS

TRACES = Path("traces")  # where `up` writes them, below where it was started
LAST = 10

Decision = dict[str, Any]


@click.command()
@controller_option
@click.option(
    "--trace", type=click.Path(path_type=Path), help="Explain a run that is over, from its trace folder."
)
@click.option(
    "--last", type=click.IntRange(1, 1000), default=LAST, show_default=True, help="So many decisions."
)
@click.option("--all", "quiet_too", is_flag=True, help="Also the decisions to do nothing.")
@format_options
def explain(controller: str | None, trace: Path | None, last: int, quiet_too: bool, output: Format) -> None:
    """Say why the plan is what it is: each decision, what triggered it, its evidence, what was rejected.

    Without a running controller: from the newest trace below ./traces. With a TOPOLOGY and options of
    `headgate plan` (see `headgate explain linear --help`) it explains a plan, without any run.
    """
    found = from_trace(trace) if trace else from_controller(controller)
    decisions = [d for d in found["decisions"] if quiet_too or d.get("action") != "none"][-last:]
    if output != "table":
        emit(output, {**found, "decisions": decisions}, decisions)
        return
    if not decisions:
        click.echo("no decision but to do nothing" if found["decisions"] else "no decision yet")
    for decision in decisions:
        click.echo(words_of(decision))
    if found.get("plan"):
        print_plan(found["plan"])


def from_controller(where: str | None) -> dict[str, Any]:
    """What the controller says; without one, the newest trace."""
    try:
        found: dict[str, Any] = asked(where, "explain", {"last": 1000})
        return found
    except Unreachable:
        newest = newest_trace()
        if where is not None or newest is None:
            raise
        click.echo(f"no controller is running; this is from {newest}", err=True)
        return from_trace(newest)


def newest_trace() -> Path | None:
    files = sorted(TRACES.glob(f"*/*/{DECISIONS}"), key=lambda path: path.stat().st_mtime)
    return files[-1].parent if files else None


def from_trace(folder: Path) -> dict[str, Any]:
    """The decisions of a run that is over. Raises InvalidInput."""
    return {"schema": "headgate/explain/v1", "decisions": decisions_of(folder), "plan": None}


def decisions_of(folder: Path) -> list[Decision]:
    """All decisions of a trace; what a kill left half written is none. Raises InvalidInput."""
    try:
        whole, _, _ = (folder / DECISIONS).read_text("utf-8").rpartition("\n")
        return [json.loads(line) for line in whole.splitlines()]
    except (OSError, ValueError) as error:
        raise InvalidInput(f"{folder} is no trace that can be read", cause=str(error)) from error


def words_of(decision: Decision) -> str:
    """A decision on a few lines."""
    lines = [f"{decision['time']}  {decision['trigger']} → {decision['action']}: {decision['text']}"]
    if decision.get("evidence"):
        lines.append(f"    evidence: {_pairs(decision['evidence'])}")
    plan = decision.get("plan")
    if plan:
        lines.append(f"    plan: {_pairs(plan)}")
    lines += [f"    rejected: {other}" for other in decision.get("alternatives") or ()]
    return "\n".join(lines)


def _pairs(values: dict[str, Any]) -> str:
    return ", ".join(f"{key} {_short(value)}" for key, value in values.items() if value is not None)


def _short(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return value if isinstance(value, str) else to_json(value)


def print_plan(plan: dict[str, Any]) -> None:
    """Why the plan in force has its threads."""
    limit = f"; {plan['limited_by']} on {plan['limited_by_slot']} limits it" if plan.get("limited_by") else ""
    for_rate = f"for {plan['rate_tps']:.1f} tuples/s on {plan['slots']['used']} slots"
    carries = f"predicted to carry {plan['predicted_tps']:.1f}"
    click.echo(f"\nplan {plan['epoch']} ({plan['reason']}): {for_rate}, {carries}{limit}")
    write_table(plan["tasks"])
