"""One turn of the controller: what goes in (events, and what time it is) and what comes out (instructions).

`step(event, now) → [instruction]`. Everything the controller knows of the world comes in as an event,
so the recorded events replay a run bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from headgate.controller.knowledge.dead_letters import DeadLetterRecord
from headgate.controller.knowledge.journal_records import Record
from headgate.controller.knowledge.run_tallies import Tallies
from headgate.controller.knowledge.run_view import RunView
from headgate.controller.models.plans import Plan, PlanLatency
from headgate.topology_runtime.api.cluster import Slot, Vm
from headgate.topology_runtime.errors import HeadgateError
from headgate.topology_runtime.wire.messages import (
    FromAgent,
    FromController,
    Reply,
    ReplyError,
    Request,
    SampleBlock,
    refusal,
)


class Now(msgspec.Struct, frozen=True, array_like=True):
    """What time it is: monotonic ns for durations, UTC ns for records and schedules."""

    mono_ns: int
    wall_ns: int


# ── events ──────────────────────────────────────────────────────────────────────────────────────


class Started(msgspec.Struct, frozen=True, tag="started"):
    """A life begins: what the journal holds, the tallies kept last, and the dead letters."""

    records: tuple[Record, ...] = ()
    tallies: Tallies | None = None
    pid: int = 0
    letters: tuple[DeadLetterRecord, ...] = ()


class FromVm(msgspec.Struct, frozen=True, tag="from_vm"):
    message: FromAgent


class Command(msgspec.Struct, frozen=True, tag="command"):
    """A client asks; `number` names the request in its Answer."""

    number: int
    request: Request


class MachinesSeen(msgspec.Struct, frozen=True, tag="machines_seen"):
    """What the machines provider lists: VMs asked of it, VMs that it runs; trouble: why it is not as it should be."""

    desired: tuple[str, ...]
    running: tuple[str, ...]
    trouble: str = ""


class JournalFailed(msgspec.Struct, frozen=True, tag="journal_failed"):
    """The Persist of the turn before could not be written: nothing after it was done."""

    error: str


class Measured(msgspec.Struct, frozen=True, tag="measured"):
    """How long it took from the turn's begin until the plan of `epoch` was journaled."""

    epoch: int
    seconds: float


class PlanMade(msgspec.Struct, frozen=True, tag="plan_made"):
    """A plan that was asked for (MakePlan) and why it is for less, or the error as in a Reply; `seconds`: it took."""

    number: int
    seconds: float
    plan: Plan | None = None
    degraded: str = ""
    error: ReplyError | None = None


class LatencyPredicted(msgspec.Struct, frozen=True, tag="latency_predicted"):
    """What was asked for (PredictLatency) of the plan with the id `plan`; latency: None where it does not carry the
    rate."""

    number: int
    seconds: float
    plan: str
    latency: PlanLatency | None = None


class Troubled(msgspec.Struct, frozen=True, tag="troubled"):
    """Something best-effort failed (a tally, a trace, a machine request); it is said, not fatal."""

    what: str
    error: str


class DiskSeen(msgspec.Struct, frozen=True, tag="disk_seen"):
    """What the controller's own disk does not take now; whether the journal takes records (again)."""

    troubles: tuple[str, ...]
    journal: bool = True


class PeersSeen(msgspec.Struct, frozen=True, tag="peers_seen"):
    """What holders of keys did lately that they should not, and threads of the controller that failed."""

    troubles: tuple[str, ...]


class Stopping(msgspec.Struct, frozen=True, tag="stopping"):
    """A signal asks the controller to end; twice: at once."""

    reason: str


class Tick(msgspec.Struct, frozen=True, tag="tick"):
    """Time has passed."""


Event = (
    Started
    | FromVm
    | Command
    | MachinesSeen
    | JournalFailed
    | Measured
    | PlanMade
    | LatencyPredicted
    | Troubled
    | DiskSeen
    | PeersSeen
    | Stopping
    | Tick
)


class Input(msgspec.Struct, frozen=True):
    """An event and when it came: what replay feeds to `step` again."""

    now: Now
    event: Event


# ── instructions ────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Persist:
    """Write and fsync these records; if that fails, do nothing of what follows and say JournalFailed."""

    records: tuple[Record, ...]


