"""What a person wants to know of a running controller: the data of `status` and `explain`. Pure."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

from controller.core.copies import BySink, copies_of
from controller.core.summary import latency_ms, state_of
from controller.execute import steps
from controller.execute.ending import offered_of
from controller.execute.executor import sight_of, stand_of
from controller.knowledge.arrivals import cap_of, lags_of, offered_now, source_kind
from controller.knowledge.knowledge import Knowledge
from controller.knowledge.letters import Letter, Letters
from controller.knowledge.membership import Member, Membership, natural
from controller.knowledge.turns import Now
from controller.monitor.hearing import in_flight
from topology_runtime.faults.words import counted
from topology_runtime.messages import WorkerStatus
from topology_runtime.utc import utc_iso

SCHEMA = "headgate/status/v1"
NS = 1e9
LETTERS_SHOWN = 5
NOT_MEASURED = "it was not measured yet: a slot of its own until its first rows were"

Measured = dict[str, Any]


def status(
    k: Knowledge, members: Membership, measured: Measured, by_sink: BySink, stage: str, now: Now
) -> dict[str, Any]:
    """Everything at a glance. `measured`: what the last turn of the loop saw (see `loop.Seen.data`)."""
    d = k.durable
    running_s = (now.wall_ns - d.started_ns) / NS if d.started_ns else 0.0
    return {
        "schema": SCHEMA,
        "time": utc_iso(now.wall_ns),
        "run": k.settings.run,
        "topology": k.topology.name if k.topology else None,
        "stage": stage_of(k, stage),
        "seconds": round(max(0.0, running_s), 3),
        "mode": k.mode,
        "held": k.held or None,
        "boot": d.boot,
        "pid": k.pid,
        "verdict": measured.get("verdict", {"verdict": "unknown"}),
        "plan": _plan(k, now),
        "enactment": enactment(k, members, now),
        "proposal": _proposal(k),
        "profile": _profile(k, now),
        "slots": _slots(k, members),
        "vms": [_vm(k, member, measured) for member in members_in_order(members)],
        "rates": _rates(k, measured, now),
        "tuples": _tuples(k, members, by_sink, now),
        "state": state_of(k),
        "latency_ms": {**latency_ms(k.counts), "window": measured.get("latency_ms")},
        "tasks": measured.get("tasks", []),
        "residuals": measured.get("residuals", []),
        "last_decision": k.last_decision,
        "dead_letters": [
            {"task": x.task, "source": x.source, "position": x.position, "error": x.error, "row": x.row}
            for x in k.counts.letters.newest(LETTERS_SHOWN)
        ],
        "alarms": alarms_told(k, now),
        "advice": k.advice or None,
        "troubles": dict(sorted(k.troubles.items())),
    }


def alarms_told(k: Knowledge, now: Now) -> list[dict[str, Any]]:
    """What a person should act on, and since when."""
    since = {what: utc_iso(k.alarm_since_ns.get(what, now.wall_ns)) for what in k.alarms}
    return [{"what": what, "since": since[what], "text": text} for what, text in sorted(k.alarms.items())]


def letters_told(letters: Letters) -> dict[str, Any]:
    """How many rows died, in all (distinct source positions) and by task, and of how many the letter is kept."""
    kept = Counter(letter.task for letter in letters.of())
    rows = dict.fromkeys(kept, 0) | letters.counts()
    return {
        "dead_lettered": letters.count,
        "dropped": letters.dropped,
        "replayed": letters.replayed,
        "replaying": len(letters.asked),
        "tasks": [{"task": t, "rows": rows[t], "kept": kept[t]} for t in sorted(rows)],
    }


def letter_row(letters: Letters, letter: Letter) -> dict[str, Any]:
    """A letter as `headgate deadletter list` has it."""
    return {
        "id": letter.number,
        "time": utc_iso(letter.wall_ns),
        "task": letter.task,
        "source": letter.source,
        "partition": letter.partition,
        "position": letter.position,
        "n": letters.times.get(letter.number, 1),
        "error": letter.error,
    }


def stage_of(k: Knowledge, ending: str) -> str:
    """One word for where the run is."""
    d = k.durable
    if ending != "running":
        return ending
    if k.adopting_until_ns:
        return "adopting"
    if d.run is None:
        return "idle"
    if d.rollout is None:
        return "gathering"
    if k.enacting:
        return "starting" if d.schedule is None else "enacting"
    return d.phase


def _plan(k: Knowledge, now: Now) -> dict[str, Any] | None:
    rollout = k.durable.rollout
    if rollout is None:
        return None
    plan = rollout.plan
    return {
        "id": plan.id,
        "epoch": rollout.epoch,
        "reason": rollout.reason,
        "text": rollout.text,
        "phase": k.durable.phase,
        "age_s": round((now.wall_ns - rollout.wall_ns) / NS, 3),
        "rate_tps": plan.rate_tps,
        "predicted_tps": plan.prediction.rate_tps,
        "limited_by": plan.prediction.limited_by,
        "limited_by_slot": plan.prediction.limited_by_slot,
        "allocator": plan.allocator,
        "mapper": plan.mapper,
        "threads": sum(bundle.threads for bundle in plan.placement.bundles),
        "degraded": rollout.degraded or None,
    }


def enactment(k: Knowledge, members: Membership, now: Now) -> dict[str, Any] | None:
    """How far the plan under way is, and what it waits for."""
    stand = stand_of(k, sight_of(members), now.mono_ns)
    if stand is None:
        return None
    return {
        "epoch": stand.planned.epoch,
        "phase": stand.phase,
        "for_s": round((now.mono_ns - stand.since_ns) / NS, 3),
        "waits_for": steps.waits_for(stand) or None,
        "leaving": sum(thread.leaving for thread in stand.planned.threads),
        "fresh": len(stand.planned.fresh),
    }


def _proposal(k: Knowledge) -> dict[str, Any] | None:
    found = k.proposal
    if found is None:
        return None
    plan = found.plan
    return {
        "id": plan.id,
        "base_epoch": found.base_epoch,
        "reason": found.reason,
        "text": found.text,
        "rate_tps": plan.rate_tps,
        "slots": plan.slots.used,
    }


def _profile(k: Knowledge, now: Now) -> dict[str, Any] | None:
    desired = k.profiles.desired
    if desired is None:
        return None
    seconds = round((now.mono_ns - k.profiles.began_ns) / NS, 3)
    return {"task": desired.task, "slot": str(desired.slot), "seconds": seconds, "budget_s": desired.budget_s}


def _slots(k: Knowledge, members: Membership) -> dict[str, int]:
    plan = k.plan
    workers = [worker for member in members.up() for worker in member.workers()]
    return {
        "used": plan.slots.used if plan else 0,
        "total": sum(member.vm.slots for member in members.up()),
        "quarantined": sum(worker.state == "quarantined" for worker in workers),
        "workers": sum(worker.state == "running" for worker in workers),
    }


def members_in_order(members: Membership) -> list[Member]:
    return sorted(members.members.values(), key=lambda member: natural(member.vm.vm))


def _vm(k: Knowledge, member: Member, measured: Measured) -> dict[str, Any]:
    name = member.vm.vm
    workers = {worker.slot.number: worker for worker in member.workers()}
    return {
        "vm": name,
        "state": "held_dead" if name in k.durable.held_dead else member.state,
        "binding": member.binding or None,
        "pid": member.pid or None,
        "slot_cores": member.vm.slot_cores,
        "slot_memory_bytes": member.vm.slot_memory_bytes,
        "provided": any(vm.vm == name for vm in k.durable.machines),
        "slots": [_slot(k, name, n, workers.get(n), measured) for n in range(member.vm.slots)],
    }


def _slot(
    k: Knowledge, vm: str, number: int, worker: WorkerStatus | None, measured: Measured
) -> dict[str, Any]:
    threads: dict[str, int] = {}
    leaving = 0
    for thread in k.durable.rollout.threads if k.durable.rollout else ():
        if (thread.slot.vm, thread.slot.number) == (vm, number):
            leaving += thread.leaving
            if not thread.leaving:
                threads[thread.task] = threads.get(thread.task, 0) + 1
    seen = measured.get("slots", {}).get(f"{vm}/{number}", {})
    profile = k.profiles.desired
    profiled = profile is not None and (profile.slot.vm, profile.slot.number) == (vm, number)
    return {
        "slot": number,
        "state": "profiling" if profiled else worker.state if worker else "empty",
        "threads": threads,
        "leaving": leaving,
        "cpu": seen.get("cpu"),
        "predicted_cpu": seen.get("predicted_cpu"),
        "memory": seen.get("memory"),
        "predicted_memory": seen.get("predicted_memory"),
        "crashes": worker.crashes if worker else 0,
    }


def _rates(k: Knowledge, measured: Measured, now: Now) -> dict[str, Any]:
    plan = k.plan
    seen = measured.get("rates", {})
    offered = offered_now(k, now.wall_ns)
    supported = plan.prediction.rate_tps if plan else None
    return {
        "offered_now_tps": offered,
        "offered_tps": seen.get("offered_tps"),
        "emitted_tps": seen.get("emitted_tps"),
        "acked_tps": seen.get("acked_tps"),
        "planned_tps": plan.rate_tps if plan else None,
        "predicted_tps": supported,
        "headroom_tps": round(supported - offered, 3)
        if supported is not None and offered is not None
        else None,
        **lag_now(k, now),
    }


def lag_now(k: Knowledge, now: Now) -> dict[str, Any]:
    """Of what kind the sources are; where rows are taken as they come, how far the worst of them is behind (rows, s)
    and the cap on them in tuples/s, if there is one."""
    worst = max(lags_of(k, now.wall_ns), key=lambda lag: (lag.seconds, lag.rows), default=None)
    cap_tps = cap_of(k, now.wall_ns)
    return {
        "source_kind": source_kind(k),
        "lag_rows": worst.rows if worst else None,
        "lag_s": worst.seconds if worst else None,
        "cap_tps": cap_tps if math.isfinite(cap_tps) else None,
    }


def _tuples(k: Knowledge, members: Membership, by_sink: BySink, now: Now) -> dict[str, Any]:
    counts = k.counts
    return {
        "offered": offered_of(k, now.wall_ns),
        "emitted": counts.emitted,
        "acked": counts.acked,
        "in_flight": in_flight(members.up()),
        "lost": lost_now(k, members),
        "dead_lettered": counts.letters.count,
        "replayed": counts.replayed,
        **copies_of(k, by_sink),
    }


def lost_now(k: Knowledge, members: Membership) -> int:
    """Positions that were read and are nowhere now: not done, in no ledger, and behind the position at
    which their source reads on. Always 0, or something is wrong."""
    sources = sight_of(members).sources.values()
    lost = 0
    for (task, partition), known in k.counts.sources.items():
        present = [now for now in sources if (now.task, now.partition) == (task, partition)]
        if present:
            to_read_again = known.emitted - max(now.emitted for now in present)
            lost += max(0, known.emitted - known.done - to_read_again - sum(now.in_flight for now in present))
    return lost


def explain(k: Knowledge, last: int) -> dict[str, Any]:
    """The last decisions that led to something, the newest of all, and why the plan is as it is."""
    return {
        "schema": "headgate/explain/v1",
        "decisions": list(k.actions)[-last:],
        "last_decision": k.last_decision,
        "plan": _why(k),
        "held": k.held or None,
    }


def _why(k: Knowledge) -> dict[str, Any] | None:
    plan = k.plan
    rollout = k.durable.rollout
    if plan is None or rollout is None:
        return None
    return {
        "epoch": rollout.epoch,
        "id": plan.id,
        "reason": rollout.reason,
        "text": rollout.text,
        "rate_tps": plan.rate_tps,
        "limited_by": plan.prediction.limited_by,
        "limited_by_slot": plan.prediction.limited_by_slot,
        "predicted_tps": plan.prediction.rate_tps,
        "slots": {
            "estimated": plan.slots.estimated,
            "extra": plan.slots.extra,
            "total": plan.slots.total,
            "used": plan.slots.used,
        },
        "tasks": [
            {
                "task": a.task,
                "rate_tps": round(a.rate_tps, 3),
                "threads": a.threads,
                "cpu_slots": round(a.cpu_slots, 4),
                "memory_slots": round(a.memory_slots, 4),
                "why": NOT_MEASURED
                if (model := k.models.get(a.task)) and model.unmeasured
                else why_so_many(a.static, a.full_bundles, a.bundle_threads, a.rest_threads),
            }
            for a in plan.allocation.tasks
        ],
    }


def why_so_many(static: bool, bundles: int, size: int, rest: int) -> str:
    """How the allocator came to a task's number of threads, in words."""
    if static:
        return "its size is fixed by the topology"
    parts = []
    if bundles:
        parts.append(
            f"{counted(bundles, 'full bundle')} of {size} threads, a slot each, at the model's best rate"
        )
    if rest:
        parts.append(f"{counted(rest, 'thread')} for the rest of the rate, sharing a slot")
    return " and ".join(parts) or "one thread at a time, at the model's rate of one thread"
