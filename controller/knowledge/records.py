"""What the journal keeps, and what it adds up to: records and their fold. Frozen; no I/O.

`Durable` is everything a controller must still know after it was killed. It changes only through
`fold(durable, record)` (folding.py), live and in recovery alike.

An enactment (`RolloutStarted`) goes through these phases (protocol: Plans; `execute/steps.py` has the table):

    machines → prepared → switched → probation → committed          (or abandoned, from machines)
"""

from __future__ import annotations

from functools import cached_property
from typing import Literal

import msgspec

from headgate.controller.knowledge.models import Model
from headgate.controller.knowledge.placed_threads import PlacedThreads, placed
from headgate.controller.knowledge.plans import Plan
from headgate.controller.knowledge.season_data import LearnedSeason
from headgate.topology_runtime.cluster import Slot, Vm
from headgate.topology_runtime.messages import Keepers, Route, ThreadSpec
from headgate.topology_runtime.schedule import Schedule
from headgate.topology_runtime.task_code import TaskCode
from headgate.topology_runtime.topology import Topology

Phase = Literal["none", "machines", "prepared", "switched", "probation", "committed", "abandoned"]
ALL_GO_BY_IT: frozenset[Phase] = frozenset({"probation", "committed"})  # every sender by its routes


class Booted(msgspec.Struct, frozen=True, tag="booted"):
    """A controller began its life; the first record of each life, written before anything is sent."""

    boot: int
    wall_ns: int


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


class SubmissionTaken(msgspec.Struct, frozen=True, tag="taken"):
    """What is to be run once the tasks that have no model are measured. number: of the submission; by: whose it is, in
    his words; known: measured before, each on one kind of machine."""

    submitted: Submitted
    number: int
    by: str = ""
    known: tuple[Model, ...] = ()


class TaskMeasured(msgspec.Struct, frozen=True, tag="task_measured"):
    """A model that a submission lacked, on one kind of machine."""

    model: Model


class SubmissionDropped(msgspec.Struct, frozen=True, tag="dropped"):
    """It is not run: why, as an error tells it."""

    number: int
    what: str
    cause: str = ""
    hint: str = ""


class Modelled(msgspec.Struct, frozen=True, tag="modelled"):
    """Tasks were measured; these models take the place of those of their names."""

    models: tuple[Model, ...]
    wall_ns: int


class OfferTaken(msgspec.Struct, frozen=True, tag="offer_taken"):
    """What an analysis of this run offered was taken: `models` in the place of those of their names. seconds, texts:
    model → how long it was seen at its peak; what changed. season: another than before, for the forecast."""

    models: tuple[Model, ...]
    seconds: dict[str, float]
    texts: dict[str, str]
    season: LearnedSeason | None
    wall_ns: int


class RolloutStarted(msgspec.Struct, frozen=True, tag="planned", dict=True):
    """A plan was decided; its enactment is number `epoch`.

    threads: all that exist from now on, of the plans before (leaving) and of this one.
    degraded: why it carries less than was asked for, or "".
    fresh: those that start with it. already: those that were leaving before.
    before_number, before_routes: by which rows go until it is SWITCHED.
    keepers: of keyed tasks, until it is in force (execute/keepers.py).
    awaits: VMs asked of the machines provider. undoes: the epoch that it rolls back, or 0."""

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


class PhaseEntered(msgspec.Struct, frozen=True, tag="entered"):
    """The enactment entered a phase; `why` when that is not the way forward."""

    epoch: int
    phase: Phase
    wall_ns: int
    why: str = ""


class Adopted(msgspec.Struct, frozen=True, tag="adopted"):
    """A new plan has the placement that runs already: it is in force as it is."""

    epoch: int
    plan: Plan
    degraded: str
    wall_ns: int


class Gone(msgspec.Struct, frozen=True, tag="gone"):
    """Leaving threads have ended and are no longer desired."""

    epoch: int
    threads: tuple[int, ...]


class Scheduled(msgspec.Struct, frozen=True, tag="scheduled"):
    """The offered load from now on."""

    schedule: Schedule


class Draining(msgspec.Struct, frozen=True, tag="draining"):
    """The run is ending: sources read no more."""

    reason: str
    wall_ns: int


class HeldDead(msgspec.Struct, frozen=True, tag="held_dead"):
    """The VMs that are waited for no more (all of them, each time)."""

    vms: tuple[str, ...]


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


class StandIn(msgspec.Struct, frozen=True, tag="stand_in"):
    """A leaving source thread is lost with its VM: from now on `thread`, leaving too, reads again what it had open."""

    thread: ThreadSpec
    lost: int


class Holds(msgspec.Struct, frozen=True, tag="holds"):
    """From now on this thread is the one of its exclusive task that may work, and no other."""

    task: str
    thread: int
    slot: Slot


class Joined(msgspec.Struct, frozen=True, tag="joined"):
    """A VM is there, with these slots."""

    vm: Vm


