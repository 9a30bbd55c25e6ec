"""`headgate/status/v1`: everything at a glance. Pure."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import asdict

from headgate.controller.knowledge.run_view import LoopResult, Measuring, RunView, SlotStatus, VmStatus
from headgate.controller.views.figures import rounded
from headgate.controller.views.sentences import measuring_words
from headgate.topology_runtime.cluster import Slot
from headgate.topology_runtime.utc import utc_iso
from headgate.topology_runtime.wire_version import WIRE

SCHEMA = "headgate/status/v1"
NS = 1e9
MEASURED = ("cpu", "memory", "predicted_cpu", "predicted_memory")


def status(view: RunView) -> dict[str, Any]:
    """What `headgate status` and whoever asks for it gets."""
    result = view.result
    return {
        "schema": SCHEMA,
        "time": utc_iso(view.wall_ns),
        "run": view.run,
        "topology": view.topology.name if view.topology else None,
        "package": view.package or None,
        "code": {"number": view.code[0], "slots_before": view.code[1]},
        "stage": view.stage,
        "seconds": round(view.seconds, 3),
        "mode": view.mode,
        "held": view.held or None,
        "boot": view.boot,
        "headgate": view.version,
        "wire": WIRE,
        "pid": view.pid,
        "verdict": rounded(asdict(result.stability)) if result else {"verdict": view.verdict},
        "plan": _plan(view),
        "enactment": _enactment(view),
        "proposal": view.proposal.facts if view.proposal else None,
        "profile": _profile(view),
        "measuring": measuring_data(view.measuring),
        "slots": _slots(view),
        "vms": [_vm(view, vm) for vm in view.vms],
        "rates": _rates(view),
        "tuples": msgspec.to_builtins(view.tuples),
        "state": state_of(view),
        "latency_ms": {**view.latency_ms, "window": _latency(result) if result else None},
        "paths": [rounded(asdict(path)) for path in result.paths] if result else [],
        "tasks": [_task(result, name) for name in result.window.tasks] if result else [],
        "residuals": [rounded(asdict(residual)) for residual in result.residuals] if result else [],
        "last_decision": view.decision,
        "dead_letters": [
            {"task": x.task, "source": x.source, "position": x.position, "error": x.error, "row": x.row}
            for x in view.letters.newest
        ],
        "alarms": [{"what": x.what, "since": utc_iso(x.since_ns), "text": x.text} for x in view.alarms],
        "hot_keys": [rounded(msgspec.to_builtins(key)) for key in view.hot_keys],
        "advice": view.advice or None,
        "troubles": view.troubles,
    }


def state_of(view: RunView) -> dict[str, Any]:
    """Of keyed tasks: key ranges that went on without (all of) their state, and rows that were counted and
    may have been before, at most (since this controller started)."""
    return {
        "lost_ranges": sum(view.lost_ranges.values()),
        "tasks": view.lost_ranges,
        "applied_again_at_most": view.applied_again,
    }


def _plan(view: RunView) -> dict[str, Any] | None:
    if view.rollout is None or view.plan_facts is None:
        return None
    return {**view.plan_facts, "age_s": round((view.wall_ns - view.rollout.wall_ns) / NS, 3)}


def _enactment(view: RunView) -> dict[str, Any] | None:
    now = view.under_way
    return (
        {**asdict(now), "for_s": round(now.for_s, 3), "waits_for": now.waits_for or None}
        if now is not None
        else None
    )


def _profile(view: RunView) -> dict[str, Any] | None:
    spec = view.profile
    if spec is None:
        return None
    seconds = round(view.profile_s, 3)
    return {"task": spec.task, "slot": str(spec.slot), "seconds": seconds, "budget_s": spec.budget_s}


def measuring_data(found: Measuring | None) -> dict[str, Any] | None:
    """As `status` and whoever waits for it gets it."""
    if found is None:
        return None
    done = sum(one.state == "measured" for one in found.tasks)
    return {
        "submission": found.number,
        "topology": found.topology,
        "by": found.by or None,
        "done": done,
        "of": len(found.tasks),
        "left_s": found.left_s,
        "text": measuring_words(found),
        "tasks": [
            {
                "task": one.task,
                "model": one.model,
                "machine": one.machine or None,
                "state": one.state,
                "slot": one.slot or None,
                "points": one.done,
                "points_of": one.of,
            }
            for one in found.tasks
        ],
    }


def _slots(view: RunView) -> dict[str, int]:
    states = [slot.state for vm in view.vms if vm.up for slot in vm.slots]
    return {
        "used": view.slots_used,
        "total": view.slots_total,
        "quarantined": states.count("quarantined"),
        "workers": states.count("running"),
    }


def _vm(view: RunView, vm: VmStatus) -> dict[str, Any]:
    use = zip(MEASURED, view.measured_vm(vm), strict=False)
    return {
        "vm": vm.vm.vm,
        "state": vm.state,
        "cordon": vm.cordon or None,
        **_spoken(view, vm),
        "binding": vm.binding or None,
        "workers_as": vm.workers_as or None,
        "pid": vm.pid or None,
        "slot_cores": vm.vm.slot_cores,
        "slot_memory_bytes": vm.vm.slot_memory_bytes,
        "machine": vm.machine or None,
        "provided": vm.provided,
        **_clock(vm),
        **rounded(dict(use)),
        "slots": [_slot(view, slot) for slot in vm.slots],
    }


def _spoken(view: RunView, vm: VmStatus) -> dict[str, Any]:
    """What its agent is; skew: not what the controller is. None before it said who it is to this controller."""
    wire, version = vm.spoken
    skew = vm.spoken != (WIRE, view.version) if wire else None
    return {"headgate": version or None, "wire": wire or None, "skew": skew}


def _clock(vm: VmStatus) -> dict[str, Any]:
    """By how much its machine's clock is behind the controller's (it is corrected), give or take, in ms."""
    if not vm.clock[1]:
        return {"clock_behind_ms": None, "clock_error_ms": None}
    return {"clock_behind_ms": round(vm.clock[0] / 1e6, 3), "clock_error_ms": round(vm.clock[1] / 1e6, 3)}


def _slot(view: RunView, slot: SlotStatus) -> dict[str, Any]:
    return {
        "slot": slot.slot.number,
        "state": slot.state,
        "threads": view.placed.by_slot.get(slot.slot, {}),
        "leaving": view.placed.leaving[slot.slot],
        **slot_use(view, slot.slot),
        "crashes": slot.crashes,
    }


def slot_use(view: RunView, slot: Slot) -> dict[str, float | None]:
    """CPU and memory of a slot as fractions of it, measured, and predicted at the present rate."""
    measured = view.measured(slot)
    found = (measured.cpu, measured.memory) if measured else (None, None)
    return rounded(dict(zip(MEASURED, (*found, *view.predicted(slot)), strict=True)))


def _rates(view: RunView) -> dict[str, Any]:
    window, lag = view.window, view.lag
    return {
        "offered_now_tps": view.offered_tps,
        "emitted_now_tps": _short(view.emitted_tps),
        "acked_now_tps": _short(view.acked_tps),
        "offered_tps": round(window.offered_tps, 3) if window else None,
        "emitted_tps": round(window.emitted_tps, 3) if window else None,
        "acked_tps": round(window.acked_tps, 3) if window else None,
        "planned_tps": view.planned_tps,
        "predicted_tps": view.predicted_tps,
        "headroom_tps": _short(view.headroom_tps),
        "source_kind": view.source_kind,
        "lag_rows": lag.rows if lag else None,
        "lag_s": lag.seconds if lag else None,
        "cap_tps": view.cap_tps,
    }


def _short(value: float | None) -> float | None:
    return round(value, 3) if value is not None else None


def _latency(result: LoopResult) -> dict[str, float] | None:
    found = result.window.latency
    every = {"mean": found.mean_ms, "p50": found.p50_ms, "p95": found.p95_ms, "p99": found.p99_ms}
    return {name: round(ms, 3) for name, ms in every.items()} if found.rows else None


def _task(result: LoopResult, name: str) -> dict[str, Any]:
    load = result.loads.get(name)
    p50, _, p99 = result.in_task.get(name, (None, None, None))
    return rounded(
        {
            "task": name,
            "load": load.share if load else None,
            "load_slot": load.slot if load else None,
            "grows": name in result.growing,
            **asdict(result.window.tasks[name]),
            "latency_p50_ms": p50,
            "latency_p99_ms": p99,
        }
    )
