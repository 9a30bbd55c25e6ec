"""What the journal keeps, and what it adds up to. Frozen; no I/O.

`Durable` is everything a controller must still know after it was killed. It changes only through
`record.after(durable)`, live and in recovery alike: to take back a record that could not be written is to keep the
value from before.

An enactment (`RolloutStarted`) goes through these phases (protocol: Plans; `execute/rollout_steps.py` has the table):

    machines → prepared → switched → probation → committed          (or abandoned, from machines)
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from headgate.controller.models.plans import PlacedThreads, Plan, placed
from headgate.controller.models.task_models import Model
from headgate.topology_runtime.api.cluster import Slot, Vm
from headgate.topology_runtime.api.topology import Topology
from headgate.topology_runtime.rates.learned_season import LearnedSeason
from headgate.topology_runtime.rates.schedule import Schedule
from headgate.topology_runtime.wire.messages import EndOfInput, Keepers, Route, TaskCode, ThreadSpec
from headgate.topology_runtime.worker.keyed_state.key_ranges import of_runs, runs_of

Phase = Literal["none", "machines", "prepared", "switched", "probation", "committed", "abandoned"]
ALL_GO_BY_IT: frozenset[Phase] = frozenset({"probation", "committed"})  # every sender by its routes
ENDED_BY_NOW = 64  # boots whose times are kept: enough to see a row of crashes
REIGNS_KEPT = 1000  # the first and the newest ones; of the others only how many there were


class Booted(msgspec.Struct, frozen=True, tag="booted"):
    """A controller began its life; the first record of each life, written before anything is sent."""

    boot: int
    wall_ns: int

    def after(self, d: Durable) -> Durable:
        return replace(d, boot=self.boot, lives=(*d.lives[-ENDED_BY_NOW:], (self.wall_ns, 0)))


class Moved(msgspec.Struct, frozen=True, tag="moved"):
    """The journal came out of an archive. boot: above those of every life that it does not know of."""

    boot: int
    wall_ns: int

    def after(self, d: Durable) -> Durable:
        return replace(d, boot=self.boot if d.boot else 0, moved_epoch=d.next_epoch)


class BegunFrom(msgspec.Struct, frozen=True, tag="begun_from"):
    """The first record of a run that begins from a checkpoint (files/run_checkpoints.py): the state of keyed tasks is
    with `keepers`, of another run whose numbers go on. rows_of: the run that rows have in their names. base: positions
    that were offered before; rows: that were done before, of all sources."""

    checkpoint: str
    rows_of: str
    keepers: tuple[Keepers, ...]
    next_thread: int
    next_routes: int
    base: float
    wall_ns: int
    rows: int = 0

    def after(self, d: Durable) -> Durable:
        return replace(d, begun=self, next_thread=self.next_thread, next_routes=self.next_routes)


class Submitted(msgspec.Struct, frozen=True, tag="submitted"):
    """What this controller runs. `steps` and `period_s`: the offered load, before it has a start; to sources whose
    rows are taken as they come a cap, or, `uncapped`, only what the first plan is made for."""

    topology: Topology
    models: tuple[Model, ...]
    steps: tuple[tuple[float, float], ...]
    period_s: float
    user_paths: tuple[str, ...]
    wall_ns: int
    uncapped: bool = False
    package: str = ""  # the digest of the package with its code
    drain_timeout_s: float = 0.0

    def after(self, d: Durable) -> Durable:
        number = d.taken.number if d.taken is not None else 0
        return replace(d, run=self, taken=None, accepted=number)


class SubmissionTaken(msgspec.Struct, frozen=True, tag="taken"):
    """What is to be run once the tasks that have no model are measured. number: of the submission; by: whose it is, in
    his words; known: measured before, each on one kind of machine."""

    submitted: Submitted
    number: int
    by: str = ""
    known: tuple[Model, ...] = ()

    def after(self, d: Durable) -> Durable:
        return replace(d, taken=self, measured=self.known)


class TaskMeasured(msgspec.Struct, frozen=True, tag="task_measured"):
    """A model that a submission lacked, on one kind of machine."""

    model: Model

    def after(self, d: Durable) -> Durable:
        of = self.model.task, self.model.slot.machine
        others = tuple(model for model in d.measured if (model.task, model.slot.machine) != of)
        return replace(d, measured=(*others, self.model))


class SubmissionDropped(msgspec.Struct, frozen=True, tag="dropped"):
    """It is not run: why, as an error says it."""

    number: int
    what: str
    cause: str = ""
    hint: str = ""

    def after(self, d: Durable) -> Durable:
        return replace(d, taken=None, dropped=self)


class Modelled(msgspec.Struct, frozen=True, tag="modelled"):
    """Tasks were measured; these models take the place of those of their names."""

    models: tuple[Model, ...]
    wall_ns: int

    def after(self, d: Durable) -> Durable:
        if d.run is None:
            return d
        fresh = {model.task: model for model in self.models}
        return replace(d, run=replace(d.run, models=tuple(fresh.get(m.task, m) for m in d.run.models)))


SpeedSource = Literal["rows", "loop"]


class SeenSpeed(msgspec.Struct, frozen=True, array_like=True):
    """Of a VM: times its own. at_ns: since when (UTC); times: how often rows showed that it was slow; by: what shows
    it."""

    speed: float
    at_ns: int
    times: int
    by: SpeedSource = "rows"


class VmSpeedSeen(msgspec.Struct, frozen=True, tag="vm_speed_seen"):
    """Rows, or where there are none its agent's loop, take more or less CPU on a VM than on others; plans take it for
    so fast, times its own speed (1: as fast as it is said to be)."""

    vm: str
    speed: float
    wall_ns: int
    by: SpeedSource = "rows"

    def after(self, d: Durable) -> Durable:
        before = d.speeds.get(self.vm)
        times = (before.times if before is not None else 0) + (self.speed < 1.0 and self.by == "rows")
        return replace(d, speeds=d.speeds | {self.vm: SeenSpeed(self.speed, self.wall_ns, times, self.by)})


class OfferTaken(msgspec.Struct, frozen=True, tag="offer_taken"):
    """What an analysis of this run offered was taken: `models` in the place of those of their names. seconds, texts:
    model → how long it was seen at its peak; what changed. season: another than before, for the forecast."""

    models: tuple[Model, ...]
    seconds: dict[str, float]
    texts: dict[str, str]
    season: LearnedSeason | None
    wall_ns: int

    def after(self, d: Durable) -> Durable:
        d = Modelled(self.models, self.wall_ns).after(d)
        season = self.season if self.season is not None else d.season
        return replace(d, refit_s=d.refit_s | self.seconds, refits=d.refits | self.texts, season=season)


class RolloutStarted(msgspec.Struct, frozen=True, tag="planned", dict=True):
    """A plan was decided; its enactment is number `epoch`.

    threads: all that exist from now on, of the plans before (leaving) and of this one.
    degraded: why it carries less than was asked for, or "".
    fresh: those that start with it. already: those that were leaving before.
    before_number, before_routes: by which rows go until it is SWITCHED.
    keepers: of keyed tasks, until it is in force (execute/desired_state.py).
    awaits: VMs asked of the machines provider. undoes: the epoch that it rolls back, or 0.
    state_bytes: of keyed state that moves, slowest_bytes: the most by one thread, pause_s: that is expected of it."""

    epoch: int
    plan: Plan
    reason: str
    text: str
    wall_ns: int
    threads: tuple[ThreadSpec, ...]
    fresh: tuple[int, ...]
    already: tuple[int, ...]
    routes_number: int
    routes: tuple[Route, ...]
    before_number: int
    before_routes: tuple[Route, ...]
    modelled_tps: dict[int, float]
    next_thread: int
    awaits: tuple[str, ...] = ()
    undoes: int = 0
    degraded: str = ""
    keepers: tuple[Keepers, ...] = ()
    state_bytes: int = 0
    slowest_bytes: int = 0
    pause_s: float = 0.0

    @cached_property
    def slots(self) -> tuple[Slot, ...]:
        """Slots with threads, in order."""
        return tuple(sorted({thread.slot for thread in self.threads}))

    @cached_property
    def staying_slots(self) -> frozenset[Slot]:
        """Slots with threads that are not leaving."""
        return frozenset(thread.slot for thread in self.threads if not thread.leaving)

    @cached_property
    def by_number(self) -> dict[int, ThreadSpec]:
        return {thread.thread: thread for thread in self.threads}

    @cached_property
    def leaving(self) -> tuple[ThreadSpec, ...]:
        return tuple(thread for thread in self.threads if thread.leaving)

    @cached_property
    def placed(self) -> PlacedThreads:
        return placed(self.threads, self.plan)

    def after(self, d: Durable) -> Durable:
        slots, awaited = self.plan.slots.used, bool(self.awaits)
        rollout = Rollout(
            self.epoch,
            self.reason,
            self.plan.rate_tps,
            slots,
            self.wall_ns,
            awaited=awaited,
            plan=self.plan.id,
            state_bytes=self.state_bytes,
            slowest_bytes=self.slowest_bytes,
            pause_s=self.pause_s,
        )
        rollouts = tuple(
            replace(known, rolled_back=True) if known.epoch == self.undoes else known for known in d.rollouts
        )
        d = replace(
            _with_rollouts(d, (*rollouts, rollout)),
            next_epoch=self.epoch + 1,
            next_thread=self.next_thread,
            next_routes=self.routes_number + 1,
        )
        if self.undoes:
            d = _held_but(d, self.undoes)
        if not self.undoes and self.reason != "rollback":  # it was made with the models that there are
            d = replace(d, refits={})
        if self.awaits:
            return replace(d, waiting=self)
        return _reigning(d, self, self.wall_ns)


class PhaseEntered(msgspec.Struct, frozen=True, tag="entered"):
    """The enactment entered a phase; `why` when that is not the way forward."""

    epoch: int
    phase: Phase
    wall_ns: int
    why: str = ""

    def after(self, d: Durable) -> Durable:
        if self.phase == "abandoned":
            waiting = None if d.waiting is not None and d.waiting.epoch == self.epoch else d.waiting
            return _mark(_held_but(replace(d, waiting=waiting), self.epoch), self.epoch, abandoned=self.why)
        if self.phase == "prepared":
            assert d.waiting is not None and d.waiting.epoch == self.epoch, "only what waits can be prepared"
            return _reigning(d, _still_there(d.waiting, d.rollout), self.wall_ns)
        d = replace(d, phase=self.phase, phase_wall_ns=self.wall_ns)
        stamps = {"switched": "switched_ns", "probation": "in_force_ns", "committed": "committed_ns"}
        return _mark(d, self.epoch, **{stamps[self.phase]: self.wall_ns})


class Adopted(msgspec.Struct, frozen=True, tag="adopted"):
    """A new plan has the placement that runs already: it is in force as it is."""

    epoch: int
    plan: Plan
    degraded: str
    wall_ns: int

    def after(self, d: Durable) -> Durable:
        if d.rollout is None or d.rollout.epoch != self.epoch:
            return d
        return replace(d, rollout=replace(d.rollout, plan=self.plan, degraded=self.degraded), refits={})


class Gone(msgspec.Struct, frozen=True, tag="gone"):
    """Leaving threads have ended and are no longer desired."""

    epoch: int
    threads: tuple[int, ...]

    def after(self, d: Durable) -> Durable:
        if d.rollout is None or d.rollout.epoch != self.epoch:
            return d
        gone = set(self.threads)
        threads = tuple(t for t in d.rollout.threads if t.thread not in gone)
        modelled = {n: tps for n, tps in d.rollout.modelled_tps.items() if n not in gone}
        return replace(d, rollout=replace(d.rollout, threads=threads, modelled_tps=modelled))


class Scheduled(msgspec.Struct, frozen=True, tag="scheduled"):
    """The offered load from now on. ends_for: why it ends, if it does: the run is to end then."""

    schedule: Schedule
    ends_for: str = ""

    def after(self, d: Durable) -> Durable:
        started_ns = d.started_ns or self.schedule.start_ns
        return replace(d, schedule=self.schedule, started_ns=started_ns, ends_for=self.ends_for)


class Draining(msgspec.Struct, frozen=True, tag="draining"):
    """The run is ending: sources read no more. timeout_s: whoever stopped it waits no longer (0: he said nothing)."""

    reason: str
    wall_ns: int
    timeout_s: float = 0.0

    def after(self, d: Durable) -> Durable:
        return replace(d, draining=self.reason, draining_ns=self.wall_ns, drain_timeout_s=self.timeout_s)


class EndStepped(msgspec.Struct, frozen=True, tag="end_stepped"):
    """A step of the end of the input begins (execute/end_of_input.py)."""

    end: EndOfInput

    def after(self, d: Durable) -> Durable:
        return replace(d, end=self.end)


class HeldDead(msgspec.Struct, frozen=True, tag="held_dead"):
    """The VMs that are waited for no more (all of them, each time)."""

    vms: tuple[str, ...]

    def after(self, d: Durable) -> Durable:
        return replace(d, held_dead=self.vms)


class HandedOver(msgspec.Struct, frozen=True, tag="handed_over"):
    """A leaving source thread had its time to run empty: its successor reads from `emitted` on, and the positions
    from `acked` on that are open in its ledger stay its own, until they are done (then `acked` = `emitted`).
    given_up: or until it is no more, and what it had accepted and not done comes at other positions, if at all."""

    task: str
    partition: int
    thread: int
    acked: int
    emitted: int
    given_up: bool = False

    def after(self, d: Durable) -> Durable:
        others = tuple(known for known in d.apart if known.thread != self.thread)
        return replace(d, apart=(*others, self) if self.acked < self.emitted else others)


class StandIn(msgspec.Struct, frozen=True, tag="stand_in"):
    """A leaving source thread is lost with its VM: from now on `thread`, leaving too, reads again what it had open."""

    thread: ThreadSpec
    lost: int

    def after(self, d: Durable) -> Durable:
        if d.rollout is None:
            return d
        number = self.thread.thread
        apart = tuple(replace(gap, thread=number) if gap.thread == self.lost else gap for gap in d.apart)
        modelled = d.rollout.modelled_tps.get(self.lost)
        tps = d.rollout.modelled_tps | ({number: modelled} if modelled is not None else {})
        rollout = replace(d.rollout, threads=(*d.rollout.threads, self.thread), modelled_tps=tps)
        return replace(d, rollout=rollout, apart=apart, next_thread=number + 1)


class Holds(msgspec.Struct, frozen=True, tag="holds"):
    """From now on this thread is the one of its exclusive task that may work, and no other."""

    task: str
    thread: int
    slot: Slot

    def after(self, d: Durable) -> Durable:
        return replace(d, holders=(*(known for known in d.holders if known.task != self.task), self))


class Joined(msgspec.Struct, frozen=True, tag="joined"):
    """A VM is there, with these slots."""

    vm: Vm

    def after(self, d: Durable) -> Durable:
        return replace(d, joined=(*(vm for vm in d.joined if vm.vm != self.vm.vm), self.vm))


class MachineAsked(msgspec.Struct, frozen=True, tag="machine_asked"):
    """A VM will be asked of the provider: written before it is, at `wall_ns`."""

    vm: Vm
    wall_ns: int = 0

    def after(self, d: Durable) -> Durable:
        return replace(
            d,
            machines=(*(vm for vm in d.machines if vm.vm != self.vm.vm), self.vm),
            asked_ns=d.asked_ns | {self.vm.vm: self.wall_ns},
            released=tuple(vm for vm in d.released if vm != self.vm.vm),
        )


class MachineReleased(msgspec.Struct, frozen=True, tag="machine_released"):
    """A VM will be given back: written before it is."""

    vm: str
    why: str

    def after(self, d: Durable) -> Durable:
        return replace(
            d,
            machines=tuple(vm for vm in d.machines if vm.vm != self.vm),
            asked_ns={vm: at_ns for vm, at_ns in d.asked_ns.items() if vm != self.vm},
            released=(*(vm for vm in d.released if vm != self.vm), self.vm),
            joined=tuple(vm for vm in d.joined if vm.vm != self.vm),
            held_dead=tuple(vm for vm in d.held_dead if vm != self.vm),
            cordoned={vm: drains for vm, drains in d.cordoned.items() if vm != self.vm},
        )


class HoldCleared(msgspec.Struct, frozen=True, tag="seen"):
    """An operator cleared a hold, or changed the mode."""

    mode: str
    wall_ns: int

    def after(self, d: Durable) -> Durable:
        return replace(d, mode=self.mode, cleared_ns=self.wall_ns, held_plan=None)


class PlanHeld(msgspec.Struct, frozen=True, tag="plan_held"):
    """An operator brought this plan back, as epoch `epoch`: no other is made by itself until that is cleared."""

    plan: str
    epoch: int
    rate_tps: float
    wall_ns: int

    def after(self, d: Durable) -> Durable:
        return replace(d, held_plan=self)


class StateLost(msgspec.Struct, frozen=True, tag="state_lost"):
    """Key ranges of a task, as (first, how many), went on at `thread` without (all of) their state."""

    task: str
    thread: int
    ranges: tuple[tuple[int, int], ...]
    wall_ns: int

    def after(self, d: Durable) -> Durable:
        lost = runs_of(of_runs(d.state_lost.get(self.task, ())) | of_runs(self.ranges))
        return replace(d, state_lost={**d.state_lost, self.task: lost})


class EventsGone(msgspec.Struct, frozen=True, tag="events_gone"):
    """So many events that a VM's sources had accepted are on its disk alone, and it is lost; 0: it is back."""

    vm: str
    events: int
    wall_ns: int

    def after(self, d: Durable) -> Durable:
        others = {vm: events for vm, events in d.events_gone.items() if vm != self.vm}
        return replace(d, events_gone=others | ({self.vm: self.events} if self.events else {}))


