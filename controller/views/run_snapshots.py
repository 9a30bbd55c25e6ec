"""The snapshot of a run, and how it changes. Pure: a view in, a numbered delta out.

Documents are plain data. What changes seldom (models, events, decisions) is made when it changes and put in
as it is, so that finding what is new costs nothing for it. The loop looks at its windows once a second and
there are two ticks a second, so one of them has the topology and the other one of slots, VMs, latency and history;
both have everything when there is another plan, or another step of one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec.structs import replace

from headgate.controller.knowledge.diagnoses import TaskLoad
from headgate.controller.knowledge.journal_records import Rollout
from headgate.controller.knowledge.measured_window import MeasuredWindow, TaskWindow
from headgate.controller.knowledge.run_view import (
    MS,
    NS,
    EventTimeNow,
    Percentiles,
    RunView,
    SlotStatus,
    UserMetricNow,
    VmStatus,
)
from headgate.controller.models.plans import NOWHERE, PlacedThreads, Plan, usd_per_hour
from headgate.controller.views.sentences import diff_of, figure, header_of, plain, rule_of, share
from headgate.topology_runtime.api.topology import Edge, Task, Topology
from headgate.topology_runtime.wire import run_snapshot as s
from headgate.topology_runtime.wire.run_snapshot import (
    APART,
    DECISIONS_SHOWN,
    EVENTS_SHOWN,
    DecisionNow,
    Delta,
    EventNow,
    History,
    HistoryRing,
    Row,
    Snapshot,
    patch_between,
)
from headgate.topology_runtime.wording import utc_iso

# ── Of a snapshot: plan, proposal, rates, verdict, rows. Pure ─────────────────────────────────────────

TEXT_MOST = 160


def plan_now(view: RunView) -> s.PlanNow | None:
    rollout, facts = view.rollout, view.plan_facts
    if rollout is None or facts is None:
        return None
    plan = rollout.plan
    return s.PlanNow(
        **_short(facts),
        since=utc_iso(rollout.wall_ns),
        slots=msgspec.convert(plan.slots, s.SlotsOfPlan, from_attributes=True),
        usd_per_hour=usd_per_hour(plan.vms),
        predicted_low_tps=figure(plan.prediction.rate_low_tps, 4),
        predicted_high_tps=figure(plan.prediction.rate_high_tps, 4),
    )


def proposal_now(view: RunView) -> s.ProposalNow | None:
    if view.proposal is None:
        return None
    plan = view.proposal.plan
    after = {(str(b.slot), b.task): b.threads for b in plan.placement.bundles}
    return s.ProposalNow(
        **_short(view.proposal.facts),
        predicted_tps=_three(plan.prediction.told_tps),
        diff=diff_of(view.placed.threads, after),
    )


def _three(value: float | None) -> float | None:
    return None if value is None else round(value, 3)


def _short(facts: dict[str, Any]) -> dict[str, Any]:
    return {name: round(v, 3) if isinstance(v, float) else v for name, v in facts.items()}


def enacting_now(view: RunView) -> s.Enacting | None:
    now = view.under_way
    if now is None:
        return None
    return s.Enacting(epoch=now.epoch, phase=now.phase, waits_for=now.waits_for or None)


def rates_now(view: RunView) -> s.RatesNow:
    return s.RatesNow(
        offered_tps=figure(view.offered_tps),
        emitted_tps=figure(view.emitted_tps),
        acked_tps=figure(view.acked_tps),
        planned_tps=figure(view.planned_tps),
        predicted_tps=figure(view.predicted_tps),
        headroom_tps=figure(view.headroom_tps),
        **_lag_now(view),
    )


def _lag_now(view: RunView) -> dict[str, Any]:
    """Of sources whose rows are taken as they come; nothing of others."""
    if view.lag is None:
        return {}
    return {
        "source_kind": view.source_kind,
        "lag_rows": view.lag.rows,
        "lag_s": figure(view.lag.seconds),
        "cap_tps": figure(view.cap_tps),
    }


def latency_now(view: RunView) -> s.LatencyNow:
    latency = view.window.latency if view.window else None
    if latency is None or not latency.rows:
        return s.LatencyNow()
    rows = view.predicted_latency.rows if view.predicted_latency is not None else None
    return s.LatencyNow(
        p50=figure(latency.p50_ms),
        p95=figure(latency.p95_ms),
        p99=figure(latency.p99_ms),
        predicted_p50=figure(rows.p50_ms) if rows else None,
        predicted_p95=figure(rows.p95_ms) if rows else None,
        predicted_p99=figure(rows.p99_ms) if rows else None,
    )


def stable_now(view: RunView) -> s.StableNow:
    """The verdict with its evidence; where there is none, only why."""
    if view.result is None:
        return s.StableNow(verdict="unknown")
    found, health = view.result.stability, view.result.health
    now = s.StableNow(
        verdict=health.verdict,
        backlog_rows=health.backlog_rows,
        backlog_s=figure(health.backlog_s),
        caught_up_s=figure(health.caught_up_s, 2),
        text=health.words[:TEXT_MOST] if health.words != health.verdict else None,
    )
    if health.verdict == "unknown":
        return now
    return replace(
        now,
        slope=figure(found.slope, 2),
        slope_low=figure(found.slope_low, 2),
        slope_high=figure(found.slope_high, 2),
        queue_growth=figure(found.queue_growth, 2),
        out_in=share(found.out_in),
        confidence=share(found.confidence),
    )


def bottleneck_now(view: RunView) -> s.Bottleneck | None:
    found = view.bottleneck
    return (
        s.Bottleneck(task=found.task, slot=found.slot, at_tps=round(found.at_tps, 3), load=share(found.load))
        if found is not None
        else None
    )


# ── Of a snapshot: tasks, edges, slots, VMs. Pure ───────────────────────────────────────────────────────


def topology_now(view: RunView) -> s.TopologyNow | None:
    topology, result, window = view.topology, view.result, view.window
    if topology is None:
        return None
    expected = _expected(topology, view.plan, window)
    measured = window.tasks if window else {}
    busy = {name: now.busy_share for name, now in measured.items() if topology.by_name[name].kind != "source"}
    unknown = set(view.unknown)
    event_time = {one.task: _event_time(one) for one in view.event_time}
    tasks = {
        name: _task(
            topology.by_name[name],
            measured.get(name),
            result.in_task.get(name) if result else None,
            result.loads.get(name) if result else None,
            unmeasured=name in unknown,
            grows=result is not None and name in result.growing,
            threads=view.placed.by_task[name],
            predicted_tps=figure(expected.get(name)) if name in measured else None,
            busy=share(busy.get(name)),
            metrics={one.name: _metric(one) for one in view.user_metrics if one.task == name},
            event_time=event_time.get(name),
        )
        for name in topology.by_name
    }
    edges = {f"{edge.source}>{edge.target}": _edge(edge, topology, window) for edge in topology.edges}
    order = tuple(task.name for task in topology.breadth_first)
    return s.TopologyNow(name=topology.name, order=order, tasks=tasks, edges=edges)


def _expected(topology: Topology, plan: Plan | None, window: MeasuredWindow | None) -> dict[str, float]:
    """Task → its rate if everything emitted arrives, as far as the plan carries it."""
    if plan is None or window is None:
        return {}
    return topology.rates(min(window.emitted_tps, plan.prediction.rate_tps))


def _task(
    task: Task, now: TaskWindow | None, latency: Percentiles | None, near: TaskLoad | None, **known: Any
) -> s.TaskNow:
    p50, p95, p99 = latency or (None, None, None)
    rate_in, rate_out = (now.rate_in_tps, now.rate_out_tps) if now else (None, None)
    return s.TaskNow(
        kind=task.kind,
        static=task.static is not None,
        **known,
        rate_tps=figure(rate_in),
        rate_out_tps=figure(rate_out) if rate_out != rate_in else None,
        load=round(near.share, 2) if near else None,
        load_slot=near.slot if near else None,
        queue=figure(now.queue, 2) if now else None,
        p50_ms=figure(p50, 2),
        p95_ms=figure(p95, 2),
        p99_ms=figure(p99, 2),
    )


def _metric(one: UserMetricNow) -> s.MetricNow:
    return s.MetricNow(
        kind=one.kind,
        value=one.value,
        count=one.count if one.kind == "histogram" else None,
        p50=figure(one.percentile(0.5)),
        p99=figure(one.percentile(0.99)),
    )


def _event_time(now: EventTimeNow) -> s.TaskEventTime:
    at_us = now.watermark_us
    return s.TaskEventTime(
        state=now.state,
        rows_without_time=dict(now.timeless),
        open_keys=now.open_keys,
        waiting=dict(now.waiting),
        watermark=None if at_us is None else round(at_us / 1e6, 3),
        lag_s=None if now.lag_s is None else round(now.lag_s, 1),
        held_by=now.held_by or None,
        late_rows=now.late,
    )


def _edge(edge: Edge, topology: Topology, window: MeasuredWindow | None) -> s.EdgeNow:
    now = window.edges.get((edge.source, edge.target)) if window else None
    same = {
        "source": edge.source,
        "target": edge.target,
        "grouping": edge.grouping,
        "selectivity": edge.selectivity,
    }
    if window is None or now is None:
        return s.EdgeNow(**same)  # type: ignore[arg-type]
    under_way = now.rate_tps * (now.buffer_latency_ms + now.channel_latency_ms) / 1000  # Little's law
    return s.EdgeNow(
        **same,  # type: ignore[arg-type]
        rate_tps=figure(now.rate_tps),
        queue=figure(under_way + _waiting(edge, now.rate_tps, topology, window), 2),
    )


def _waiting(edge: Edge, rate_tps: float, topology: Topology, window: MeasuredWindow) -> float:
    """Of the rows that wait at the target, those that came over this edge: by its part of the rate."""
    target = window.tasks.get(edge.target)
    entering = [window.edges.get((e.source, e.target)) for _, e in topology.in_edges(edge.target)]
    total_tps = sum(e.rate_tps for e in entering if e is not None)
    return target.queue * rate_tps / total_tps if target is not None and total_tps > 0 else 0.0


def slots_now(view: RunView) -> dict[str, s.SlotNow]:
    """Every slot of every VM that is there, and those of others that still have threads."""
    return {
        str(slot.slot): _slot(view, slot)
        for vm in view.vms
        for slot in vm.slots
        if vm.up or slot.slot in view.placed.by_slot
    }


def _slot(view: RunView, now: SlotStatus) -> s.SlotNow:
    slot, placed = now.slot, view.placed
    measured, (cpu, memory) = view.measured(slot), view.predicted(slot)
    shares = placed.shares.get(slot)
    return s.SlotNow(
        vm=slot.vm,
        slot=slot.number,
        state=now.state,
        threads=placed.by_slot.get(slot, {}),
        full=slot in placed.full,
        shares={task: round_ for task, part in shares.items() if (round_ := figure(part)) is not None}
        if shares
        else None,
        cpu=share(measured.cpu) if measured else None,
        memory=share(measured.memory) if measured else None,
        predicted_cpu=share(cpu),
        predicted_memory=share(memory),
        leaving=placed.leaving[slot] or None,
        crashes=now.crashes or None,
    )


def vms_now(view: RunView) -> dict[str, s.VmNow]:
    """Every VM but those that left."""
    return {vm.vm.vm: _vm(view, vm) for vm in view.vms if vm.state != "left"}


def _vm(view: RunView, now: VmStatus) -> s.VmNow:
    vm, by_slot = now.vm, view.placed.by_slot
    cpu, memory = view.measured_vm(now)
    return s.VmNow(
        state=now.state,
        slots=vm.slots,
        slots_used=sum(slot.slot in by_slot for slot in now.slots),
        slot_cores=vm.slot_cores,
        speed=figure(vm.speed) if vm.speed != 1.0 else None,
        speed_by=now.speed_by or None,
        speed_since=utc_iso(now.speed_ns) if now.speed_ns else None,
        slot_memory_bytes=vm.slot_memory_bytes,
        threads=sum(sum(by_slot.get(slot.slot, {}).values()) for slot in now.slots),
        usd_per_hour=vm.usd_per_hour or None,
        provided=now.provided or None,
        cordon=now.cordon or None,
        cpu=share(cpu),
        memory=share(memory),
    )


# ── Decisions as a picture shows them, those that led to nothing too, but each kind of these once in a row.
# Pure

Decision = dict[str, Any]  # `headgate/decision/v1`


def decision_now(found: Decision) -> DecisionNow:
    """What is known of a decision when it is taken."""
    plan = found.get("plan") or {}
    price = plan.get("price") or {}
    return DecisionNow(
        time=found["time"],
        epoch=found["epoch"],
        trigger=found["trigger"],
        rule=rule_of(found["trigger"]),
        action=found["action"],
        text=found["text"],
        numbers=plain(found.get("evidence") or {}),
        alternatives=tuple(found.get("alternatives") or ()),
        plan=plan.get("id"),
        rate_tps=figure(plan.get("rate_tps"), 4),
        predicted_tps=figure(plan.get("predicted_tps"), 4),
        slots=plan.get("slots"),
        moves=plan.get("moves"),
        state_bytes=sum(price["state_bytes"].values()) if price else None,
        expected_pause_s=price.get("pause_s"),
    )


# ── What a picture shows of the past: events, decisions with what came of them, a row of history a second.
# Pure
#
# Events and decisions are kept as plain data, each made once: a document holds them by number.

Document = dict[str, Any]
WATCHED_S = 120.0  # so long it is looked for what came of a decision


class RunHistory:
    """`look` as often as there is something to see; `events`, `decisions`: new objects when they changed."""

    def __init__(self) -> None:
        self.events: Document = {}
        self.decisions: Document = {}
        self.history = HistoryRing()
        self._found: dict[int, DecisionNow] = {}
        self._decided: dict[int, int] = {}  # decision whose outcome is open → wall ns
        self._lost: dict[int, int] = {}  # … → rows lost before
        self._number = self._event = 0
        self._last: dict[str, Any] | None = None
        self._action: dict[str, Any] | None = None
        self._threads: tuple[int, PlacedThreads, PlacedThreads] = (
            0,
            NOWHERE,
            NOWHERE,
        )  # epoch, now, before it

    def look(self, view: RunView) -> None:
        self._see_events(view)
        if self._threads[0] != view.epoch:
            self._threads = (view.epoch, view.placed, self._threads[1])
        changed = [self._begin(found, view) for found in self._new_decisions(view)]
        changed += [number for number in list(self._decided) if self._follow(number, view)]
        if changed:
            self._write(changed)
        now_s = round(view.wall_ns / NS, 2)
        if now_s >= self.history.last_s + 0.95:
            self.history.add(_row(view, now_s))

    def _see_events(self, view: RunView) -> None:
        if view.event_number == self._event:
            return
        fresh = [event for event in view.events if event["number"] > self._event]
        self._event = view.event_number
        kept = {**self.events, **{str(event["number"]): _event(event) for event in fresh}}
        self.events = dict(list(kept.items())[-EVENTS_SHOWN:])

    def _new_decisions(self, view: RunView) -> Iterator[dict[str, Any]]:
        """Actions since the last look, and the newest decision if it says something new: what led to nothing when its
        reason is another one, and never when all is fine."""
        fresh = []
        for action in reversed(view.actions):
            if action is self._action:
                break
            fresh.append(action)
        if view.actions:
            self._action = view.actions[-1]
        yield from reversed(fresh)
        last, before = view.decision, self._last
        self._last = last
        if last is None or last is before or last["action"] != "none":
            return
        if last["trigger"] not in ("fine", before["trigger"] if before else ""):
            yield last

    def _begin(self, found: dict[str, Any], view: RunView) -> int:
        self._number += 1
        self._found[self._number] = decision_now(found)
        if found["action"] == "plan":
            self._decided[self._number] = view.wall_ns
            self._lost[self._number] = view.tuples.lost
        return self._number

    def _follow(self, number: int, view: RunView) -> bool:
        """What came of a plan so far; True when there is more to show."""
        known = self._found[number]
        rollout = _rollout_of(view, known)
        if (view.wall_ns - self._decided[number]) / NS > WATCHED_S or rollout is None:
            del self._decided[number]
            return False
        now, layout, before = self._threads
        after = replace(
            known,
            epoch=rollout.epoch,
            diff=diff_of(before.threads, layout.threads) if rollout.epoch == now else known.diff,
            rolled_back=rollout.rolled_back,
            pause_ms=round((rollout.in_force_ns - rollout.switched_ns) / MS, 1)
            if rollout.in_force_ns and rollout.switched_ns
            else None,
        )
        settled = _settled(view, rollout)
        if settled:
            after = replace(
                after,
                time_to_stable_s=round((view.wall_ns - rollout.decided_ns) / NS, 1),
                lost=max(0, view.tuples.lost - self._lost[number]),
            )
        if settled or rollout.epoch < view.epoch or rollout.rolled_back or rollout.abandoned:
            del self._decided[number]
        self._found[number] = after
        return after != known

    def _write(self, numbers: list[int]) -> None:
        fresh = {str(number): msgspec.to_builtins(self._found[number]) for number in numbers}
        kept = list({**self.decisions, **fresh}.items())
        for name, _ in kept[:-DECISIONS_SHOWN]:
            self._found.pop(int(name), None)
            self._decided.pop(int(name), None)
        self.decisions = dict(kept[-DECISIONS_SHOWN:])


def _event(event: dict[str, Any]) -> Document:
    epoch = event["epoch"] or None
    found = EventNow(time=event["time"], kind=event["kind"], text=event["text"], epoch=epoch)
    plain: Document = msgspec.to_builtins(found)
    return plain


def _rollout_of(view: RunView, decision: DecisionNow) -> Rollout | None:
    """The rollout that began with this decision: the newest of that plan's, by its time."""
    epochs = [planned.epoch for planned in (view.waiting, view.rollout)
              if planned is not None and planned.plan.id == decision.plan]  # fmt: skip
    epoch = epochs[0] if epochs else decision.epoch
    return next((rollout for rollout in reversed(view.rollouts) if rollout.epoch == epoch), None)


