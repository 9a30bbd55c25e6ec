"""`headgate/status/v1`: everything at a glance. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec.structs import asdict

from headgate.controller.knowledge.journal_records import Rollout
from headgate.controller.knowledge.run_view import (
    MS,
    NS,
    EventTimeNow,
    LoopResult,
    Measuring,
    RunView,
    SlotStatus,
    UserMetricNow,
    VmStatus,
)
from headgate.controller.models.plans import PlanLatency
from headgate.controller.views.sentences import measuring_words, rounded
from headgate.topology_runtime.api.cluster import Slot
from headgate.topology_runtime.latency.latency_buckets import ERROR
from headgate.topology_runtime.wire.dead_letter_messages import told_place
from headgate.topology_runtime.wire.wire_version import WIRE
from headgate.topology_runtime.wording import counted, utc_iso

STATUS_SCHEMA = "headgate/status/v1"
MEASURED = ("cpu", "memory", "predicted_cpu", "predicted_memory")


def status(view: RunView) -> dict[str, Any]:
    result = view.result
    return {
        "schema": STATUS_SCHEMA,
        "time": utc_iso(view.wall_ns),
        "run": view.run,
        "topology": view.topology.name if view.topology else None,
        "package": view.package or None,
        "code": {"number": view.code[0], "slots_before": view.code[1]},
        "stage": view.stage,
        "end_step": {"step": view.end.step, "task": view.end.task or None} if view.end.step else None,
        "seconds": round(view.seconds, 3),
        "mode": view.mode,
        "held": view.held or None,
        "boot": view.boot,
        "headgate": view.version,
        "wire": WIRE,
        "pid": view.pid,
        "verdict": _verdict(view),
        "plan": _plan(view),
        "bottleneck": rounded(view.bottleneck._asdict()) if view.bottleneck else None,
        "enactment": _enactment(view),
        "proposal": view.proposal.facts if view.proposal else None,
        "profile": _profile(view),
        "measuring": measuring_data(view.measuring),
        "slots": _slots(view),
        "vms": [_vm(view, vm) for vm in view.vms],
        "links": [
            {"from": way.vm, "to": way.to, "delay_ms": way.delay_ms, "carries": way.carries, "slow": way.slow}
            for way in view.ways
        ],
        "rates": _rates(view),
        "tuples": msgspec.to_builtins(view.tuples),
        "state": state_of(view),
        "latency_ms": {
            **_overall_latency(view),
            "window": _latency(result) if result else None,
            "predicted": _predicted_latency(view.predicted_latency),
        },
        "paths": [rounded(asdict(path)) for path in result.paths] if result else [],
        "tasks": [_task(result, name) for name in result.window.tasks] if result else [],
        "user_metrics": [user_metric(one) for one in view.user_metrics],
        "residuals": [rounded(asdict(residual)) for residual in result.residuals] if result else [],
        "last_decision": view.decision,
        "dead_letters": [
            {
                "task": x.task,
                **told_place(x.source, x.partition, x.position, x.row, x.feeder),
                "error": x.error,
                "row": x.row,
            }
            for x in view.letters.newest
        ],
        "alarms": [{"what": x.what, "since": utc_iso(x.since_ns), "text": x.text} for x in view.alarms],
        "hot_keys": [rounded(msgspec.to_builtins(key)) for key in view.hot_keys],
        "event_time": [_event_time(one) for one in view.event_time],
        "advice": view.advice or None,
        "learning": learning_of(view),
        "troubles": view.troubles,
    }


def _verdict(view: RunView) -> dict[str, Any]:
    """What health says, with the trend that it goes by."""
    if view.result is None:
        return {"verdict": view.verdict}
    return rounded({**asdict(view.result.stability), **asdict(view.result.health)})


def state_of(view: RunView) -> dict[str, Any]:
    """Of keyed tasks: key ranges that went on without (all of) their state, and rows that were counted and
    may have been before, at most (since this controller started)."""
    return {
        "lost_ranges": sum(view.lost_ranges.values()),
        "tasks": view.lost_ranges,
        "applied_again_at_most": view.applied_again,
    }


def learning_of(view: RunView) -> dict[str, Any] | None:
    """Tasks of which it is not known, or not for sure, what their rows cost; None once it is of all."""
    if not view.unknown and not view.tentative:
        return None
    words = {"not known yet": view.unknown, "known by few or disturbed rows": view.tentative}
    text = "; ".join(f"{word} of {', '.join(tasks)}" for word, tasks in words.items() if tasks)
    return {"unknown": list(view.unknown), "tentative": list(view.tentative), "text": text}


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


def _event_time(now: EventTimeNow) -> dict[str, Any]:
    watermark = None if now.watermark_us is None else now.watermark_us / 1e6
    told = {"task": now.task, "state": now.state, "watermark": watermark, "lag_s": now.lag_s}
    return {
        **rounded(told),
        "held_by": now.held_by or None,
        "late_rows": now.late,
        "rows_without_time": dict(now.timeless),
        "open_keys": now.open_keys,
        "waiting": dict(now.waiting),
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
        "speed": round(vm.vm.speed, 4),
        "speed_by": vm.speed_by or None,
        "speed_age_s": round((view.wall_ns - vm.speed_ns) / NS, 3) if vm.speed_ns else None,
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


def _overall_latency(view: RunView) -> dict[str, float | None]:
    """error: by how much of its own a quantile may be off, also those of the window."""
    return {**view.latency_ms, "error": ERROR}


def _latency(result: LoopResult) -> dict[str, float] | None:
    found = result.window.latency
    every = {"mean": found.mean_ms, "p50": found.p50_ms, "p95": found.p95_ms, "p99": found.p99_ms}
    return {name: round(ms, 3) for name, ms in every.items()} if found.rows else None


def _predicted_latency(found: PlanLatency | None) -> dict[str, float] | None:
    """At about the present rate, by models."""
    return {"rate_tps": found.rate_tps, **rounded(found.rows._asdict())} if found is not None else None


def user_metric(one: UserMetricNow) -> dict[str, Any]:
    """A metric of a task's own; count and percentiles of a histogram alone."""
    found: dict[str, Any] = {"task": one.task, "name": one.name, "kind": one.kind, "value": one.value}
    if one.kind == "histogram":
        found |= {"count": one.count, "p50": one.percentile(0.5), "p99": one.percentile(0.99)}
    return found


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