class Cordoned(msgspec.Struct, frozen=True, tag="cordoned"):
    """VMs that no plan is made with, by an operator's word, all of them: VM → is it to be drained at once."""

    vms: dict[str, bool]
    wall_ns: int

    def after(self, d: Durable) -> Durable:
        return replace(d, cordoned=dict(self.vms))


class SlotsGranted(msgspec.Struct, frozen=True, tag="slots_granted"):
    """The slots that this run may use, all of them: others have the rest of the cluster."""

    slots: tuple[Slot, ...]
    wall_ns: int

    def after(self, d: Durable) -> Durable:
        return replace(d, granted=self.slots)


class Recoded(msgspec.Struct, frozen=True, tag="recoded"):
    """Other code of the same tasks takes the place of what runs, slot by slot: `code`, new or known already. models: of
    tasks that others are given for. by_itself: the code that it comes back from did not prove itself."""

    code: TaskCode
    models: tuple[Model, ...]
    why: str
    wall_ns: int
    by_itself: bool = False

    def after(self, d: Durable) -> Durable:
        """The one before is kept, so that it may come back, and those that threads run."""
        if d.run is None:
            return d
        before = TaskCode(d.code, d.run.topology, d.run.user_paths, d.run.package)
        used = {thread.code for one in (d.rollout, d.waiting) if one is not None for thread in one.threads}
        kept = (code for code in d.codes if code.number in used)
        codes = {code.number: code for code in (*kept, before) if code.number != self.code.number}
        models = {model.task: model for model in (*d.run.models, *self.models)}
        run = replace(
            d.run,
            topology=self.code.topology,
            user_paths=self.code.user_paths,
            package=self.code.package,
            models=tuple(models.values()),
        )
        made = max(d.codes_made, self.code.number + 1)
        return replace(
            d,
            run=run,
            code=self.code.number,
            codes=tuple(codes.values()),
            codes_made=made,
            recoded_ns=self.wall_ns,
            given_up_code=self.by_itself,
        )