def _settled(view: RunView, rollout: Rollout) -> bool:
    seen = view.result
    there = view.epoch == rollout.epoch and rollout.in_force_ns > 0
    return (
        there and seen is not None and seen.window.epoch == rollout.epoch and seen.health.verdict == "stable"
    )


def _row(view: RunView, now_s: float) -> Row:
    latency = view.window.latency if view.window and view.window.latency.rows else None
    judged = view.result is not None and view.verdict != "unknown"
    return {
        "time": now_s,
        "offered_tps": figure(view.offered_tps),
        "emitted_tps": figure(view.emitted_tps),
        "acked_tps": figure(view.acked_tps),
        "planned_tps": figure(view.planned_tps),
        "predicted_tps": figure(view.predicted_tps),
        "p50_ms": figure(latency.p50_ms) if latency else None,
        "p95_ms": figure(latency.p95_ms) if latency else None,
        "p99_ms": figure(latency.p99_ms) if latency else None,
        "backlog_rows": view.result.health.backlog_rows if view.result else None,
        "backlog_s": figure(view.result.health.backlog_s) if view.result else None,
        "slope": figure(view.result.stability.slope, 2) if view.result and judged else None,
        "slots_used": view.slots_used if view.plan else None,
        "epoch": view.epoch or None,
    }