class MachineAsked(msgspec.Struct, frozen=True, tag="machine_asked"):
    """A VM will be asked of the provider: written before it is, at `wall_ns`."""

    vm: Vm
    wall_ns: int = 0


class MachineReleased(msgspec.Struct, frozen=True, tag="machine_released"):
    """A VM will be given back: written before it is."""

    vm: str
    why: str


class HoldCleared(msgspec.Struct, frozen=True, tag="seen"):
    """An operator cleared a hold, or changed the mode."""

    mode: str
    wall_ns: int


class PlanHeld(msgspec.Struct, frozen=True, tag="plan_held"):
    """An operator brought this plan back, as epoch `epoch`: no other is made by itself until that is cleared."""

    plan: str
    epoch: int
    rate_tps: float
    wall_ns: int


class StateLost(msgspec.Struct, frozen=True, tag="state_lost"):
    """Key ranges of a task, as (first, how many), went on at `thread` without (all of) their state."""

    task: str
    thread: int
    ranges: tuple[tuple[int, int], ...]
    wall_ns: int


class EventsGone(msgspec.Struct, frozen=True, tag="events_gone"):
    """So many events that a VM's sources had accepted are on its disk alone, and it is lost; 0: it is back."""

    vm: str
    events: int
    wall_ns: int


class Cordoned(msgspec.Struct, frozen=True, tag="cordoned"):
    """VMs that no plan is made with, by an operator's word, all of them: VM → is it to be drained at once."""

    vms: dict[str, bool]
    wall_ns: int


class Recoded(msgspec.Struct, frozen=True, tag="recoded"):
    """Other code of the same tasks takes the place of what runs, slot by slot: `code`, new or known already. models: of
    tasks that others are given for. by_itself: no operator's word, the code before did not prove itself."""

    code: TaskCode
    models: tuple[Model, ...]
    why: str
    wall_ns: int
    by_itself: bool = False


class Ended(msgspec.Struct, frozen=True, tag="ended"):
    """This life ended as it should."""

    wall_ns: int


class Rollout(msgspec.Struct, frozen=True):
    """When a plan was decided, switched to, in force, committed (UTC ns, 0: not yet), for the summary, and for what
    the next one will take. awaited: it had to wait for VMs. plan: its id."""

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


class Durable(msgspec.Struct, frozen=True):
    """Everything a controller must still know after it was killed.

    rollout: the enactment whose desired state agents are held to, in phase `phase`, begun at
    `phase_wall_ns`. waiting: decided, its machines still awaited. before: the plan to go back to.
    started_ns: when the first tuple was due (UTC). machines: VMs had from the provider, asked for at `asked_ns`
    (UTC); released: given back to it. joined: VMs ever seen, with their slots. holders: of each exclusive task the
    thread that may work, or that did last. apart: leaving source threads with open positions whose successors read.
    held_plan: what an operator brought back and nobody let go since.
    rollouts: the first and the newest; rollouts_dropped: reason → how many of the others began their enactment.
    state_lost: task → its key ranges that went on without their state. events_gone: VM that is lost → events that
    its sources had accepted. cordoned: VM that no plan is made with → is it to be drained at once.
    refit_s: model → of how many seconds it was refitted last; refits: what changed in those that no plan was made with
    yet. season: learned from this run, for the forecast.
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
    draining: str = ""
    draining_ns: int = 0
    held_dead: tuple[str, ...] = ()
    holders: tuple[Holds, ...] = ()
    apart: tuple[HandedOver, ...] = ()
    machines: tuple[Vm, ...] = ()
    asked_ns: dict[str, int] = {}
    released: tuple[str, ...] = ()
    joined: tuple[Vm, ...] = ()
    mode: str = ""
    cleared_ns: int = 0
    next_epoch: int = 1
    next_thread: int = 0
    next_routes: int = 1
    rollouts: tuple[Rollout, ...] = ()
    rollouts_dropped: dict[str, int] = {}
    held_plan: PlanHeld | None = None
    state_lost: dict[str, tuple[tuple[int, int], ...]] = {}
    events_gone: dict[str, int] = {}
    cordoned: dict[str, bool] = {}
    code: int = 0
    codes: tuple[TaskCode, ...] = ()
    codes_made: int = 1
    recoded_ns: int = 0
    given_up_code: bool = False
    refit_s: dict[str, float] = {}
    refits: dict[str, str] = {}
    season: LearnedSeason | None = None


class SoFar(msgspec.Struct, frozen=True, tag="so_far"):
    """What all records before add up to, in their place (journal.py)."""

    durable: Durable


Record = (
    Booted
    | Submitted
    | SubmissionTaken
    | TaskMeasured
    | SubmissionDropped
    | Modelled
    | OfferTaken
    | RolloutStarted
    | PhaseEntered
    | Adopted
    | Gone
    | Scheduled
    | Draining
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
    | Recoded
    | Ended
    | SoFar
)