@dataclass(frozen=True, slots=True)
class KeepTallies:
    """Keep these tallies, best effort; once they are kept, say this."""

    tallies: Tallies
    told: tuple[Send, ...] = ()


@dataclass(frozen=True, slots=True)
class KeepDeadLetters:
    """Append these to the dead letters on disk, and to the trace."""

    records: tuple[DeadLetterRecord, ...]


@dataclass(frozen=True, slots=True)
class KeepModel:
    """Keep this model (the data of its file) beside the run, in this folder, best effort."""

    model: dict[str, Any]
    folder: str = "profiled"


@dataclass(frozen=True, slots=True)
class Send:
    vm: str
    message: FromController


@dataclass(frozen=True, slots=True)
class RequestMachine:
    vm: Vm


@dataclass(frozen=True, slots=True)
class ReleaseMachine:
    vm: str


@dataclass(frozen=True, slots=True)
class Answer:
    number: int
    reply: Reply


@dataclass(frozen=True, slots=True)
class AnswerLater:
    """Answer with what `work` returns: it takes long, knows all that it needs, and is done beside the loop."""

    number: int
    work: Callable[[], Any]


@dataclass(frozen=True, slots=True)
class MakePlan:
    """Have `work` make (a plan, why it is for less) beside the loop, and give what comes of it back as PlanMade."""

    number: int
    work: Callable[[], tuple[Plan, str]]

    def made(self, seconds: float = 0.0) -> PlanMade:
        """What comes of it; whatever goes wrong in it, whoever waits for it hears of it."""
        try:
            plan, degraded = self.work()
        except HeadgateError as error:
            return PlanMade(self.number, seconds, error=refusal(error).error)
        except Exception as error:
            failed = HeadgateError(f"planning failed: {type(error).__name__}", cause=str(error) or None)
            return PlanMade(self.number, seconds, error=refusal(failed).error)
        return PlanMade(self.number, seconds, plan, degraded)


@dataclass(frozen=True, slots=True)
class PredictLatency:
    """Have `work` predict the latency of this plan at this rate beside the loop, and give what comes of it back as
    LatencyPredicted."""

    number: int
    plan: str
    rate_tps: float
    work: Callable[[], PlanLatency | None]

    def made(self, seconds: float = 0.0) -> LatencyPredicted | Troubled:
        """What comes of it; whatever goes wrong in it is said."""
        try:
            return LatencyPredicted(self.number, seconds, self.plan, self.work())
        except Exception as error:
            return Troubled("the predicted latency", f"{type(error).__name__}: {error}")


@dataclass(frozen=True, slots=True)
class Show:
    """What there is to see now, for whoever looks."""

    view: RunView


@dataclass(frozen=True, slots=True)
class Begin:
    """Begin the trace of a run; `run` is its `run.json`."""

    run: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Trace:
    """For the trace: one decision (kind "decision"), one row of rates (kind "rates"), what rows are predicted to take
    (kind "latency") or an `entry` of the prediction ledger (kind "prediction"). plan: that of the decision, when the
    trace does not have it yet."""

    kind: str
    data: dict[str, Any]
    plan: Plan | None = None


@dataclass(frozen=True, slots=True)
class Block:
    """Samples taken in: for the trace. predicted: slot → (CPU, memory) at the present rate."""

    block: SampleBlock
    vm: Vm
    predicted: Mapping[Slot, tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Distrust:
    """The message of this turn made no sense after all."""

    vm: str
    why: str


@dataclass(frozen=True, slots=True)
class Say:
    """A line for people, on stderr."""

    level: str
    text: str


@dataclass(frozen=True, slots=True)
class Finish:
    """The run is over: its summary, and the error that ended it."""

    summary: dict[str, Any] | None
    error: HeadgateError | None = None


Instruction = (
    Persist
    | KeepTallies
    | KeepDeadLetters
    | KeepModel
    | Send
    | RequestMachine
    | ReleaseMachine
    | Answer
    | AnswerLater
    | MakePlan
    | PredictLatency
    | Show
    | Begin
    | Trace
    | Block
    | Distrust
    | Say
    | Finish
)
