"""A recorded run at one moment, as the same document that its controller published. Functions only.

What a trace does not hold is absent: rows in flight, p95 of a task, in older ones also what saturates first.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
from msgspec.structs import replace

from dashboards.feeding.trace_places import Places, edges_at, places_at, slots_at, tasks_at, vms_at
from dashboards.feeding.trace_run import Decision, TraceRun
from dashboards.feeding.trace_tables import Array, quantiles
from topology_runtime import snapshot as s
from topology_runtime.picturing.decisions import decision_now, is_new
from topology_runtime.picturing.figures import figure
from topology_runtime.picturing.history import Row
from topology_runtime.picturing.parts import bottleneck_of, stable_of
from topology_runtime.picturing.words import diff_of, header_of
from topology_runtime.utc import utc_iso

COUNTED = ("emitted", "acked", "in_flight", "lost", "dead_lettered", "replayed")  # in a decision's `tuples`
WINDOW_S = 10.0
SETTLED_S = 20.0  # after a plan its threads are where they stay


class TracePicture:
    """Documents of a trace by time (seconds since 1970); what does not change is made once."""

    def __init__(self, run: TraceRun) -> None:
        self.run = run
        self._rows: dict[int, Row] = {}
        self._models = {
            curve.task: s.ModelNow(
                points=tuple((p.threads, p.rate_tps, p.cpu, p.memory) for p in curve.points)
            )
            for curve in run.file.models
        }
        self._decisions = self._told()
        self._emitted = _emitted(run)

    def at(self, at_s: float, number: int, replay: s.ReplayNow) -> s.Snapshot:
        """The run at this time, without its history."""
        run, file = self.run, self.run.file
        places = places_at(run, at_s)
        rates = self._rates(at_s)
        plan = self._plan(at_s, places)
        stable = _stable(run.decision_at(at_s))
        slots = slots_at(run, at_s, places)
        shown = [(str(n), told) for n, (when_s, told) in enumerate(self._decisions, 1) if when_s <= at_s]
        found = s.Snapshot(
            number=number,
            boot=0,
            now=utc_iso(int(at_s * 1e9)),
            origin="trace",
            run=file.run,
            header="",
            stage="replay",
            seconds=round(max(0.0, at_s - run.began_s), 1),
            mode=file.settings.mode or None,
            topology=s.TopologyNow(
                name=file.topology.name,
                order=tuple(task.name for task in file.topology.breadth_first),
                tasks=tasks_at(run, at_s, slots, rates, stable.verdict),
                edges=edges_at(run, at_s),
            ),
            plan=plan,
            slots=slots,
            vms=vms_at(run, places, slots),
            rates=rates,
            latency_ms=self._latency(at_s),
            stable=stable,
            slope=stable.slope,
            next_bottleneck=bottleneck_of(plan),
            tuples=self._tuples(at_s),
            models=self._models,
            decisions=dict(shown[-s.DECISIONS_SHOWN :]),
            events=_events(shown),
            history=s.History(),
            replay=replay,
        )
        return replace(found, header=header_of(found, sum(vm.slots for vm in found.vms.values())))

    def row(self, second: int) -> Row:
        """The history's row of a whole second since 1970."""
        if second not in self._rows:
            self._rows[second] = self._row(float(second))
        return self._rows[second]

    def _row(self, at_s: float) -> Row:
        rates, latency = self._rates(at_s), self._latency(at_s)
        decision = self.run.decision_at(at_s)
        plan = self._plan_decision(at_s)
        return {
            "time": at_s,
            "offered_tps": rates.offered_tps,
            "emitted_tps": rates.emitted_tps,
            "acked_tps": rates.acked_tps,
            "planned_tps": rates.planned_tps,
            "predicted_tps": rates.predicted_tps,
            "p50_ms": latency.p50,
            "p95_ms": latency.p95,
            "p99_ms": latency.p99,
            "slope": _stable(decision).slope,
            "slots_used": plan["plan"]["slots"] if plan else None,
            "epoch": decision["epoch"] if decision else None,
        }

    def _rates(self, at_s: float) -> s.RatesNow:
        last = self.run.tables["rates"].between(at_s - WINDOW_S, at_s)
        if not len(last):
            return s.RatesNow()
        offered, emitted, acked, planned, predicted = (
            float(last[f"{name}_tps"][-1]) for name in ("offered", "emitted", "acked", "planned", "predicted")
        )
        return s.RatesNow(
            offered_tps=figure(offered),
            emitted_tps=figure(emitted),
            acked_tps=figure(acked),
            planned_tps=figure(planned),
            predicted_tps=figure(predicted),
            headroom_tps=figure(predicted - offered),
        )

    def _latency(self, at_s: float) -> s.LatencyNow:
        rows = self.run.tables["latency"].between(at_s - WINDOW_S, at_s)
        p50, p95, p99 = (
            figure(None if v is None else v * 1000)
            for v in quantiles(rows["latency_s"], rows["tuples"], (0.5, 0.95, 0.99))
        )
        return s.LatencyNow(p50=p50, p95=p95, p99=p99)

    def _tuples(self, at_s: float) -> s.TuplesNow:
        """As the newest decision knew it; in an older trace only what the sources' threads gave."""
        known = (self.run.decision_at(at_s) or {}).get("tuples")
        if isinstance(known, dict):
            return s.TuplesNow(**{name: known.get(name) for name in COUNTED})
        times, sums = self._emitted
        place = int(np.searchsorted(times, at_s, side="right"))
        return s.TuplesNow(emitted=int(sums[place - 1]) if place else 0)

    def _plan_decision(self, at_s: float) -> Decision | None:
        before = [decision for when_s, decision in self.run.plans if when_s <= at_s]
        return before[-1] if before else None

    def _plan(self, at_s: float, places: Places) -> s.PlanNow | None:
        decision = self._plan_decision(at_s)
        if decision is None:
            return None
        plan, settings = decision["plan"], self.run.file.settings
        first = decision is self.run.plans[0][1]
        used = plan["slots"]
        now = self.run.decision_at(at_s) or decision
        return s.PlanNow(
            id=plan["id"],
            epoch=max(decision["epoch"], now["epoch"], int(first)),
            phase="committed",
            reason=decision["trigger"],
            text=decision["text"],
            since=decision["time"],
            rate_tps=round(plan["rate_tps"], 3),
            predicted_tps=round(plan["predicted_tps"], 3),
            allocator=settings.allocator,
            mapper=settings.mapper,
            routing=settings.routing,
            threads=sum(sum(tasks.values()) for tasks in places.threads.values()),
            slots=s.SlotsOfPlan(estimated=used, extra=0, total=used, used=used),
            usd_per_hour=round(sum(vm.usd_per_hour for vm in places.vms.values()), 6),
            limited_by=plan.get("limited_by"),
            limited_by_slot=plan.get("limited_by_slot"),
            degraded=plan.get("degraded") or None,
        )

    def _told(self) -> list[tuple[float, s.DecisionNow]]:
        """Decisions that are shown, each with what came of it, as far as the trace tells."""
        found, last = [], ""
        for at_s, decision in self.run.decisions:
            if is_new(decision, last):
                found.append((at_s, self._with_outcome(at_s, decision)))
            last = decision["trigger"]
        return found

    def _with_outcome(self, at_s: float, decision: Decision) -> s.DecisionNow:
        told = decision_now(decision)
        if decision["action"] != "plan":
            return told
        next_s = min((when_s for when_s, _ in self.run.plans if when_s > at_s), default=self.run.ended_s)
        settled_s = min(at_s + SETTLED_S, next_s - 1.0)
        stable_s = next(
            (when_s - at_s for when_s, later in self.run.decisions_after(at_s)
             if when_s < next_s and _stable(later).verdict == "stable"), None,
        )  # fmt: skip
        changed: dict[str, Any] = {"diff": diff_of(_flat(self.run, at_s - 1.0), _flat(self.run, settled_s))}
        if stable_s is not None:
            changed["time_to_stable_s"] = round(stable_s, 1)
        enacted = (found for _, later in self.run.decisions_after(at_s)
                   if (found := later.get("enacted")) and found["decided"] == decision["time"])  # fmt: skip
        came = next(enacted, None)
        changed["pause_ms"] = came["pause_ms"] if came else None
        changed["epoch"] = came["epoch"] if came else decision["epoch"] + 1  # of the plan that was decided
        return replace(told, **changed)


def _emitted(run: TraceRun) -> tuple[Array, Array]:
    """Times of the samples of sources, and how many rows these had given in all."""
    rows = run.tables["samples"].between(0.0, run.ended_s)
    sources = [task.name for task in run.file.topology.sources]
    mine = rows.where(np.isin(rows["task"].astype(str), sources))
    return mine["time"], np.cumsum(mine["tuples_out"])


def _flat(run: TraceRun, at_s: float) -> Counter[tuple[str, str]]:
    threads = places_at(run, at_s).threads
    return Counter({(slot, task): n for slot, tasks in threads.items() for task, n in tasks.items()})


def _stable(decision: Decision | None) -> s.StableNow:
    """The verdict that a decision rested on."""
    found = ((decision or {}).get("evidence") or {}).get("stability")
    return stable_of(found if isinstance(found, dict) else {})


def _events(shown: list[tuple[str, s.DecisionNow]]) -> dict[str, s.EventNow]:
    """A trace has no events but its decisions."""
    return {
        number: s.EventNow(time=told.time, kind=told.action, text=told.text, epoch=told.epoch or None)
        for number, told in shown[-s.EVENTS_SHOWN :]
        if told.action != "none"
    }
