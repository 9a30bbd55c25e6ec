"""Every wire message as a frozen type, one union per channel.

    controller ⇄ agent     FromController / FromAgent     (control channel)
    agent ⇄ worker         FromAgentToWorker / FromWorker (on the VM, loopback)
    worker ⇄ worker        Tuples                         (data channel)
    client ⇄ controller    Request / Reply                (commands)

Plans travel as *desired states*, never as deltas (protocol: Plans): complete, idempotent and numbered.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from headgate.topology_runtime.api.cluster import Slot
from headgate.topology_runtime.api.topology import Topology
from headgate.topology_runtime.errors import HeadgateError
from headgate.topology_runtime.latency.latency_messages import LatencyReport, Paces, PathNow
from headgate.topology_runtime.packages.package_manifest import Revocation
from headgate.topology_runtime.rates.schedule import Schedule
from headgate.topology_runtime.wire.dead_letter_messages import DeadLetter as DeadLetter
from headgate.topology_runtime.wire.dead_letter_messages import DeadLetters as DeadLetters
from headgate.topology_runtime.wire.dead_letter_messages import LettersTaken as LettersTaken
from headgate.topology_runtime.wire.dead_letter_messages import Poisoned, VmStrikes
from headgate.topology_runtime.wire.dead_letter_messages import SendAgain as SendAgain
from headgate.topology_runtime.wire.dead_letter_messages import SentAgain as SentAgain
from headgate.topology_runtime.wire.output_messages import OutputLines
from headgate.topology_runtime.wire.report_messages import LINK_COLUMNS as LINK_COLUMNS
from headgate.topology_runtime.wire.report_messages import SAMPLE_COLUMNS as SAMPLE_COLUMNS
from headgate.topology_runtime.wire.report_messages import SLOT_COLUMNS as SLOT_COLUMNS
from headgate.topology_runtime.wire.report_messages import FinishedRuns as FinishedRuns
from headgate.topology_runtime.wire.report_messages import (
    HeldState,
    KeysSeen,
    ProfileAt,
    Profiled,
    ProfileSpec,
    UserMetric,
)
from headgate.topology_runtime.wire.report_messages import SampleBlock as SampleBlock
from headgate.topology_runtime.wire.run_options import DataPlaneSettings as DataPlaneSettings
from headgate.topology_runtime.wire.state_moves import MoveWord, ReadTo, StateWord, TimeWord
from headgate.topology_runtime.wire.state_questions import StateAnswer as StateAnswer
from headgate.topology_runtime.wire.state_questions import StateQuestion as StateQuestion
from headgate.topology_runtime.wire.wire_version import UNTOLD, VERSION, WIRE

# ── What clients ask a controller, and what it answers: a part of `messages` ────────────────────────────


class Request(msgspec.Struct, frozen=True, tag="request"):
    """A command to the controller; `arguments` are plain values. protocol, version: what who asks speaks."""

    command: str
    arguments: dict[str, Any] = {}
    protocol: int = UNTOLD
    version: str = ""


ReplyError = tuple[str, int, str, str | None, str | None, tuple[str, ...]]


class Reply(msgspec.Struct, frozen=True, tag="reply"):
    """`data` of a command done, or the error as (code, exit code, what, cause, hint, faults)."""

    data: Any = None
    error: ReplyError | None = None


def from_here(request: Request) -> Request:
    """With what this headgate speaks."""
    return msgspec.structs.replace(request, protocol=WIRE, version=VERSION)


def refusal(error: HeadgateError) -> Reply:
    """The answer to what cannot be done: the client gets the error's code, words and exit code."""
    return Reply(error=(error.code, error.exit_code, error.what, error.cause, error.hint, error.faults))


# ── Leases: an exclusive thread works only while its VM's lease lasts, and none other begins before that is
# over
#
# The lease of a VM lasts `LEASE_NS` from when the heartbeat was *sent* that the controller answered, by the
# monotonic clock of that VM, which agent and workers share. Threads stop `MARGIN_NS` before its end; a call
# that is still under way at its end is ended with its worker. The controller waits for `OVER_NS` since it
# last answered: as long as that, 5 % more for clocks that run at different rates, and a tenth of a second.

