"""`headgate rollback ID`: a running controller brings an earlier plan into force again, and holds it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import msgspec

from headgate.dashboards.terminal.connection import asked, controller_option
from headgate.topology_runtime.output import Format, emit, format_options
from headgate.topology_runtime.trace_plans import TRACES, PlanHead, plans_in, the_id


@click.command()
@click.argument("plan", metavar="ID")
@controller_option
@click.option(
    "--traces",
    type=click.Path(path_type=Path),
    default=TRACES,
    show_default=True,
    help="The folder of traces, where plans of all runs are.",
)
@click.option("--instead", is_flag=True, help="Also where another plan was brought back and is held.")
@format_options
def rollback(plan: str, controller: str | None, traces: Path, instead: bool, output: Format) -> None:
    """Bring the placement of an earlier plan into force again, as a new enactment, and hold it.

    ID is the beginning of a plan's id (`headgate history`), of this run or of another run of the same topology.
    From then on the controller plans nothing by itself, but round a VM or slot that fails, until `headgate resume`.
    Its VMs and slots must be there, or to be had; else it is refused (exit code 3), and so it is when something else
    is being enacted or another plan is held (exit code 6).
    """
    done = asked(controller, "rollback", {"plan": found_plan(plan, controller, traces), "instead": instead})
    if output != "table":
        emit(output, {"schema": "headgate/rollback/v1", **done}, [done])
        return
    as_other = f" as plan {done['as']} (its models or VMs are others now)" if done["as"] != done["id"] else ""
    more = f"; waits for {', '.join(done['asked'])}" if done["asked"] else ""
    how = f"comes back{as_other}, as epoch {done['epoch']}" if done["moves"] else "runs already"
    click.echo(f"plan {done['id']} {how}: {done['text']}{more}")
    click.echo(
        f"it is predicted to carry {done['predicted_tps']:.1f} tuples/s, and held until `headgate resume`"
    )


def found_plan(beginning: str, controller: str | None, traces: Path) -> Any:
    """The plan whole, of a trace or of what the controller knows. Raises InvalidInput."""
    known = {one["id"]: one for one in asked(controller, "plans")["plans"]}
    recorded = {one.head.id: one for one in plans_in(traces, beginning)}
    heads = [
        *(msgspec.convert(one, PlanHead) for one in known.values()),
        *(x.head for x in recorded.values()),
    ]
    found = the_id(beginning, heads, f"{traces} or of the running controller")
    if found in recorded:
        return recorded[found].data
    return asked(controller, "plans", {"id": found})["plan"]
