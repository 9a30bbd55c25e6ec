"""Made-up inputs of the analysis: blocks of samples, windows, and a run over virtual time."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from msgspec.structs import astuple

from headgate.controller.analyze.demand import HEADROOM, demand, offer_of
from headgate.controller.core.rate_following import QUEUE_S, RateFollower
from headgate.controller.knowledge.diagnoses import Demand, Past
from headgate.controller.knowledge.measured_window import (
    HISTORY_S,
    SERIES_STEP_S,
    Latency,
    LatencySeries,
    MeasuredWindow,
    ProgressSeries,
    SlotWindow,
    TaskWindow,
)
from headgate.topology_runtime.api.cluster import Slot, Vm
from headgate.topology_runtime.api.topology import Edge, Static, Task, Topology
from headgate.topology_runtime.latency.latency_buckets import PER_DOUBLING
from headgate.topology_runtime.rates.schedule import NS, Schedule
from headgate.topology_runtime.stability.slopes import Floats
from headgate.topology_runtime.wire.messages import LINK_COLUMNS, SAMPLE_COLUMNS, SLOT_COLUMNS, SampleBlock

VM1, VM2 = Vm("vm1", 4, 0.2, 1_000_000_000), Vm("vm2", 4, 0.2, 1_000_000_000)
START_NS = 1_000_000 * NS


def line_topology() -> Topology:
    """source → score → sink; each row becomes two at `score`."""
    return Topology(
        name="line",
        tasks=(Task("source", "source", static=Static(1, 0.1)), Task("score"), Task("sink")),
        edges=(Edge("source", "score"), Edge("score", "sink", selectivity=2.0)),
    )


def packed(names: tuple[str, ...], rows: list[dict[str, int]]) -> dict[str, bytes]:
    """Rows as columns of little-endian int64; what a row does not name is 0."""
    return {name: np.array([row.get(name, 0) for row in rows], "<i8").tobytes() for name in names}


def block(
    vm: str = "vm1",
    sequence: int = 0,
    wall_ns: int = START_NS,
    threads: list[tuple[str, dict[str, int]]] | None = None,
    slots: list[dict[str, int]] | None = None,
    links: list[dict[str, int]] | None = None,
    latency: tuple[tuple[str, str, tuple[int, ...]], ...] = (),
    **more: int,
) -> SampleBlock:
    """One block; `threads`: (task, columns)."""
    threads = threads or []
    return SampleBlock(
        vm=vm,
        boot=more.get("boot", 1),
        sequence=sequence,
        wall_ns=wall_ns,
        window_ns=more.get("window_ns", NS),
        epoch=more.get("epoch", 1),
        tasks=tuple(task for task, _ in threads),
        threads=packed(SAMPLE_COLUMNS, [row for _, row in threads]),
        slots=packed(SLOT_COLUMNS, slots or []),
        links=packed(LINK_COLUMNS, links or []),
        latency=latency,
        per_doubling=PER_DOUBLING,
    )


IDLE = TaskWindow(1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)


def window_of(
    progress: ProgressSeries,
    latency: LatencySeries | None = None,
    complete: float = 1.0,
    tasks: dict[str, TaskWindow] | None = None,
    slots: dict[Slot, SlotWindow] | None = None,
    **rates: float,
) -> MeasuredWindow:
    """A window with this history; everything else is quiet."""
    return MeasuredWindow(
        now_ns=START_NS,
        seconds=rates.get("seconds", 10.0),
        epoch=1,
        complete=complete,
        offered_tps=rates.get("offered_tps", 0.0),
        offered_slope_tps_per_s=0.0,
        emitted_tps=rates.get("emitted_tps", 0.0),
        acked_tps=rates.get("acked_tps", 0.0),
        backlog=0.0,
        backlog_growth_tps=0.0,
        tasks=tasks or {},
        slots=slots or {},
        edges={},
        latency=Latency(0.0, 0.0, 0.0, 0.0, 0.0),
        latencies={},
        latency_series=latency or LatencySeries(),
        progress=progress,
    )


def history(
    offered: Callable[[float], float], now_s: float, acked: Callable[[float], float] | None = None
) -> ProgressSeries:
    """Progress at `now_s` of a run that began at 0 s."""
    at = [-n * SERIES_STEP_S for n in range(int(min(now_s, HISTORY_S) / SERIES_STEP_S), -1, -1)]
    done = acked or offered
    positions = tuple(offered(now_s + a) for a in at)
    return ProgressSeries(tuple(at), positions, positions, tuple(done(now_s + a) for a in at))


@dataclass
class Replan:
    """at_s, planned rate before and after, and the rate offered then."""

    at_s: float
    before_tps: float
    after_tps: float
    offered_tps: float


def needed_for(progress: ProgressSeries, planned_tps: float, past: Past, **given: float) -> Demand:
    """What is to be planned for after this progress, of which every second was heard as it came."""
    following = RateFollower(line_topology())
    points = len(progress.at_s)
    for end in range(1 + (points - 1) % 2, points + 1, 2):
        if end >= 3:
            known = ProgressSeries(*(column[:end] for column in astuple(progress)))
            offer = offer_of(window_of(known), given.get("waits_tps"), given.get("cap_tps", math.inf))
            following.hear(offer, end * NS // 2)
            found = demand(offer, following.forecast, planned_tps, past)
    return found


@dataclass
class DemandRun:
    """A controller that follows a schedule over virtual time, looks once a second and enacts each plan in
    `enact_s`."""

    schedule: Schedule
    phase_s: float = 0.0
    enact_s: float = 1.0
    queue_s: float = QUEUE_S
    replans: list[Replan] = field(default_factory=list)
    worst_below_s: float = 0.0
    longest_wait_s: float = 0.0
    over: float = 0.0  # planned / offered, on average
    texts: list[str] = field(default_factory=list)
    last: Demand | None = None
    _knots_s: Floats = field(default_factory=lambda: np.zeros(0))
    _knots: Floats = field(default_factory=lambda: np.zeros(0))
    _following: RateFollower = field(default_factory=lambda: RateFollower(line_topology()))

    def go(self, seconds: float, first_tps: float | None = None) -> DemandRun:
        planned = (self._rate(0.0) if first_tps is None else first_tps) * HEADROOM
        first, in_force, change_s = planned, planned, -1e9
        self._following.forecast.queue_s = self.queue_s
        self._know(seconds)
        below_s = planned_sum = offered_sum = waiting = 0.0
        enacting, now = 0.0, self.phase_s
        while now < seconds:
            if enacting and now >= enacting - 1e-9:
                in_force, change_s, enacting = planned, now, 0.0
            plans = [(1e9, first), *((now - replan.at_s, replan.after_tps) for replan in self.replans)]
            found = self.last = self._demand(now, planned, Past.of(now - change_s, plans))
            if found.direction != "same" and not enacting and now >= 3:
                self.texts.append(found.text)
                self.replans.append(Replan(now, planned, found.target_tps, self._rate(now)))
                planned, enacting = found.target_tps, now + self.enact_s
            rate = self._rate(now)
            below_s = below_s + 1.0 if rate > in_force else 0.0
            self.worst_below_s = max(self.worst_below_s, below_s)
            waiting = max(0.0, waiting + rate - in_force)
            self.longest_wait_s = max(self.longest_wait_s, waiting / in_force)
            planned_sum, offered_sum = planned_sum + in_force, offered_sum + rate
            now += 1.0
        self.over = planned_sum / max(offered_sum, 1e-9)
        return self

    def _know(self, seconds: float) -> None:
        """Offered positions at every step of the schedule: between them they grow evenly."""
        period = self.schedule.period_s or seconds + 1
        begins = np.arange(0.0, seconds + period, period)
        steps = (begins[:, None] + np.array([at for at, _ in self.schedule.steps])).ravel()
        self._knots_s = np.append(steps[steps < seconds], seconds)
        self._knots = np.array([self.schedule.offered(round(at * NS)) for at in self._knots_s])

    def _rate(self, at_s: float) -> float:
        return self.schedule.rate_at(int(at_s * NS))

    def _demand(self, now: float, planned: float, past: Past) -> Demand:
        at = -np.arange(int(min(now, HISTORY_S) / SERIES_STEP_S), -1, -1) * SERIES_STEP_S
        positions = tuple(np.interp(now + at, self._knots_s, self._knots).tolist())
        offer = offer_of(window_of(ProgressSeries(tuple(at.tolist()), positions, positions, positions)))
        self._following.hear(offer, round(now * NS) + NS)
        return demand(offer, self._following.forecast, planned, past)

    @property
    def most_in_a_minute(self) -> int:
        times = [replan.at_s for replan in self.replans]
        return max((sum(a <= b < a + 60 for b in times) for a in times), default=0)

    @property
    def downs(self) -> int:
        return sum(replan.after_tps < replan.before_tps for replan in self.replans)


def steps(*rates: tuple[float, float], period_s: float = 0.0) -> Schedule:
    """A schedule from (seconds, rows/s)."""
    return Schedule(0, tuple((float(s), float(r)) for s, r in rates), period_s)
