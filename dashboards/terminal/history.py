"""`headgate history`: the plans of all runs whose traces are kept, with their reasons; or all about one of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from headgate.dashboards.terminal.decisions import (
    BROUGHT,
    decisions_of,
    seconds_between,
    with_unsaid,
    words_of,
)
from headgate.topology_runtime.errors import InvalidInput
from headgate.topology_runtime.output import Format, emit, format_options, write_table
from headgate.topology_runtime.trace_plans import ID_LEAST, ID_SHOWN, TRACES
from headgate.topology_runtime.trace_tables import DECISIONS

SCHEMA = "headgate/history/v1"
LAST = 30


@click.command()
@click.argument("plan", required=False)
@click.option(
    "--traces",
    type=click.Path(path_type=Path),
    default=TRACES,
    show_default=True,
    help="The folder of traces.",
)
@click.option("--topology", help="Only runs of this topology.")
@click.option(
    "--last", type=click.IntRange(1, 100_000), default=LAST, show_default=True, help="So many plans."
)
@format_options
def history(plan: str | None, traces: Path, topology: str | None, last: int, output: Format) -> None:
    """List the plans of all runs below the folder of traces, the newest last: when, why, for what rate.

    With PLAN, the beginning of an id, each decision for that plan with its evidence and what was rejected.
    """
    if plan is not None and len(plan) < ID_LEAST:
        raise InvalidInput(f"{plan!r} names no plan", cause=f"give at least {ID_LEAST} letters of its id")
    found = list(plans_of(traces, topology))
    if plan is not None:
        found = [row for row in found if row["plan"].startswith(plan)]
        if not found:
            raise InvalidInput(f"no plan begins with {plan!r}", hint="`headgate history` lists them all")
        if output == "table":
            for row in found[-last:]:
                click.echo(f"run {row['run']} of {row['topology']}")
                click.echo(words_of(row["decision"]))
            return
    rows = found[-last:]
    if output != "table":
        emit(output, {"schema": SCHEMA, "plans": rows}, [without_decision(row) for row in rows])
        return
    if not rows:
        click.echo(f"no plan was made in any run below {traces}")
        return
    write_table([shown(row) for row in rows])


def plans_of(traces: Path, topology: str | None = None) -> Iterator[dict[str, Any]]:
    """The plans of all runs, by their time. Raises InvalidInput."""
    if not traces.is_dir():
        raise InvalidInput(
            f"there are no traces in {traces}", hint="`headgate up` writes some; --traces names others"
        )
    runs = [path.parent for path in traces.glob(f"{topology or '*'}/*/{DECISIONS}")]
    rows: list[dict[str, Any]] = []
    for run in sorted(runs):
        try:
            rows += of_run(run)
        except InvalidInput as error:
            click.echo(f"left out: {error.what}: {error.cause}", err=True)
    yield from sorted(rows, key=lambda row: row["time"])


def of_run(run: Path) -> list[dict[str, Any]]:
    """The plans of one run; `stood_s`: until the next one, or the last decision."""
    decisions = with_unsaid(decisions_of(run))
    made = [decision for decision in decisions if decision.get("action") in BROUGHT and decision.get("plan")]
    ends = [*(decision["time"] for decision in made[1:]), decisions[-1]["time"] if decisions else ""]
    return [
        {
            "plan": decision["plan"]["id"],
            "topology": run.parent.name,
            "run": run.name,
            "time": decision["time"],
            "reason": decision["trigger"],
            "rate_tps": decision["plan"]["rate_tps"],
            "predicted_tps": decision["plan"]["predicted_tps"],
            "slots": decision["plan"]["slots"],
            "moves": decision["plan"]["moves"],
            "stood_s": seconds_between(decision["time"], end),
            "decision": decision,
        }
        for decision, end in zip(made, ends, strict=True)
    ]


def without_decision(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name != "decision"}


def shown(row: dict[str, Any]) -> dict[str, Any]:
    """As a line of a table of 80 columns."""
    return {
        "plan": row["plan"][:ID_SHOWN],
        "topology": row["topology"],
        "time": row["time"][:19].replace("T", " "),
        "reason": row["reason"],
        "t/s": round(row["rate_tps"], 1),
        "slots": row["slots"],
        "moves": row["moves"],
        "stood": f"{row['stood_s']:,.0f} s",
    }
