"""The controller's loop: monitor → analyze → plan → execute over knowledge. Pure: `step(event, now)`.

The loop itself is `Loop.think`. Everything else here hands events to the part that knows what to do with
them. No clock, no I/O, no randomness: the same events at the same times give the same decisions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headgate.controller.analyze import lag
from headgate.controller.analyze.diagnosis import DiagnosisInput, diagnose
from headgate.controller.analyze.nearness import growing, nearness
from headgate.controller.analyze.residuals import predicted_slots, residuals
from headgate.controller.analyze.stability import stability
from headgate.controller.core import (
    alarms,
    commands,
    correcting,
    deciding,
    first_profiles,
    first_rows,
    offers,
    provided,
    recoding,
    recovery,
    spare_profiles,
    thinking,
    traffic_triggers,
    unread_spools,
)
from headgate.controller.core.accounting import Accounts
from headgate.controller.core.following import Following
from headgate.controller.core.path_watch import PathWatch
from headgate.controller.core.tracing import run_of
from headgate.controller.core.viewing import view_of
from headgate.controller.execute.desired import publish
from headgate.controller.execute.ending import Ending
from headgate.controller.execute.executor import enact
from headgate.controller.execute.probation import judge
from headgate.controller.execute.sending_again import SendingAgain
from headgate.controller.execute.watching import (
    draining_vms,
    hand_over_waited,
    lost_vms,
    progress_of,
    quarantined_now,
    take_back,
    unplanned_vms,
)
from headgate.controller.knowledge import turns as t
from headgate.controller.knowledge.arrivals import cap_of, lags_of
from headgate.controller.knowledge.config import ControllerSettings
from headgate.controller.knowledge.knowledge import Knowledge
from headgate.controller.knowledge.letters import LetterRecord
from headgate.controller.knowledge.membership import Membership, MembershipChange
from headgate.controller.knowledge.models import missing_models
from headgate.controller.knowledge.records import Submitted
from headgate.controller.knowledge.run_view import LoopResult, RunView
from headgate.controller.knowledge.turn import Turn
from headgate.controller.monitor import clocks, hearing
from headgate.controller.monitor.intake import Intake
from headgate.controller.monitor.settling import Settling
from headgate.controller.monitor.sink_logs import FinishedRows
from headgate.controller.monitor.windows import window_of
from headgate.controller.plan.resident import HeldMemory
from headgate.controller.views.rate_rows import RateRows
from headgate.controller.views.summary import summary
from headgate.topology_runtime import messages as m
from headgate.topology_runtime.errors import BadMessage, HeadgateError, InvalidInput
from headgate.topology_runtime.messages import refusal
from headgate.topology_runtime.profiles import Profiled

NS = 1_000_000_000
TURN_NS = NS  # between two turns of the loop …
SHOW_NS = NS // 2  # between two views: people read no faster
SLACK_NS = NS // 8  # … which a tick may be early
JOURNAL_RETRY_NS = NS  # after the journal failed
KEEP_NS = NS  # between two tallies


class Loop:
    """A controller without a world: what it knows, and what it does about an event. watched: views are made of it."""

    def __init__(
        self, settings: ControllerSettings, submitted: Submitted | None = None, watched: bool = True
    ) -> None:
        self._watched = watched
        self.knowledge = Knowledge(settings)
        self.members = Membership()
        self.members.expect(settings.initial)
        self.ending = Ending()
        self.intake: Intake | None = None
        self.finished = FinishedRows()
        self.settling = Settling()
        self.again = SendingAgain()
        self._result: LoopResult | None = None
        self._shown: LoopResult | None = None
        self._memory: HeldMemory | None = None
        self._following: Following | None = None
        self._watch = alarms.AlarmWatch()
        self._paths = PathWatch()
        self._accounts = Accounts()
        self._submitted = submitted
        self._keep_ns = self._roster = self._show_ns = 0
        self._before = self.knowledge.durable
        self._unanswered: list[int] = []
        self._unkept: tuple[LetterRecord, ...] = ()
        self._rate_rows = RateRows()
        self._over = self._wrote = False
        self._born: t.Started | None = None
        self._unborn = False  # the journal did not take this life's first record
        self._handlers: dict[type, Callable[[Turn, Any], None]] = {
            t.Started: self._on_started,
            t.FromVm: self._on_vm,
            t.Command: lambda turn, event: commands.answer(self, turn, event),
            t.MachinesSeen: provided.seen,
            t.JournalFailed: self._on_journal_failed,
            t.Measured: thinking.measured,
            t.PlanMade: lambda turn, event: commands.plan_made(self, turn, event),
            t.Troubled: self._on_troubled,
            t.DiskSeen: self._on_disk,
            t.Stopping: lambda turn, event: self.ending.ask(turn, event.reason),
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
        lags, cap_tps = lags_of(k, now.wall_ns), cap_of(k, now.wall_ns)
        verdict = stability(lag.under_cap(window, lags, cap_tps), in_force_s or 0.0)
        self._following = self._following or Following(topology, season=k.settings.season)
        need = self._following.need(k, self.members, window, lags, cap_tps, now)
        if behind := lag.alarm(k.alarms.get("lag", ""), lags, window):
            alarms.raise_alarm(turn, "lag", behind)
        else:
            alarms.clear_alarm(turn, "lag", "the lag is over: rows are read as they come")
        if self._memory is None or self._memory.plan != plan.id:
            self._memory = HeldMemory.of(plan, topology, k.models)
        slots = predicted_slots(plan.prediction, topology, window.emitted_tps, self._memory.slots)
        unknown = first_rows.slots_without_model(k)
        slots = {slot: use for slot, use in slots.items() if slot not in unknown}
        last_s = window.progress.lately("emitted", 1.0) or 0.0
        here = predicted_slots(plan.prediction, topology, last_s, self._memory.slots)
        here = {slot: here[slot] for slot in slots}
        off = residuals(window, plan.prediction, slots, topology, plan.vms)
        self._accounts.look(turn, window, verdict, slots)
        off_models = correcting.named(turn, self._accounts)
        late = self._paths.look(turn, self.members, lambda seconds: window_of(intake, now.mono_ns, seconds))
        judge(turn, self.members, verdict, window)
        diagnosis = diagnose(
            DiagnosisInput(
                window=window,
                stability=verdict,
                demand=need,
                planned_tps=plan.rate_tps,
                in_force_s=in_force_s,
                residuals=off,
                violations=late,
                quarantined=quarantined_now(k, self.members),
                lost=lost_vms(k, self.members),
                draining=draining_vms(k),
                joined=unplanned_vms(k, self.members, now),
                limit_tps=plan.rate_tps if rollout.degraded else None,
                frozen=self.members.frozen(now),
                held=self._held(),
            )
        )
        if diagnosis.kind == "none":  # nothing is more urgent
            lesser = recoding.found(turn) or first_rows.measured(turn, window)
            diagnosis = lesser or unread_spools.found(turn, self.members) or diagnosis
        if diagnosis.kind == "none" or diagnosis.reason == "overloaded":  # so wrong models look like
            known = correcting.found(turn, off_models, need) or offers.found(turn, need)
            diagnosis = known or diagnosis
        diagnosis = traffic_triggers.looked(turn, self.members, window, verdict, diagnosis)
        deciding.decide(turn, self.members, diagnosis)
        self._watch.look(turn, self.members, need, verdict)
        spare_profiles.consider(turn, self.members, off, self.ending.stage)
        near = nearness(window, plan, topology, k.models, slots)
        in_task, grows = intake.in_task.percentiles(now.mono_ns), growing(window, verdict)
        paths = self._paths.now
        self._result = LoopResult(window, verdict, need, off, late, paths, slots, here, near, grows, in_task)

    # ── a step ──────────────────────────────────────────────────────────────────────────────────

    def step(self, event: t.Event, now: t.Now) -> list[t.Instruction]:
        """What to do about one event."""
        if self._unborn and not isinstance(event, t.JournalFailed):
            if not isinstance(event, t.Tick) or now.mono_ns < self.knowledge.journal_retry_ns:
                return self._not_yet(event)
            event = self._begin_again()
        k = self.knowledge
        if not isinstance(event, t.JournalFailed):
            self._before = k.durable
            if self._wrote:
                k.alarms.pop("journal", None)
        turn = Turn(k, now)
        self._handlers[type(event)](turn, event)
        if k.durable.boot and not self._over:
            self._go_on(turn, event)
        self._wrote = turn.writes
        alarms.note_times(k, now.wall_ns)
        if isinstance(event, t.Started | t.Tick) and not self._over:
            self._show_in_time(turn)
        out = turn.instructions()
        self._unanswered = [i.number for i in out if isinstance(i, t.Answer | t.AnswerLater)]
        self._unkept = tuple(one for i in out if isinstance(i, t.KeepLetters) for one in i.records)
        self._over = self._over or any(isinstance(i, t.Finish) for i in out)
        return out

    def _not_yet(self, event: t.Event) -> list[t.Instruction]:
        """A life that could not be journaled has not begun: it hears nothing and says nothing."""
        error = HeadgateError(
            "the controller has not begun", cause="its journal takes no records", hint="see its disk"
        )
        if isinstance(event, t.Command):
            return [t.Answer(event.number, refusal(error))]
        return [t.Finish(None, error)] if isinstance(event, t.Stopping) else []

    def _begin_again(self) -> t.Started:
        """Forget the beginning that could not be journaled, and try it once more."""
        assert self._born is not None
        settings = self.knowledge.settings
        self.knowledge, self.members, self.ending = Knowledge(settings), Membership(), Ending()
        self.members.expect(settings.initial)
        self.intake, self._unborn = None, False
        return self._born

    def _go_on(self, turn: Turn, event: t.Event) -> None:
        """Whatever happened: enact, end, tell."""
        k = self.knowledge
        told = k.desired
        recovery.adopted(turn, self.members)
        spare_profiles.watch(turn, self.members, self.ending.stage)
        first_profiles.go_on(turn, event, self.members, self.ending.stage, self.submit)
        if self.ending.stage not in ("leaving", "over"):  # agents that were told to go are not lost
            enact(turn, self.members)
        self.ending.advance(turn, self.members)
        if self.ending.stage == "over":
            hearing.keep_letters(turn)
            self._shown = None  # what came after the last turn is recorded too
            view = self._show(turn)
            turn.do(t.Finish(summary(view) if k.durable.run else None))
        elif self.ending.stage == "leaving":
            self.ending.tell(turn, self.members)
        elif isinstance(event, t.FromVm) and k.desired is told:
            publish(turn, self.members, event.message.vm)
        else:
            publish(turn, self.members)

    # ── events ──────────────────────────────────────────────────────────────────────────────────

    def _on_started(self, turn: Turn, event: t.Started) -> None:
        self._born = event
        self.finished = FinishedRows(event.tallies.finished if event.tallies else None)
        if not recovery.begin_life(turn, self.members, self.ending, event):
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
        correcting.by_ledger(turn)
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
        message, members = event.message, self.members
        match message:
            case m.Hello():
                changes = hearing.hello(turn, members, message)
            case m.Report():
                member = members.members.get(message.vm)
                before = member.report if member is not None else None
                changes = hearing.report(turn, members, message)
                member = members.members.get(message.vm)
                if member is not None and member.report is message:
                    self.again.hear(turn, message)
                    run = self.knowledge.durable.run
                    if clocks.stepped(turn, before, message) and run is not None:
                        self.intake, self._roster = Intake(run.topology), -1
                    if before is None and self.ending.stage == "running":
                        deciding.first_plan(turn, self.members)  # maybe it was the last one waited for
            case m.SampleBlock():
                return self._on_block(turn, message)
            case m.DeadLetters():
                return hearing.letters(turn, members, message)
            case Profiled():
                changes = hearing.told(turn, members, members.heard(message.vm, turn.now))
                if not first_profiles.heard(turn, message):
                    spare_profiles.heard(turn, message)
            case m.PackageAt():
                return  # the shell's matter
            case m.Goodbye():
                changes = hearing.goodbye(turn, members, message)
        self._look_at_once(changes)

    def _look_at_once(self, changes: tuple[MembershipChange, ...]) -> None:
        """A fault is not left waiting for the next second."""
        k = self.knowledge
        if any(change.kind in ("lost", "left") for change in changes) or quarantined_now(k, self.members):
            k.next_turn_ns = 0

    def _on_block(self, turn: Turn, block: m.SampleBlock) -> None:
        k = self.knowledge
        self.members.heard(block.vm, turn.now)
        if self.intake is None:
            return
        if self._roster != self.members.roster:
            self._roster = self.members.roster
            self.intake.expect([member.vm for member in self.members.up()])
        try:
            fresh = self.intake.add_block(block, turn.now.mono_ns, k.epoch)
            self.finished.add(block.finished)
            self.settling.block(block)
        except BadMessage as error:
            turn.do(t.Distrust(block.vm, f"{error.what}: {error.cause}"))
            return
        self.ending.block(block)
        if fresh:
            for sink, source, buckets in block.latency:
                k.counts.add_latency(sink, source, buckets)
            predicted = self._result.predicted_now if self._result is not None else {}
            turn.do(t.Block(block, self.members.members[block.vm].vm, predicted))

    def _on_journal_failed(self, turn: Turn, event: t.JournalFailed) -> None:
        """Nothing of the turn before was done: know again what was known before it (story B6)."""
        k = self.knowledge
        k.durable = self._before
        self._unborn = not k.durable.boot and self._born is not None
        k.journal_retry_ns = turn.now.mono_ns + JOURNAL_RETRY_NS
        hearing.letters_not_kept(turn, self._unkept)
        first = "journal" not in k.alarms
        k.alarms["journal"] = f"the journal takes no records: {event.error}; the present plan is held"
        if first:
            turn.event("alarm", k.alarms["journal"], level="error")
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
        hearing.disk(turn, "the controller", event.troubles)
        if event.journal:
            self.knowledge.alarms.pop("journal", None)

    def _on_tick(self, turn: Turn, event: t.Tick) -> None:
        k, now = self.knowledge, turn.now
        self._look_at_once(hearing.told(turn, self.members, self.members.tick(now)))
        self._alarms(turn)
        take_back(turn, self.members)
        k.impatient = hand_over_waited(k, now)
        if self.intake is None:
            return
        if (progress := progress_of(k, now.wall_ns)) is not None:
            self.intake.add_progress(now.mono_ns - (now.wall_ns - progress[0]), *progress[1:])
        if now.mono_ns >= self._keep_ns:
            self._keep_ns = now.mono_ns + KEEP_NS
            turn.do(t.KeepTallies(k.counts.tallies(now.wall_ns)))
            hearing.keep_letters(turn)
            self.settling.go_on(turn, self.members, self.finished)
        self.again.go_on(turn, self.ending.stage == "running")
        self._end_in_time(turn)
        due = now.mono_ns >= k.next_turn_ns - SLACK_NS
        if due and self.ending.stage == "running" and not k.adopting_until_ns:
            late = now.mono_ns - k.next_turn_ns > TURN_NS
            k.next_turn_ns = (now.mono_ns if late else k.next_turn_ns) + TURN_NS
            deciding.close_circuits(k, now.mono_ns)
            thinking.watch(turn)
            if k.durable.rollout is None:
                deciding.first_plan(turn, self.members)
            else:
                self.think(turn, self.intake)

    # ── what else is known ──────────────────────────────────────────────────────────────────────

    def view(self, now: t.Now) -> RunView:
        """All that there is to see."""
        by_sink = self.finished.by_task
        return view_of(self.knowledge, self.members, self.ending, by_sink, self.intake, self._result, now)

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
        k = self.knowledge
        if self.members.mass_loss:
            return f"{len(self.members.mass_loss)} VMs vanished at once: {', '.join(self.members.mass_loss)}"
        return k.held

    def _alarms(self, turn: Turn) -> None:
        k = self.knowledge
        if not self.members.mass_loss:
            k.alarms.pop("mass_loss", None)
        elif "mass_loss" not in k.alarms:
            k.alarms["mass_loss"] = f"{self._held()}; no plan is made by itself (`headgate resume`)"
            turn.event("alarm", k.alarms["mass_loss"], level="error")

    def _end_in_time(self, turn: Turn) -> None:
        """The run ends so many seconds after its first tuple was due."""
        k = self.knowledge
        started_ns, seconds = k.durable.started_ns, k.settings.seconds
        if not started_ns or seconds <= 0 or self.ending.stage != "running":
            return
        if turn.now.wall_ns >= started_ns + int(seconds * NS):
            self.ending.ask(turn, f"{seconds:g} s are over")
