"""`headgate plan TOPOLOGY --rate R`: threads, slots, VMs and what they will carry."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headgate.controller.planning_commands.planning_options import (
    STEP_TPS,
    asked,
    certainty_asked,
    planner_options,
    rate_of,
    rate_option,
    refuse_unknown_choices,
    routing_options,
    sure_options,
    topology_and_models,
    topology_options,
)
from headgate.topology_runtime.commands.output import Format, emit, format_options, write_table
from headgate.topology_runtime.errors import InvalidInput, UsageError
from headgate.topology_runtime.wording import significant

if TYPE_CHECKING:
    from headgate.controller.models.plans import Placement, Plan, Prediction
    from headgate.controller.models.task_models import Model
    from headgate.controller.plan.planner import PlanRequest
    from headgate.controller.planning_commands.plan_exports import PlanExport
    from headgate.controller.planning_commands.plan_request import PlanWanted
    from headgate.topology_runtime.api.cluster import Vm
    from headgate.topology_runtime.api.topology import Topology


# ── `headgate plan … --for TARGET`: the plan as text to paste into another system, or as data ───────────

TARGETS = ("flink", "storm", "kubernetes")


def leaving(target: str, plan: Plan, question: PlanWanted) -> PlanExport:
    """The plan in the words of one of `TARGETS`."""
    from headgate.controller.plan.plan_reasons import supported
    from headgate.controller.planning_commands.plan_exports import for_flink, for_kubernetes, for_storm

    if target == "kubernetes":
        return for_kubernetes(plan)
    shuffle_tps = supported(plan, question.topology, question.models, "shuffle").rate_tps
    return (
        for_storm(plan, shuffle_tps) if target == "storm" else for_flink(plan, question.topology, shuffle_tps)
    )


def write_leaving(output: Format, target: str, plan: Plan, question: PlanWanted) -> None:
    """Print it: for people as text to paste, with what is lost in its comments."""
    found = leaving(target, plan, question)
    if output == "table":
        click.echo(text_of(found, plan))
    else:
        emit(output, found.document(plan), found.rows)


def text_of(found: PlanExport, plan: Plan) -> str:
    """Everything as one text whose sentences are comments; of Kubernetes it is YAML, for `kubectl apply -f -`."""
    from headgate.controller.planning_commands.plan_sentences import headline

    parts = [_comment(headline(plan))]
    inside = found.target == "kubernetes"
    for place, text in found.blocks:
        parts.append(f"# {place}\n{_comment(text) if inside else text}")
    parts.append("# What this cannot say:\n" + "\n".join(f"# - {line}" for line in found.lost))
    if inside:
        import yaml

        parts += ["---\n" + yaml.safe_dump(one, sort_keys=False).rstrip() for one in found.told["manifests"]]
    return "\n\n".join(parts)


def _comment(text: str) -> str:
    return "\n".join(f"# {line}" for line in text.splitlines())


# ── ────────────────────────────────────────────────────────────────────────────────────────────────────


@click.command()
@planner_options
@rate_option
@sure_options
@click.option("--max-rate", is_flag=True, help="The highest rate that plans on fixed VMs.")
@click.option("--rate-step", type=float, metavar="S", help=f"… in steps of S (default: {STEP_TPS:g}).")
@click.option("--base", metavar="PLAN.json", help="The plan in force: move little, and print what changes.")
@click.option("--plot", type=click.Path(path_type=Path), metavar="FILE", help="Draw it: FILE.svg or .png.")
@click.option("--for", "target", type=click.Choice(TARGETS), help="Print what this system takes instead.")
@format_options
def plan(
    output: Format,
    max_rate: bool,
    rate_step: float | None,
    base: str | None,
    plot: Path | None,
    target: str | None,
    **options: Any,
) -> None:
    """How many threads, slots and VMs TOPOLOGY needs for an input rate, and what they will carry.

    \b
    headgate plan linear --rate 100
    headgate plan FILE --models DIR --rate 100 -o json > plan.json
    headgate plan FILE --models DIR --rate 200 --base plan.json
    headgate plan linear --max-rate --vms 4,4,4,4,4
    headgate plan linear --rate 100 --sure 0.95
    headgate plan FILE --models DIR --rate 100 --from-trace traces/NAME/RUN --mapper traffic
    headgate plan linear --rate 100 --for kubernetes | kubectl apply -f -"""
    question = asked_for(options, max_rate, rate_step)
    found, before = answered(question, base)
    if plot is not None:
        draw(found, question, plot)
    lacking = unmeasured(question)
    if target is not None:
        write_leaving(output, target, found, question)
    elif output == "table":
        print_plan(found, before, question.topology)
    else:
        write_plan(output, found, before, lacking, question.topology)
    if lacking:
        names = ", ".join(lacking)
        click.echo(f"not measured yet: {names}: one thread in a slot of its own, at any rate", err=True)


def asked_for(options: dict[str, Any], max_rate: bool, rate_step: float | None) -> PlanWanted:
    """The question, its rate included. Raises UsageError and InvalidInput."""
    rate = options["rate"]
    if max_rate and rate is not None:
        raise UsageError("--rate and --max-rate exclude each other")
    if rate is None and not max_rate:
        raise UsageError("which input rate?", hint="--rate R, or --max-rate with --vms or --slots")
    if max_rate and options["sure"] is not None:
        raise UsageError("--sure is for a --rate, not for --max-rate")
    if rate_step is not None and not max_rate:
        raise UsageError("--rate-step is for --max-rate")
    step_tps = rate_of(rate_step, STEP_TPS, "--rate-step")
    question = asked(options)
    if not max_rate:
        return question
    if question.acquire is not None:
        raise UsageError("--max-rate needs VMs that are fixed", hint="--vms 4,4 or --slots 20")
    return replace(question, step_tps=step_tps)


def answered(question: PlanWanted, base: str | None) -> tuple[Plan, Plan | None]:
    """(the plan, the plan of the file `base` that it is to replace or None)."""
    from headgate.controller.files.planning_inputs import read_base
    from headgate.controller.planning_commands.plan_changes import based_on
    from headgate.controller.planning_commands.plan_request import check

    before = read_base(base, question.topology) if base is not None else None
    if before is not None:
        question = question.beside(before)
    found = question.plan()
    if before is not None:
        found = based_on(found, before, question.topology, question.request.fixed)
        check(found, question.topology, question.models)
    return found, before


def write_plan(
    output: Format, plan: Plan, before: Plan | None, lacking: Sequence[str], topology: Topology
) -> None:
    """For programs; CSV and JSON lines have the slots."""
    from headgate.controller.models.plan_data import plan_data
    from headgate.controller.planning_commands.plan_changes import changes_data
    from headgate.controller.planning_commands.plan_sentences import planned_traffic, slot_rows

    document = plan_data(plan, planned_traffic(plan, topology))
    if lacking:
        document["unmeasured"] = list(lacking)
    if before is not None:
        document["changes"] = changes_data(before, plan)
    emit(output, document, slot_rows(plan.placement, plan.prediction))


def print_plan(plan: Plan, before: Plan | None, topology: Topology) -> None:
    """For people: a sentence, then what is allocated, where it is, and what changes."""
    from headgate.controller.models.plans import margin_words
    from headgate.controller.planning_commands.plan_sentences import (
        headline,
        readable_slots,
        slot_rows,
        task_rows,
        traffic_data,
        traffic_sentences,
        vm_rows,
    )

    click.echo(headline(plan))
    for words in (plan.allocation.gap_words, margin_words(plan.allocation)):
        if words:
            click.echo(f"{words[:1].upper()}{words[1:]}.")
    click.echo()
    write_table(task_rows(plan), "allocation")
    click.echo()
    slots = readable_slots(slot_rows(plan.placement, plan.prediction))
    write_table(slots, f"slots at {significant(plan.prediction.at_rate_tps, 6)} tuples/s")
    click.echo()
    write_table(vm_rows(plan), "VMs")
    click.echo("\ntraffic")
    for line in traffic_sentences(traffic_data(plan, topology)):
        click.echo(line)
    if before is not None:
        from headgate.controller.planning_commands.diff_command import print_diff

        click.echo("\nchanges")
        print_diff(before, plan)


def unmeasured(question: PlanWanted) -> tuple[str, ...]:
    """Tasks without a model of their own yet, which get one thread in a slot of their own."""
    models = question.models
    return tuple(
        task.name for task in question.topology.breadth_first
        if task.static is None and models[task.model_name].unmeasured
    )  # fmt: skip


def draw(plan: Plan, question: PlanWanted, path: Path) -> None:
    """The picture of `--plot`."""
    from headgate.controller.pictures import plan_picture

    plan_picture(plan, question.topology, question.models, path)
    click.echo(f"drawn: {path}", err=True)


# ── `headgate predict TOPOLOGY --placement FILE`: what a placement will do, whoever made it ─────────────


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
    from headgate.controller.files.planning_inputs import read_json
    from headgate.controller.models.plan_data import PREDICTION_SCHEMA, placement_of, prediction_data
    from headgate.controller.plan.planner import model_names
    from headgate.controller.plan.predict.placement_load import load_of
    from headgate.controller.plan.predict.prediction import with_certainty
    from headgate.controller.planning_commands.plan_sentences import carries, readable_slots, slot_rows

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
    from headgate.controller.models.task_models import missing_models
    from headgate.controller.plan.predict import prediction as planning

    faults = missing_models(topology, models)
    if faults:
        raise InvalidInput(f"topology {topology.name!r} cannot be predicted", faults=faults)
    if rate_tps is None and all(task.static is not None for task in topology.tasks):
        raise UsageError("no task has a model, so nothing limits the rate", hint="--rate R")
    how = {key: options[key] for key in ("routing", "interference", "usage")}
    return planning.predict(topology, models, placement, vms, rate_tps, **how)


# ── `headgate controller capacity`: the highest input rate that fits given VMs, by the models ───────────

FIRST_TPS = 1.0
HIGHEST_TPS = 1e9  # beyond any machine: then the topology has no task that a model limits


@click.command()
@click.argument("topology", type=click.Path(path_type=Path))
@click.option("--models", type=click.Path(path_type=Path), required=True, help="A folder of models.")
@click.option("--vms", required=True, metavar="4,4", help="Slots of each VM.")
@click.option("--allocator", default="mba", show_default=True)
@click.option("--mapper", default="sam", show_default=True)
@click.option("--routing", default="weighted", show_default=True)
def capacity(topology: Path, models: Path, vms: str, allocator: str, mapper: str, routing: str) -> None:
    """Print the highest input rate, in tuples/s, for which TOPOLOGY (a file) fits these VMs."""
    from headgate.controller.files.planning_inputs import read_models
    from headgate.controller.plan.planner import PlanRequest
    from headgate.topology_runtime.api.cluster import Vm
    from headgate.topology_runtime.api.loading import load

    request = PlanRequest(
        topology=load(str(topology)).topology,
        models=read_models(models),
        rate_tps=FIRST_TPS,
        vms=tuple(Vm(f"vm{n}", int(slots)) for n, slots in enumerate(vms.split(","), 1)),
        allocator=allocator,
        mapper=mapper,
        routing=routing,
    )
    click.echo(f"{highest_tps(request):.6g}")


def highest_tps(request: PlanRequest) -> float:
    """Doubles the rate until no plan fits, then goes down. Raises Infeasible when next to nothing fits."""
    from msgspec.structs import replace

    from headgate.controller.plan.planner import best_plan, make_plan
    from headgate.topology_runtime.errors import Infeasible

    rate_tps = request.rate_tps
    while rate_tps < HIGHEST_TPS:
        try:
            make_plan(replace(request, rate_tps=rate_tps))
        except Infeasible:
            break
        rate_tps *= 2
    return best_plan(replace(request, rate_tps=rate_tps)).rate_tps
