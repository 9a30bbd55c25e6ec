"""`headgate predict TOPOLOGY --placement FILE`: what a placement will do, whoever made it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from headgate.controller.offline.options import (
    certainty_asked,
    rate_of,
    rate_option,
    refuse_unknown_choices,
    routing_options,
    sure_options,
    topology_and_models,
    topology_options,
)
from headgate.topology_runtime.errors import InvalidInput, UsageError
from headgate.topology_runtime.faults.words import significant
from headgate.topology_runtime.output import Format, emit, format_options, write_table

if TYPE_CHECKING:
    from headgate.controller.knowledge.models import Model
    from headgate.controller.knowledge.plans import Placement, Prediction
    from headgate.topology_runtime.cluster import Vm
    from headgate.topology_runtime.topology import Topology


@click.command()
@topology_options
@click.option("--placement", required=True, metavar="FILE", help='A plan, or {"placement": […]}.')
@rate_option
@routing_options
@sure_options
@click.option(
    "--usage",
    default="scaled",
    metavar="scaled|peak",
    show_default=True,
    help="CPU and memory at the rate, or as if every group of threads ran at its peak.",
)
@format_options
def predict(output: Format, **options: Any) -> None:
    """The highest input rate that a placement carries, what limits it, and CPU and memory of its slots.

    CPU and memory are those at --rate, as far as the placement carries it; without --rate those at the
    highest rate that it carries. With --sure P also how surely it carries --rate; without --rate the highest one that
    it carries with that probability."""
    from headgate.controller.files.plan_files import read_json
    from headgate.controller.knowledge.plan_data import PREDICTION_SCHEMA, placement_of, prediction_data
    from headgate.controller.offline.tables import carries, readable_slots, slot_rows
    from headgate.controller.plan.load import load_of
    from headgate.controller.plan.planner import model_names
    from headgate.controller.plan.surely import with_certainty

    refuse_unknown_choices(options)
    rate_tps = None if options["rate"] is None else rate_of(options["rate"], 0.0)
    topology, models = topology_and_models(options)
    sure, models = certainty_asked(options, topology, models)
    named = options["placement"]
    placement, vms = placement_of(read_json(named), topology, named)
    prediction = predicted(topology, models, placement, vms, rate_tps, options)
    if sure is not None:
        load = load_of(topology, models, placement, vms, options["interference"] == "cpu")
        prediction = with_certainty(prediction, load, rate_tps, sure, model_names(topology))
    if output == "table":
        click.echo(f"{topology.name}: {carries(prediction)}")
        if rate_tps is not None and prediction.rate_tps < rate_tps:
            share = prediction.rate_tps / rate_tps
            click.echo(f"it cannot carry {significant(rate_tps, 6)} tuples/s: {share:.0%} of them")
        at_rate = f"at {significant(prediction.at_rate_tps, 6)} tuples/s"
        at = "at peak" if options["usage"] == "peak" else at_rate
        write_table(readable_slots(slot_rows(placement, prediction)), f"slots {at}")
        return
    how = {key: options[key] for key in ("routing", "interference", "usage")}
    document = {"schema": PREDICTION_SCHEMA, "topology": topology.name, **how, **prediction_data(prediction)}
    emit(output, document, slot_rows(placement, prediction))


def predicted(
    topology: Topology,
    models: dict[str, Model],
    placement: Placement,
    vms: tuple[Vm, ...],
    rate_tps: float | None,
    options: dict[str, Any],
) -> Prediction:
    """The prediction asked for by `--routing`, `--interference`, `--usage`. Raises InvalidInput when tasks
    have no model, UsageError when nothing says at which rate."""
    from headgate.controller.knowledge.models import missing_models
    from headgate.controller.plan import predict as planning

    faults = missing_models(topology, models)
    if faults:
        raise InvalidInput(f"topology {topology.name!r} cannot be predicted", faults=faults)
    if rate_tps is None and all(task.static is not None for task in topology.tasks):
        raise UsageError("no task has a model, so nothing limits the rate", hint="--rate R")
    how = {key: options[key] for key in ("routing", "interference", "usage")}
    return planning.predict(topology, models, placement, vms, rate_tps, **how)