class Ended(msgspec.Struct, frozen=True, tag="ended"):
    """This life ended as it should. left: rows that were read and are not done. open_keys: with windows or timers that
    are open (below 0: not counted)."""

    wall_ns: int
    left: int = 0
    open_keys: int = 0

    def after(self, d: Durable) -> Durable:
        if not d.lives:
            return d
        lives = (*d.lives[:-1], (d.lives[-1][0], self.wall_ns))
        return replace(d, lives=lives, left=self.left, open_keys=self.open_keys)


class Reopened(msgspec.Struct, frozen=True, tag="reopened"):
    """A run that had ended with rows left, or with open windows or timers, goes on: what was offered begins where it
    stopped."""

    wall_ns: int

    def after(self, d: Durable) -> Durable:
        schedule, started_ns = d.schedule, d.started_ns
        if schedule is not None and schedule.end_ns:
            gap_ns = self.wall_ns - schedule.end_ns
            schedule = replace(schedule, start_ns=schedule.start_ns + gap_ns, end_ns=0)
            started_ns += gap_ns
        return replace(
            d, left=0, open_keys=0, ends_for="", draining="", draining_ns=0, drain_timeout_s=0.0, end=None,
            schedule=schedule, started_ns=started_ns,
        )  # fmt: skip


class Rollout(msgspec.Struct, frozen=True):
    """When a plan was decided, switched to, in force, committed (UTC ns, 0: not yet), for the summary, and for what
    the next one will take. awaited: it had to wait for VMs. plan: its id. state_bytes, slowest_bytes, pause_s: as of
    `RolloutStarted`."""

    epoch: int
    reason: str
    rate_tps: float
    slots: int
    decided_ns: int
    switched_ns: int = 0
    in_force_ns: int = 0
    committed_ns: int = 0
    rolled_back: bool = False
    abandoned: str = ""
    awaited: bool = False
    plan: str = ""
    state_bytes: int = 0
    slowest_bytes: int = 0
    pause_s: float = 0.0


