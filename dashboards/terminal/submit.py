"""`headgate submit`: give a controller that waits for one its topology."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import click
import msgspec

from dashboards.terminal.connection import asked, contact_of, controller_option
from dashboards.terminal.package import signing_key_option
from dashboards.terminal.shipping import Shipment
from dashboards.up.settings import parse_rate_scale
from topology_runtime import rates
from topology_runtime.addresses import is_loopback, parted
from topology_runtime.errors import InvalidInput, UsageError
from topology_runtime.loading import Loaded, load
from topology_runtime.output import Format, emit, format_options
from topology_runtime.topology import Topology


@click.command()
@click.argument("topology", required=False)
@click.option("--models", type=click.Path(path_type=Path), required=True, help="A folder of models.")
@click.option(
    "--rates",
    "offered",
    metavar="FILE|R",
    help="The input rate: tuples/s, or a file; of rows that come by themselves, the most that are read.",
)
@click.option("--rate-scale", metavar="X", help="Multiplies rates.")
@click.option("--time-scale", type=click.FloatRange(0, min_open=True), default=1.0, help="Divides times.")
@click.option(
    "--ship", is_flag=True, help="Pack the code and send it to every host, not only its folder's name."
)
@click.option(
    "--package",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Send this one, with the topology in it.",
)
@click.option(
    "--on-every-host", multiple=True, metavar="TASK.PARAM", help="A param that names a file of each host."
)
@signing_key_option
@controller_option
@format_options
def submit(topology: str | None, models: Path, offered: str | None, output: Format, **options: Any) -> None:
    """Run TOPOLOGY on a controller that has none yet (`headgate controller run` without --topology).

    One controller runs one topology: a second submit ends 6. Workers on this machine import its code from your
    folders. With --ship, and always when the controller is on another machine, the folder of TOPOLOGY is packed, signed
    (`headgate package key init`) and sent to every host; it runs where agents trust the signer.
    """
    if (topology is None) == (options["package"] is None):
        raise UsageError("give either TOPOLOGY or --package FILE")
    contact = contact_of(options["controller"])
    with Shipment() as shipment:
        if options["package"] is not None:
            found = Loaded(shipment.take(options["package"]), ())
        else:
            assert topology is not None
            found = load(topology, runs=True)
            if options["ship"] or not is_here(contact.endpoint):
                key, everywhere = options["signing_key"], options["on_every_host"]
                found = Loaded(shipment.pack(topology, found.topology, key, everywhere), ())
        offer = offer_of(found.topology, offered, options["rate_scale"], options["time_scale"])
        arguments = {
            "topology": msgspec.to_builtins(found.topology),
            "models": read_documents(models),
            "steps": offer.steps,
            "period_s": offer.period_s,
            "user_paths": found.user_paths,
            "uncapped": offer.uncapped,
            "package": shipment.digest,
        }
        if shipment.digest:
            shipment.send(partial(asked, contact))
        done = asked(contact, "submit", arguments)
        if shipment.digest:
            done["package"] = shipment.digest
    if output == "table":
        click.echo(f"{done['topology']} is given to run {done['run']}; `headgate watch` shows it")
    else:
        emit(output, {"schema": "headgate/submit/v1", **done}, [done])


def offer_of(
    topology: Topology, offered: str | None, rate_scale: str | None, time_scale: float
) -> rates.Rates:
    """The input rate. Raises InvalidInput, UsageError."""
    if offered is None:
        return rates.of_arrivals(topology)
    return rates.read(offered, parse_rate_scale(rate_scale) or 1.0, time_scale)


def is_here(endpoint: str) -> bool:
    """Does the controller listen on this machine alone? Then its agents are here too, and so are their folders."""
    return is_loopback(parted(endpoint)[0])


def read_documents(folder: Path) -> list[Any]:
    """The models as they stand in the folder; the controller judges them. Raises InvalidInput."""
    try:
        files = sorted(file for file in folder.iterdir() if file.suffix == ".json" and file.name[0] != ".")
        return [json.loads(file.read_bytes()) for file in files]
    except (OSError, ValueError) as error:
        raise InvalidInput(f"the models in {folder} cannot be read", cause=str(error)) from error
