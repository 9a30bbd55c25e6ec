"""A worker's part in latency constraints: it reports what its threads and their channels took, manages the parts of
constraints that are its own, and lets buffers leave as managers ask. Run by the main thread; paper 4, section 3.4.

Reporters and managers are workers, since those have links to each other: reports come by the links of the rows, from
named workers only. Who manages what, everybody computes from the same desired state (path_managers.py).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from msgspec.structs import replace

from headgate.topology_runtime.api.cluster import Slot
from headgate.topology_runtime.latency.countermeasures import Acts, Default, PathManager
from headgate.topology_runtime.latency.latency_messages import (
    ChannelSeen,
    LatencyReport,
    Pace,
    Paces,
    PathNow,
    ThreadSeen,
)
from headgate.topology_runtime.latency.path_managers import Channels, Manager, edge_between, managers
from headgate.topology_runtime.worker.links.peer_links import taken
from headgate.topology_runtime.worker.links.switchboard import Switchboard
from headgate.topology_runtime.worker.meters import meter as mt
from headgate.topology_runtime.worker.meters.meter import Meter
from headgate.topology_runtime.worker.orders.thread_orders import Orders, may_be_chained, may_be_run
from headgate.topology_runtime.worker.process.busy_threads import LOOK_NS, BusyThreads

NS = 1_000_000_000
INTERVAL_NS = NS  # between two reports to one manager
AGAIN_NS = 4 * NS  # a manager says so often what it wants
LAPSED_NS = 5 * AGAIN_NS  # what it has not said for so long it does not want any more
GAP_MOST_NS = 10 * NS  # whatever a manager asks for
EARLY_MOST = 1024  # words by routes that are not here yet


@dataclass
class Reader:
    """To whom this worker reports: the manager in `slot`, about these threads and channels; what it has told."""

    slot: Slot
    threads: frozenset[int]
    senders: dict[int, frozenset[int]]  # to each of our threads: of its channels
    due_ns: int
    told_ns: int
    words: dict[int, tuple[int, ...]] = field(default_factory=dict)  # first word of a record → its counts


@dataclass
class Wishes:
    """What managers want of one channel: by whom, and when it was heard last. held: as its sender was told."""

    default: Pace
    by: dict[Slot, tuple[Pace, int]]
    held: Pace

    def shortest(self) -> Pace:
        """By default, where nobody wants anything."""
        paces = [pace for pace, _ in self.by.values()] or [self.default]
        gap_ns = min(GAP_MOST_NS, *(pace.gap_ns for pace in paces))
        return replace(self.default, gap_ns=max(0, gap_ns), rows=max(1, min(pace.rows for pace in paces)))


class LatencyWatch:
    """draw(n): a random number below n. chained: thread → those that managers want it to run."""

    def __init__(self, board: Switchboard, meter: Meter, draw: Callable[[int], int]) -> None:
        self.chained: dict[int, frozenset[int]] = {}
        self._slot, self._incarnation, self._meter = board.slot, board.incarnation, meter
        self._board, self._draw = board, draw
        self._orders: Orders | None = None
        self._number = 0  # of the routes
        self._slot_of: Mapping[int, Slot] = {}
        self._readers: list[Reader] = []
        self._own: list[PathManager] = []
        self._busy: BusyThreads | None = None
        self._busy_ns = 0
        self._wishes: dict[tuple[int, int, int], Wishes] = {}
        self._early: deque[LatencyReport | Paces] = deque(maxlen=EARLY_MOST)
        self._look_ns = self._again_ns = 0

    def obey(self, orders: Orders, now_ns: int) -> None:
        """New orders: with later routes everything begins again, but for the gaps that were needed."""
        if orders.number <= self._number:
            return
        self._orders, self._number, self._slot_of = orders, orders.number, orders.slot_of
        gaps_ms = {manager.constraint: manager.shortest_ms for manager in self._own}
        self._readers, self._own, self.chained = [], [], {}
        self._wishes.clear()
        self._busy = None if orders.topology.latency_constraints else BusyThreads(orders, self._slot)
        if self._busy is not None:
            return
        staying = {task: frozenset(threads) - orders.leaving for task, threads in orders.threads_of.items()}
        for manager in managers(orders.topology, staying, orders.slot_of):
            self._readers += self._reader(manager, now_ns)
            if manager.slot == self._slot:
                self._own = list(self._managing(manager, orders, staying))
        for path in self._own:
            if (gap_ms := gaps_ms.get(path.constraint)) is not None:
                self._do(path.begin(gap_ms), now_ns)
        early, self._early = self._early, deque(maxlen=EARLY_MOST)
        for word in early:
            self._take(word, now_ns)

    def look(
        self, records: Mapping[int, int], now_ns: int, in_turn: Callable[[int], bool] = lambda thread: False
    ) -> None:
        """Once a turn of the main thread. records: thread → the first word of its record in the meter; in_turn: does a
        thread take one frame after the other?"""
        for word in taken(self._board.latency):
            self._take(word, now_ns)
        for reader in self._readers:
            if now_ns >= reader.due_ns:
                reader.due_ns += INTERVAL_NS * (1 + (now_ns - reader.due_ns) // INTERVAL_NS)
                self._report(reader, records, now_ns)
        if self._own and now_ns >= self._look_ns:
            self._look_ns = now_ns + INTERVAL_NS
            for path in self._own:
                self._do(path.look(now_ns / NS), now_ns)
        if self._busy is not None and now_ns >= self._busy_ns:
            self._busy_ns = now_ns + LOOK_NS
            one_by_one = {thread: at for thread, at in records.items() if in_turn(thread)}
            self._pace(tuple(self._busy.look(self._counts(one_by_one), now_ns)), now_ns)
        if now_ns >= self._again_ns:
            self._again_ns = now_ns + AGAIN_NS
            self._lapse(now_ns)
            for path in self._own:
                self._pace(path.wanted(), now_ns)

    def _counts(self, records: Mapping[int, int]) -> dict[int, tuple[int, int, int, int]]:
        """As `BusyThreads` takes them."""
        words = self._meter.words
        return {
            thread: (
                words[at + mt.FRAMES_IN],
                words[at + mt.BUSY_NS],
                words[at + mt.TUPLES_IN],
                words[at + mt.LATENCY_SUM_NS],
            )
            for thread, at in records.items()
        }

    def now(self) -> tuple[PathNow, ...]:
        """Of the parts that are managed here."""
        return tuple(path.now() for path in self._own)

    # ── manager ─────────────────────────────────────────────────────────────────────────────────

    def _managing(
        self, manager: Manager, orders: Orders, threads_of: Mapping[str, frozenset[int]]
    ) -> Iterator[PathManager]:
        topology, settings = orders.topology, orders.desired.settings
        default = Default(settings.gap_s * 1000, orders.cap_of)
        here = {
            thread: may_be_run(orders, thread, self._slot)
            for thread in orders.task_of
            if may_be_chained(orders, thread, self._slot)
        }
        for part in manager.parts:
            path = topology.latency_constraints[part.constraint].path
            edges = [edge_between(topology, *pair) for pair in pairwise(path)]
            channels = tuple(
                Channels(edge.grouping, threads_of[edge.source], threads_of[edge.target], orders.slot_of)
                for edge in edges
            )
            numbers = tuple(topology.edges.index(edge) for edge in edges)
            yield PathManager(topology.latency_constraints, part, numbers, channels, default, here)

    def _do(self, acts: Acts, now_ns: int) -> None:
        self._pace(acts.paces, now_ns)
        for sender, target in acts.chained:
            self.chained[sender] = self.chained.get(sender, frozenset()) | {target}

    def _pace(self, wanted: tuple[Pace, ...], now_ns: int) -> None:
        by_slot: dict[Slot, list[Pace]] = {}
        for pace in wanted:
            by_slot.setdefault(self._slot_of[pace.sender], []).append(pace)
        for slot, paces in by_slot.items():
            self._give(slot, Paces(self._slot, self._incarnation, self._number, tuple(paces)), now_ns)

    # ── reporter ────────────────────────────────────────────────────────────────────────────────

    def _reader(self, manager: Manager, now_ns: int) -> list[Reader]:
        here = {thread for thread, slot in self._slot_of.items() if slot == self._slot}
        threads: set[int] = set()
        senders: dict[int, frozenset[int]] = {}
        for part in manager.parts:
            threads |= here.intersection(*[frozenset().union(*part.threads)])
            for before, after in pairwise(part.threads):
                for thread in here & after:
                    senders[thread] = senders.get(thread, frozenset()) | before
        if not threads:
            return []
        return [Reader(manager.slot, frozenset(threads), senders, now_ns + self._draw(INTERVAL_NS), now_ns)]

    def _report(self, reader: Reader, records: Mapping[int, int], now_ns: int) -> None:
        threads = tuple(self._threads_seen(reader, records, max(1, now_ns - reader.told_ns)))
        channels = tuple(self._channels_seen(reader))
        reader.told_ns = now_ns
        if threads or channels:
            report = LatencyReport(self._slot, self._incarnation, self._number, channels, threads)
            self._give(reader.slot, report, now_ns)

    def _threads_seen(self, reader: Reader, records: Mapping[int, int], past_ns: int) -> Iterator[ThreadSeen]:
        words = self._meter.words
        for thread in reader.threads & records.keys():
            at = records[thread]
            now = words[at + mt.TUPLES_IN], words[at + mt.LATENCY_SUM_NS], words[at + mt.BUSY_NS]
            rows, latency_ns, busy_ns = self._since(reader, at, now)
            if rows > 0:
                yield ThreadSeen(thread, latency_ns // rows, min(1.0, busy_ns / past_ns))

    def _channels_seen(self, reader: Reader) -> Iterator[ChannelSeen]:
        words = self._meter.words
        for at in self._meter.link_records():
            sender, target = words[at + mt.L_FROM], words[at + mt.L_TO]
            if words[at + mt.L_STATE] or sender not in reader.senders.get(target, ()):
                continue
            now = words[at + mt.L_FRAMES], words[at + mt.L_BUFFER_NS], words[at + mt.L_CHANNEL_NS]
            frames, buffer_ns, transport_ns = self._since(reader, at, now)
            if frames > 0:
                yield ChannelSeen(sender, target, frames, buffer_ns // frames, transport_ns // frames)

    def _since(self, reader: Reader, at: int, now: tuple[int, int, int]) -> tuple[int, ...]:
        before = reader.words.get(at, now)  # what was before the first look belongs to nothing that lasts
        reader.words[at] = now
        return tuple(a - b for a, b in zip(now, before, strict=True))

    # ── words ───────────────────────────────────────────────────────────────────────────────────

    def _give(self, slot: Slot, word: LatencyReport | Paces, now_ns: int) -> None:
        if slot == self._slot:
            self._take(word, now_ns)
        else:
            self._board.out.put((slot, word))

    def _take(self, word: LatencyReport | Paces, now_ns: int) -> None:
        """By routes that are not ours any more: its sender makes it again. By later ones: it waits for them."""
        if word.number > self._number:
            self._early.append(word)
        elif word.number == self._number and isinstance(word, LatencyReport):
            for path in self._own:
                path.take(word, now_ns / NS)
        elif word.number == self._number and isinstance(word, Paces):
            for pace in word.paces:
                if self._is_ours(pace):
                    self._wish(word.slot, pace, now_ns)

    def _is_ours(self, pace: Pace) -> bool:
        """Is it about a channel that begins in this worker?"""
        orders = self._orders
        if orders is None or self._slot_of.get(pace.sender) != self._slot:
            return False
        edges = orders.topology.edges
        edge = edges[pace.edge] if 0 <= pace.edge < len(edges) else None
        ends = orders.task_of.get(pace.sender), orders.task_of.get(pace.target)
        return edge is not None and ends == (edge.source, edge.target)

    def _wish(self, slot: Slot, pace: Pace, now_ns: int) -> None:
        """Of what several managers want of one channel, the shortest holds."""
        channel = pace.sender, pace.edge, pace.target
        if channel not in self._wishes:
            default = self._default(*channel)
            self._wishes[channel] = Wishes(default, {}, default)
        self._wishes[channel].by[slot] = pace, now_ns
        self._hold(self._wishes[channel])

    def _default(self, sender: int, edge: int, target: int) -> Pace:
        assert self._orders is not None
        gap_ns = int(self._orders.desired.settings.gap_s * NS)
        return Pace(self._number, sender, edge, target, gap_ns, self._orders.cap_of(target))

    def _lapse(self, now_ns: int) -> None:
        """A manager may have ended, or be another by now."""
        for wishes in self._wishes.values():
            wishes.by = {slot: said for slot, said in wishes.by.items() if now_ns - said[1] <= LAPSED_NS}
            self._hold(wishes)

    def _hold(self, wishes: Wishes) -> None:
        if (pace := wishes.shortest()) != wishes.held:
            wishes.held = pace
            self._board.put(pace.sender, pace)
