"""The threads of one keyed task in virtual time: real cores, desired states as the controller would make them,
a net that may be slow or lose words, disks that outlive workers. A source sends rows until they are acked.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from headgate.controller.execute.desired_state import keepers_next, keepers_now, named_keepers
from headgate.controller.knowledge.journal_records import Durable, RolloutStarted
from headgate.topology_runtime.api.cluster import Slot
from headgate.topology_runtime.api.logic import Keyed
from headgate.topology_runtime.api.task_functions import key_function
from headgate.topology_runtime.api.topology import KEY_RANGES, Edge, Static, Task, Topology
from headgate.topology_runtime.wire.messages import (
    DesiredState,
    Frame,
    Keepers,
    RootKey,
    RootPart,
    Route,
    ThreadSpec,
    Token,
)
from headgate.topology_runtime.wire.state_moves import Barrier, StateAsked, StateMove, StateTaken
from headgate.topology_runtime.worker.calls.router import owners, range_of
from headgate.topology_runtime.worker.calls.user_code import ToRecord
from headgate.topology_runtime.worker.keyed_state import state_snapshots as form
from headgate.topology_runtime.worker.keyed_state.keyed_rows import KeyedRows
from headgate.topology_runtime.worker.keyed_state.state_snapshots import KeyedSnapshot, StateChange
from headgate.topology_runtime.worker.operators.behaviours import behaviour_of
from headgate.topology_runtime.worker.operators.keyed_task import KeyedTask
from headgate.topology_runtime.worker.operators.thread_core import Ports, ThreadCore
from headgate.topology_runtime.worker.orders.thread_orders import orders_of
from headgate.topology_runtime.worker.rows.acks import Addressed

S, MS = 1_000_000_000, 1_000_000
SOURCE = 0  # the source's thread
HOME = Slot("source", 0)
KEYS = 40
CHANGES_MOST = 3  # snapshots behind a whole one
STATIC = Static(1, 0.1, 0.1)
TOPOLOGY = Topology(
    "family",
    (
        Task("source", kind="source", run="keyed_family:none", static=STATIC),
        Task("tally", kind="keyed", state="keyed", run="keyed_family:Tally"),
    ),
    (Edge("source", "tally", grouping="fields", key="keyed_family:key_of"),),
)


def key_of(row: int) -> int:
    return row % KEYS


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
        desired = ThreadSpec(self.thread, "tally", self.slot)
        ports = Ports(self, self, self.store, self.family.random64, key_function)
        self.core = ThreadCore(desired, TOPOLOGY, ports)
        self.core.behaviour = behaviour_of(self.core, Tally(), lambda _: None)

    def store(self, task: str, thread: int) -> Store:
        assert task == "tally"
        return Store(self.family, self, thread)

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
        self.family.acked((ack.key, ack.value) for _, ack in acks)

    def send_word(self, word: Barrier | StateMove | StateTaken | StateAsked) -> None:
        if self.alive:
            self.family.put(word.target, word)


@dataclass
class Store:
    family: Family
    member: Member
    thread: int
    changes: int = CHANGES_MOST

    @property
    def whole_due(self) -> bool:
        return self.changes >= CHANGES_MOST

    def load(self) -> KeyedSnapshot | None:
        return self.of(self.thread)

    def save(self, snapshot: KeyedSnapshot) -> None:
        self.changes = CHANGES_MOST
        if self.family.disk_full:
            raise OSError(28, "No space left on device")
        self.family.saves += 1
        disk = self.family.disks.setdefault(self.member.slot.vm, {})
        disk[self.member.thread] = form.whole(snapshot)
        self.changes = 0

    def add(self, change: StateChange) -> None:
        """On a full disk half of it is written."""
        disk, data = self.family.disks[self.member.slot.vm], form.added(change)
        if self.family.disk_full:
            self.changes = CHANGES_MOST
            disk[self.member.thread] += data[: len(data) // 2]
            raise OSError(28, "No space left on device")
        self.family.saves += 1
        disk[self.member.thread] += data
        self.changes += 1

    def of(self, thread: int) -> KeyedSnapshot | None:
        data = self.family.disks.get(self.member.slot.vm, {}).get(thread)
        try:
            return None if data is None else form.read(data)
        except msgspec.DecodeError as error:
            raise OSError(str(error)) from error


class Family:
    """`places`: thread → VM of all threads that may ever be. The plan before is journaled as in a controller."""

    def __init__(self, places: dict[int, str], seed: int = 1, loss: float = 0.0) -> None:
        self.random = random.Random(seed)
        self.random64 = lambda: self.random.getrandbits(64)
        self.loss, self.now_ns = loss, 100 * S
        self.disks: dict[str, dict[int, bytes]] = {}
        self.disk_full, self.saves = False, 0
        self.deaf: set[int] = set()  # threads that never hear that a state was taken
        self.places = {thread: Slot(vm, thread) for thread, vm in places.items()}
        self.members: dict[int, Member] = {}
        self.dead_vms: set[str] = set()
        self.net: list[tuple[int, Any]] = []
        self.durable = Durable()
        self.desired: DesiredState | None = None
        self.table: list[int] = []
        self.rows: list[int] = []  # all that were ever offered
        self.open: dict[int, tuple[RootKey, int]] = {}  # row → its newest attempt and what is left to ack
        self._counter = 0

    # ── plans ───────────────────────────────────────────────────────────────────────────────────

    def plan(self, table: Sequence[int], gone: Iterable[int] = ()) -> None:
        """A new plan with these owners of the 1,024 ranges is decided; it is PREPARED. `gone`: threads that
        were in a slot that is no more."""
        d, number = self.durable, self.durable.next_routes
        route = (Route(0, tuple((t, 1.0) for t in sorted(set(table))), tuple((t, 1) for t in table)),)
        before = (self._number, self._routes)
        there = {t.thread for t in d.rollout.threads} - set(gone) if d.rollout is not None else set()
        threads = tuple(
            ThreadSpec(t, "tally", self.places[t], leaving=t not in table) for t in sorted(there | set(table))
        )
        planned = msgspec.structs.replace(
            BLANK,
            epoch=d.next_epoch,
            threads=threads,
            routes_number=number,
            routes=route,
            before_number=before[0],
            before_routes=before[1],
            keepers=keepers_next(d, TOPOLOGY, *before),
        )
        self.durable = msgspec.structs.replace(
            d, rollout=planned, phase="prepared", next_epoch=d.next_epoch + 1, next_routes=number + 1
        )
        for thread in table:
            if thread not in self.members:
                self.members[thread] = Member(self, thread, self.places[thread])
        self.tell()

    @property
    def _number(self) -> int:
        rollout = self.durable.rollout
        if rollout is None:
            return 0
        return rollout.before_number if self.durable.phase == "prepared" else rollout.routes_number

    @property
    def _routes(self) -> tuple[Route, ...]:
        rollout = self.durable.rollout
        if rollout is None:
            return ()
        return rollout.before_routes if self.durable.phase == "prepared" else rollout.routes

    def enter(self, phase: str) -> None:
        self.durable = msgspec.structs.replace(self.durable, phase=phase)
        self.tell()

    def tell(self) -> None:
        """The desired state to all, and the source's marks."""
        d = self.durable
        assert d.rollout is not None
        self._counter += 1
        threads = (*d.rollout.threads, ThreadSpec(SOURCE, "source", HOME))
        alive = {slot.vm for slot in self.places.values()} - self.dead_vms
        keepers: tuple[Keepers, ...] = named_keepers(
            keepers_now(d, TOPOLOGY), {t.thread for t in threads}, alive
        )
        phases = {"prepared": "prepared", "switched": "switched", "probation": "switched"}
        self.desired = DesiredState(
            token=Token(1, d.rollout.epoch, self._counter),
            phase=phases.get(d.phase, "committed"),  # type: ignore[arg-type]
            run="run",
            topology=TOPOLOGY,
            user_paths=(),
            threads=threads,
            routes_number=self._number,
            routes=self._routes,
            held_dead=tuple(sorted(self.dead_vms)),
            keepers=keepers,
        )
        self.table = owners(self._routes[0]) if self._routes else []
        for member in self.members.values():
            self.put(member.thread, self.desired, safe=True)
            if self._number:
                self.put(member.thread, Barrier(SOURCE, member.thread, self._number), safe=True)

    @property
    def in_force(self) -> bool:
        """Does every thread of the plan say that it has switched?"""
        assert self.durable.rollout is not None
        desired = [t.thread for t in self.durable.rollout.threads]
        return all(
            self.members[t].alive and self.members[t].core.now(idle=True).switched >= self._number
            for t in desired
        )

    def settle(self, seconds: float = 30.0) -> None:
        """SWITCHED until it is in force, then committed."""
        self.enter("switched")
        self.run(seconds, until_in_force=True)
        assert self.in_force, f"not in force: {self.standing()}"
        self.enter("committed")
        self.run(1.0)

    def standing(self) -> list[tuple[int, int, int]]:
        alive = [m for m in self.members.values() if m.alive]
        return [(m.thread, len(m.rows.ranges.missing), len(m.rows.ranges.pending)) for m in alive]

    # ── rows ────────────────────────────────────────────────────────────────────────────────────

    def offer(self, count: int) -> None:
        for _ in range(count):
            row = len(self.rows)
            self.rows.append(row)
            self.send(row, 0)

    def send(self, row: int, attempt: int) -> None:
        key, id_ = RootKey(SOURCE, 1, row, attempt), self.random64()
        self.open[row] = key, id_
        if self.table:
            part = RootPart(key, HOME, 0, 0, row, 0, 0, id_)
            target = self.table[range_of(key_of(row))]
            self.put(target, Frame(0, SOURCE, HOME, 1, target, [part], [(0, 0, 1, 0)], [row], 0, 0))

    def acked(self, acks: Iterable[tuple[RootKey, int]]) -> None:
        for key, value in acks:
            known = self.open.get(key.sequence)
            if known is None or known[0] != key:
                continue
            left = known[1] ^ value
            if left:
                self.open[key.sequence] = key, left
            else:
                del self.open[key.sequence]

    def replay(self) -> None:
        for row, (key, _) in list(self.open.items()):
            self.send(row, key.attempt + 1)

    # ── time ────────────────────────────────────────────────────────────────────────────────────

    def put(self, thread: int, what: Any, safe: bool = False) -> None:
        if isinstance(what, StateTaken) and thread in self.deaf:
            return
        if safe or self.random.random() >= self.loss:
            self.net.append((thread, what))

    def run(self, seconds: float, until_in_force: bool = False, step_ns: int = 50 * MS) -> None:
        end_ns = self.now_ns + int(seconds * S)
        while self.now_ns < end_ns and not (until_in_force and self.in_force):
            self.now_ns += step_ns
            if self.now_ns % (2 * S) < step_ns:
                self.tell()
            for _ in range(3):
                self._deliver()
            for member in self.members.values():
                self._turn(member)

    def _deliver(self) -> None:
        net, self.net = self.net, []
        for thread, what in net:
            member = self.members.get(thread)
            if member is not None and member.alive:
                member.inbox.append(what)

    def _turn(self, member: Member) -> None:
        if not member.alive or member.hangs:
            return
        inbox, member.inbox = member.inbox, []
        core = member.core
        for what in inbox:
            if isinstance(what, DesiredState):
                core.obey(orders_of(what, member.slot, member.incarnation), self.now_ns)
            elif isinstance(what, Frame):
                core.take(what, self.now_ns)
            else:
                core.hear(what, self.now_ns)
        core.on_time(self.now_ns)
        core.flush(self.now_ns, everything=True)

    # ── faults ──────────────────────────────────────────────────────────────────────────────────

    def kill(self, thread: int) -> None:
        self.members[thread].alive = False
        self.replay()

    def restart(self, thread: int) -> Member:
        """Another worker in its slot, with what its disk has."""
        before = self.members[thread]
        fresh = self.members[thread] = Member(self, thread, before.slot, before.incarnation + 1)
        self.tell()
        return fresh

    def lose(self, vm: str) -> None:
        """A VM is gone with its disk."""
        self.dead_vms.add(vm)
        self.disks.pop(vm, None)
        for member in self.members.values():
            if member.slot.vm == vm:
                member.alive = False
        self.replay()

    # ── what must be ────────────────────────────────────────────────────────────────────────────

    def counts(self) -> Counter[int]:
        """Key → count, over all threads that own its range. Every range has one owner at most."""
        found: Counter[int] = Counter()
        owned: Counter[int] = Counter()
        for member in self.members.values():
            if member.alive:
                ranges = member.rows.ranges.owned
                owned.update(ranges)
                for key_range in ranges:
                    found.update(member.rows.states.of(key_range))
        assert all(count == 1 for count in owned.values()), "a range with two owners"
        return found

    def expected(self) -> Counter[int]:
        return Counter(map(key_of, self.rows))

    @property
    def lost(self) -> set[int]:
        return {r for member in self.members.values() if member.alive for r in member.rows.ranges.lost}

    def all_done(self) -> None:
        """Nothing goes lost any more, and replays until every row is acked."""
        self.loss = 0.0
        for _ in range(5):
            self.run(3.0)
            if not self.open:
                break
            self.replay()
        assert not self.open, f"rows {sorted(self.open)[:10]} are never acked"


def all_of(*threads: int) -> list[int]:
    """The ranges in as many runs as there are threads."""
    return [threads[i * len(threads) // KEY_RANGES] for i in range(KEY_RANGES)]


BLANK = RolloutStarted(0, None, "", "", 0, (), (), (), 0, (), 0, (), {}, 0)  # type: ignore[arg-type]
