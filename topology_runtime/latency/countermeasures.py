"""What a manager does about its part of a constraint: paper 4, sections 3.3 and 3.5. Pure.

It keeps what reporters tell for the constraint's window and adds it up along the sequences. Where one takes too long,
in this order, each only once the one before has been seen to be not enough:
 1. the gaps of the channels that such sequences use become their shares of the limit;
 2. their buffers become smaller, by the paper's rule;
 3. threads of this worker that follow each other are chained, as long as together they leave a tenth of a core;
 4. it is helpless, and says where the time goes: the controller may have more threads or other places for them.
Where there is room, gaps go back: to what they are by default, or up to their shares where a thread is busy, for larger
frames cost less. After each step it waits until nothing measured before it is left.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from headgate.topology_runtime.api.topology import LatencyConstraint
from headgate.topology_runtime.latency.latency_messages import LatencyReport, Pace, PathNow, Standing
from headgate.topology_runtime.latency.path_managers import Channel, Channels, Judged, PathPart, Seen, judged

# ── When the buffer of a channel should leave. Pure ───
#
# First rule, ours: a buffer leaves a *gap* after the one before; the gaps along a sequence are shares of what
# its limit leaves for them, so one look is enough. Second rule, paper 4's equations 2 and 3, by size: where
# rows wait in a buffer for longer than 5 ms and longer than its sender worked on them, it shrinks by 0.98 a
# ms; where they do not wait at all, it grows by a tenth. By itself it takes many looks, and at low rates it
# swings.

AIMED = 0.8  # of the limit: what the gaps leave room for
LEAST_SHARE = 0.1  # of the limit: buffers are left so much together, whatever else takes long
LEAST_MS = 5.0  # a buffer that rows wait in for less is not shrunk
SHRINK, GROW = 0.98, 1.1
NONE_MS = 0.05  # about no wait


def share_ms(limit_ms: float, fixed_ms: float, hops: int) -> float:
    """The gap of one channel of a sequence that takes `fixed_ms` beside its buffers."""
    return max(AIMED * limit_ms - fixed_ms, LEAST_SHARE * limit_ms) / hops


def resized(rows: int, waited_ms: float, worked_ms: float, most: int) -> int:
    """Equations 2 and 3: rows in a buffer from now on, of `rows` before; waited_ms: in it, on average; worked_ms: the
    latency of the sender's task."""
    if waited_ms > max(LEAST_MS, worked_ms):
        return max(1, math.floor(rows * math.pow(SHRINK, waited_ms)))
    if waited_ms < NONE_MS:
        return min(most, max(rows + 1, math.floor(rows * GROW)))
    return rows


NS, MS = 1_000_000_000, 1_000_000
LOOK_S = 2.5  # of measurements at least before something is done
ROOM = 0.5  # of the limit: below it there is room
BUSY = 0.7  # of its time in its task's logic: larger frames would help such a thread
CHAINED_MOST = 0.9  # of a core: all threads of a chain together (paper 4)
WORTH = 0.9  # a gap is changed if it becomes at least a tenth shorter
BUFFERED = 0.1  # of a sequence's latency: less than this in its buffers is not what is wrong


@dataclass
class Running:
    """A mean over what is not older than the window: (when, sum, weight)."""

    told: deque[tuple[float, float, float]] = field(default_factory=deque)

    def add(self, now_s: float, value: float, weight: float, window_s: float) -> None:
        self.told.append((now_s, value * weight, weight))
        while self.told[0][0] < now_s - window_s:
            self.told.popleft()

    @property
    def mean(self) -> float:
        weight = sum(weight for _, _, weight in self.told)
        return sum(sums for _, sums, _ in self.told) / weight if weight else 0.0


@dataclass(frozen=True)
class Default:
    """Buffers before anybody changes them. rows: in one to a thread, at most."""

    gap_ms: float
    rows: Callable[[int], int]


@dataclass(frozen=True)
class Acts:
    """What is to be done: paces of channels (by no routes yet), pairs of threads of this worker to be chained."""

    paces: tuple[Pace, ...] = ()
    chained: tuple[Channel, ...] = ()


