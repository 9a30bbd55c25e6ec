"""What an agent hears (events) and does about it (instructions): what `agent_state.AgentState` takes and gives.

Messages of the controller and of workers are events, and messages to the controller are instructions, as they are; the
rest is here. After a Goodbye nothing is sent; before it, everything measured so far.
"""

from __future__ import annotations

import msgspec

from headgate.agent.core.worker_failures import UnderWay
from headgate.topology_runtime.api.cluster import Slot
from headgate.topology_runtime.api.topology import Topology
from headgate.topology_runtime.wire.dead_letter_messages import Struck
from headgate.topology_runtime.wire.messages import (
    DeadLetter,
    DeadLetters,
    DesiredState,
    FromAgentToWorker,
    Goodbye,
    Hello,
    LettersTaken,
    OffsetsKept,
    Report,
    SendAgain,
    Shutdown,
    SourceStatus,
    SpoolLeft,
    Welcome,
    WorkerHello,
    WorkerReport,
)
from headgate.topology_runtime.wire.report_messages import Profiled, ProfileSpec

# ── events ──────────────────────────────────────────────────────────────────────────────────────


class WantedArrived(msgspec.Struct, frozen=True):
    """A desired state, decoded and as the bytes that workers are sent; those of older code by its number."""

    desired: DesiredState
    data: bytes
    older: dict[int, bytes] = {}


class SourcesRead(msgspec.Struct, frozen=True):
    """The source records of one worker's meter, while it lives or after its end."""

    slot: Slot
    incarnation: int
    sources: tuple[SourceStatus, ...]


class WorkerExited(msgspec.Struct, frozen=True):
    """A worker's process has ended and was reaped. clean: it ended itself in order. how: a few words for people.
    by_itself: nobody ended it, nor was it about to end. calls: of user code that were under way. unlogged: rows
    that its sinks were at and had not logged. letters: the dead letters that it had not reported. spools: what is left
    in the VM's then (None: as before)."""

    slot: Slot
    incarnation: int
    how: str
    clean: bool = False
    by_itself: bool = False
    calls: tuple[UnderWay, ...] = ()
    unlogged: int = 0
    letters: tuple[DeadLetter, ...] = ()
    spools: tuple[SpoolLeft, ...] | None = None


class WorkerHung(msgspec.Struct, frozen=True):
    """A worker makes no progress (worker_failures.py). thread: the one whose call takes too long, if that is why."""

    slot: Slot
    incarnation: int
    why: str
    thread: int = -1


class ProfileEnded(msgspec.Struct, frozen=True):
    """Nothing of profile `number` runs any more. model: what it measured, as JSON; error: why it failed."""

    number: int
    model: bytes = b""
    error: str = ""
    of_task: bool = False  # not of this host


class ProfileStands(msgspec.Struct, frozen=True):
    """Profile `number` has measured so many of about so many points."""

    number: int
    done: int
    of: int


class DiskSeen(msgspec.Struct, frozen=True):
    """What the agent's own disk does not take now, and spools that hold events (None: as before)."""

    troubles: tuple[str, ...]
    spools: tuple[SpoolLeft, ...] | None = None


class StopAsked(msgspec.Struct, frozen=True):
    """A signal asks the agent to end; the second time: at once."""

    reason: str


class OwnerGone(msgspec.Struct, frozen=True):
    """The process that the agent is to end with has ended. The kernel's signal that says so may be on its way yet."""


class Tick(msgspec.Struct, frozen=True):
    """Time has passed; due at `AgentState.wake_ns` at the latest."""


Event = (
    WantedArrived
    | Shutdown
    | Welcome
    | LettersTaken
    | SendAgain
    | OffsetsKept
    | WorkerHello
    | WorkerReport
    | SourcesRead
    | WorkerExited
    | WorkerHung
    | ProfileEnded
    | ProfileStands
    | DiskSeen
    | StopAsked
    | OwnerGone
    | Tick
)

# ── instructions ────────────────────────────────────────────────────────────────────────────────


class SpawnWorker(msgspec.Struct, frozen=True):
    slot: Slot
    incarnation: int


class DumpWorker(msgspec.Struct, frozen=True):
    """Have the worker write the stacks of its threads into its log."""

    slot: Slot
    incarnation: int


class KillWorker(msgspec.Struct, frozen=True):
    slot: Slot
    incarnation: int
    why: str


class ToWorker(msgspec.Struct, frozen=True):
    """Send this to the slot's worker. bytes: a desired state, as it came."""

    slot: Slot
    incarnation: int
    message: FromAgentToWorker | bytes


class SaveFailures(msgspec.Struct, frozen=True):
    """Keep this on disk: all failure counts."""

    struck: tuple[Struck, ...]


class DropDeadLetters(msgspec.Struct, frozen=True):
    """The controller has all that workers which are no more have left on this VM's disk."""


class StartProfile(msgspec.Struct, frozen=True):
    profile: ProfileSpec
    topology: Topology
    user_paths: tuple[str, ...]


class EndProfile(msgspec.Struct, frozen=True):
    """Kill all of it; ProfileEnded says what it measured."""

    number: int


class ControllerChanged(msgspec.Struct, frozen=True):
    """Another life of the controller: what counts only once is reported from its beginning."""

    boot: int


class Exit(msgspec.Struct, frozen=True):
    """The agent ends: `error` is why the controller refused it, empty when all is well."""

    reason: str
    error: str = ""


class Note(msgspec.Struct, frozen=True):
    """Something people should read in the agent's log."""

    text: str


Instruction = (
    SpawnWorker
    | DumpWorker
    | KillWorker
    | ToWorker
    | SaveFailures
    | Hello
    | Report
    | DeadLetters
    | Profiled
    | Goodbye
    | DropDeadLetters
    | StartProfile
    | EndProfile
    | ControllerChanged
    | Exit
    | Note
)
