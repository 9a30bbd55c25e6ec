"""`headgate lab sim`: controller, agents and workers in one process and in virtual time, with faults, by the seed."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import click

from headgate.topology_runtime.commands.output import Format, emit, format_options
from headgate.topology_runtime.commands.rare_settings import SettingsCommand, setting
from headgate.topology_runtime.errors import CheckFailed, UsageError

if TYPE_CHECKING:
    from headgate.lab.simulation.simulated_seeds import Outcome, Sum

SCHEMA = "headgate/sim/v1"
SHOWN_MOST = 20  # violations told in words; all are in the JSON


@click.command(cls=SettingsCommand)
@click.option("--seeds", default=None, type=click.IntRange(1), metavar="N", help="How many (default: 200).")
@click.option(
    "--first-seed", "first", default=0, type=click.IntRange(0), metavar="S", help="The first (default: 0)."
)
@setting("--shape", metavar="NAME", help="Only this topology (default: the seed says).")
@click.option("--steps", "trace", is_flag=True, help="Show what happens in one seed.")
@setting("--jobs", default=None, type=click.IntRange(1), metavar="J", help="Processes (default: all cores).")
@format_options
def sim(
    seeds: int | None, first: int, shape: str | None, trace: bool, jobs: int | None, output: Format
) -> None:
    """Run the real controller, agents and workers in virtual time, each seed with re-plans and faults of its
    own, and check after every event that no row is lost. Ends with 8 when something is not as it must be.

    The same seed gives the same run, and the same hash."""
    from headgate.lab.simulation.simulated_topologies import SHAPES

    if shape is not None and shape not in SHAPES:
        raise UsageError(
            f"--set shape: there is no topology {shape!r}", hint=f"one of {', '.join(sorted(SHAPES))}"
        )
    if trace:
        if seeds not in (None, 1):
            raise UsageError("--steps shows one seed only", hint="`headgate lab sim --first-seed S --steps`")
        _trace(first, shape)
        return
    found = _run(range(first, first + (seeds or 200)), shape, jobs or os.cpu_count() or 1)
    _tell(found, output)
    _judge(found, shape)


def _run(seeds: range, shape: str | None, jobs: int) -> Sum:
    from headgate.lab.simulation.simulated_seeds import Sum, outcomes
    from headgate.lab.simulation.simulated_world import Options
    from headgate.topology_runtime.commands.output import bar

    found = Sum()
    try:
        with (
            outcomes(seeds, Options(shape=shape), min(jobs, len(seeds))) as told,
            bar("seeds", len(seeds)) as step,
        ):
            for outcome in told:
                found.add(outcome)
                step(found.seeds, 1)
                if outcome.error:
                    click.echo(_words(outcome), err=True)
    except KeyboardInterrupt:
        bad = len(found.violations)
        click.echo(f"interrupted after {found.seeds} of {len(seeds)} seeds: {bad} violations", err=True)
        raise
    return found


def _words(outcome: Outcome) -> str:
    faults = ", ".join(outcome.faults) or "no faults"
    return f"seed {outcome.seed} ({outcome.shape}; {faults}): {outcome.error}\n  again: {outcome.again}"


def _trace(seed: int, shape: str | None) -> None:
    """What happened in a seed, and how it ended."""
    from headgate.lab.simulation.simulated_seeds import run
    from headgate.lab.simulation.simulated_world import Options

    outcome = run(seed, Options(shape=shape), whole=True)
    for line in outcome.trail:
        click.echo(line)
    if outcome.error:
        raise CheckFailed(f"seed {seed} ({outcome.shape}): {outcome.error}")
    click.echo(f"seed {seed} ({outcome.shape}): all is as it must be, hash {outcome.hash:08x}", err=True)


def _tell(found: Sum, output: Format) -> None:
    violations: list[dict[str, Any]] = [
        {"seed": v.seed, "shape": v.shape, "faults": list(v.faults), "message": v.error, "again": v.again}
        for v in found.violations
    ]
    document = {
        "schema": SCHEMA,
        "seeds": found.seeds,
        "violations": violations,
        "coverage": dict(found.coverage),
        "hash": f"{found.hash:08x}",
    }
    if output == "table":
        rows: list[dict[str, Any]] = [{"met": name, "times": n} for name, n in sorted(found.coverage.items())]
        emit(output, document, rows)
        bad = len(violations)
        sys.stdout.write(f"{found.seeds:,} seeds, {bad} violations, hash {document['hash']}\n")
    else:
        emit(output, document, violations)


def _judge(found: Sum, shape: str | None) -> None:
    """Raises CheckFailed for violations, and when so many seeds never met what they must."""
    from headgate.lab.simulation.simulated_seeds import SEEDS_LEAST, missing

    if found.violations:
        shown = [f"seed {v.seed} ({v.shape}): {v.error}" for v in found.violations[:SHOWN_MOST]]
        hint = f"`{found.violations[0].again}`"
        raise CheckFailed(
            f"{len(found.violations)} of {found.seeds} seeds violate something", faults=shown, hint=hint
        )
    unmet = missing(found.coverage)
    if unmet and shape is None and found.seeds >= SEEDS_LEAST:
        raise CheckFailed(f"{found.seeds} seeds never met: {', '.join(unmet)}")
