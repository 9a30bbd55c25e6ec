"""`headgate explain`: each decision with its reason and evidence, from a live controller or from a trace."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from headgate.dashboards.terminal.connection import asked, controller_option
from headgate.dashboards.terminal.decisions import decisions_of, words_of
from headgate.dashboards.terminal.explained_plan import as_rows, explained_plan, print_explained
from headgate.topology_runtime.errors import Unreachable, UsageError
from headgate.topology_runtime.output import Format, emit, format_options, write_table
from headgate.topology_runtime.trace_plans import TRACES
from headgate.topology_runtime.trace_tables import DECISIONS

LAST = 10


@click.command()
@click.argument("plan", metavar="[ID]", required=False)
@controller_option
@click.option(
    "--trace", type=click.Path(path_type=Path), help="Explain a run that is over, from its trace folder."
)
@click.option(
    "--last", type=click.IntRange(1, 1000), default=LAST, show_default=True, help="So many decisions."
)
@click.option(
    "--traces",
    type=click.Path(path_type=Path),
    default=TRACES,
    show_default=True,
    help="The folder of traces, for an ID.",
)
@click.option("--all", "quiet_too", is_flag=True, help="Also the decisions to do nothing.")
@format_options
def explain(
    plan: str | None,
    controller: str | None,
    trace: Path | None,
    last: int,
    traces: Path,
    quiet_too: bool,
    output: Format,
) -> None:
    """Say why the plan is what it is: each decision, what triggered it, its evidence, what was rejected.

    Without a running controller: from the newest trace below ./traces. With an ID (4 letters of a plan's id are
    enough, `headgate history` lists them): all about that plan, in all runs. With a TOPOLOGY and options of
    `headgate plan` (see `headgate explain linear --help`) it explains a plan, without any run.
    """
    if plan is not None:
        if trace is not None:
            raise UsageError("--trace names one run, an ID is looked for in all", hint="--traces DIR")
        _explain_plan(explained_plan(plan, traces, controller), output)
        return
    found = from_trace(trace) if trace else from_controller(controller)
    decisions = [d for d in found["decisions"] if quiet_too or d.get("action") != "none"][-last:]
    if output != "table":
        emit(output, {**found, "decisions": decisions}, decisions)
        return
    if not decisions:
        click.echo("no decision but to do nothing" if found["decisions"] else "no decision yet")
    for decision in decisions:
        click.echo(words_of(decision))
    for words in found.get("hot_keys", ()):
        click.echo(f"hot key: {words}")
    if found.get("plan"):
        print_plan(found["plan"])


def _explain_plan(found: dict[str, Any], output: Format) -> None:
    if output == "table":
        print_explained(found)
    else:
        emit(output, found, as_rows(found))


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


def print_plan(plan: dict[str, Any]) -> None:
    """Why the plan in force has its threads."""
    limit = f"; {plan['limited_by']} on {plan['limited_by_slot']} limits it" if plan.get("limited_by") else ""
    for_rate = f"for {plan['rate_tps']:.1f} tuples/s on {plan['slots']['used']} slots"
    carries = f"predicted to carry {plan['predicted_tps']:.1f}"
    click.echo(f"\nplan {plan['epoch']} ({plan['reason']}): {for_rate}, {carries}{limit}")
    write_table(plan["tasks"])
