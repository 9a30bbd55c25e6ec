"""A run that has a part of a cluster: which slots it may use (`grant`), and what it could do with (`share`). Pure.

Slots that are not granted are those of other runs. No plan is made with them, and threads that are in one of them move
away as from a VM that is drained, with all their rows and state. One is *empty* when nothing of this run is in it, nor
could come back to it. What is granted is journaled: a controller that was killed uses no more.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from headgate.controller.core.decisions import FIRST_RATE_LEAST_TPS, present, question
from headgate.controller.knowledge.journal_records import SlotsGranted
from headgate.controller.knowledge.knowledge import Knowledge, Turn
from headgate.controller.models.task_models import unknown_tasks
from headgate.controller.plan.plan_steps import allocated
from headgate.controller.plan.slot_shares import slots_named
from headgate.topology_runtime.api.cluster import Slot
from headgate.topology_runtime.errors import HeadgateError
from headgate.topology_runtime.wording import counted


def grant(turn: Turn, arguments: dict[str, Any]) -> Any:
    """These slots may be used from now on, and no others."""
    k, slots = turn.knowledge, slots_named(arguments.get("slots"))
    if k.durable.granted != slots:
        turn.record(SlotsGranted(slots, turn.now.wall_ns))
        turn.event("granted", f"it may use {counted(len(slots), 'slot')} of the cluster")
        k.next_turn_ns = 0
    return share(turn, arguments)


def share(turn: Turn, arguments: dict[str, Any]) -> Any:
    """What it may use, uses, needs, and has emptied."""
    k = turn.knowledge
    granted, needs = k.durable.granted, slots_needed(turn)
    plan = k.plan
    return {
        "run": k.settings.run,
        "topology": k.topology.name if k.topology is not None else None,
        "stage": turn.stage,
        "granted": None if granted is None else [str(slot) for slot in granted],
        "used": sorted(map(str, _planned(k))),
        "empty": sorted(map(str, _empty(k))),
        "needs": needs,
        "planned_tps": plan.rate_tps if plan is not None else None,
        "predicted_tps": plan.prediction.told_tps if plan is not None else None,
        "usd_per_hour": round(_usd_per_hour(k), 6),
        "stays": _stays(k),
        "alarms": [text for _, text in sorted(k.alarms.items())][:8],
    }


def _stays(k: Knowledge) -> str:
    """Why it moves nothing by itself, so that what is asked back of it is not emptied; empty when it does."""
    if k.mode != "auto":
        return f"it runs in mode {k.mode} (`headgate resume --mode auto`)"
    return k.hold


def slots_needed(turn: Turn) -> int:
    """Slots that the rate takes which is to be planned for: by the allocator, and no fewer than a plan for all of it
    uses; where too few are granted, more than are. A task that nothing is known of takes one."""
    k = turn.knowledge
    run, rollout = k.durable.run, k.durable.rollout
    if run is None:
        return 0
    if unknown_tasks(run.topology, k.models):
        return max(len(run.topology.tasks), k.plan.slots.used if k.plan is not None else 0)
    found = turn.view().result
    if rollout is None or found is None:
        rate_tps = max(run.steps[0][1], FIRST_RATE_LEAST_TPS) * k.settings.headroom
    else:
        up = found.demand.direction == "up" or rollout.degraded
        rate_tps = max(rollout.plan.rate_tps, found.demand.target_tps if up else 0.0)
    used = rollout.plan.slots.used + bool(rollout.degraded) if rollout is not None else 1
    if not present(k):
        return used
    try:
        return max(used, allocated(replace(question(k, rate_tps).request, excluded=frozenset())).slots)
    except HeadgateError:
        return used


def _usd_per_hour(k: Knowledge) -> float:
    """Of the slots in use, each its part of its VM."""
    vms = {member.vm.vm: member.vm for member in k.members.members.values()}
    return sum(vms[slot.vm].usd_per_hour / vms[slot.vm].slots for slot in _planned(k) if slot.vm in vms)


def _planned(k: Knowledge) -> set[Slot]:
    """Slots with threads, now or soon."""
    d = k.durable
    return {slot for one in (d.rollout, d.waiting) if one is not None for slot in one.slots}


def _empty(k: Knowledge) -> Iterator[Slot]:
    """Slots that are not granted, of VMs that say so themselves, or that left: nothing of this run is there."""
    d, withheld = k.durable, k.withheld
    held = _planned(k)
    if d.before is not None and not (d.lets_go or d.phase == "none"):
        held |= {bundle.slot for bundle in d.before.plan.placement.bundles}
    held |= {
        slot for slot, worker in k.members.workers.items() if worker.state not in ("exited", "quarantined")
    }
    held |= {profile.spec.slot for profile in k.first.running.values()}
    if k.profiles.desired is not None:
        held.add(k.profiles.desired.slot)
    for member in k.members.members.values():
        report = member.report if member.state == "joined" else None
        knows = (
            report is not None and report.token.epoch >= k.epoch
        )  # of the present plan, and of none before
        if knows or member.state == "left":
            yield from (slot for slot in member.vm.all_slots() if slot in withheld and slot not in held)


GRANT_COMMANDS = {"grant": grant, "share": share}