# ── ────────────────────────────────────────────────────────────────────────────────────────────────────

TASKS, PLACES = 0, 1
TURNS = (("topology",), ("slots", "vms", "latency_ms"))


class SnapshotMaker:
    """What whoever watches knows (`number`), and the past that must be kept for whoever comes."""

    def __init__(self) -> None:
        self.number = 0
        self._history = RunHistory()
        self._document: Document = {}
        self._now = ""
        self._boot = 0
        self._step: tuple[object, ...] = ()
        self._turn: int | None = None  # of `TURNS`; None: everything
        self._models_of: object = None
        self._models: Document = {}

    def look(self, view: RunView) -> None:
        """Keep what would be missed: cheap, to be done twice a second whoever watches."""
        self._history.look(view)

    def advance(self, view: RunView, whole: bool = False) -> Delta:
        """The next document, and the delta that makes it of the last one. whole: whatever turn it is."""
        self.look(view)
        document = self._made(view, whole)
        patch = patch_between(self._document, document)
        rows = self._history.history.take() if self._turn != TASKS else {}
        self._document, self._boot = document, view.boot
        self.number, self._now = self.number + 1, utc_iso(view.wall_ns)
        return Delta(number=self.number, boot=self._boot, now=self._now, patch=patch, history=rows)

    def snapshot(self) -> Document:
        """The whole document of `number`, as the deltas up to it have made it."""
        history = self._history.history.columns()
        apart = {"number": self.number, "boot": self._boot, "now": self._now, "history": history}
        return {**self._document, **apart}

    def _made(self, view: RunView, whole: bool) -> Document:
        before = self._document
        step = (view.boot, view.rollout, view.phase, view.stage, len(view.vms))
        self._turn = turn = self.number % 2 if before and step == self._step and not whole else None
        self._step = step
        document: Document = msgspec.to_builtins(snapshot_of(view, turn))
        for key in APART:
            document.pop(key, None)
        if turn is not None:
            document |= {part: before[part] for part in TURNS[1 - turn] if part in before}
        if view.models is not self._models_of:
            self._models_of = view.models
            self._models = {
                model.task: {
                    "points": [
                        [p.threads, *(round(v, 4) for v in (p.rate_tps, p.cpu, p.memory))]
                        for p in model.points
                    ]
                }
                for model in view.models
                if not model.unmeasured
            }
        document["models"] = self._models
        document["events"], document["decisions"] = self._history.events, self._history.decisions
        return document