NS = 1_000_000_000
LEASE_NS = 10 * NS
MARGIN_NS = NS // 2
OVER_NS = LEASE_NS * 105 // 100 + NS // 10


def may_begin(now_ns: int, until_ns: int) -> bool:
    """May an exclusive thread begin something under a lease until then? Not at its last moment either."""
    return now_ns < until_ns - MARGIN_NS


def is_over(now_ns: int, answered_ns: int) -> bool:
    """Has a lease that was granted last with the answer at `answered_ns` run out, wherever it is?"""
    return now_ns >= answered_ns + OVER_NS


class Lease(msgspec.Struct, frozen=True, tag="lease"):
    """Exclusive threads may work until then (monotonic ns), by the desired states sent before this.

    work_until_ns: all threads of the VM may (−1: not said). contact_ns: when the newest report was sent that the
    controller answered; 0: none yet."""

    until_ns: int
    work_until_ns: int = -1
    contact_ns: int = 0


# ── The contact of a VM with the controller: a VM that is cut off rests before its work begins elsewhere
#
# All threads of a VM may work for `CONTACT_NS` from when the newest report was sent that the controller answered.
# Longer only while every VM with workers that theirs have links to was heard in the last `FRESH_NS`, and none of
# them had contact more than `NEWER_NS` after it: then nobody hears the controller, and nobody moves anything.
# The controller takes a VM for lost later than that (controller/knowledge/membership.py).

CONTACT_NS = 7 * NS // 2
FRESH_NS = 5 * NS // 2
NEWER_NS = 5 * NS // 4
VOUCHED_NS = 3 * NS // 2  # what a VM without contact may work on at a time


# ── What controller and agents tell each other of packages. Pure ───
#
# An agent asks for the next part of what it lacks, and for another one when that has come: at most one part
# is on its way to it, so a slow disk or link slows its own fetching and nothing else. It goes on where it
# stopped.

PART_BYTES = 256 * 1024  # from the controller to an agent
BROUGHT_BYTES = 128 * 1024  # from a client: a command's bytes are counted as if each could begin a list


class PackageOffer(msgspec.Struct, frozen=True, tag="package_offer"):
    """Somebody wants it to be there: have it; or, with `revoked`, never run it. Said again until the agent says how it
    stands."""

    digest: str
    revoked: Revocation | None = None


class PackagePart(msgspec.Struct, frozen=True, tag="package_part"):
    """Bytes of a package."""

    digest: str
    offset: int
    data: bytes


class PackageAt(msgspec.Struct, frozen=True, tag="package_at"):
    """How a package stands on a VM: `taken` bytes are there and more is asked for; or all of them, and what it needs is
    being installed (`busy`); or it may be run (`whole`); or it is refused and why."""

    vm: str
    boot: int
    digest: str
    taken: int = 0
    whole: bool = False
    refused: str = ""
    busy: bool = False


# ── One of the codes that the tasks of a run have while another takes its place ─────────────────────────


class TaskCode(msgspec.Struct, frozen=True):
    """number: its threads name it. topology: the same tasks and edges in every code of a run, with its own params.
    package: the digest of the one that it comes in; none: it is in `user_paths`."""

    number: int
    topology: Topology
    user_paths: tuple[str, ...] = ()
    package: str = ""


# ── What a controller says of finished rows that it needs no log of any more ────────────────────────────


class FinishedKept(msgspec.Struct, frozen=True, tag="finished_kept"):
    """Rows of positions below `floors` (source number, partition, position), in the first so many bytes of these logs
    (sink, thread, incarnation, bytes), are counted in what the controller has kept."""

    floors: tuple[tuple[int, int, int], ...] = ()
    logs: tuple[tuple[str, int, int, int], ...] = ()


# ── What a controller says of sources with offsets: where it would have each begin again ────────────────


class OffsetsKept(msgspec.Struct, frozen=True, tag="offsets_kept"):
    """(source thread, offset): what an heir of the thread goes on from, even under a later controller. Rows below it
    may be forgotten where they are kept. For agents, and through them for workers. positions: (number of a source,
    partition, position) where keyed state counts exactly once: rows below never come again, nor does a controller."""

    boot: int
    offsets: tuple[tuple[int, int], ...]
    positions: tuple[tuple[int, int, int], ...] = ()


