"""`headgate explain TOPOLOGY`: why a plan has these threads, these slots, this limit, and not another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
import msgspec

from headgate.controller.knowledge.plans import usd_per_hour
from headgate.controller.offline.answers import supply_of
from headgate.controller.offline.explain_words import text_of
from headgate.controller.offline.options import asked, planner_options, rate_option
from headgate.controller.offline.traffic_told import traffic_data
from headgate.controller.offline.waiting import waited
from headgate.controller.plan.acquire import MIXES
from headgate.topology_runtime.errors import UsageError
from headgate.topology_runtime.output import Format, emit, format_options

if TYPE_CHECKING:
    from headgate.controller.knowledge.plans import Plan
    from headgate.controller.offline.answers import Row
    from headgate.controller.offline.request import PlanWanted
    from headgate.controller.plan.sam import SlotChoice
    from headgate.topology_runtime.cluster import Slot

SCHEMA = "headgate/explanation/v1"


@click.command()
@planner_options
@rate_option
@format_options
def explain(output: Format, **options: Any) -> None:
    """Say why the plan for TOPOLOGY is as it is: threads, slots, limits, and what was rejected.

    The plan is the one `headgate plan` makes of the same options.
    """
    if options["rate"] is None:
        raise UsageError("--rate is missing: the plan for which input rate?", hint="--rate 100")
    document = explanation(asked(options))
    if output == "table":
        click.echo(text_of(document))
    else:
        emit(output, document, document["threads"])


def explanation(question: PlanWanted) -> Row:
    """All reasons as data (`headgate/explanation/v1`). Raises Infeasible when there is no plan."""
    from headgate.controller.plan.outlook_rows import reach_row, sizes_text, slot_counts
    from headgate.controller.plan.reasons import ceilings, limit_reason, threads_reasons
    from headgate.controller.plan.scaling import outlook, step_for

    plan, topology, models = question.plan(), question.topology, question.models
    found = outlook(supply_of(question), plan.rate_tps)
    threads = threads_reasons(plan.allocation, topology, models)
    return {
        "schema": SCHEMA,
        "topology": plan.topology,
        "rate_tps": plan.rate_tps,
        "allocator": plan.allocator,
        "mapper": plan.mapper,
        "routing": plan.routing,
        "interference": plan.interference,
        "plan": plan.id,
        "fixed": question.acquire is None,
        "slots": slot_counts(plan.slots),
        "vms": sizes_text(plan.vms),
        "usd_per_hour": usd_per_hour(plan.vms),
        "predicted_tps": plan.prediction.rate_tps,
        "predicted_low_tps": plan.prediction.rate_low_tps,
        "predicted_high_tps": plan.prediction.rate_high_tps,
        "threads": [msgspec.to_builtins(reason) for reason in threads],
        "placement": placement_rows(plan),
        "traffic": traffic_data(plan, topology),
        "limit": msgspec.to_builtins(limit_reason(plan, topology, models)),
        "ceilings": [msgspec.to_builtins(ceiling) for ceiling in ceilings(plan, topology, models)],
        "rate_step_tps": step_for(plan.rate_tps),
        "same_slots": reach_row(found.same_slots) if found.same_slots else None,
        "more_slots": reach_row(found.more_slots) if found.more_slots else None,
        "rejected": {"pairs": other_pairs(question), "mixes": other_mixes(question, plan)},
    }


def placement_rows(plan: Plan) -> list[Row]:
    """Every bundle in order of slots; by SAM with what was free there, and the slots it was chosen among."""
    from headgate.controller.plan.reasons import choices_of

    choices: dict[tuple[Slot, str], list[Row]] = {}
    for step, choice in enumerate(choices_of(plan), 1):
        choices.setdefault((choice.at.slot, choice.task), []).append(choice_row(step, choice))
    rows = []
    for bundle in plan.placement.bundles:
        rows.append(
            {
                "vm": bundle.slot.vm,
                "slot": bundle.slot.number,
                "task": bundle.task,
                "threads": bundle.threads,
                "full": bundle.full,
                "choices": choices.get((bundle.slot, bundle.task), []),
            }
        )
    return rows


def choice_row(step: int, choice: SlotChoice) -> Row:
    """The choice SAM made as its `step`-th: the rule, what the threads need, what was free, what else there was."""

    def free(slots: tuple[Any, ...]) -> list[Row]:
        return [{"slot": str(free.slot), "cpu": free.cpu, "memory": free.memory} for free in slots]

    return {
        "step": step,
        "rule": choice.rule,
        "threads": choice.threads,
        "needs": {"cpu": choice.cpu, "memory": choice.memory},
        "free": {"cpu": choice.at.cpu, "memory": choice.at.memory},
        "passed_over": free(choice.passed_over),
        "runners_up": free(choice.runners_up),
    }


def other_pairs(question: PlanWanted) -> list[Row]:
    """What the pairs that were not asked for would give at the same rate."""
    from headgate.controller.plan.outlook_rows import comparison_row
    from headgate.controller.plan.scaling import compared
    from headgate.controller.plan.schedulers import PAIRS

    supply, request = supply_of(question), question.request
    others = [pair for pair in PAIRS if pair != f"{request.allocator}+{request.mapper}"]
    return [
        comparison_row(compared(supply, pair, request.rate_tps)) for pair in waited(others, "comparing pairs")
    ]


def other_mixes(question: PlanWanted, plan: Plan) -> list[Row]:
    """What each way of acquiring as many slots as the plan needs would buy; none for fixed VMs."""
    from headgate.controller.plan.outlook_rows import sizes_text

    if question.acquire is None:
        return []
    needed, rows = plan.slots.estimated + plan.slots.extra, []
    for mix, acquire in MIXES.items():
        vms = acquire(needed, question.sizes)
        rows.append(
            {
                "mix": mix,
                "vms": sizes_text(vms),
                "slots": sum(vm.slots for vm in vms),
                "usd_per_hour": usd_per_hour(vms),
                "chosen": acquire is question.acquire,
            }
        )
    return rows