# ── The run in numbers: `headgate/run/v1` of the contract. Pure ───
#
# Definitions. offered: positions due by the schedule, or arrived, over all sources. emitted, acked,
# dead_lettered: distinct source positions, however often replayed; acked ones were processed whole. before: of
# those acked, what was done before the checkpoint that this run began from; rates are without them. left,
# lost: read and not done when the run ended; a run that is resumed reads what is left again, and never what
# is lost (knowledge/rows_left.py). seconds: until the end of intake, and of a bounded input until it is done.
# duplicates: rows that reached sinks − distinct ones, "at least" so many unless duplicates_exact: see
# duplicates_why, and sinks for each sink. source_kind: `paced`, `arriving` or `mixed`; lag: of the arriving
# source that is furthest behind, rows taken and not read and seconds since the oldest of them came (0 of
# paced ones). Rates are means from the first intended tuple to the end of intake; achieved_tps until the last row
# was done, where that took over two seconds more. Of a plan: decided_s from the beginning of the turn that
# decided to the journaled plan; enacted_s from there until every sender had switched; pause_ms from the
# order to switch until then: an upper bound of the longest gap in the output of a
# moved thread (exact gaps are shorter than the samples can show).

RUN_SCHEMA = "headgate/run/v1"


def summary(view: RunView) -> dict[str, Any]:
    seconds, tuples, lag = view.intake_s, view.tuples, view.lag
    return {
        "schema": RUN_SCHEMA,
        "topology": view.topology.name if view.topology else None,
        "run": view.run,
        "seconds": round(seconds, 3),
        "trace": view.trace,
        "source_kind": view.source_kind,
        "lag": {"rows": lag.rows if lag else 0, "seconds": lag.seconds if lag else 0.0},
        "tuples": msgspec.to_builtins(tuples),
        "letters": {
            "replayed": view.letters.replayed,
            "mended": view.letters.mended,
            "keys": view.letters.keys,
        },
        "state": state_of(view),
        "plans": plans_of(view),
        "plans_dropped": sum(view.rollouts_dropped.values()),
        "latency_ms": _overall_latency(view),
        "offered_tps": round((tuples.offered - tuples.before) / seconds, 3) if seconds else 0.0,
        "achieved_tps": round((tuples.acked - tuples.before) / view.done_s, 3) if view.done_s else 0.0,
        "ended": view.ended,
        "unfinished": list(view.end.unfinished),
        "event_time": [_event_time(one) for one in view.event_time],
    }


