"""The controller's loop: monitor → analyze → plan → execute over knowledge. Pure: `step(event, now)`.

The loop itself is `Loop.think`. Everything else here hands events to the part that knows what to do with
them. No clock, no I/O, no randomness: the same events at the same times give the same decisions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any

from headgate.controller.analyze import slot_troubles
from headgate.controller.analyze.demand import lag_alarm, under_cap
from headgate.controller.analyze.diagnosis import DiagnosisInput, Findings, diagnose
from headgate.controller.analyze.growing_memory import GrowthWatch
from headgate.controller.analyze.health import HealthWatch, Waiting, queued_of
from headgate.controller.analyze.model_bias import ModelBias
from headgate.controller.analyze.residuals import growing, nearness, predicted_slots, residuals
from headgate.controller.analyze.stability import stability
from headgate.controller.core import (
    alarms,
    background_planning,
    commands,
    decisions,
    learned_models,
    model_updates,
    plan_triggers,
    predicted_latency,
    prediction_accounting,
    profiling,
    rolling_upgrade,
)
from headgate.controller.core.costly_thread_found import CostlyThreadWatch
from headgate.controller.core.decisions import run_of
from headgate.controller.core.plan_triggers import PathWatch
from headgate.controller.core.prediction_accounting import Accounts
from headgate.controller.core.rate_following import RateFollower
from headgate.controller.core.view_builder import view_of
from headgate.controller.core.vm_speeds_seen import VmSpeedWatch, take_loops
from headgate.controller.execute.dead_letter_replay import DeadLetterReplay
from headgate.controller.execute.desired_state import publish
from headgate.controller.execute.end_of_input import KEEPERS
from headgate.controller.execute.handover import keyed_vms
from headgate.controller.execute.kept_counts import keep_tallies
from headgate.controller.execute.plan_drift import (
    draining_vms,
    hand_over_waited,
    lost_vms,
    progress_of,
    quarantined_now,
    take_back,
    unplanned_vms,
    withdrawn_slots,
)
from headgate.controller.execute.rollout import enact, judge_probation
from headgate.controller.execute.run_end import (
    advance,
    ask_to_end,
    backlogs_of,
    go_on_ending,
    last_samples,
    order_end,
)
from headgate.controller.knowledge import loop_events as t
from headgate.controller.knowledge.controller_config import ControllerSettings
from headgate.controller.knowledge.dead_letters import DeadLetterRecord
from headgate.controller.knowledge.diagnoses import Demand, Diagnosis, Health, Stability
from headgate.controller.knowledge.journal_records import (
    Booted,
    Durable,
    Reopened,
    RolloutStarted,
    Submitted,
    fold_all,
)
from headgate.controller.knowledge.knowledge import Knowledge, Turn
from headgate.controller.knowledge.loop_events import Finish, Started
from headgate.controller.knowledge.measured_window import MeasuredWindow
from headgate.controller.knowledge.membership import MembershipChange
from headgate.controller.knowledge.offered_load import Lag
from headgate.controller.knowledge.run_view import LoopResult, RunView
from headgate.controller.knowledge.spooled_events import Unread, without_reader
from headgate.controller.knowledge.vm_ways import cut_pairs, slow_pairs
from headgate.controller.models.plans import Plan
from headgate.controller.models.task_models import missing_models
from headgate.controller.monitor import vm_reports
from headgate.controller.monitor.sample_intake import Intake
from headgate.controller.monitor.sample_windows import queues_now, window_of
from headgate.controller.monitor.sink_counts import FinishedRows, Settling
from headgate.controller.plan.predict.slot_fit import HeldMemory
from headgate.controller.views.run_documents import RateRows, summary
from headgate.topology_runtime.api.topology import Topology
from headgate.topology_runtime.errors import BadMessage, Conflict, HeadgateError, InvalidInput
from headgate.topology_runtime.latency.latency_buckets import as_now
from headgate.topology_runtime.wire import messages as m
from headgate.topology_runtime.wire.messages import refusal
from headgate.topology_runtime.wire.report_messages import Profiled
from headgate.topology_runtime.wording import counted

# ── The beginning of a controller's life: what an earlier one left in the journal is known again. Pure ───
#
# What runs is adopted: after a restart nothing is said to agents until they have reported what is there (4 s at
# most), then they get the desired state of before under the new boot, and an enactment under way goes on.

NS = 1_000_000_000
ADOPT_NS = 4 * NS  # as long as a VM may be silent
CRASHES_IN_A_ROW, WITHIN_NS = 3, 60 * NS
SHORT_LIFE_NS = 15 * NS  # a controller that lived longer did not die of what it was doing


def begin_life(turn: Turn, started: Started) -> bool:
    """Know what is journaled and journal the new boot; False when there is nothing left to do here."""
    k, now = turn.knowledge, turn.now
    k.durable = fold_all(started.records)
    k.pid, k.started_ns = started.pid, now.mono_ns
    d = k.durable
    ended = bool(d.lives and d.lives[-1][1])
    if ended and not d.left and not d.open_keys:
        turn.do(Finish(None, Conflict("the run in this state directory has ended", hint="start a new one")))
        return False
    crashes = crashes_in_a_row(d, now.wall_ns)
    if ended:
        turn.event("reopened", _goes_on(d))
        turn.record(Reopened(now.wall_ns))
        d = k.durable
    turn.record(Booted(d.boot + 1, now.wall_ns))
    if started.tallies is not None:
        k.counts.recall(started.tallies)
    k.counts.letters.recall(started.letters)
    k.counts.recall_apart(d.apart)
    if not d.boot:
        return True
    turn.event(
        "recovered", f"controller boot {d.boot + 1}: epoch {k.epoch} ({d.phase}) is adopted", level="warning"
    )
    turn.members.presume(tuple(vm for vm in d.joined if vm.vm not in d.held_dead), now)
    turn.members.expect(d.joined)
    k.phase_since_ns = now.mono_ns
    k.rested = rested(d)
    for rollout in d.rollouts:
        k.switched_ns = now.mono_ns - max(0, now.wall_ns - rollout.switched_ns)
        k.in_force_ns = now.mono_ns - max(0, now.wall_ns - rollout.in_force_ns)
    if d.rollout is not None or d.unsure:
        k.adopting_until_ns = now.mono_ns + ADOPT_NS
    if crashes >= CRASHES_IN_A_ROW and d.cleared_ns < now.wall_ns - WITHIN_NS:
        k.held = f"the controller died {crashes} times in a row: the last good plan is held"
        turn.event("held", k.held, level="error")
    if d.draining or d.ends_for:
        go_on_ending(turn)
    return True


def _goes_on(d: Durable) -> str:
    parts = [f"{counted(d.left, 'row')} that were left are read again"] * bool(d.left)
    keys = f"{d.open_keys:,} keys go" if d.open_keys > 0 else "keys go"
    parts += [f"the open windows and timers of {keys} on"] * bool(d.open_keys)
    return f"the run goes on: {', '.join(parts)}"


def rested(d: Durable) -> set[int]:
    """Holders of exclusive tasks that are desired no more and whose VM is not held dead: it was journaled that they
    are gone when they had said so. (Who was lost with its VM works until its lease is over.)"""
    there = d.rollout.by_number if d.rollout is not None else {}
    return {h.thread for h in d.holders if h.thread not in there and h.slot.vm not in d.held_dead}


def refuse_if_older(turn: Turn) -> bool:
    """A controller out of an archive that was taken before the newest plan would give its numbers a second meaning: it
    ends without a word to any agent, which would not obey another any more, and what runs goes on."""
    d = turn.knowledge.durable
    newer = {vm: token.epoch for vm, token in turn.members.tokens.items() if token.epoch >= d.moved_epoch}
    if not newer or not d.unsure:
        return False
    vm, epoch = max(newer.items(), key=lambda item: item[1])
    error = Conflict(
        f"the archive is older than what runs: {vm} obeys plan {epoch}, it knows {d.next_epoch - 1}",
        cause="a plan was made after `headgate controller export`",
        hint="import a newer archive; without one, end the agents and submit again",
    )
    turn.do(Finish(None, error))
    return True


def crashes_in_a_row(d: Durable, now_wall_ns: int) -> int:
    """How many lives before this one ended soon and badly, one after the other, just now."""
    end = now_wall_ns
    crashes = 0
    for began, ended_well in reversed(d.lives):
        if ended_well or end - began > SHORT_LIFE_NS or now_wall_ns - end > WITHIN_NS:
            break
        crashes, end = crashes + 1, began
    return crashes


def adopted(turn: Turn) -> None:
    """Stop waiting once every VM of the plan has said what is there, or its time is over."""
    k, d = turn.knowledge, turn.knowledge.durable
    if not k.adopting_until_ns:
        return
    planned = {thread.slot.vm for thread in d.rollout.threads} if d.rollout is not None else set()
    vms = (planned or {vm.vm for vm in d.joined}) - set(d.held_dead)
    there = {m.vm.vm for m in k.members.up() if m.report is not None}
    if vms <= there or turn.now.mono_ns >= k.adopting_until_ns:
        k.adopting_until_ns = 0
        k.phase_since_ns = turn.now.mono_ns
        missing = sorted(vms - there)
        text = f"not heard: {', '.join(missing)}" if missing else "all VMs are there"
        turn.event("adopted", f"adopted what runs; {text}")


# ── Events that were accepted on a VM where nobody reads their source any more: it is to go there, once
# nothing is more urgent. Whoever reads it there accepts them again (protocol: Sources). Pure.

SPOOL_AGAIN_NS = 60_000_000_000  # when a plan was made for it and it is not read yet


def unread_spools_found(turn: Turn) -> Diagnosis | None:
    """A plan to be made so that they are read; None when there is nothing to read, or no plan can be made now."""
    k = turn.knowledge
    if not k.spools and "unread" not in k.alarms:
        return None
    barred = slot_troubles.barred(k)
    usable = {vm.vm for vm in decisions.present(k) if not barred.issuperset(vm.all_slots())}
    waiting = {
        place: rows for place, rows in without_reader(k).items() if place[1] not in k.durable.held_dead
    }
    stuck = {place: rows for place, rows in waiting.items() if place[1] not in usable}
    text = (
        f"accepted and not read until the VM has a slot that others reach: {_listed(stuck)}" if stuck else ""
    )
    turn.alarm("unread", text, "all events that were accepted can be read", level="error")
    waiting = {place: rows for place, rows in waiting.items() if place[1] in usable}
    if not waiting or k.plan is None or not profiling.may_plan(k) or turn.now.mono_ns < k.spools_again_ns:
        return None
    k.spools_again_ns = turn.now.mono_ns + SPOOL_AGAIN_NS
    evidence = {f"{task} {partition} on {vm}": rows for ((task, partition), vm), rows in waiting.items()}
    text = f"accepted and not read: {_listed(waiting)}"
    return Diagnosis("replan", "events_unread", text, k.plan.rate_tps, evidence, ())


def _listed(waiting: Unread) -> str:
    return ", ".join(f"{counted(n, 'event')} of {task} on {vm}" for ((task, _), vm), n in waiting.items())


TURN_NS = NS  # between two turns of the loop …
SHOW_NS = NS // 2  # between two views: people read no faster
SLACK_NS = NS // 8  # … which a tick may be early
JOURNAL_RETRY_NS = NS  # after the journal failed
KEEP_NS = NS  # between two tallies
LAG_OVER = "the lag is over: rows are read as they come"


class Loop:
    """A controller without a world: what it knows, and what it does about an event. watched: views are made of it."""

    def __init__(
        self, settings: ControllerSettings, submitted: Submitted | None = None, watched: bool = True
    ) -> None:
        self._watched = watched
        self.knowledge = Knowledge(settings)
        self.knowledge.members.expect(settings.initial)
        self.intake: Intake | None = None
        self.finished = FinishedRows()
        self.settling = Settling()
        self.again = DeadLetterReplay()
        self._result: LoopResult | None = None
        self._shown: LoopResult | None = None
        self._memory: HeldMemory | None = None
        self._following: RateFollower | None = None
        self._watch = alarms.AlarmWatch()
        self._limits = predicted_latency.LatencyLimits()
        self._ways = alarms.WayWatch()
        self._growth = GrowthWatch()
        self._costly = CostlyThreadWatch()
        self._speeds = VmSpeedWatch()
        self._health = HealthWatch()
        self._paths = PathWatch()
        self._accounts = Accounts()
        self._submitted = submitted
        self._keep_ns = self._roster = self._show_ns = 0
        self._before = self.knowledge.durable
        self._ending = replace(self.knowledge.ending)
        self._unanswered: list[int] = []
        self._unkept: tuple[DeadLetterRecord, ...] = ()
        self._rate_rows = RateRows()
        self._over = self._wrote = False
        self._born: t.Started | None = None
        self._rollout: RolloutStarted | None = None  # of which it is known where keyed state is
        self._unborn = False  # the journal did not take this life's first record
        self._handlers: dict[type, Callable[[Turn, Any], None]] = {
            t.Started: self._on_started,
            t.FromVm: self._on_vm,
            t.Command: commands.answer,
            t.MachinesSeen: decisions.machines_seen,
            t.JournalFailed: self._on_journal_failed,
            t.Measured: background_planning.measured,
            t.PlanMade: commands.plan_made,
            t.LatencyPredicted: predicted_latency.take,
            t.Troubled: self._on_troubled,
            t.DiskSeen: self._on_disk,
            t.PeersSeen: lambda turn, event: vm_reports.peers(turn, event.troubles),
            t.Stopping: lambda turn, event: ask_to_end(turn, event.reason),
            t.Tick: self._on_tick,
        }

    # ── one screen: the loop ────────────────────────────────────────────────────────────────────

    def think(self, turn: Turn, intake: Intake) -> None:
        """Monitor → analyze → plan → execute, once a second."""
        k, now = self.knowledge, turn.now
        rollout, topology = k.durable.rollout, k.topology
        if rollout is None or topology is None:
            return
        plan, in_force_s = rollout.plan, k.in_force_s(now)
        window = window_of(intake, now.mono_ns, k.settings.window_s)
        lags, cap_tps = k.load.lags(now.wall_ns), k.load.cap_tps(now.wall_ns)
        capped = under_cap(window, lags, cap_tps)
        trend = stability(capped, in_force_s or 0.0)
        health = self._look_at_health(turn, intake, window, trend, lags)
        verdict = health.judged(trend)
        self._following = self._following or RateFollower.of(topology, k.settings)
        need = self._following.need(k, window, lags, cap_tps, now, self._accounts.errors(k.models))
        turn.alarm("lag", lag_alarm(k.alarms.get("lag", ""), lags, window), LAG_OVER)
        memory = self._held_memory(plan, topology)
        slots = predicted_slots(plan.prediction, topology, window.emitted_tps, memory.slots)
        unknown = learned_models.slots_without_model(k)
        slots = {slot: use for slot, use in slots.items() if slot not in unknown}
        last_s = window.progress.lately("emitted", 1.0) or 0.0
        here = predicted_slots(plan.prediction, topology, last_s, memory.slots)
        here = {slot: here[slot] for slot in slots}
        off = residuals(window, plan.prediction, slots, topology, plan.vms)
        self._accounts.look(turn, window, verdict, slots)
        off_models = prediction_accounting.named(turn, self._accounts)
        late = self._paths.look(turn, partial(window_of, intake, now.mono_ns))
        judge_probation(turn, verdict, window)
        plan_triggers.take_in(turn, window)
        for watch in (self._ways, self._limits, self._speeds):
            watch.look(turn, window)
        diagnosis = diagnose(
            DiagnosisInput(
                window=window,
                stability=verdict,
                demand=need,
                planned_tps=plan.rate_tps,
                in_force_s=in_force_s,
                residuals=off,
                violations=late,
                quarantined=quarantined_now(k),
                lost=lost_vms(k),
                draining=(*draining_vms(k), *map(str, withdrawn_slots(k))),
                joined=unplanned_vms(k, now),
                limit_tps=plan.rate_tps if rollout.degraded else None,
                frozen=self.knowledge.members.frozen(now),
                silent=k.members.silent(now, k.in_force_ns) or k.members.waits,
                held=self._held(),
                cut="; ".join(way.words for way in cut_pairs(k.ways)),
                slow="; ".join(way.words for way in slow_pairs(k.ways)),
                capped=capped is not window and trend.verdict != "unstable",
            ),
            (findings := self._findings(turn, intake, window, verdict, need, off_models)),
        )
        decisions.decide_all(turn, diagnosis, findings.besides(diagnosis))
        self._watch.look(turn, need, health)
        profiling.consider(turn, off)
        near = nearness(window, plan, topology, k.models, slots)
        in_task, grows = intake.in_task.percentiles(now.mono_ns), growing(window, verdict)
        found = window, verdict, health, need, off, late, self._paths.now, slots, here, near, grows, in_task
        self._result = LoopResult(*found)

    def _held_memory(self, plan: Plan, topology: Topology) -> HeldMemory:
        """What the plan in force holds, counted once."""
        if self._memory is None or self._memory.plan != plan.id:
            self._memory = HeldMemory.of(plan, topology, self.knowledge.models)
        return self._memory

    def _look_at_health(
        self,
        turn: Turn,
        intake: Intake,
        window: MeasuredWindow,
        trend: Stability,
        lags: tuple[Lag, ...],
    ) -> Health:
        k, topology = turn.knowledge, turn.knowledge.topology
        assert topology is not None
        rows = sum(backlogs_of(k, turn.now).values())
        age_s = max(k.counts.age_ns(task.name, turn.now.mono_ns) for task in topology.sources) / NS
        queued = None
        if any(task.kind in KEEPERS for task in topology.tasks):
            queued = queued_of(queues_now(intake, turn.now.mono_ns), topology.rates(1.0))
        load, wall_ns = k.load, turn.now.wall_ns

        def came(ago_s: float) -> float:
            return load.progress(wall_ns - round(ago_s * NS), 0, 0)[0]

        earlier = None if topology.arriving else came
        waiting = Waiting(rows, queued, age_s)
        health = self._health.look(window, trend, waiting, earlier, lags, self._watch.halted(turn))
        self._growth.look(turn, window, keeps_up=health.verdict == "stable")
        return health

    def _findings(
        self,
        turn: Turn,
        intake: Intake,
        window: MeasuredWindow,
        verdict: Stability,
        need: Demand,
        off_models: Sequence[ModelBias],
    ) -> Findings:
        """What to ask when nothing is more urgent; `diagnosis.py` says when. Each is asked once: who asks again has
        the same answer."""
        behind = verdict.verdict == "unstable"
        seen = partial(window_of, intake, turn.now.mono_ns)
        return Findings(
            idle=(
                cache(lambda: slot_troubles.not_ready(turn, need.target_tps)),
                cache(lambda: slot_troubles.unbuilt(turn, need.target_tps)),
                cache(lambda: slot_troubles.starved(turn, need)),
                cache(lambda: self._costly.found(turn, need)),
                cache(lambda: rolling_upgrade.found(turn)),
                cache(lambda: unread_spools_found(turn)),
            ),
            models=(
                cache(lambda: learned_models.learned(turn, seen, need, behind)),
                cache(lambda: self._speeds.found(turn, need)),
                cache(lambda: prediction_accounting.found(turn, off_models, need)),
                cache(lambda: model_updates.found(turn, need)),
            ),
            placement=partial(plan_triggers.better_placement, turn, window, verdict),
            cut=partial(decisions.around_cut, turn, need),
        )

    # ── a step ──────────────────────────────────────────────────────────────────────────────────

    def step(self, event: t.Event, now: t.Now) -> list[t.Instruction]:
        """What to do about one event."""
        if self._unborn and not isinstance(event, t.JournalFailed):
            if not isinstance(event, t.Tick) or now.mono_ns < self.knowledge.journal_retry_ns:
                return self._not_yet(event)
            event = self._begin_again()
        k = self.knowledge
        if not isinstance(event, t.JournalFailed):
            self._before, self._ending = k.durable, replace(k.ending)
            if self._wrote:
                k.alarms.pop("journal", None)
        turn = Turn(k, now, self)
        self._handlers[type(event)](turn, event)
        if k.durable.boot and not self._over:
            self._go_on(turn, event)
        self._wrote = turn.writes
        alarms.note_times(k, now.wall_ns)
        if isinstance(event, t.Started | t.Tick) and not self._over:
            self._show_in_time(turn)
        out = turn.instructions()
        if k.adopting_until_ns and k.durable.unsure:
            out = [one for one in out if not isinstance(one, t.Send)]
        self._unanswered = [i.number for i in out if isinstance(i, t.Answer | t.AnswerLater)]
        self._unkept = tuple(one for i in out if isinstance(i, t.KeepDeadLetters) for one in i.records)
        self._over = self._over or any(isinstance(i, t.Finish) for i in out)
        return out

    def _not_yet(self, event: t.Event) -> list[t.Instruction]:
        """A life that could not be journaled has not started: it hears nothing and says nothing."""
        error = HeadgateError(
            "the controller has not started", cause="its journal takes no records", hint="see its disk"
        )
        if isinstance(event, t.Command):
            return [t.Answer(event.number, refusal(error))]
        return [t.Finish(None, error)] if isinstance(event, t.Stopping) else []

    def _begin_again(self) -> t.Started:
        """Forget the beginning that could not be journaled, and try it once more."""
        assert self._born is not None
        settings = self.knowledge.settings
        self.knowledge = Knowledge(settings)
        self.knowledge.members.expect(settings.initial)
        self.intake, self._unborn = None, False
        return self._born

    def _go_on(self, turn: Turn, event: t.Event) -> None:
        """Whatever happened: enact, end, publish."""
        k = self.knowledge
        desired = k.desired
        if refuse_if_older(turn):
            return
        adopted(turn)
        profiling.watch(turn)
        profiling.go_on(turn, event)
        if turn.stage not in ("leaving", "over"):  # agents that were ordered to go are not lost
            enact(turn)
        advance(turn)
        if turn.stage == "over":
            vm_reports.keep_dead_letters(turn)
            self._shown = None  # what came after the last turn is recorded too
            view = self._show(turn)
            turn.do(t.Finish(summary(view) if k.durable.run else None))
        elif turn.stage == "leaving":
            order_end(turn)
        elif isinstance(event, t.FromVm) and k.desired is desired:
            publish(turn, event.message.vm)
        else:
            publish(turn)

    # ── events ──────────────────────────────────────────────────────────────────────────────────

    def _on_started(self, turn: Turn, event: t.Started) -> None:
        self._born = event
        self.finished = FinishedRows(event.tallies.finished if event.tallies else None)
        if not begin_life(turn, event):
            return
        run = self.knowledge.durable.run
        if run is not None:
            self._prepare(turn)
        elif self._submitted is not None:
            self.submit(turn, self._submitted)

    def submit(self, turn: Turn, submitted: Submitted) -> None:
        """Take a topology; raises InvalidInput when it cannot be planned."""
        faults = missing_models(submitted.topology, {model.task: model for model in submitted.models})
        if faults:
            raise InvalidInput(f"topology {submitted.topology.name!r} cannot be planned", faults=faults)
        turn.record(submitted)
        prediction_accounting.by_ledger(turn)
        self._prepare(turn)
        turn.event("submitted", f"topology {submitted.topology.name} is to be run")

    def _prepare(self, turn: Turn) -> None:
        run = self.knowledge.durable.run
        assert run is not None
        self.intake = Intake(run.topology)
        turn.do(t.Begin(run_of(self.knowledge, run)))
        self._roster = -1
        self.knowledge.gathering_since_ns = turn.now.mono_ns

    def _on_vm(self, turn: Turn, event: t.FromVm) -> None:
        message, members = event.message, self.knowledge.members
        match message:
            case m.Hello():
                changes = vm_reports.hello(turn, message)
            case m.Report():
                member = members.members.get(message.vm)
                before = member.report if member is not None else None
                message = vm_reports.believed(turn, message)
                changes = vm_reports.report(turn, message)
                member = members.members.get(message.vm)
                if member is not None and member.report is message:
                    self.again.hear(turn, message)
                    run = self.knowledge.durable.run
                    if vm_reports.clock_stepped(turn, before, message) and run is not None:
                        self.intake, self._roster = Intake(run.topology), -1
                    if before is None and turn.stage == "running":
                        self._first_plan(turn)  # maybe it was the last one waited for
            case m.SampleBlock():
                return self._on_block(turn, message)
            case m.DeadLetters():
                return vm_reports.dead_letters(turn, message)
            case Profiled():
                changes = vm_reports.note_changes(turn, members.heard(message.vm, turn.now))
                if not profiling.first_profile_heard(turn, message):
                    profiling.spare_profile_heard(turn, message)
            case m.PackageAt():
                return  # the shell's matter
            case m.Goodbye():
                changes = vm_reports.goodbye(turn, message)
        self._look_at_once(changes)

    def _look_at_once(self, changes: tuple[MembershipChange, ...]) -> None:
        """A fault is not left waiting for the next second."""
        k = self.knowledge
        if any(change.kind in ("lost", "left") for change in changes) or quarantined_now(k):
            k.next_turn_ns = 0

    def _on_block(self, turn: Turn, block: m.SampleBlock) -> None:
        k = self.knowledge
        self.knowledge.members.heard(block.vm, turn.now)
        if self.intake is None:
            return
        if self._roster != self.knowledge.members.roster:
            self._roster = self.knowledge.members.roster
            self.intake.expect([member.vm for member in self.knowledge.members.up()])
        try:
            fresh = self.intake.add_block(block, turn.now.mono_ns, k.epoch)
            self.finished.add(block.finished, block.vm)
            self.settling.block(block)
        except BadMessage as error:
            turn.do(t.Distrust(block.vm, f"{error.what}: {error.cause}"))
            return
        last_samples(k, block)
        if fresh:
            vm = self.knowledge.members.members[block.vm].vm
            self._costly.block(block, vm)
            self._speeds.block(block, vm, turn.now.mono_ns)
            for sink, source, buckets in block.latency:
                k.counts.add_latency(sink, source, as_now(buckets, block.per_doubling))
            predicted = self._result.predicted_now if self._result is not None else {}
            turn.do(t.Block(block, vm, predicted))

    def _on_journal_failed(self, turn: Turn, event: t.JournalFailed) -> None:
        """Nothing of the turn before was done: know again what was known before it (story B6)."""
        k = self.knowledge
        k.durable = self._before
        if self._unanswered:  # who asked for the end hears that nothing was changed
            k.ending = self._ending
        self._unborn = not k.durable.boot and self._born is not None
        k.journal_retry_ns = turn.now.mono_ns + JOURNAL_RETRY_NS
        vm_reports.dead_letters_not_kept(turn, self._unkept)
        text = f"the journal takes no records: {event.error}; the present plan is held"
        turn.alarm("journal", text, level="error")
        error = HeadgateError("the journal takes no records, so nothing was changed", cause=event.error)
        for number in self._unanswered:
            turn.do(t.Answer(number, refusal(error)))
        if self._over:
            turn.do(t.Finish(summary(self.view(turn.now))))

    def _on_troubled(self, turn: Turn, event: t.Troubled) -> None:
        k = self.knowledge
        k.troubles[event.what] = k.troubles.get(event.what, 0) + 1
        if k.troubles[event.what] == 1:
            turn.event("trouble", f"{event.what} failed: {event.error}", level="warning")

    def _on_disk(self, turn: Turn, event: t.DiskSeen) -> None:
        vm_reports.disk(turn, "the controller", event.troubles)
        if event.journal:
            self.knowledge.alarms.pop("journal", None)

    def _on_tick(self, turn: Turn, event: t.Tick) -> None:
        k, now = self.knowledge, turn.now
        if k.durable.rollout is not self._rollout:
            self._rollout = k.durable.rollout
            k.members.keyed = frozenset() if k.settings.state_to else keyed_vms(k.durable)
        self._look_at_once(vm_reports.note_changes(turn, self.knowledge.members.tick(now)))
        held = f"{self._held()}; no plan is made by itself (`headgate resume`)"
        turn.alarm("mass_loss", held if k.members.mass_loss else "", level="error")
        take_back(turn)
        k.impatient = hand_over_waited(k, now)
        if self.intake is None:
            return
        if (progress := progress_of(k, now.wall_ns)) is not None:
            self.intake.add_progress(now.mono_ns - (now.wall_ns - progress[0]), *progress[1:])
        if now.mono_ns >= self._keep_ns:
            self._keep_ns = now.mono_ns + KEEP_NS
            keep_tallies(turn)
            vm_reports.keep_dead_letters(turn)
            self.settling.go_on(turn, self.finished)
        self.again.go_on(turn, turn.stage == "running")
        self._end_in_time(turn)
        due = now.mono_ns >= k.next_turn_ns - SLACK_NS
        if due and turn.stage in ("running", "ending", "draining") and not k.adopting_until_ns:
            late = now.mono_ns - k.next_turn_ns > TURN_NS
            k.next_turn_ns = (now.mono_ns if late else k.next_turn_ns) + TURN_NS
            decisions.close_circuits(k, now.mono_ns)
            slot_troubles.look(k, now.mono_ns)
            background_planning.watch(turn)
            if turn.stage != "running":
                decisions.mend(turn, self._held())
            elif k.durable.rollout is None:
                self._first_plan(turn)
            else:
                self.think(turn, self.intake)

    def _first_plan(self, turn: Turn) -> None:
        if self.knowledge.durable.rollout is None:
            take_loops(turn)
            decisions.first_plan(turn)

    # ── what else is known ──────────────────────────────────────────────────────────────────────

    def view(self, now: t.Now) -> RunView:
        """All that there is to see."""
        by_sink = self.finished.by_task
        return view_of(self.knowledge, by_sink, self.intake, self._result, now)

    def _show_in_time(self, turn: Turn) -> None:
        """After each turn of the loop, and halfway to the next one."""
        if self._watched and (turn.now.mono_ns >= self._show_ns or self._shown is not self._result):
            self._show_ns = turn.now.mono_ns + SHOW_NS - SLACK_NS
            self._show(turn)

    def _show(self, turn: Turn) -> RunView:
        view = self.view(turn.now)
        if self._watched:
            turn.do(t.Show(view))
        if self._watched and self._shown is not self._result:
            self._shown = self._result
            for row in self._rate_rows.of(view):
                turn.do(t.Trace("rates", row))
        return view

    def _held(self) -> str:
        """Why no plan may be made by itself."""
        gone = self.knowledge.members.mass_loss
        return f"{len(gone)} VMs vanished at once: {', '.join(gone)}" if gone else self.knowledge.held

    def _end_in_time(self, turn: Turn) -> None:
        """The run ends so many seconds after its first tuple was due."""
        k = self.knowledge
        started_ns, seconds = k.durable.started_ns, k.settings.seconds
        if not started_ns or seconds <= 0 or turn.stage != "running":
            return
        if turn.now.wall_ns >= started_ns + int(seconds * NS):
            ask_to_end(turn, f"{seconds:g} s are over")