class Durable(msgspec.Struct, frozen=True):
    """Everything a controller must still know after it was killed.

    rollout: the enactment whose desired state agents are held to, in phase `phase`, started at
    `phase_wall_ns`. waiting: decided, its machines still awaited. before: the plan to go back to.
    started_ns: when the first tuple was due (UTC). ends_for: why the run is to end; draining: the same,
    once sources read no more. machines: VMs had from the provider, asked for at `asked_ns`
    (UTC); released: given back to it. joined: VMs ever seen, with their slots; speeds: as seen. holders: of
    each exclusive task the thread that may work, or that did last. apart: leaving source threads with open positions
    whose successors read.
    held_plan: what an operator brought back and nobody released since.
    rollouts: the first and the newest; rollouts_dropped: reason → how many of the others began their enactment.
    state_lost: task → its key ranges that went on without their state. events_gone: VM that is lost → events that
    its sources had accepted. cordoned: VM that no plan is made with → is it to be drained at once. granted:
    the slots that it may use, where other runs have the rest (None: all).
    refit_s: model → of how many seconds it was refitted last; refits: what changed in those that no plan was made with
    yet. season: learned from this run, for the forecast. begun: from this checkpoint, if from one.
    moved_epoch: the next epoch when the journal came out of an archive: agents that know it know of newer plans.
    code: the number of the code that all threads shall run, `run` has it; codes: others, that some run or that may
    come back. codes_made: how many there were. recoded_ns: when that was decided (UTC); given_up_code: by itself."""

    boot: int = 0
    lives: tuple[tuple[int, int], ...] = ()  # (began, ended as it should or 0) in UTC ns
    run: Submitted | None = None
    taken: SubmissionTaken | None = None
    measured: tuple[Model, ...] = ()
    dropped: SubmissionDropped | None = None
    accepted: int = 0
    rollout: RolloutStarted | None = None
    phase: Phase = "none"
    phase_wall_ns: int = 0
    waiting: RolloutStarted | None = None
    before: RolloutStarted | None = None
    schedule: Schedule | None = None
    started_ns: int = 0
    ends_for: str = ""
    draining: str = ""
    draining_ns: int = 0
    drain_timeout_s: float = 0.0
    left: int = 0
    open_keys: int = 0
    end: EndOfInput | None = None
    held_dead: tuple[str, ...] = ()
    holders: tuple[Holds, ...] = ()
    apart: tuple[HandedOver, ...] = ()
    machines: tuple[Vm, ...] = ()
    asked_ns: dict[str, int] = {}
    released: tuple[str, ...] = ()
    joined: tuple[Vm, ...] = ()
    speeds: dict[str, SeenSpeed] = {}
    mode: str = ""
    cleared_ns: int = 0
    next_epoch: int = 1
    moved_epoch: int = 0
    next_thread: int = 0
    next_routes: int = 1
    rollouts: tuple[Rollout, ...] = ()
    rollouts_dropped: dict[str, int] = {}
    held_plan: PlanHeld | None = None
    state_lost: dict[str, tuple[tuple[int, int], ...]] = {}
    events_gone: dict[str, int] = {}
    cordoned: dict[str, bool] = {}
    granted: tuple[Slot, ...] | None = None
    code: int = 0
    codes: tuple[TaskCode, ...] = ()
    codes_made: int = 1
    recoded_ns: int = 0
    given_up_code: bool = False
    refit_s: dict[str, float] = {}
    refits: dict[str, str] = {}
    season: LearnedSeason | None = None
    begun: BegunFrom | None = None

    def as_fast_as_seen(self, vm: Vm) -> Vm:
        """The VM as plans take it: as fast as it says, or as is seen."""
        seen = self.speeds.get(vm.vm)
        return vm if seen is None or seen.speed == 1.0 else replace(vm, speed=vm.speed * seen.speed)

    @property
    def lets_go(self) -> bool:
        """May threads that leave end? Once the plan is committed; or in force under a run that ends, which judges no
        plan and goes back to none."""
        return self.phase == "committed" or (self.phase == "probation" and bool(self.draining))

    @property
    def unsure(self) -> bool:
        """May agents know of a plan that is not known here?"""
        return self.moved_epoch == self.next_epoch


