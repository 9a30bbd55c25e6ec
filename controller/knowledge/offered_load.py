"""What comes at sources whose rows are taken as they come: how many, how many are not read yet, since when. Pure.

The thread that takes them counts at the place where they enter, and says when it looked: rates are of its times, so
that a report that comes late, or not at all, makes a rate older and not wrong.

Rows that a partition does not read because it is `max_drift` ahead of another one in event time are not offered yet:
they wait for that one and not for more threads.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass, field
from typing import NamedTuple

from headgate.topology_runtime.api.topology import Task, Topology
from headgate.topology_runtime.rates.schedule import Schedule
from headgate.topology_runtime.wire.messages import SourceStatus

NS = 1_000_000_000
APART_NS = NS // 5  # two looks that are kept, at least
KEPT_NS = 5 * NS // 2  # a present rate is the mean over so long
STALE_NS = 3 * NS  # who has said nothing for so long is not waited for
EVER_NS = 1 << 63
SKEW_NS = 2 * NS  # a clock that is further off is not believed


class Look(NamedTuple):
    """At `at_ns` (UTC) so many positions had been taken."""

    at_ns: int
    arrived: int


class Lag(NamedTuple):
    """Of one source: rows taken and not read yet, and seconds since the oldest of them came (0: there is none)."""

    source: str
    rows: int
    seconds: float


@dataclass(slots=True)
class PartitionArrivals:
    """Of one partition. `thread` says it; `oldest_ns`: UTC, 0 when all is read; `held`: as `SourceStatus` says."""

    thread: int = -1
    held: bool = False
    looks: list[Look] = field(default_factory=list)
    unread: int = 0
    oldest_ns: int = 0

    @property
    def arrived(self) -> int:
        return self.looks[-1].arrived if self.looks else 0

    def hear(self, now: SourceStatus, leaving: bool, wall_ns: int) -> None:
        """Take in what a thread says, at `wall_ns`. One that leaves is out of date once another takes rows."""
        came, oldest_ns = (now.emitted, 0) if now.held else (now.arrived, now.oldest_ns)
        at_ns = now.seen_ns if abs(wall_ns - now.seen_ns) <= SKEW_NS else wall_ns
        if not now.seen_ns or (self.looks and at_ns <= self.looks[-1].at_ns):
            return
        if now.thread != self.thread:
            if came < self.arrived and (leaving or now.thread < self.thread):
                return
            self.thread = now.thread
        if came < self.arrived or self.held != now.held:  # a lost VM took what was not read along
            self.looks = []
        self.held = now.held
        if len(self.looks) > 1 and self.looks[-1].at_ns - self.looks[-2].at_ns < APART_NS:
            self.looks.pop()
        self.looks.append(Look(at_ns, came))
        while len(self.looks) > 2 and at_ns - self.looks[1].at_ns >= KEPT_NS:
            del self.looks[0]
        self.unread, self.oldest_ns = max(0, came - now.emitted), oldest_ns

    def arrived_at(self, at_ns: int) -> float:
        """Positions taken by then, between two looks in proportion."""
        place = bisect_right(self.looks, at_ns, key=lambda look: look.at_ns)
        if place == 0 or place == len(self.looks):
            return float(self.looks[place - 1 if place else 0].arrived) if self.looks else 0.0
        before, after = self.looks[place - 1], self.looks[place]
        share = (at_ns - before.at_ns) / (after.at_ns - before.at_ns)
        return before.arrived + share * (after.arrived - before.arrived)

    @property
    def rate_tps(self) -> float:
        """Over the last looks; 0 before there are two."""
        if len(self.looks) < 2:
            return 0.0
        first, last = self.looks[0], self.looks[-1]
        return (last.arrived - first.arrived) * NS / (last.at_ns - first.at_ns)


class SourceLoad(NamedTuple):
    """What is offered to the sources of a topology: by the schedule where they are paced, by arrivals where they take
    rows as they come; one that has ended is offered what it had, one that is held what it read. arrivals: (source, of
    one of its partitions). had: (source, partition) → rows, of those that have ended or are held."""

    topology: Topology | None
    schedule: Schedule | None
    arrivals: tuple[tuple[str, PartitionArrivals], ...]
    had: dict[tuple[str, int], int]

    @property
    def _arriving(self) -> tuple[str, ...]:
        return tuple(task.name for task in self.topology.arriving) if self.topology else ()

    def _of_arriving(self) -> list[PartitionArrivals]:
        names = self._arriving
        return [one for task, one in self.arrivals if task in names]

    def looked_ns(self, wall_ns: int) -> int:
        """By when (UTC) it is known what came, of all that are heard; 0 when none is."""
        times = [one.looks[-1].at_ns for one in self._of_arriving() if one.looks]
        return min([at_ns for at_ns in times if wall_ns - at_ns < STALE_NS], default=max(times, default=0))

    def positions_at(self, at_ns: int, whole: bool = False) -> float:
        """Positions that came, or were due, by then, of all sources together. whole: as many as a thread had read."""
        return (
            sum(self.positions_of(task, at_ns, whole) for task in self.topology.sources)
            if self.topology
            else 0.0
        )

    def positions_of(self, source: Task, at_ns: int, whole: bool = False) -> float:
        """Of this source. Once no more is taken, all that came: it did before, whatever two looks make of the time
        between them."""
        schedule = self.schedule
        if schedule is None:
            return 0.0
        if source.name in self._arriving:
            by_ns = EVER_NS if 0 < schedule.end_ns <= at_ns else at_ns
            return sum(one.arrived_at(by_ns) for task, one in self.arrivals if task == source.name)
        share = (schedule.due(at_ns) if whole else schedule.offered(at_ns)) / source.partitions
        return sum(min(share, self.had.get((source.name, n), share)) for n in range(source.partitions))

    def _goes_on(self, source: Task) -> bool:
        return any((source.name, n) not in self.had for n in range(source.partitions))

    def progress(self, at_ns: int, emitted: int, done: int) -> tuple[float, float, float]:
        """Positions (offered, emitted, done) at the input rate Ω, of which every source takes all: a mean over the
        sources. Of paced ones over those that go on: the rate of these is what is planned for."""
        assert self.topology is not None
        sources, offered = self.topology.sources, self.positions_at(at_ns)
        live = [task for task in sources if self._goes_on(task)]
        if self._arriving or not live:
            live = list(sources)
        level = sum(self.positions_of(task, at_ns) for task in live) / len(live)
        ended = level - offered / len(live)
        return level, emitted / len(live) + ended, done / len(live) + ended

    def rate_at(self, wall_ns: int) -> float | None:
        """Rows/s now, of a source on average: as the schedule says while there is more, or as they come. None before
        the first."""
        schedule, topology = self.schedule, self.topology
        if schedule is None or topology is None:
            return None
        paced = [task for task in topology.sources if task not in topology.arriving and self._goes_on(task)]
        if not topology.arriving:
            return schedule.rate_at(wall_ns) if paced else 0.0
        came = sum(one.rate_tps for one in self._of_arriving()) + len(paced) * schedule.rate_at(wall_ns)
        return round(came / len(topology.sources), 3)

    def lags(self, wall_ns: int) -> tuple[Lag, ...]:
        """Of each arriving source, in file order."""
        found = []
        for name in self._arriving:
            mine = [one for task, one in self.arrivals if task == name]
            oldest_ns = min((one.oldest_ns for one in mine if one.oldest_ns), default=0)
            seconds = max(0.0, (wall_ns - oldest_ns) / NS) if oldest_ns else 0.0
            found.append(Lag(name, sum(one.unread for one in mine), round(seconds, 3)))
        return tuple(found)

    def cap_tps(self, wall_ns: int) -> float:
        """Rows/s of an arriving source that are read at most; infinite without a cap, and without such a source."""
        return self.schedule.cap_at(wall_ns) if self.schedule is not None and self._arriving else math.inf

    @property
    def source_kind(self) -> str | None:
        """`paced`, `arriving`, or `mixed`; None without a topology."""
        if self.topology is None:
            return None
        if not self._arriving:
            return "paced"
        return "arriving" if len(self._arriving) == len(self.topology.sources) else "mixed"
