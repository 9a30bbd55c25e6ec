"""`headgate submit`: give a controller that waits for one its topology."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import msgspec

from dashboards.terminal.connection import asked, controller_option
from dashboards.up.settings import parse_rate_scale
from topology_runtime import rates
from topology_runtime.errors import InvalidInput
from topology_runtime.loading import load
from topology_runtime.output import Format, emit, format_options


@click.command()
@click.argument("topology")
@click.option("--models", type=click.Path(path_type=Path), required=True, help="A folder of models.")
@click.option(
    "--rates",
    "offered",
    metavar="FILE|R",
    help="The input rate: tuples/s, or a file; of rows that come by themselves, the most that are read.",
)
@click.option("--rate-scale", metavar="X", help="Multiplies rates.")
@click.option("--time-scale", type=click.FloatRange(0, min_open=True), default=1.0, help="Divides times.")
@controller_option
@format_options
def submit(topology: str, models: Path, offered: str | None, output: Format, **options: Any) -> None:
    """Run TOPOLOGY on a controller that has none yet (`headgate controller run` without --topology).

    One controller runs one topology: a second submit ends 6.
    """
    loaded = load(topology, runs=True)
    if offered is None:
        found = rates.of_arrivals(loaded.topology)
    else:
        found = rates.read(offered, parse_rate_scale(options["rate_scale"]) or 1.0, options["time_scale"])
    arguments = {
        "topology": msgspec.to_builtins(loaded.topology),
        "models": read_documents(models),
        "steps": found.steps,
        "period_s": found.period_s,
        "user_paths": loaded.user_paths,
        "uncapped": found.uncapped,
    }
    done = asked(options["controller"], "submit", arguments)
    if output == "table":
        click.echo(f"{done['topology']} is given to run {done['run']}; `headgate watch` shows it")
    else:
        emit(output, {"schema": "headgate/submit/v1", **done}, [done])


def read_documents(folder: Path) -> list[Any]:
    """The models as they stand in the folder; the controller judges them. Raises InvalidInput."""
    try:
        files = sorted(file for file in folder.iterdir() if file.suffix == ".json" and file.name[0] != ".")
        return [json.loads(file.read_bytes()) for file in files]
    except (OSError, ValueError) as error:
        raise InvalidInput(f"the models in {folder} cannot be read", cause=str(error)) from error