class SoFar(msgspec.Struct, frozen=True, tag="so_far"):
    """What all records before add up to, in their place (journal.py)."""

    durable: Durable

    def after(self, d: Durable) -> Durable:
        return self.durable


Record = (
    Booted
    | Moved
    | BegunFrom
    | Submitted
    | SubmissionTaken
    | TaskMeasured
    | SubmissionDropped
    | Modelled
    | OfferTaken
    | VmSpeedSeen
    | RolloutStarted
    | PhaseEntered
    | Adopted
    | Gone
    | Scheduled
    | Draining
    | EndStepped
    | HandedOver
    | HeldDead
    | Holds
    | Joined
    | MachineAsked
    | MachineReleased
    | HoldCleared
    | PlanHeld
    | StandIn
    | StateLost
    | EventsGone
    | Cordoned
    | SlotsGranted
    | Recoded
    | Ended
    | Reopened
    | SoFar
)


def fold_all(records: tuple[Record, ...]) -> Durable:
    durable = Durable()
    for record in records:
        durable = record.after(durable)
    return durable


def _with_rollouts(d: Durable, rollouts: tuple[Rollout, ...]) -> Durable:
    """A run of months has many: the first, which started it, and the newest are kept."""
    if len(rollouts) <= REIGNS_KEPT:
        return replace(d, rollouts=rollouts)
    first, old, *newest = rollouts
    dropped = d.rollouts_dropped
    if not old.abandoned:
        dropped = {**dropped, old.reason: dropped.get(old.reason, 0) + 1}
    return replace(d, rollouts=(first, *newest), rollouts_dropped=dropped)


