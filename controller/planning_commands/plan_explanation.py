"""`headgate plan --explain`: why a plan has these threads, these slots, this limit, and not another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from headgate.controller.models.plans import usd_per_hour
from headgate.controller.plan.acquire import MIXES
from headgate.controller.planning_commands.plan_request import supply_of
from headgate.controller.planning_commands.plan_sentences import traffic_data
from headgate.controller.planning_commands.planning_options import with_progress_bar

if TYPE_CHECKING:
    from headgate.controller.models.plans import Plan
    from headgate.controller.plan.mappers.sam import SlotChoice
    from headgate.controller.plan.scaling import Row
    from headgate.controller.planning_commands.plan_request import PlanWanted
    from headgate.topology_runtime.api.cluster import Slot

SCHEMA = "headgate/explanation/v1"


def explanation(question: PlanWanted, plan: Plan) -> Row:
    """All reasons for the plan that answers the question, as data (`headgate/explanation/v1`)."""
    from headgate.controller.plan.plan_reasons import ceilings, limit_reason, threads_reasons
    from headgate.controller.plan.scaling import (
        scaling_analysis,
        sizes_text,
        step_for,
    )

    topology, models = question.topology, question.models
    found = scaling_analysis(supply_of(question), plan.rate_tps)
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
        "slots": msgspec.to_builtins(plan.slots),
        "vms": sizes_text(plan.vms),
        "usd_per_hour": usd_per_hour(plan.vms),
        "predicted_tps": plan.prediction.told_tps,
        "predicted_low_tps": plan.prediction.rate_low_tps,
        "predicted_high_tps": plan.prediction.rate_high_tps,
        "threads": [msgspec.to_builtins(reason) for reason in threads],
        "placement": placement_rows(plan),
        "traffic": traffic_data(plan, topology),
        "limit": msgspec.to_builtins(limit_reason(plan, topology, models)),
        "ceilings": [msgspec.to_builtins(ceiling) for ceiling in ceilings(plan, topology, models)],
        "rate_step_tps": step_for(plan.rate_tps),
        "same_slots": found["same_slots"],
        "more_slots": found["more_slots"],
        "rejected": {"pairs": other_pairs(question), "mixes": other_mixes(question, plan)},
    }


def placement_rows(plan: Plan) -> list[Row]:
    """Every bundle in order of slots; by SAM with what was free there, and the slots it was chosen among."""
    from headgate.controller.plan.plan_reasons import choices_of

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
    from headgate.controller.plan.scaling import compared
    from headgate.controller.plan.schedulers import PAIRS

    supply, request = supply_of(question), question.request
    others = [pair for pair in PAIRS if pair != f"{request.allocator}+{request.mapper}"]
    return [compared(supply, pair, request.rate_tps) for pair in with_progress_bar(others, "comparing pairs")]


def other_mixes(question: PlanWanted, plan: Plan) -> list[Row]:
    """What each way of acquiring as many slots as the plan needs would buy; none for fixed VMs."""
    from headgate.controller.plan.scaling import sizes_text

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
