"""A data plane in one process and in virtual time: real flows, outputs, routers and ledgers, a net that
delivers in any order and may lose things, threads that may crash. After every event it checks what must
always hold.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from operator import itemgetter
from typing import Any

import msgspec
from plane_tasks import MS, Batch, Pairs, Row, S, Seen, Spec, copies, expected, passes

from headgate.topology_runtime.cluster import Slot
from headgate.topology_runtime.logic import To
from headgate.topology_runtime.messages import Ack, Frame, RootKey, RootPart, Route, Tuples, WireFrame
from headgate.topology_runtime.topology import KEY_RANGES, Edge
from headgate.topology_runtime.worker import rows as wire
from headgate.topology_runtime.worker import runs as r
from headgate.topology_runtime.worker.acks import Addressed, BufferedRow
from headgate.topology_runtime.worker.burial import Around
from headgate.topology_runtime.worker.keyed_rows import KeyedRows
from headgate.topology_runtime.worker.keyed_snapshots import added, read, whole
from headgate.topology_runtime.worker.ledger import Ledger, Root
from headgate.topology_runtime.worker.outputs import Outputs
from headgate.topology_runtime.worker.ranges import Standing
from headgate.topology_runtime.worker.router import Router, range_of
from headgate.topology_runtime.worker.thread_core import MapTask
from headgate.topology_runtime.worker.user_code import Results, UserCode
from headgate.topology_runtime.worker.windows import WindowRows

IDLE_STEPS = 4  # events without anything on its way before time makes a leap
Where = tuple[int, int, int, int]  # source, partition, position, variant

_decode = msgspec.msgpack.Decoder(Tuples).decode


# ── the plane ───────────────────────────────────────────────────────────────────────────────────────


@dataclass
class Node:
    """One thread in a worker of its own."""

    spec: Spec
    thread: int
    slot: Slot
    partition: int
    incarnation: int
    outputs: Outputs
    rows: MapTask | WindowRows | KeyedRows
    ledger: Ledger | None = None
    saved: bytes = b""  # a keyed task's last snapshot


@dataclass
class Faults:
    """What may go wrong in the first `events`: shares of frames and acks that are lost, crashes left."""

    loss: float = 0.0
    crashes: int = 0
    source_crashes: int = 0
    events: int = 2000


@dataclass
class Plane:
    specs: Sequence[Spec]
    edges: Sequence[Edge]
    seed: int
    faults: Faults = field(default_factory=Faults)
    cap: int = 6
    window: int = 40
    gap_ns: int = 2 * MS
    outputs_of: type[Outputs] = Outputs
    windows_of: type[WindowRows] = WindowRows
    form_of: Callable[[Spec, Any], Any] = lambda _, logic: logic  # the logic of a task as it is run

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.now_ns = S
        self.moved: set[str] = set()
        self.net: list[tuple[int, Frame | list[Ack]]] = []
        self.arrived: Counter[tuple[str, Row]] = Counter()
        self.identities: Counter[tuple[str, Where]] = Counter()
        self.names: dict[tuple[str, Where], set[Row]] = {}
        self.completed: list[RootKey] = []
        self.emissions: Counter[tuple[int, int]] = Counter()
        self.acked: dict[int, int] = {}
        numbers = iter(range(1, 1000))
        self.nodes: dict[int, Node] = {}
        threads = {spec.name: [next(numbers) for _ in range(spec.threads)] for spec in self.specs}
        self.tables = {name: self._table(of) for name, of in threads.items()}
        for spec in self.specs:
            for partition, thread in enumerate(threads[spec.name]):
                self._make(spec, thread, partition, incarnation=1)

    @property
    def sources(self) -> list[Node]:
        return [node for node in self.nodes.values() if node.spec.kind == "source"]

    def threads_of(self, task: str) -> list[int]:
        return [node.thread for node in self.nodes.values() if node.spec.name == task]

    def _make(self, spec: Spec, thread: int, partition: int, incarnation: int) -> None:
        slot = Slot("vm", thread)
        outputs = self.outputs_of(thread, slot, incarnation, self._random64, self.gap_ns)
        outputs.cap_of = lambda _: self.cap
        feeders = {n: e.source for n, e in enumerate(self.edges) if e.target == spec.name}
        leaves = all(e.source != spec.name for e in self.edges)
        names = tuple(s.name for s in self.specs if s.kind == "source")
        around = Around(spec.name, thread, names, feeders, leaves)
        rows = self._rows(spec, Results(around, outputs))
        if isinstance(rows, KeyedRows):
            rows.ranges.stand(Standing(1, self.tables[spec.name]))
            rows.claim(self.now_ns)
        ledger = Ledger(self.acked.get(thread, 0), self.window) if spec.kind == "source" else None
        self.nodes[thread] = Node(spec, thread, slot, partition, incarnation, outputs, rows, ledger)

    def _rows(self, spec: Spec, results: Results) -> MapTask | WindowRows | KeyedRows:
        def sink(row: Row) -> Row:
            self.arrived[spec.name, row] += 1
            return row

        def code(kind: str, logic: Any) -> UserCode:
            return UserCode(results, kind, logic, self._never)

        if spec.kind == "batch":
            keep = sink if results.around.sink else None
            return self.windows_of(code("hold", Batch(5, keep)), self._random64)
        if spec.kind == "join":
            return self.windows_of(code("hold", Pairs()), self._random64)
        if spec.kind == "keyed":
            return KeyedRows(code("keyed", Seen()), self._random64, lambda _: itemgetter(0))
        logic: dict[str, Any] = {
            "map": self._mapper(spec.name),
            "flat_map": copies,
            "filter": passes,
            "sink": sink,
            "source": None,
        }
        kind = "map" if spec.kind == "sink" else spec.kind
        return MapTask(code(kind, self.form_of(spec, logic[spec.kind])))

    def _mapper(self, name: str) -> Callable[[Row], Any]:
        direct = any(e.grouping == "direct" and e.source == name for e in self.edges)

        def call(row: Row) -> Any:
            out = (row[0], f"{row[1]}{name}")
            return To(row[0], out) if direct else out

        return call

    def _never(self, _: float) -> None:
        raise AssertionError("nothing here may fail")

    def _random64(self) -> int:
        return self.random.getrandbits(64)

    def _table(self, threads: Sequence[int]) -> list[int]:
        """A thread for each key range, in runs of random length."""
        cuts = sorted(self.random.randrange(KEY_RANGES) for _ in threads[1:])
        bounds = [0, *cuts, KEY_RANGES]
        return [t for t, (a, b) in zip(threads, pairwise(bounds), strict=True) for _ in range(b - a)]

    def _route(self, node: Node) -> None:
        """Fresh routers with random weights, made when the thread first sends."""
        made = []
        for number, edge in enumerate(self.edges):
            if edge.source != node.spec.name:
                continue
            threads = self.threads_of(edge.target)
            weights = [self.random.random() + 0.1 for _ in threads]
            targets = tuple((t, w / sum(weights)) for t, w in zip(threads, weights, strict=True))
            ranges = tuple((owner, 1) for owner in self.tables[edge.target])
            route = Route(number, targets, ranges)
            local = frozenset(threads[:1])
            made.append(
                (number, Router(edge, route, local, lambda row: row[0], lambda _: self.cap, node.thread))
            )
        node.outputs.route_by(made)

    # ── what happens ────────────────────────────────────────────────────────────────────────────

    def run(self, steps: int = 4000) -> None:
        """Random events until all sources have emitted and everything is done, or `steps` are over."""
        self.begin(0)
        for step in range(steps):
            if self.quiet():
                return
            if step == self.faults.events:
                self.faults = Faults()
            self._step()
        raise AssertionError(f"not done after {steps} events: {self.standing()}")

    def begin(self, events: int) -> None:
        """Routes, when there are none yet, and so many events."""
        for node in self.nodes.values():
            if not node.outputs.edges:
                self._route(node)
        for _ in range(events):
            self._step()

    def quiet(self) -> bool:
        return all(
            n.ledger is not None and n.ledger.empty and n.ledger.position >= n.spec.rows for n in self.sources
        )

    def _step(self) -> None:
        self.now_ns += self.random.randrange(MS)
        kind = self.random.random()
        if kind < 0.15:
            self._emit(self.random.choice(self.sources))
        elif kind < 0.75 and self.net:
            self._deliver(self.net.pop(self.random.randrange(len(self.net))))
        elif kind < 0.95 or not self._crash():
            self._flush(self.random.choice(list(self.nodes.values())))
        self._idle = 0 if self.net else self._idle + 1
        if self._idle > IDLE_STEPS:
            self.now_ns += min(MS << self._idle, 60 * S)
            for node in self.nodes.values():
                self._flush(node)

    _idle = 0

    def _emit(self, node: Node) -> None:
        """A source's turn: replays first, then what there is room for."""
        ledger = node.ledger
        assert ledger is not None
        ledger.expire(self.now_ns)
        while (root := ledger.next_replay(self.now_ns)) is not None:
            self._send(node, root)
        limit = min(ledger.room(), node.spec.rows - ledger.position, self.random.randrange(1, 9))
        if limit > 0:
            base = node.partition * 1000 + ledger.position
            rows = [(n, "") for n in range(base, base + limit)]
            self._send(node, ledger.begin(rows, self.now_ns, self.now_ns))

    def _send(self, node: Node, root: Root) -> None:
        ledger = node.ledger
        assert ledger is not None
        for offset in range(len(root.rows)):
            self.emissions[node.thread, root.position + offset] += 1
        key = RootKey(node.thread, node.incarnation, root.sequence, root.attempt)
        number = [s.name for s in self.specs if s.kind == "source"].index(node.spec.name)
        part = RootPart(key, node.slot, number, node.partition, root.position, 0, ledger.floor, 0)
        given = node.rows.results.emit(r.Batch(root.rows, [(0, 0, len(root.rows), 0)], [part]), self.now_ns)
        if ledger.sent(root, given.get(key, 0), self.now_ns):
            self._complete(key)

    def _flush(self, node: Node) -> None:
        if isinstance(node.rows, KeyedRows) and node.rows.dirty:
            change = node.rows.change() if node.saved and self.random.random() < 0.7 else None
            node.saved = node.saved + added(change) if change else whole(node.rows.snapshot())
            self._tell(node.rows.covered())
        if node.spec.name in self.moved and isinstance(node.rows, WindowRows):
            self._tell(node.rows.hand_over(self._keeper(node), self.now_ns))
        if isinstance(node.rows, WindowRows) and node.rows.holding:
            self._tell(node.rows.fire_old(self.now_ns, draining=False))
            self._note(node)
        if node.ledger is not None and not self.net and self.random.random() < 0.5:
            self._emit(node)
        for frame in node.outputs.flush(self.now_ns):
            assert 0 < len(frame.rows) <= self.cap, "a frame never holds more than its receiver's cap"
            assert r.fits(frame)
            self._put(frame.target, frame)

    def _put(self, thread: int, what: Frame | list[Ack]) -> None:
        if self.random.random() >= self.faults.loss:
            self.net.append((thread, what))

    def _deliver(self, letter: tuple[int, Frame | list[Ack]]) -> None:
        thread, what = letter
        node = self.nodes[thread]
        if isinstance(what, Frame):
            self._take(node, self._over_the_wire(what) if self.random.random() < 0.5 else what)
        else:
            self._hear(node, what)

    def _over_the_wire(self, frame: Frame) -> Frame:
        shape = wire.check(frame.rows)
        body = msgspec.Raw(wire.write(frame.rows, shape))
        data = msgspec.msgpack.encode(WireFrame(msgspec.structs.replace(frame, rows=[]), shape, body))
        message = _decode(data)
        assert isinstance(message, WireFrame)
        message.frame.rows = wire.read(message.rows, message.shape)
        return message.frame

    def _take(self, node: Node, frame: Frame) -> None:
        acks = node.rows.take(frame, self.now_ns)
        assert not node.rows.results.letters, node.rows.results.letters
        self._tell(acks)
        self._note(node)

    def _note(self, node: Node) -> None:
        """The identities of rows that are finished at a sink."""
        for root, offset, count, variant in node.rows.results.done().finished:
            for j in range(count):
                where = root.source, root.partition, root.position + offset + j, variant
                self.identities[node.spec.name, where] += 1

    def _tell(self, acks: Iterable[Addressed]) -> None:
        by_home: dict[int, list[Ack]] = {}
        for home, ack in acks:
            by_home.setdefault(home.number, []).append(ack)
        for thread, batch in by_home.items():
            self._put(thread, batch)

    def _hear(self, node: Node, batch: list[Ack]) -> None:
        ledger = node.ledger
        assert ledger is not None
        for number, ack in enumerate(batch):
            if ack.key.incarnation != node.incarnation:
                continue
            before = ledger.acked
            if ledger.ack(ack, self.now_ns):
                self.net.append((node.thread, batch[number + 1 :]))
                self._complete(ack.key)
                self.net.pop()
            assert ledger.acked >= before, "acked only moves forward"

    def _crash(self) -> bool:
        """A worker dies with all it holds; the sources learn of it."""
        source = self.faults.source_crashes > 0 and self.random.random() < 0.5
        victims = self.sources if source else [n for n in self.nodes.values() if n.spec.kind != "source"]
        if (self.faults.source_crashes if source else self.faults.crashes) < 1:
            return False
        self.faults = replace(
            self.faults,
            crashes=self.faults.crashes - (not source),
            source_crashes=self.faults.source_crashes - source,
        )
        node = self.random.choice(victims)
        if node.ledger is not None:
            self.acked[node.thread] = node.ledger.acked
        self._make(node.spec, node.thread, node.partition, node.incarnation + 1)
        fresh = self.nodes[node.thread]
        if isinstance(fresh.rows, KeyedRows) and node.saved:
            fresh.saved = node.saved
            fresh.rows.restore(read(node.saved))
        self._route(fresh)
        self.net = [
            (thread, what)
            for thread, what in self.net
            if thread != node.thread or self.random.random() < 0.5  # what was on its way may still come
        ]
        for other in self.sources:
            if other.ledger is not None:
                other.ledger.fault()
        return True

    def move_ranges(self, task: str) -> None:
        """A re-plan: senders go by new key ranges; what went by the old ones is in when rows move on.
        Rows that are still on their way from one keeper to the next follow later."""
        self.moved.add(task)
        before = {edge.source for edge in self.edges if edge.target == task}
        for node in self.nodes.values():
            if node.spec.name in before:
                for frame in node.outputs.flush(self.now_ns, everything=True):
                    self.net.append((frame.target, frame))
        self.tables[task] = self._table(self.threads_of(task))
        for node in self.nodes.values():
            if node.spec.name in before:
                self._route(node)
        threads = self.threads_of(task)
        ours = [(t, what) for t, what in self.net if t in threads]
        self.net = [(t, what) for t, what in self.net if t not in threads]
        for letter in ours:
            self._deliver(letter)

    def _keeper(self, node: Node) -> Callable[[int, Row], int | None]:
        def keeper(_: int, row: Row) -> int | None:
            owner = self.tables[node.spec.name][range_of(row[0])]
            return None if owner == node.thread else owner

        return keeper

    # ── what must hold ──────────────────────────────────────────────────────────────────────────

    def _complete(self, key: RootKey) -> None:
        """The ledger says that everything that came of this attempt is done: then nothing of it is left."""
        self.completed.append(key)
        left = self.left_of(key)
        assert not left, f"root {key} completed although {left}"

    def left_of(self, key: RootKey) -> list[str]:
        """Where there still is something of an attempt of a root."""
        left = []
        for thread, what in self.net:
            if isinstance(what, Frame):
                left += [f"a frame is on its way to {thread}" for root in what.roots if root.key == key]
            else:
                left += [f"an ack is on its way: {ack}" for ack in what if ack.key == key]
        for node in self.nodes.values():
            frames = [*node.outputs.buffers.values()]
            left += [f"{node.spec.name} has not sent" for buffer in frames if key in buffer.roots]
            left += [
                f"{node.spec.name} has not sent"
                for frame in node.outputs.full
                for root in frame.roots
                if root.key == key
            ]
            left += [
                f"{node.spec.name} keeps {kept.row}"
                for kept in self.kept(node)
                if key in [root.key for root in kept.roots]
            ]
            if isinstance(node.rows, KeyedRows) and key in node.rows.uncovered.roots:
                left.append(f"{node.spec.name} keeps rows until a snapshot")
        return left

    def kept(self, node: Node) -> list[BufferedRow]:
        if isinstance(node.rows, KeyedRows):
            return [kept for side in node.rows.side.values() for kept in side]
        if not isinstance(node.rows, WindowRows):
            return []
        panes = node.rows.panes
        rows = [kept for pane in panes.by_key.values() for kept in pane.kept()]
        assert panes.rows == len(rows), "the count of kept rows is right"
        return rows

    def standing(self) -> str:
        ledgers = {
            n.thread: (n.ledger.acked, n.ledger.position, n.ledger.in_flight, len(n.ledger.again))
            for n in self.sources
            if n.ledger
        }
        kept = {n.spec.name: len(self.kept(n)) for n in self.nodes.values() if self.kept(n)}
        return f"seed {self.seed}, ledgers {ledgers}, net {len(self.net)}, kept {kept}"

    def expected(self) -> Counter[tuple[str, Row]]:
        return expected(self.specs, self.edges)
