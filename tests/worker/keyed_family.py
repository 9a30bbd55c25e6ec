"""The threads of one keyed task without clock, sockets and processes: real cores, a net that brings all at once, disks
that outlive workers. A source sends rows until they are acked.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from headgate.topology_runtime.api.cluster import Slot
from headgate.topology_runtime.api.logic import Keyed
from headgate.topology_runtime.api.task_functions import key_function
from headgate.topology_runtime.api.topology import KEY_RANGES, Edge, Static, Task, Topology
from headgate.topology_runtime.wire.messages import (
    ELSEWHERE,
    DesiredState,
    Frame,
    Keepers,
    RootKey,
    RootPart,
    Route,
    ThreadSpec,
    Token,
)
from headgate.topology_runtime.wire.state_moves import Barrier, StateTaken, StateWord
from headgate.topology_runtime.worker.calls.router import range_of
from headgate.topology_runtime.worker.calls.user_code import ToRecord
from headgate.topology_runtime.worker.keyed_state import state_snapshots as form
from headgate.topology_runtime.worker.keyed_state.keyed_rows import KeyedRows
from headgate.topology_runtime.worker.keyed_state.state_snapshots import (
    KeyedSnapshot,
    NotRead,
    SavedPart,
    SavedWhole,
)
from headgate.topology_runtime.worker.operators.behaviours import behaviour_of
from headgate.topology_runtime.worker.operators.keyed_task import KeyedTask
from headgate.topology_runtime.worker.operators.thread_core import Ports, ThreadCore
from headgate.topology_runtime.worker.orders.thread_orders import orders_of
from headgate.topology_runtime.worker.rows.acks import Addressed

S, MS = 1_000_000_000, 1_000_000
SOURCE, HOME = 0, Slot("source", 0)
KEYS = 40
CHANGES_MOST = 3  # snapshots behind a whole one
TOPOLOGY = Topology(
    "family",
    (
        Task("source", kind="source", run="keyed_family:none", static=Static(1, 0.1, 0.1)),
        Task("tally", kind="keyed", state="keyed", run="keyed_family:Tally"),
    ),
    (Edge("source", "tally", grouping="fields", key="keyed_family:key_of"),),
)


def key_of(row: int) -> int:
    return row % KEYS


def all_of(*threads: int) -> list[int]:
    """The ranges in as many runs as there are threads."""
    return [threads[i * len(threads) // KEY_RANGES] for i in range(KEY_RANGES)]


class Tally(Keyed):
    """Counts the rows of a key."""

    def new(self, key: Any) -> int:
        return 0

    def process(self, key: Any, row: int, state: int) -> tuple[int, Sequence[int]]:
        return state + 1, ()


@dataclass
class Member:
    """One thread, dead or alive; it is its own Post. hangs: it is in a long call of user code."""

    family: Family
    thread: int
    slot: Slot
    incarnation: int = 1
    alive: bool = True
    hangs: bool = False
    inbox: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        ports = Ports(
            self,
            self,
            self.store,
            self.family.random64,
            key_function,
            lambda: 0,
            (),
            self.family.exactly_once,
        )
        self.core = ThreadCore(ThreadSpec(self.thread, "tally", self.slot), TOPOLOGY, ports)
        self.core.behaviour = behaviour_of(self.core, Tally(), lambda _: None)

    def store(self, task: str, thread: int) -> Store:
        return (FarStore if self.family.far else Store)(self.family, self, thread)

    @property
    def keyed(self) -> KeyedTask:
        assert isinstance(self.core.behaviour, KeyedTask)
        return self.core.behaviour

    @property
    def rows(self) -> KeyedRows:
        return self.keyed.rows

    def write(self, done: ToRecord, holding: int) -> None: ...

    def deliver(self, frames: Iterable[Frame]) -> None:
        for frame in frames:
            self.family.put(frame.target, frame)

    def send_acks(self, acks: Iterable[Addressed]) -> None:
        for _, ack in acks:
            self.family.ack(ack.key, ack.value)

    def send_word(self, word: StateWord) -> None:
        if self.alive:
            self.family.put(word.target, word)

    def turn(self, now_ns: int) -> None:
        inbox, self.inbox = self.inbox, []
        for what in inbox:
            if isinstance(what, DesiredState):
                self.core.obey(orders_of(what, self.slot, self.incarnation), now_ns)
            elif isinstance(what, Frame):
                self.core.take(what, now_ns)
            else:
                self.core.hear(what, now_ns)
        self.core.on_time(now_ns)
        self.core.flush(now_ns, everything=True)


@dataclass
class Store:
    family: Family
    member: Member
    thread: int
    there: bytes | None = None
    making: bytes | None = None
    changes: int = 0
    under_way = late = False

    @property
    def stands(self) -> bool:
        return self.there is not None

    @property
    def whole_due(self) -> bool:
        return self.making is None and (self.there is None or self.changes >= CHANGES_MOST)

    def look(self) -> None: ...
    def close(self) -> None: ...
    def remove(self) -> None: ...

    @property
    def disk(self) -> dict[int, bytes]:
        return self.family.disks.setdefault(self.member.slot.vm, {})

    def load(self) -> SavedWhole | None:
        self.there = self.making = None
        data = self.disk.get(self.thread)
        try:
            return None if data is None else form.stream(data)
        except msgspec.DecodeError as error:
            raise OSError(str(error)) from error

    def save(self, part: SavedPart) -> None:
        """On a full disk half of what is added is written."""
        before, self.there = self.there, None
        there, self.making = form.behind(before, self.making, part)
        if self.family.disk_full:
            if before is not None and there is not None and there.startswith(before):
                self.disk[self.member.thread] = there[: (len(before) + len(there)) // 2]
            self.making = None
            raise OSError(28, "No space left on device")
        self.family.saves += part.covers
        self.family.parts += part.ends and part.begun is None
        self.there, self.changes = there, 0 if part.ends else self.changes + 1
        if there is not None:
            self.disk[self.member.thread] = there

    def of(self, thread: int, ranges: Collection[int] = ()) -> KeyedSnapshot | SavedWhole | None:
        data = self.disk.get(thread)
        try:
            return None if data is None else form.read(data)
        except msgspec.DecodeError as error:
            raise OSError(str(error)) from error


@dataclass
class FarStore(Store):
    """Elsewhere: what is given is there FAR_NS later, if the place answers; what others had is read as slowly."""

    late = True
    given: Any = None
    due_ns: int = 0
    error: str = ""
    asked_ns: dict[int, int] = field(default_factory=dict)

    @property
    def disk(self) -> dict[int, bytes]:
        return self.family.disks.setdefault(ELSEWHERE, {})

    @property
    def under_way(self) -> bool:
        if self.given is not None and self.family.now_ns >= self.due_ns:
            part, self.given, self.error = self.given, None, ""
            if self.member.thread in self.family.taken_over:
                self.there = self.making = None
                self.error = "others have taken it over"
                return False
            try:
                super().save(part)
            except OSError as error:
                self.error = str(error)
        return self.given is not None

    def look(self) -> None:
        if self.error:
            raise OSError(self.error)

    def save(self, part: SavedPart) -> None:
        self.given, self.due_ns = part, self.family.now_ns + self.family.far_ns

    def of(self, thread: int, ranges: Collection[int] = ()) -> KeyedSnapshot | SavedWhole | None:
        if thread != self.thread:
            if self.family.now_ns < self.asked_ns.setdefault(thread, self.family.now_ns) + self.family.far_ns:
                raise NotRead("")
            if self.family.disk_full:
                raise NotRead("it does not answer")
            self.family.taken_over.add(thread)
            if ranges and self.there is None and thread in self.disk:
                self.there = self.disk[self.thread] = self.disk[thread]
                self.family.gone_on += 1
                return form.stream(self.there)
        return super().of(thread)


class Family:
    """`places`: thread → VM of all threads that may ever be. far: snapshots are on no VM."""

    def __init__(self, places: dict[int, str], far: bool = False, exactly_once: bool = False) -> None:
        self.exactly_once = exactly_once
        self.far, self.far_ns, self.taken_over = far, 300 * MS, set[int]()
        numbers = random.Random(1)
        self.random64 = lambda: numbers.getrandbits(64)
        self.places = {thread: Slot(vm, thread) for thread, vm in places.items()}
        self.members: dict[int, Member] = {}
        self.disks: dict[str, dict[int, bytes]] = {}
        self.disk_full, self.saves, self.now_ns = False, 0, 100 * S
        self.parts = 0  # whole snapshots that were made in several
        self.gone_on = 0  # times that a thread went on from the snapshots of another
        self.deaf: set[int] = set()  # threads that never hear that a state was taken
        self.dead_vms: set[str] = set()
        self.number, self.table = 0, list[int]()  # of the routes in force
        self.threads: set[int] = set()
        self.keepers: list[Keepers] = []
        self.sure = False  # these routes are in force, so their owners have the ranges
        self.rows: list[int] = []  # all that were ever offered
        self.open: dict[int, tuple[RootKey, int]] = {}  # row → its newest attempt and what is left to ack
        self.net: list[tuple[int, Any]] = []
        self._counter = 0

    # ── plans ───────────────────────────────────────────────────────────────────────────────────

    def plan(self, table: Sequence[int], gone: Iterable[int] = ()) -> None:
        """Other routes, SWITCHED at once. `gone`: threads that were in a slot that is no more."""
        if self.number:
            self.keepers = [*([] if self.sure else self.keepers), self._layer(self.sure)]
        self.number, self.table, self.sure = self.number + 1, list(table), False
        self.threads = self.threads - set(gone) | set(table)
        for thread in set(table) - self.members.keys():
            self.members[thread] = Member(self, thread, self.places[thread])
        self.tell()

    def _layer(self, sure: bool) -> Keepers:
        return Keepers("tally", self.number, tuple((thread, 1) for thread in self.table), sure)

    def settle(self, seconds: float = 30.0) -> None:
        """Until it is in force, then committed."""
        self.run(seconds, until_in_force=True)
        assert self.in_force, [(m.thread, m.rows.ranges.settled) for m in self.alive]
        self.sure = True
        self.keepers = [self._layer(True)]
        self.tell()
        self.run(1.0)

    def tell(self) -> None:
        """The desired state to all, and the source's barriers."""
        self._counter += 1
        homes = tuple(
            (thread, ELSEWHERE if self.far else slot.vm)
            for thread, slot in self.places.items()
            if thread not in self.threads and (self.far or slot.vm not in self.dead_vms)
        )
        threads = tuple(
            ThreadSpec(t, "tally", self.places[t], leaving=t not in self.table) for t in sorted(self.threads)
        )
        targets = tuple((t, 1.0) for t in sorted(set(self.table)))
        desired = DesiredState(
            token=Token(1, self.number, self._counter),
            phase="committed" if self.sure else "switched",
            run="run",
            topology=TOPOLOGY,
            user_paths=(),
            threads=(*threads, ThreadSpec(SOURCE, "source", HOME)),
            routes_number=self.number,
            routes=(Route(0, targets, tuple((t, 1) for t in self.table)),),
            held_dead=tuple(sorted(self.dead_vms)),
            keepers=tuple(msgspec.structs.replace(layer, homes=homes) for layer in self.keepers),
        )
        for thread in self.members:
            self.net.append((thread, desired))
            self.net.append((thread, Barrier(SOURCE, thread, self.number)))

    @property
    def alive(self) -> list[Member]:
        return [member for member in self.members.values() if member.alive]

    @property
    def in_force(self) -> bool:
        """Does every thread of the plan say that it has switched?"""
        members = [self.members[thread] for thread in self.threads]
        return all(m.alive and m.core.now(idle=True).switched >= self.number for m in members)

    # ── rows ────────────────────────────────────────────────────────────────────────────────────

    def offer(self, count: int) -> None:
        for _ in range(count):
            self.rows.append(len(self.rows))
            self.send(self.rows[-1], 0)

    def send(self, row: int, attempt: int) -> None:
        key, id_ = RootKey(SOURCE, 1, row, attempt), self.random64()
        self.open[row] = key, id_
        part = RootPart(key, HOME, 0, 0, row, 0, 0, id_)
        target = self.table[range_of(key_of(row))]
        self.net.append(
            (target, Frame(0, SOURCE, HOME, 1, target, [part], [(0, 0, 1, 0)], [row], 0, 0)),
        )

    def ack(self, key: RootKey, value: int) -> None:
        known = self.open.get(key.sequence)
        if known is not None and known[0] == key:
            self.open[key.sequence] = key, known[1] ^ value
            if known[1] == value:
                del self.open[key.sequence]

    def replay(self) -> None:
        for row, (key, _) in list(self.open.items()):
            self.send(row, key.attempt + 1)

    # ── time ────────────────────────────────────────────────────────────────────────────────────

    def put(self, thread: int, what: Any) -> None:
        if not (isinstance(what, StateTaken) and thread in self.deaf):
            self.net.append((thread, what))

    def run(self, seconds: float, until_in_force: bool = False) -> None:
        end_ns = self.now_ns + int(seconds * S)
        while self.now_ns < end_ns and not (until_in_force and self.in_force):
            self.now_ns += 50 * MS
            if self.now_ns % (2 * S) < 50 * MS:
                self.tell()
            net, self.net = self.net, []
            for thread, what in net:
                if thread in self.members and self.members[thread].alive:
                    self.members[thread].inbox.append(what)
            for member in self.alive:
                if not member.hangs:
                    member.turn(self.now_ns)

    # ── faults ──────────────────────────────────────────────────────────────────────────────────

    def kill(self, thread: int) -> None:
        self.members[thread].alive = False
        self.replay()

    def restart(self, thread: int) -> None:
        """Another worker in its slot, with what its disk has."""
        before = self.members[thread]
        self.members[thread] = Member(self, thread, before.slot, before.incarnation + 1)
        self.tell()

    def lose(self, vm: str) -> None:
        """A VM is gone with its disk."""
        self.dead_vms.add(vm)
        self.disks.pop(vm, None)
        for member in self.members.values():
            if member.slot.vm == vm:
                self.kill(member.thread)

    # ── what must be ────────────────────────────────────────────────────────────────────────────

    def counts(self) -> Counter[int]:
        """Key → count, over all threads that own its range. Every range has one owner at most."""
        found: Counter[int] = Counter()
        owned: Counter[int] = Counter()
        for member in self.alive:
            owned.update(member.rows.ranges.owned)
            for key_range in member.rows.ranges.owned:
                found.update(member.rows.states.of(key_range))
        assert all(count == 1 for count in owned.values()), "a range with two owners"
        return found

    def expected(self) -> Counter[int]:
        return Counter(map(key_of, self.rows))

    @property
    def lost(self) -> set[int]:
        return {key_range for member in self.alive for key_range in member.rows.ranges.lost}

    def all_done(self) -> None:
        """Replays until every row is acked."""
        for _ in range(5):
            self.run(3.0)
            if not self.open:
                break
            self.replay()
        assert not self.open, f"rows {sorted(self.open)[:10]} are never acked"