class PathManager:
    """One part of a constraint. edges: the numbers of its edges; here: the threads of this worker that may be in a
    chain, and whether also behind another one."""

    def __init__(
        self,
        constraints: Sequence[LatencyConstraint],
        part: PathPart,
        edges: tuple[int, ...],
        channels: tuple[Channels, ...],
        default: Default,
        here: Mapping[int, bool],
    ) -> None:
        self.constraint = part.constraint
        self._constraint, self._part = constraints[part.constraint], part
        self._edges, self._channels = edges, channels
        self._default, self._here = default, here
        self._buffers: dict[Channel, Running] = {}
        self._transports: dict[Channel, Running] = {}
        self._latencies: dict[int, Running] = {}
        self._busy: dict[int, float] = {}
        self._gaps_ms: dict[Channel, float] = {}  # other than by default
        self._rows: dict[Channel, int] = {}
        self._chained: set[Channel] = set()
        self._deaf_until_s = 0.0  # what is told before was measured before the last step
        self._since_s: float | None = None  # of the oldest that counts
        self._standing: Standing = "held"
        self._judged: Judged | None = None
        self._text = ""

    def begin(self, gap_ms: float) -> Acts:
        """With gaps as they had to be before the routes changed."""
        channels = [
            (sender, target)
            for joined, before, after in zip(
                self._channels, self._part.threads, self._part.threads[1:], strict=False
            )
            for sender in sorted(before)
            for target in sorted(joined.after(frozenset({sender})) & after)
        ]
        return self._done(Acts(tuple(self._paced(pair, gap_ms=gap_ms) for pair in channels)), None)

    def wanted(self) -> tuple[Pace, ...]:
        """All that is wanted other than by default: to be said again, for a word may be lost, or its hearer new."""
        return tuple(
            self._paced(pair)
            for pair, gap_ms in self._gaps_ms.items()
            if gap_ms != self._default.gap_ms or self._rows[pair] != self._default.rows(pair[1])
        )

    @property
    def shortest_ms(self) -> float | None:
        """The shortest gap that was needed; None: none shorter than by default."""
        shorter = [gap_ms for gap_ms in self._gaps_ms.values() if gap_ms < self._default.gap_ms]
        return min(shorter, default=None)

    def take(self, report: LatencyReport, now_s: float) -> None:
        if now_s < self._deaf_until_s:
            return
        if self._since_s is None:
            self._since_s = now_s
        window_s, steps = self._constraint.window_s, self._part.threads
        pairs = list(pairwise(steps))
        for seen in report.channels:
            if any(seen.sender in before and seen.target in after for before, after in pairs):
                pair = seen.sender, seen.target
                waited_ms = seen.buffer_ns / 2 / MS
                self._buffers.setdefault(pair, Running()).add(now_s, waited_ms, seen.frames, window_s)
                way = self._transports.setdefault(pair, Running())
                way.add(now_s, seen.transport_ns / MS, seen.frames, window_s)
        for thread in report.threads:
            if any(thread.thread in step for step in steps):
                latency = self._latencies.setdefault(thread.thread, Running())
                latency.add(now_s, thread.latency_ns / MS, 1.0, window_s)
                self._busy[thread.thread] = thread.busy

    def look(self, now_s: float) -> Acts:
        """Once a second: what is to be done now."""
        if self._since_s is None or now_s < self._since_s + min(LOOK_S, self._constraint.window_s):
            return Acts()
        found = self._judged = judged(self._part.threads, self._seen(now_s), self._means(self._latencies))
        if found is None:
            return Acts()
        limit_ms = self._constraint.limit_ms
        if found.most_ms > limit_ms:
            acts = self._shorter(found) or self._smaller(found) or self._chain(found)
            self._standing = "adapting" if acts else "helpless"
            self._text = "" if acts else self._where(found)
        else:
            acts = self._longer(found) if found.most_ms < ROOM * limit_ms else None
            self._standing, self._text = "held", ""
        return self._done(acts, now_s) if acts else Acts()

    def now(self) -> PathNow:
        """How it stands; before anything is known: held, 0 ms."""
        found, default_ms = self._judged, self._default.gap_ms
        return PathNow(
            self._part.constraint,
            self._standing,
            round(found.mean_ms, 3) if found else 0.0,
            round(found.least_ms, 3) if found else 0.0,
            round(found.most_ms, 3) if found else 0.0,
            len(found.through) if found else 0,
            sum(gap < default_ms for gap in self._gaps_ms.values()),
            sum(gap > default_ms for gap in self._gaps_ms.values()),
            len(self._chained),
            self._text,
        )

    # ── steps ───────────────────────────────────────────────────────────────────────────────────

    def _shorter(self, found: Judged) -> Acts | None:
        """The first rule."""
        limit_ms, paces = self._constraint.limit_ms, []
        waited = found.most_ms - max(found.fixed.values())
        if waited < BUFFERED * found.most_ms:
            return None
        for pair, ms in found.through.items():
            gap_ms = share_ms(limit_ms, found.fixed[pair], len(self._edges))
            if ms > limit_ms and gap_ms < WORTH * self._gap_ms(pair):
                paces.append(self._paced(pair, gap_ms=gap_ms))
        return Acts(tuple(paces)) if paces else None

    def _smaller(self, found: Judged) -> Acts | None:
        """The second rule."""
        paces = []
        for pair, ms in found.through.items():
            rows, latency = self._rows_of(pair), self._latencies.get(pair[0])
            waited_ms, worked_ms = self._buffers[pair].mean, latency.mean if latency else 0.0
            fewer = resized(rows, waited_ms, worked_ms, self._default.rows(pair[1]))
            if ms > self._constraint.limit_ms and fewer < rows:
                paces.append(self._paced(pair, rows=fewer))
        return Acts(tuple(paces)) if paces else None

    def _chain(self, found: Judged) -> Acts | None:
        """The longest series of threads of the slowest sequence that may become one, none of them in a chain yet."""
        taken = {thread for pair in self._chained for thread in pair}
        best: list[Channel] = []
        series: list[Channel] = []
        for place, pair in enumerate(pairwise(found.slowest)):
            free = taken.isdisjoint(pair) and self._one_to_one(place, pair)
            series = [*series, pair] if free else []
            while series and sum(self._busy.get(thread, 0.0) for thread in _threads(series)) >= CHAINED_MOST:
                series = series[1:]
            if len(series) > len(best):
                best = series
        if not best:
            return None
        self._chained.update(best)
        return Acts(chained=tuple(best))

    def _one_to_one(self, place: int, pair: Channel) -> bool:
        """Both here, nobody else sends to the one or is sent to by the other, on this edge, and the one may be behind
        another."""
        sender, target = pair
        joined = self._channels[place]
        alone = joined.after(frozenset({sender})) == {target} and joined.before(frozenset({target})) == {
            sender
        }
        return alone and sender in self._here and self._here.get(target, False)

    def _longer(self, found: Judged) -> Acts | None:
        """There is room: back towards the default, or beyond where a thread is busy."""
        paces = []
        for pair in found.through:
            gap_ms = self._gap_ms(pair)
            busy = max(self._busy.get(thread, 0.0) for thread in pair) >= BUSY
            share = share_ms(self._constraint.limit_ms, found.fixed[pair], len(self._edges))
            aim_ms = max(share, self._default.gap_ms) if busy else self._default.gap_ms
            aim_ms = min(aim_ms, share)
            if gap_ms < WORTH * aim_ms:
                paces.append(self._paced(pair, gap_ms=min(aim_ms, max(2 * gap_ms, 1.0))))
            elif not busy and aim_ms < WORTH * gap_ms:
                paces.append(self._paced(pair, gap_ms=aim_ms))
            elif (rows := self._rows_of(pair)) < (most := self._default.rows(pair[1])):
                more = resized(rows, self._buffers[pair].mean, 0.0, most)
                if more > rows:
                    paces.append(self._paced(pair, rows=more))
        return Acts(tuple(paces)) if paces else None

    def _done(self, acts: Acts, now_s: float | None) -> Acts:
        """Nothing that was measured before this counts any more."""
        old_s = max([self._gap_ms((pace.sender, pace.target)) for pace in acts.paces], default=0.0) / 1000
        for pace in acts.paces:
            pair = pace.sender, pace.target
            self._gaps_ms[pair], self._rows[pair] = pace.gap_ns / MS, pace.rows
        self._deaf_until_s = now_s + 2 * old_s + 1.0 if now_s is not None else 0.0
        self._since_s = None
        for told in (self._buffers, self._transports, self._latencies):
            told.clear()
        return acts

    # ── figures ─────────────────────────────────────────────────────────────────────────────────

    def _seen(self, now_s: float) -> dict[Channel, Seen]:
        fresh_s = now_s - self._constraint.window_s
        for pair in [pair for pair, told in self._buffers.items() if told.told[-1][0] < fresh_s]:
            del self._buffers[pair], self._transports[pair]
        return {pair: Seen(told.mean, self._transports[pair].mean) for pair, told in self._buffers.items()}

    def _means(self, told: Mapping[int, Running]) -> dict[int, float]:
        return {thread: running.mean for thread, running in told.items()}

    def _gap_ms(self, pair: Channel) -> float:
        return self._gaps_ms.get(pair, self._default.gap_ms)

    def _rows_of(self, pair: Channel) -> int:
        return self._rows.get(pair, self._default.rows(pair[1]))

    def _paced(self, pair: Channel, gap_ms: float | None = None, rows: int | None = None) -> Pace:
        gap_ms = self._gap_ms(pair) if gap_ms is None else gap_ms
        rows = self._rows_of(pair) if rows is None else rows
        place = next(n for n, step in enumerate(self._part.threads) if pair[0] in step)
        return Pace(0, pair[0], self._edges[place], pair[1], int(gap_ms * MS), rows)

    def _where(self, found: Judged) -> str:
        """The slowest sequence in words."""
        path, slowest = self._constraint.path, found.slowest
        waits = [(self._buffers[pair].mean, self._transports[pair].mean) for pair in pairwise(slowest)]
        buffers_ms, ways_ms = (sum(parts) for parts in zip(*waits, strict=True))
        means = self._means(self._latencies)
        works = [(means.get(thread, 0.0), name, thread) for thread, name in zip(slowest, path, strict=True)][
            1:
        ]
        ms, name, thread = max(works)
        return (
            f"{found.most_ms:.0f} ms on the slowest way: {buffers_ms:.0f} in buffers, {ways_ms:.0f} between threads, "
            f"{ms:.0f} at {name!r} (thread {thread}, busy {self._busy.get(thread, 0.0):.0%})"
        )


def _threads(series: list[Channel]) -> list[int]:
    return [series[0][0], *(target for _, target in series)]