# ── What an agent tells its workers of their machine's clock ────────────────────────────────────────────


class ClockOff(msgspec.Struct, frozen=True, tag="clock"):
    """Add so much to this machine's monotonic clock to have the controller's UTC. offset_ns: to its own UTC, for
    workers of before, who go by that."""

    offset_ns: int
    ahead_ns: int | None = None


class Token(msgspec.Struct, frozen=True, order=True, array_like=True):
    """The number of a desired state: the controller's boot first, then epoch, then counter."""

    boot: int = 0
    epoch: int = 0
    counter: int = 0


# ── desired state ────────────────────────────────────────────────────────────────────────────────

Phase = Literal["prepared", "switched", "committed"]


class ThreadSpec(msgspec.Struct, frozen=True, array_like=True):
    """Thread `thread` of `task` shall exist in `slot`. `thread` is never reused in a run.

    leaving: in the plan before but not in this one; from SWITCHED on it gets marks, and once the
    plan is COMMITTED it ends when it is empty. partition: k of the task's k = 0 … n−1 (sources). code: the number
    of the code that it runs, the same for all threads of a slot."""

    thread: int
    task: str
    slot: Slot
    partition: int = 0
    leaving: bool = False
    answers: bool = False  # in place of a thread that is no more: says what snapshots on its VM hold
    code: int = 0


class Route(msgspec.Struct, frozen=True, array_like=True):
    """Where rows of one edge go: (thread, weight) of the receiving threads, weights sum to 1.
    For `fields`: `ranges` are the task's 1,024 key ranges, run-length coded as (thread, how many)."""

    edge: int
    targets: tuple[tuple[int, float], ...]
    ranges: tuple[tuple[int, int], ...] = ()


ELSEWHERE = ""  # the home of snapshots that are on no VM's disk


class Keepers(msgspec.Struct, frozen=True, array_like=True):
    """Threads of a keyed task that may hold the state of its 1,024 key ranges, as it was theirs by routes `number`:
    run-length coded as (thread, how many). `sure`: those routes were in force. `homes`: (thread, VM or ELSEWHERE)
    where a thread that is no longer desired had its snapshots, if they can be had."""

    task: str
    number: int
    ranges: tuple[tuple[int, int], ...]
    sure: bool = False
    homes: tuple[tuple[int, str], ...] = ()


class WorkerAt(msgspec.Struct, frozen=True, array_like=True):
    """The worker now in `slot`. Frames of a lower incarnation of that slot are refused (fencing).
    `endpoint` is empty while the worker is known to be dead or not yet up."""

    slot: Slot
    incarnation: int
    endpoint: str


class SourceStart(msgspec.Struct, frozen=True, array_like=True):
    """A source thread that starts again reads from `position`: below it all is acked; while the run drains,
    up to `until` (it was read before). `thread` ≥ 0: for that leaving thread alone; started again, it reads again
    what it had open when its successor began, up to `until`. A source with offsets goes on from `offset` (0: from where
    it is set to begin), and passes over so many rows first (`passing`). Believed only if the same desired state names
    the worker's own incarnation, so that it is fresh; ignored by a thread that reads already."""

    task: str
    partition: int
    position: int
    until: int = 0
    thread: int = -1
    offset: int = 0
    passing: int = 0


EndStep = Literal["again", "hold", "fire", "over", "finish"]


class EndOfInput(msgspec.Struct, frozen=True, omit_defaults=True):
    """How far the end of the input is, task by task (controller/execute/end_of_input.py). number: of the step, which
    `task` does, if it is one task's. whole: the input has ended; else the run is only stopped: panes without an age
    limit stay, `finish` is not called. workers: (slot, incarnation) of all that were there when sources were told to
    hold still. finish: keyed tasks whose `finish` has been asked for; over: tasks all of whose rows are done."""

    number: int
    step: EndStep
    task: str = ""
    whole: bool = False
    workers: tuple[tuple[Slot, int], ...] = ()
    finish: tuple[str, ...] = ()
    over: tuple[str, ...] = ()