def snapshot_of(view: RunView, turn: int | None = None) -> Snapshot:
    """Everything but what is kept apart: number, history, models, events, decisions. turn: of the parts in
    `TURNS` only those of this one; None: all."""
    stable, plan = stable_now(view), plan_now(view)
    found = Snapshot(
        number=0,
        boot=view.boot,
        now=utc_iso(view.wall_ns),
        origin="controller",
        run=view.run,
        header="",
        stage=view.stage,
        stable=stable,
        slots={} if turn == TASKS else slots_now(view),
        vms={} if turn == TASKS else vms_now(view),
        rates=rates_now(view),
        latency_ms=latency_now(view),
        tuples=msgspec.convert(view.tuples, s.TuplesNow, from_attributes=True),
        history=History(),
        seconds=round(view.seconds, 1),
        mode=view.mode,
        held=view.held or None,
        topology=None if turn == PLACES else topology_now(view),
        plan=plan,
        proposal=proposal_now(view),
        enacting=enacting_now(view),
        slope=stable.slope,
        next_bottleneck=bottleneck_now(view),
        alarms={alarm.what: alarm.text for alarm in view.alarms},
        alarms_since={alarm.what: utc_iso(alarm.since_ns) for alarm in view.alarms},
    )
    return replace(found, header=header_of(found, view.slots_total, view.measuring))