def plans_of(view: RunView) -> list[dict[str, Any]]:
    """The first plan and the newest (folding.REIGNS_KEPT) whose enactment began, in order; a plan given up before
    that is not among them."""
    started_ns = view.started_ns or view.wall_ns
    rollouts = [rollout for rollout in view.rollouts if not rollout.abandoned]
    ends = [rollout.decided_ns for rollout in rollouts[1:]] + [view.wall_ns]
    return [
        _plan_row(rollout, view.planning_s.get(rollout.epoch, 0.0), end, started_ns)
        for rollout, end in zip(rollouts, ends, strict=False)  # without plans there is no end either
    ]


def _plan_row(rollout: Rollout, planning_s: float, end_ns: int, started_ns: int) -> dict[str, Any]:
    force_ns = rollout.in_force_ns or end_ns
    pause_ns = force_ns - rollout.switched_ns if rollout.switched_ns else 0
    return {
        "epoch": rollout.epoch,
        "at_s": round(max(0.0, (rollout.decided_ns - started_ns) / NS), 3),
        "reason": rollout.reason,
        "rate_tps": round(rollout.rate_tps, 3),
        "slots": rollout.slots,
        "decided_s": round(planning_s, 4),
        "enacted_s": round((force_ns - rollout.decided_ns) / NS, 3),
        "pause_ms": round(pause_ns / MS, 1),
        "rolled_back": rollout.rolled_back,
        "in_force": bool(rollout.in_force_ns),
    }


# ── `headgate/explain/v1`: what was decided, and why the plan is as it is. Pure ─────────────────────────

NOT_MEASURED = "what its rows cost is not known yet: one thread, until they show it"
TOLD = ("epoch", "id", "reason", "text", "rate_tps", "limited_by", "limited_by_slot", "predicted_tps")


def explain(view: RunView, last: int) -> dict[str, Any]:
    """The last decisions that led to something, the newest of all, and why the plan is as it is."""
    return {
        "schema": "headgate/explain/v1",
        "decisions": list(view.actions)[-last:],
        "last_decision": view.decision,
        "plan": _why(view),
        "held": view.held or None,
        "hot_keys": [key.sentence for key in view.hot_keys],
    }


def _why(view: RunView) -> dict[str, Any] | None:
    plan, facts = view.plan, view.plan_facts
    if plan is None or facts is None:
        return None
    return {
        **{name: facts[name] for name in TOLD},
        "slots": msgspec.to_builtins(plan.slots),
        "tasks": [
            {
                "task": a.task,
                "rate_tps": round(a.rate_tps, 3),
                "threads": a.threads,
                "cpu_slots": round(a.cpu_slots, 4),
                "memory_slots": round(a.memory_slots, 4),
                "why": NOT_MEASURED
                if a.task in view.unknown
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


# ── What the trace keeps of the rates of a second: one row per source. Pure ─────────────────────────────

COUNTS = ("offered", "emitted", "acked")


class RateRows:
    """Rows of one life of a controller: counts are of the time since the row before."""

    def __init__(self) -> None:
        self._before: dict[str, tuple[int, int, int]] = {}

    def of(self, view: RunView) -> Iterator[dict[str, Any]]:
        """Rates of the last turn's window, counts since the last turn (None of a life's first row, but where the run
        begins with it); lags of sources whose rows are taken as they come."""
        plan, topology, window = view.plan, view.topology, view.window
        if plan is None or topology is None or window is None:
            return
        behind = {lag.source: lag for lag in view.lags}
        for task in topology.sources:
            lag = behind.get(task.name)
            yield {
                "time": view.wall_ns // 1000,
                "window_s": window.seconds,
                "epoch": view.epoch,
                "source": task.name,
                "offered_tps": window.offered_tps,
                "emitted_tps": window.emitted_tps,
                "acked_tps": window.acked_tps,
                "planned_tps": plan.rate_tps,
                "predicted_tps": plan.prediction.told_tps,
                "source_kind": "arriving" if task.arriving else "paced",
                "lag_rows": lag.rows if lag else None,
                "lag_s": lag.seconds if lag else None,
                "backlog_rows": view.by_source[task.name][3],
                "backlog_s": view.result.health.backlog_s if view.result else None,
                **self._counts(task.name, view),
            }

    def _counts(self, source: str, view: RunView) -> dict[str, int | None]:
        now = view.by_source.get(source, (0, 0, 0, 0))[:3]
        before = self._before.get(source, (0, 0, 0) if view.boot == 1 else None)
        self._before[source] = now
        if before is None:
            return dict.fromkeys(COUNTS)
        return {name: max(0, b - a) for name, a, b in zip(COUNTS, before, now, strict=True)}