class DesiredState(msgspec.Struct, frozen=True, tag="desired", omit_defaults=True):
    """The whole desired state of a run; each agent and worker picks what is for it.

    `routes_number` numbers `routes`; marks carry it. `modelled_tps`: thread → rows/s it is
    modelled for (sizes frames and windows). `held_dead`: VMs that are waited for no more.
    `draining`: sources stop reading and everything runs empty. `profile`: none but this one may run beside the run,
    `profiles`: and before the first plan these.
    `holders`: the threads of exclusive tasks that may work, at most one of each task, under a lease.
    `keepers`: of keyed tasks; none: nobody has any state yet. `topology`, `user_paths` and `package` are the code of
    number `code`; `older`: others that some threads still run."""

    token: Token
    phase: Phase
    run: str
    topology: Topology
    user_paths: tuple[str, ...]
    threads: tuple[ThreadSpec, ...]
    routes_number: int
    routes: tuple[Route, ...]
    workers: tuple[WorkerAt, ...] = ()
    schedule: Schedule | None = None
    starts: tuple[SourceStart, ...] = ()
    modelled_tps: dict[int, float] = {}
    held_dead: tuple[str, ...] = ()
    draining: bool = False
    settings: DataPlaneSettings = DataPlaneSettings()
    profile: ProfileSpec | None = None
    holders: tuple[int, ...] = ()
    keepers: tuple[Keepers, ...] = ()
    strikes: tuple[tuple[str, VmStrikes], ...] = ()  # by VM: a row is tried three times in all
    package: str = ""  # the digest of the package with the user's code; none: it is in `user_paths`
    code: int = 0
    older: tuple[TaskCode, ...] = ()
    profiles: tuple[ProfileSpec, ...] = ()
    chained: tuple[str, ...] = ()  # tasks whose threads may be run by the one that sends to them
    hide_keys: bool = False  # of a hot key only its range is told
    end: EndOfInput | None = None
    exactly_once: bool = False  # keyed state is told of no row twice, and tells of none twice
    state_to: str = ""  # where snapshots of keyed state are kept; empty: on the VMs' disks
    state_in_memory: int = 0  # bytes of each slot for keyed state; 0: half of the slot's memory
    rows_of: str = ""  # the run that rows have in their names at sinks; empty: this one


class Shutdown(msgspec.Struct, frozen=True, tag="shutdown"):
    """End the run: workers end, the agent gives back what it holds and exits."""

    token: Token
    reason: str = ""


class Welcome(msgspec.Struct, frozen=True, tag="welcome"):
    """Answer to HELLO and to heartbeats: an agent knows its controller lives.

    `report`: (boot, sequence) of the report that it answers, `leased`: with a lease too; (0, 0): of none. protocol,
    version: what the controller speaks. fenced: the VM's work is done elsewhere; what it still has rests."""

    boot: int
    run: str
    wall_ns: int
    refused: str = ""
    leased: tuple[int, int] = (0, 0)
    report: tuple[int, int] = (0, 0)
    protocol: int = UNTOLD
    version: str = ""
    fenced: bool = False


FromController = (
    DesiredState
    | Shutdown
    | Welcome
    | LettersTaken
    | SendAgain
    | FinishedKept
    | OffsetsKept
    | PackageOffer
    | PackagePart
    | StateQuestion
)


# ── agent → controller ──────────────────────────────────────────────────────────────────────────


class SpoolLeft(msgspec.Struct, frozen=True, array_like=True):
    """A source thread's spool on this VM's disk: events `acked` … `end`−1 are not acked yet."""

    task: str
    partition: int
    acked: int
    end: int
    run: str = ""
    thread: int = 0


class LoopSeen(msgspec.Struct, frozen=True, array_like=True):
    """What a round of a fixed loop takes on a VM, at best, in ns of CPU while nothing else ran there (0: not known),
    and in how many seconds it was looked at after the agent's start. host: VMs with the same one are one machine."""

    round_ns: float = 0.0
    seconds: int = 0
    host: str = ""


