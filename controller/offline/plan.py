"""`headgate plan TOPOLOGY --rate R`: threads, slots, VMs and what they will carry."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headgate.controller.offline.options import (
    STEP_TPS,
    asked,
    planner_options,
    rate_of,
    rate_option,
    sure_options,
)
from headgate.controller.offline.plan_for import TARGETS, write_leaving
from headgate.topology_runtime.errors import UsageError
from headgate.topology_runtime.faults.words import significant
from headgate.topology_runtime.output import Format, emit, format_options, write_table

if TYPE_CHECKING:
    from headgate.controller.knowledge.plans import Plan
    from headgate.controller.offline.request import PlanWanted
    from headgate.topology_runtime.topology import Topology


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
    from headgate.controller.files.plan_files import read_base
    from headgate.controller.offline.basing import based_on
    from headgate.controller.offline.request import check

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
    from headgate.controller.knowledge.plan_data import plan_data
    from headgate.controller.offline.changes import changes_data
    from headgate.controller.offline.tables import slot_rows
    from headgate.controller.offline.traffic_told import traffic_told

    document = plan_data(plan, traffic_told(plan, topology))
    if lacking:
        document["unmeasured"] = list(lacking)
    if before is not None:
        document["changes"] = changes_data(before, plan)
    emit(output, document, slot_rows(plan.placement, plan.prediction))


def print_plan(plan: Plan, before: Plan | None, topology: Topology) -> None:
    """For people: a sentence, then what is allocated, where it is, and what changes."""
    from headgate.controller.knowledge.plans import margin_words
    from headgate.controller.offline.tables import headline, readable_slots, slot_rows, task_rows, vm_rows
    from headgate.controller.offline.traffic_told import traffic_data, traffic_sentences

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
        from headgate.controller.offline.diff import print_diff

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
    from headgate.controller.offline.pictures import plan_picture

    plan_picture(plan, question.topology, question.models, path)
    click.echo(f"drawn: {path}", err=True)
