"""Commands that change a running topology: `rate set`, `stop`, `apply`, `resume`."""

from __future__ import annotations

from typing import Any

import click

from headgate.dashboards.terminal.connection import asked, controller_option
from headgate.topology_runtime.faults.words import significant
from headgate.topology_runtime.output import Format, emit, format_options


@click.command()
@click.argument("rate", type=click.FloatRange(0, 1e9))
@controller_option
@format_options
def set_rate(rate: float, controller: str | None, output: Format) -> None:
    """Offer RATE tuples/s from now on, instead of the run's rates."""
    done = asked(controller, "rate_set", {"rate_tps": rate})
    _print(
        output,
        "rate",
        done,
        f"the input rate is {significant(done['rate_tps'], 6)} tuples/s; it was {significant(done['before_tps'], 6)}",
    )


@click.command()
@controller_option
@format_options
def stop(controller: str | None, output: Format) -> None:
    """Stop a run: no more is read, what is in flight is finished, then everything ends.

    A second `headgate stop` ends it at once.
    """
    done = asked(controller, "stop")
    _print(output, "stop", done, f"run {done['run']} is {done['stage']}")


@click.command()
@click.argument("plan", required=False)
@controller_option
@format_options
def apply(plan: str | None, controller: str | None, output: Format) -> None:
    """Bring into force the plan that waits for approval (`up --mode approve`; `headgate status` shows it).

    PLAN is its id; a plan that is stale, or another one, is refused (exit code 6).
    """
    done = asked(controller, "apply", {"id": plan} if plan else {})
    _print(output, "apply", done, f"plan {done['id']} is being enacted as epoch {done['epoch']}")


@click.command()
@click.option(
    "--mode", type=click.Choice(["auto", "advise", "approve"]), help="Plan in this mode from now on."
)
@controller_option
@format_options
def resume(mode: str | None, controller: str | None, output: Format) -> None:
    """Clear alarms and whatever keeps a controller from planning by itself, a plan that `rollback` brought back too."""
    done = asked(controller, "resume", {"mode": mode} if mode else {})
    held = f"; planning was held: {done['was_held']}" if done.get("was_held") else ""
    _print(output, "resume", done, f"planning goes on in mode {done['mode']}{held}")


def _print(output: Format, name: str, done: dict[str, Any], words: str) -> None:
    if output == "table":
        click.echo(words)
    else:
        emit(output, {"schema": f"headgate/{name}/v1", **done}, [done])