class Hello(msgspec.Struct, frozen=True, tag="hello"):
    """An agent says who it is, and what it speaks. `boot` rises with every start of the agent (its start in ns)."""

    vm: str
    boot: int
    slots: int
    slot_cores: float
    slot_memory_bytes: int
    binding: str  # "cgroup2" | "cgroup1" | "affinity" | "none"
    pid: int
    protocol: int = WIRE
    version: str = ""
    spools: tuple[SpoolLeft, ...] = ()
    only_signed: bool = False  # it runs packages of signers that it trusts, and no code from folders
    machine: str = ""  # of what kind: models are of one kind
    rack: str = ""  # none: as the controller was told of this VM
    usd_per_hour: float = 0.0
    workers_as: str = ""  # whom its workers run as: "own (2040000001)", "agent (1000)"
    bandwidth_mbps: float = 0.0  # of its link, Mbit/s each way; 0: as the controller was told of this VM
    address: str = ""  # where others reach its workers, as hosts; none: it does not say
    loop: LoopSeen = LoopSeen()  # at its start


class ThreadStatus(msgspec.Struct, frozen=True, array_like=True):
    """A thread as it is. switched: number of the routes it sends by (0: none). marked: highest n for which marks ≥ n
    from all its upstream threads are in (leavers). empty: queue, output and side buffers are empty. ended: it has
    finished for good. building: its object is not built yet. Of a keyed task: switched only when its ranges have
    moved; `lost`: ranges whose state was lost, as (first, how many); `applied_again`: rows that may have been
    counted twice, at most; `unsaved`: why no snapshot is written; `held`: what its states take. Of a source:
    `unreadable`: why no rows are had of it. `away`: the service that its rows wait for. Of a task with event time:
    `rests`: as of a source (`SourceStatus`); `watermark_us`: its watermark (none: not known yet); `held_by`: the
    thread of a source that holds it back, −1: none or one of a task; `late`: rows from before it; `open_keys`:
    keys with windows or timers that are open, −1: not counted (it is, once the run is to end). Of a source with
    timestamps: `timeless`: rows without one; `held_by`: the thread that it waits for, as it is `max_drift` ahead
    of it. Of both: `times_wrong`: what is wrong with the times of all rows."""

    thread: int
    switched: int = 0
    marked: int = 0
    empty: bool = False
    ended: bool = False
    failed: str = ""  # why its logic could not be built
    lost: tuple[tuple[int, int], ...] = ()
    applied_again: int = 0
    unsaved: str = ""
    unreadable: str = ""
    away: str = ""
    rests: int = 0
    watermark_us: int | None = None
    held_by: int = -1
    late: int = 0
    open_keys: int = -1
    timeless: int = 0
    times_wrong: str = ""
    held: HeldState | None = None
    building: bool = False


class SourceStatus(msgspec.Struct, frozen=True, array_like=True):
    """A source partition: positions `emitted` = highest read + 1, `acked` = all below are done,
    `acked_above` = done ones above that, `in_flight` = rows not yet acked, `replayed` = rows sent again. Of a source
    whose rows are taken as they come, when it was looked at (`seen_ns`, UTC): `arrived` = positions taken so far,
    read or not, or still where they are kept; `offsets` = of a source with offsets, (position, offset to go on from
    there), as far as they are known; `oldest_ns` = when the first one that is not read yet came (UTC; 0: all are read).
    `age_ms`: for how long its agent has known it. `held`: it reads no further now, as it is `max_drift` ahead of
    another partition (`Timestamps`)."""

    task: str
    partition: int
    thread: int
    emitted: int
    acked: int
    acked_above: int
    in_flight: int
    replayed: int
    stopped: bool = False  # reads no more and its ledger is empty
    exhausted: bool = False  # the source itself has ended
    arrived: int = 0
    oldest_ns: int = 0
    seen_ns: int = 0
    rests: int = (
        0  # number of the step of the end (`EndOfInput`) that it has done; negative: rows were lost in it
    )
    age_ms: int = 0
    offsets: tuple[tuple[int, int], ...] = ()
    held: bool = False


class VmHeard(msgspec.Struct, frozen=True, array_like=True):
    """By a worker, of the workers of another VM: for how long none of them was heard, ms, and how long the last answer
    of the quickest took, there and back, ms: a busy worker is late, a slow link makes all of them late. contact_ms: how
    old that VM's contact with the controller is."""

    vm: str
    silent_ms: int
    delay_ms: int | None = None
    contact_ms: int | None = None


