"""The output side of one thread: a buffer per edge and receiving thread, and the shares in it. Pure.

Rules (protocol: Tuples):
 1. For each root, each input frame gives one fresh random share to every buffer part into which it put
    rows of that root, or rows that root goes along with; a frame's id for the root is the XOR of the
    shares in it. So ids are never shared between input frames [A1].
 2. A buffer is flushed at once when its edge's last flush is a gap or more ago, else a gap after it;
    and when it is full. One for a chained thread is always flushed at once. Gap and size may be of one buffer
    alone: where a latency constraint needs less, or allows more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from headgate.topology_runtime.api.cluster import Slot
from headgate.topology_runtime.api.logic import To
from headgate.topology_runtime.latency.latency_messages import Pace
from headgate.topology_runtime.wire.messages import Frame, RootKey, RootPart
from headgate.topology_runtime.wire.report_messages import KeysSeen
from headgate.topology_runtime.worker.calls.router import Places, Router, range_of
from headgate.topology_runtime.worker.rows import row_runs as r
from headgate.topology_runtime.worker.rows.acks import BufferedRow, Shares
from headgate.topology_runtime.worker.rows.columns import Columns, chosen
from headgate.topology_runtime.worker.rows.row_runs import Run


@dataclass(slots=True)
class Buffer:
    """Rows for one thread by one edge, not yet sent. count: of `parts`."""

    edge: int
    target: int
    filled_ns: int
    parts: list[Sequence[Any]] = field(default_factory=list)
    count: int = 0
    runs: list[Run] = field(default_factory=list)
    roots: dict[RootKey, tuple[int, RootPart]] = field(default_factory=dict)

    def add(self, rows: Sequence[Any]) -> None:
        self.parts.append(rows)
        self.count += len(rows)

    @property
    def rows(self) -> Any:
        """A list that is all there is of a frame goes on as it is; nobody changes the rows of a frame. Columns stay
        columns where nothing but such columns came."""
        parts, kinds = self.parts, set(map(type, self.parts))
        if len(parts) == 1 and kinds <= {list, Columns}:
            return parts[0]
        both = (
            Columns.joined([part for part in parts if type(part) is Columns]) if kinds == {Columns} else None
        )
        return list(chain.from_iterable(parts)) if both is None else both


def bare(rows: Sequence[Any]) -> Sequence[Any]:
    """Rows without the thread that they are addressed to."""
    return [row.row if type(row) is To else row for row in rows] if To in set(map(type, rows)) else rows


class _Rows:
    """Rows of one input frame on their way out, and whose they are."""

    def __init__(self, rows: Sequence[Any], runs: Sequence[Run]) -> None:
        self.rows, self.runs = rows, runs
        self._singles: list[tuple[int, int, int]] | None = None

    def part(self, places: Places) -> tuple[Sequence[Any], Sequence[Run]]:
        rows = self.rows
        if len(places) == len(rows):
            return rows, self.runs
        if isinstance(places, range):
            return rows[places.start : places.stop], r.part(self.runs, places.start, places.stop)
        if self._singles is None:
            self._singles = list(r.single(self.runs))
        singles = self._singles
        return chosen(rows, places), r.joined(singles[place] for place in places)


class Outputs:
    """Buffers of thread `thread`; `random64` gives fresh 64-bit numbers."""

    def __init__(
        self, thread: int, slot: Slot, incarnation: int, random64: Callable[[], int], gap_ns: int
    ) -> None:
        self._thread, self._slot, self._incarnation = thread, slot, incarnation
        self._random64 = random64
        self.gap_ns = gap_ns
        self._routers: list[tuple[int, Router]] = []
        self.edges = 0  # of which it is known where their rows go
        self._only: tuple[int, int] | None = None  # the one edge and its one receiver, if that is all
        self.addressed = False  # rows may say which thread they are for
        self.choosy = False  # rows may have no usable key, or index of a thread
        self.buffers: dict[tuple[int, int], Buffer] = {}
        self._flushed_ns: dict[tuple[int, int], int] = {}
        self._paces: dict[tuple[int, int], Pace] = {}  # of buffers that differ from the others
        self.full: list[Frame] = []
        self.at_once: set[int] = set()  # threads that nothing is gained by waiting for
        self.cap_of: Callable[[int], int] = lambda _: 256

    def route_by(self, routers: list[tuple[int, Router]], number: int = 0) -> None:
        """From now on rows go by these routers (edge number, router), of routes `number`."""
        self._routers, self.edges = routers, len(routers)
        only = routers[0][1].only if len(routers) == 1 else None
        self._only = (routers[0][0], only) if only is not None else None
        self.addressed = any(router.grouping == "direct" for _, router in routers)
        self.choosy = self.addressed or any(router.grouping == "fields" for _, router in routers)
        self._flushed_ns.clear()
        self._paces = {place: pace for place, pace in self._paces.items() if pace.number >= number}

    def pace(self, pace: Pace) -> None:
        """From now on, until later routes than its own come, the buffer of this channel leaves so."""
        self._paces[pace.edge, pace.target] = pace

    def put(self, rows: Sequence[Any], runs: Sequence[Run], roots: Sequence[RootPart], now_ns: int) -> Shares:
        """Rows of one input frame (or source root) into the buffers of every edge.

        Returns the XOR of all shares given, per root."""
        if not rows:
            return {}
        if (
            self._only is not None
            and (whole := self._whole(self._only, rows, runs, roots, now_ns)) is not None
        ):
            return whole
        given: Shares = {}
        plain = _Rows(bare(rows) if self.addressed else rows, runs)
        for edge, router in self._routers:
            for target, places in router.split(rows if router.grouping == "direct" else plain.rows):
                chosen, its_runs = plain.part(places)
                copy = router.copy_of.get(target, 0)
                went = [(n, at, count, r.over_edge(way, edge, copy)) for n, at, count, way in its_runs]
                self._add(edge, target, chosen, went, roots, now_ns, given)
        return given

    def _whole(
        self, place: tuple[int, int], rows: Any, runs: Sequence[Run], roots: Sequence[RootPart], now_ns: int
    ) -> Shares | None:
        """Most frames of a busy thread, made as `_add` would and without a buffer: full (half, where nothing is gained
        by waiting), of one root, for the only receiver, for which nothing waits. None: it is another one."""
        edge, target = place
        cap = self._cap(edge, target)
        least = cap // 2 if target in self.at_once else cap
        if len(runs) > 1 or not least <= len(rows) <= cap or type(rows) is not list or place in self.buffers:
            return None
        number, at, count, way = runs[0]
        root = roots[number]
        if root.along:
            return None
        share = self._random64()
        origin = root.home, root.source, root.partition, root.position
        part = RootPart(root.key, *origin, root.intended_ns, root.floor, share)
        run = 0, at, count, r.over_edge(way, edge)
        self._flushed_ns[place] = now_ns
        self.full.append(
            Frame(
                edge, self._thread, self._slot, self._incarnation, target, [part], [run], rows, now_ns, now_ns
            )
        )
        return {root.key: share}

    def keys_seen(self, hidden: bool) -> tuple[KeysSeen, ...]:
        """Of each edge whose rows are split by key: what was seen since this was asked last."""
        watched = [(edge, router.keys) for edge, router in self._routers if router.keys is not None]
        told = (keys.told(edge, self._thread, range_of, hidden) for edge, keys in watched)
        return tuple(seen for seen in told if seen is not None)

    def unroutable(self) -> list[tuple[int, BaseException]]:
        """(place, why) of rows of the last `put` that had no usable key for an edge; told once."""
        found: list[tuple[int, BaseException]] = []
        for _, router in self._routers:
            if router.unroutable:
                found += router.unroutable
                router.unroutable = []
        return found

    def forward(self, row: BufferedRow, target: int, now_ns: int) -> Shares:
        """A row to the thread that keeps such rows from now on, as if it came by the edge that it came by."""
        given: Shares = {}
        run = 0, row.offset, 1, row.variant
        self._add(row.edge, target, (row.row,), [run], row.roots, now_ns, given)
        return given

    def _add(
        self,
        edge: int,
        target: int,
        rows: Sequence[Any],
        runs: Sequence[Run],
        roots: Sequence[RootPart],
        now_ns: int,
        given: Shares,
    ) -> None:
        buffer = self._buffer(edge, target, len(rows), now_ns)
        numbers: dict[int, int] = {}  # number in `roots` → number in the buffer
        for number, _, _, _ in runs:
            if number not in numbers:
                numbers[number] = self._share(buffer, roots[number], given)
        self._take_along(buffer, roots, numbers, given)
        buffer.runs += [(numbers[number], at, count, way) for number, at, count, way in runs]
        buffer.add(rows)
        if buffer.count >= self._cap(edge, target):
            self.full.append(self._frame(self.buffers.pop((edge, target)), now_ns))

    def _buffer(self, edge: int, target: int, rows: int, now_ns: int) -> Buffer:
        """The buffer of this thread and edge, with room for so many more rows."""
        place = edge, target
        buffer = self.buffers.get(place)
        if buffer is not None and buffer.count + rows > self._cap(edge, target):
            self.full.append(self._frame(self.buffers.pop(place), now_ns))
            buffer = None
        if buffer is None:
            buffer = self.buffers[place] = Buffer(edge, target, now_ns)
        return buffer

    def _cap(self, edge: int, target: int) -> int:
        cap = self.cap_of(target)
        if not self._paces or (pace := self._paces.get((edge, target))) is None:
            return cap
        return min(cap, pace.rows)

    def _due_ns(self, place: tuple[int, int]) -> int:
        pace = self._paces.get(place)
        return self._flushed_ns.get(place, 0) + (self.gap_ns if pace is None else pace.gap_ns)

    def calm_until_ns(self) -> int:
        """Nothing leaves before, unless it fills its frame: every channel waits longer than usual. 0 where one does
        not."""
        due: list[int] = []
        for edge, router in self._routers if self._paces else ():
            for target in router.threads:
                pace = self._paces.get((edge, target))
                if pace is None or pace.gap_ns <= self.gap_ns:
                    return 0
                due.append(self._due_ns((edge, target)))
        return min(due, default=0)

    def _share(self, buffer: Buffer, root: RootPart, given: Shares) -> int:
        share = self._random64()
        given[root.key] = given.get(root.key, 0) ^ share
        known = buffer.roots.get(root.key)
        if known is not None:
            known[1].id ^= share
            return known[0]
        number = len(buffer.roots)
        place = root.home, root.source, root.partition, root.position
        buffer.roots[root.key] = number, RootPart(root.key, *place, root.intended_ns, root.floor, share)
        return number

    def _take_along(
        self, buffer: Buffer, roots: Sequence[RootPart], numbers: dict[int, int], given: Shares
    ) -> None:
        """Roots that go along with those of `numbers` get shares too, and are named beside them."""
        for number in [n for n in numbers if roots[n].along]:
            known = list(buffer.roots.values())[numbers[number]][1]
            for other in roots[number].along:
                if other not in numbers:
                    numbers[other] = self._share(buffer, roots[other], given)
                if numbers[other] not in known.along:
                    known.along.append(numbers[other])

    def flush(self, now_ns: int, everything: bool = False) -> list[Frame]:
        """Frames that are due now."""
        frames, self.full = self.full, []
        if self.buffers:
            due = [
                place
                for place in self.buffers
                if everything or place[1] in self.at_once or now_ns >= self._due_ns(place)
            ]
            frames += [self._frame(self.buffers.pop(place), now_ns) for place in due]
        return frames

    def _frame(self, buffer: Buffer, now_ns: int) -> Frame:
        self._flushed_ns[buffer.edge, buffer.target] = now_ns
        return Frame(
            edge=buffer.edge,
            sender=self._thread,
            slot=self._slot,
            incarnation=self._incarnation,
            target=buffer.target,
            roots=[part for _, part in buffer.roots.values()],
            runs=buffer.runs,
            rows=buffer.rows,
            filled_ns=buffer.filled_ns,
            flushed_ns=now_ns,
        )

    def next_flush_ns(self) -> int | None:
        """When `flush` has something to do; None when all buffers are empty."""
        if self.full:
            return 0
        if not self.buffers:
            return None
        return min(map(self._due_ns, self.buffers))

    @property
    def empty(self) -> bool:
        return not self.buffers and not self.full
