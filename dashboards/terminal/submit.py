"""`headgate submit`: give a controller that waits for one its topology."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import click
import msgspec

from headgate.dashboards.terminal.connection import asked, contact_of, controller_option
from headgate.dashboards.terminal.measuring import Kept, lacking, measured, say_first_plan, stand_ins, whoever
from headgate.dashboards.terminal.shipping import Shipment, code_options
from headgate.dashboards.up.settings import parse_rate_scale
from headgate.topology_runtime import rates
from headgate.topology_runtime.calibration import store
from headgate.topology_runtime.errors import InvalidInput, Unreachable, UsageError
from headgate.topology_runtime.keys.pairs import Contact
from headgate.topology_runtime.output import Format, emit, format_options
from headgate.topology_runtime.topology import Topology


@click.command()
@click.argument("topology", required=False)
@click.option(
    "--models",
    type=click.Path(path_type=Path),
    help="A folder of models [what it lacks is measured on the hosts, once].",
)
@click.option(
    "--rates",
    "offered",
    metavar="FILE|R",
    help="The input rate: tuples/s, or a file; of rows that come by themselves, the most that are read.",
)
@click.option("--rate-scale", metavar="X", help="Multiplies rates.")
@click.option("--time-scale", type=click.FloatRange(0, min_open=True), default=1.0, help="Divides times.")
@code_options
@click.option("--save-models", type=click.Path(path_type=Path), metavar="DIR", help="What was measured, too.")
@click.option(
    "--measure-effects", is_flag=True, help="Run tasks with effects on sample rows, where models lack."
)
@controller_option
@format_options
def submit(
    topology: str | None, models: Path | None, offered: str | None, output: Format, **options: Any
) -> None:
    """Run TOPOLOGY on a controller that has none yet (`headgate controller run` without --topology).

    One controller runs one topology: a second submit ends 6. Workers on this machine import its code from your
    folders. With --ship, and always when the controller is on another machine, the folder of TOPOLOGY is packed, signed
    (`headgate package key init`) and sent to every host; it runs where agents trust the signer.

    Tasks without a model are measured first, in free slots of the hosts, on each kind of machine; then it is planned.
    Ctrl-C meanwhile withdraws the submission. What was measured is kept for the next time.
    """
    if (topology is None) == (options["package"] is None):
        raise UsageError("give either TOPOLOGY or --package FILE")
    contact = contact_of(options["controller"])
    with Shipment() as shipment:
        found = shipment.loaded(topology, contact, options)
        offer = offer_of(found.topology, offered, options["rate_scale"], options["time_scale"])
        documents = read_documents(models) if models is not None else []
        kept = Kept(found.topology, (shipment.code,) if shipment.code else found.user_paths)
        if names := lacking(found.topology, documents):
            documents += stand_ins(found.topology, names, options["measure_effects"], say)
        arguments = {
            "topology": msgspec.to_builtins(found.topology),
            "models": documents,
            "measure": True,
            "known": kept.models(asked(contact, "status")["vms"]) if names else [],
            "by": whoever(),
            "steps": offer.steps,
            "period_s": offer.period_s,
            "user_paths": found.user_paths,
            "uncapped": offer.uncapped,
            "package": shipment.digest,
        }
        if shipment.digest:
            shipment.send(partial(asked, contact))
        done = asked(contact, "submit", arguments)
        if "submission" in done:
            ask = asking(options["controller"], contact)
            fresh = measured(ask, done["submission"], say)
            kept.keep(fresh)
            if options["save_models"] is not None:
                save(options["save_models"], fresh)
            say_first_plan(ask, say)
        if shipment.digest:
            done["package"] = shipment.digest
    if output == "table":
        click.echo(f"{done['topology']} is given to run {done['run']}; `headgate watch` shows it")
    else:
        emit(output, {"schema": "headgate/submit/v1", **done}, [done])


def asking(where: str | None, contact: Contact) -> Callable[[str, dict[str, Any]], Any]:
    """One that finds the controller again when it does not answer: it may have been started anew, at other ports."""
    at = [contact]

    def ask(command: str, arguments: dict[str, Any]) -> Any:
        try:
            return asked(at[0], command, arguments)
        except Unreachable:
            at[0] = contact_of(where)
            raise

    return ask


def save(folder: Path, models: list[dict[str, Any]]) -> None:
    """A file per task: of several kinds of machine the slowest, which it is planned with."""
    slowest: dict[str, dict[str, Any]] = {}
    for model in models:
        slowest[model["task"]] = min(slowest.get(model["task"], model), model, key=peak_tps)
    for model in slowest.values():
        store.save(folder, model)


def peak_tps(model: dict[str, Any]) -> float:
    return max(float(point["rate_tps"]) for point in model["points"])


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def offer_of(
    topology: Topology, offered: str | None, rate_scale: str | None, time_scale: float
) -> rates.Rates:
    """The input rate. Raises InvalidInput, UsageError."""
    if offered is None:
        return rates.of_arrivals(topology)
    return rates.read(offered, parse_rate_scale(rate_scale) or 1.0, time_scale)


def read_documents(folder: Path) -> list[Any]:
    """The models as they stand in the folder; the controller judges them. Raises InvalidInput."""
    try:
        files = sorted(file for file in folder.iterdir() if file.suffix == ".json" and file.name[0] != ".")
        return [json.loads(file.read_bytes()) for file in files]
    except (OSError, ValueError) as error:
        raise InvalidInput(f"the models in {folder} cannot be read", cause=str(error)) from error