class WorkerStatus(msgspec.Struct, frozen=True):
    """The worker of one slot as its agent sees it. `ready`: all desired threads of `token` exist and
    every peer of `token` has answered both ways. state "quarantined": it crashed too often."""

    slot: Slot
    incarnation: int
    state: Literal["starting", "running", "exited", "quarantined"]
    endpoint: str = ""
    token: Token = Token()
    ready: bool = False
    threads: tuple[ThreadStatus, ...] = ()
    crashes: int = 0
    last_exit: str = ""
    again: tuple[SentAgain, ...] = ()
    paths: tuple[PathNow, ...] = ()  # the parts of latency constraints that it manages
    heard: tuple[VmHeard, ...] = ()  # other VMs, where it has peers


class Report(msgspec.Struct, frozen=True, tag="report"):
    """What is on a VM now: sent on every change and at least every 0.5 s (it is the heartbeat)."""

    vm: str
    boot: int
    sequence: int
    token: Token
    workers: tuple[WorkerStatus, ...] = ()
    sources: tuple[SourceStatus, ...] = ()
    troubles: tuple[str, ...] = ()  # what the VM's disk does not take now, at most 16
    unlogged: int = 0  # rows that (may have) reached a sink and are in no log, since this agent's boot
    spools: tuple[SpoolLeft, ...] = ()  # as they were when a worker ended here last
    strikes: VmStrikes = VmStrikes()
    clock: tuple[int, int] = (
        0,
        0,
    )  # its UTC is so many ns behind the controller's, ± so many; (0, 0): unknown
    profiles: tuple[ProfileAt, ...] = ()  # that run here
    keys: tuple[KeysSeen, ...] = ()  # of its threads
    run: str = ""  # that this is of
    loop: LoopSeen = LoopSeen()


class Goodbye(msgspec.Struct, frozen=True, tag="goodbye"):
    """An agent leaves: nothing of the run is left on its VM."""

    vm: str
    boot: int


FromAgent = (
    Hello | Report | SampleBlock | DeadLetters | Profiled | Goodbye | PackageAt | OutputLines | StateAnswer
)


# ── agent ⇄ worker ──────────────────────────────────────────────────────────────────────────────


class Quit(msgspec.Struct, frozen=True, tag="quit"):
    """A worker ends at once (its threads have ended, or the run is over)."""

    reason: str = ""


FromAgentToWorker = (
    DesiredState | Poisoned | Quit | Lease | SendAgain | OffsetsKept | ClockOff | StateQuestion
)


class WorkerHello(msgspec.Struct, frozen=True, tag="worker_hello"):
    """A worker's imports are done and its data socket is bound."""

    slot: Slot
    incarnation: int
    pid: int
    endpoint: str


class WorkerReport(msgspec.Struct, frozen=True, tag="worker_report"):
    """A worker's threads and sources now; sent on every change and at least every 0.5 s."""

    slot: Slot
    incarnation: int
    token: Token
    ready: bool
    threads: tuple[ThreadStatus, ...] = ()
    sources: tuple[SourceStatus, ...] = ()
    letters: tuple[DeadLetter, ...] = ()
    leaving: bool = False  # it holds no thread and none is desired: it exits now
    troubles: tuple[str, ...] = ()  # what its disk does not take now
    unlogged: int = 0  # finished rows of which its disk took no log, since it began
    again: tuple[SentAgain, ...] = ()
    keys: tuple[KeysSeen, ...] = ()
    paths: tuple[PathNow, ...] = ()
    metrics: tuple[UserMetric, ...] = ()  # tasks' own, new since the report before
    heard: tuple[VmHeard, ...] = ()


FromWorker = WorkerHello | WorkerReport | StateAnswer


# ── worker ⇄ worker: tuples ─────────────────────────────────────────────────────────────────────


class RootKey(msgspec.Struct, frozen=True, array_like=True, order=True):
    """One frame of a source: (source thread, incarnation of its worker, sequence, attempt)."""

    thread: int
    incarnation: int
    sequence: int
    attempt: int