def _reigning(d: Durable, r: RolloutStarted, wall_ns: int) -> Durable:
    """Agents are held to `r` from now on."""
    before = d.before
    if d.rollout is not None and d.phase in ALL_GO_BY_IT and d.rollout.epoch != r.undoes:
        before = d.rollout
    return replace(d, rollout=r, waiting=None, before=before, phase="prepared", phase_wall_ns=wall_ns)


def _still_there(waiting: RolloutStarted, rollout: RolloutStarted | None) -> RolloutStarted:
    """`waiting` without the leaving threads that ended while it waited for its machines."""
    there = {thread.thread for thread in rollout.threads} if rollout is not None else set()
    kept = tuple(t for t in waiting.threads if not t.leaving or t.thread in there)
    return replace(waiting, threads=kept, already=tuple(n for n in waiting.already if n in there))


def _mark(d: Durable, epoch: int, **changes: Any) -> Durable:
    rollouts = tuple(replace(r, **changes) if r.epoch == epoch else r for r in d.rollouts)
    return replace(d, rollouts=rollouts)


def _held_but(d: Durable, epoch: int) -> Durable:
    """The enactment of this number failed: if it was to be held, nothing is."""
    return replace(d, held_plan=None) if d.held_plan is not None and d.held_plan.epoch == epoch else d