class RootPart(msgspec.Struct, array_like=True):
    """A root inside a frame: key, where its ledger is, what its rows are, and this frame's id for it. `position`: of
    the root's first row; row `offset` of a run adds to it. `intended_ns`: when that first row was due (UTC).
    `floor`: every root of this source thread below this sequence is done. `along`: numbers in the frame of the
    roots that this root's rows come from too (the output of a bucket is named after one row and made of many):
    whoever deals with these rows deals for all of those."""

    key: RootKey
    home: Slot
    source: int  # number of the source task in the topology
    partition: int
    position: int
    intended_ns: int
    floor: int
    id: int
    along: list[int] = []


class Frame(msgspec.Struct, array_like=True):
    """What one thread gives another at once. `runs`: (root number in `roots`, offset, count, variant): rows in order;
    `variant` tells apart rows of one position that took different ways (path and flat-map index): (source, partition,
    position, variant) is a row's stable identity. `filled_ns`: when its first row came; both times monotonic,
    on the wire UTC: workers of other machines read them."""

    edge: int
    sender: int
    slot: Slot
    incarnation: int
    target: int
    roots: list[RootPart]
    runs: list[tuple[int, int, int, int]]
    rows: list[Any]
    filled_ns: int
    flushed_ns: int


class WireFrame(msgspec.Struct, tag="f", array_like=True):
    """A frame on the wire: its rows stand apart, written as `shape` says (row_values.py)."""

    frame: Frame
    shape: int
    rows: msgspec.Raw


class Ack(msgspec.Struct, frozen=True, array_like=True):
    """XOR `value` into the ledger's entry of this root and attempt. `held`: rows of the root that a
    task now keeps (or, negative, lets go): its deadline stands still while any is kept. `made_bytes`: the rows
    that task number `made_by` made of the root's now, in memory, about; 0: not much. `kept`: the part of `value` that
    stands for rows which wait in panes of task number `kept_by` (acks.py)."""

    key: RootKey
    value: int
    held: int = 0
    made_by: int = 0
    made_bytes: int = 0
    kept: int = 0
    kept_by: int = 0


class Acks(msgspec.Struct, frozen=True, tag="a", array_like=True):
    slot: Slot
    incarnation: int
    acks: list[Ack]


class Word(msgspec.Struct, frozen=True, tag="w", array_like=True):
    """What threads tell each other beside rows, and whose worker says it."""

    slot: Slot
    incarnation: int
    word: MoveWord


class TimeTold(msgspec.Struct, frozen=True, tag="c", array_like=True):
    """As `Word`: how far event time has come. Only said where a topology has event time; whoever cannot read it has no
    such task."""

    slot: Slot
    incarnation: int
    word: TimeWord


class ReadTold(msgspec.Struct, frozen=True, tag="d", array_like=True):
    """As `Word`: how far a source thread has read. Only said where a source has a `max_drift`."""

    slot: Slot
    incarnation: int
    word: ReadTo


ToldWord = Word | TimeTold | ReadTold


def told(slot: Slot, incarnation: int, word: StateWord) -> ToldWord:
    """A word of a thread, as its worker says it."""
    if isinstance(word, TimeWord):
        return TimeTold(slot, incarnation, word)
    return ReadTold(slot, incarnation, word) if isinstance(word, ReadTo) else Word(slot, incarnation, word)


class Ping(msgspec.Struct, frozen=True, tag="p", array_like=True):
    """Is the way there and back open? `losses`: how often something on a link from or to the sender was
    lost since it came up; `heard`: the highest such number that it has heard from whom it writes to. `round`: of
    its questions; `seen`: the highest that it has seen of whom it writes to. columns: it reads frames of
    columns; to who does not say so, rows are sent. at_ms: when who asked did, by its own clock; 0: not said.
    contact_ms: how old its VM's contact with the controller is; −1: not known."""

    slot: Slot
    incarnation: int
    answer: bool
    losses: int = 0
    heard: int = 0
    round: int = 0
    seen: int = 0
    columns: bool = False
    at_ms: int = 0
    contact_ms: int = -1


Tuples = WireFrame | Acks | ToldWord | Ping | LatencyReport | Paces
