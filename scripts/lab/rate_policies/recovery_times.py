"""Daedalus and Phoebe: the fewest slots with which what a re-plan or a failure leaves is caught up with in time. Pure.

Daedalus: Pfister et al., ICPE 2024. Read in its code, pfisterb/daedalus at 9d64dd2: its execution manager (a look a
minute, three minutes between plans, in ten minutes only what must be), capacity and regression (capacity
by the line of throughput over CPU, at CPU 1), recovery time and config (30 s down to scale up, 15 s to scale
down, 10 s since a checkpoint, at most 600 s). That code adds the time that it is down to a recovery that contains it;
here it is counted once. Its corrections of the downtimes by a second at a time are left out.

Phoebe: Geldenhuys et al., ICWS 2022. Read in its code, dos-group/phoebe at b664b0d: `execution/phoebe/Graph.java`
(every ten minutes; not for one or two fewer), the models of analytics/app/recoverytime (`eval_single`: what came since
the checkpoint and while it was down is done, then what came meanwhile, and so on) and `phoebe.properties` (at most
180 s). Its code rounds each of these times up to whole seconds, so that they never get shorter once more than half of
the capacity is used, and twice the rate is needed; here they are exact. Its capacities are of profiles run before; here
they are the planner's. It also keeps a latency; here a size that carries less than is forecast is not valid.

Both forecast by ARIMA; here it is the straight line through the last rates, which is what Daedalus falls back to.

    recovery_s(120.0, [100.0] * 900, left_rows=4000.0, down_s=30)  # 231.0: 4,000 rows at 20 rows/s, and 30 s
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from headgate.lab.rate_policies.rule_turns import DeciderQuestion, Rival, Turn1s

Floats = NDArray[np.float64]
CHECKPOINT_S = 10


def straight_on(rates: Sequence[float], seconds: int) -> Floats:
    """The line through rates of seconds, so many seconds on; never below 0. A lone rate goes on as it is."""
    values = np.asarray(rates, float)
    ahead = len(values) + np.arange(seconds, dtype=float)
    if len(values) < 2:
        return np.full(seconds, values[0])
    slope, start = np.polyfit(np.arange(len(values), dtype=float), values, 1)
    return np.asarray(np.maximum(0.0, start + slope * ahead))


# ── Daedalus ────────────────────────────────────────────────────────────────────────────────────


def recovery_s(
    capacity_tps: float, forecast: Sequence[float] | Floats, left_rows: float, down_s: int
) -> float:
    """Until more than `left_rows` are done besides what comes, in s; inf: not within the forecast. forecast: rows/s
    second by second from now."""
    spare = np.maximum(0.0, capacity_tps - np.asarray(forecast, float)[down_s:]).cumsum()
    over = np.flatnonzero(spare > left_rows)
    return math.inf if not len(over) else float(down_s + over[0] + 1)


class CapacityLine:
    """The line of rows/s per slot over busy share, from all that was measured."""

    def __init__(self) -> None:
        self._count = self._busy = self._tps = self._busy2 = self._both = 0.0

    def hear(self, busy: float, tps: float) -> None:
        self._count += 1
        before_busy, before_tps = busy - self._busy, tps - self._tps
        self._busy += before_busy / self._count
        self._tps += before_tps / self._count
        self._busy2 += before_busy * (busy - self._busy)
        self._both += before_busy * (tps - self._tps)

    def at_full(self) -> float | None:
        """Rows/s at busy 1; None: as long as all were alike."""
        if self._busy2 <= 1e-12 * self._count:
            return None
        return self._tps + self._both / self._busy2 * (1 - self._busy)


class DaedalusSettings(NamedTuple):
    look_s: int = 60
    apart_s: float = 180.0
    calm_s: float = 600.0
    most_s: float = 600.0
    up_down_s: int = 30
    down_down_s: int = 15
    ahead_s: int = 600
    warm_s: float = 120.0


class CapacityTable:
    """Rows/s by number of slots: as seen, half of it the newest; else in proportion."""

    def __init__(self) -> None:
        self._seen: dict[int, float] = {}
        self._each_tps = 0.0

    def hear(self, slots: int, capacity_tps: float) -> None:
        self._seen[slots] = (self._seen.get(slots, capacity_tps) + capacity_tps) / 2
        self._each_tps = capacity_tps / slots

    def of(self, slots: int) -> float:
        """0: nothing is known."""
        return self._seen.get(slots, slots * self._each_tps)


class DaedalusView(NamedTuple):
    """What it plans by. forecast: rows/s, second by second. last_s: since the last plan."""

    slots: int
    most_slots: int
    rate_tps: float
    since_checkpoint_rows: float
    lag_rows: float
    forecast: Floats
    last_s: float


DAEDALUS = DaedalusSettings()


def daedalus_slots(view: DaedalusView, capacity: CapacityTable, s: DaedalusSettings) -> int:
    """The fewest slots that carry what comes, recover in time and carry what is forecast; else the most."""
    here_tps, forecast = capacity.of(view.slots), view.forecast
    if view.last_s < s.calm_s and here_tps > max(view.rate_tps, forecast[: s.look_s].max()):
        return view.slots
    for slots in range(1, view.most_slots + 1):
        tps = capacity.of(slots)
        if tps <= view.rate_tps:
            continue
        down_s = s.down_down_s if slots < view.slots else s.up_down_s
        left_rows = view.since_checkpoint_rows + forecast[:down_s].sum() + view.lag_rows
        took_s = recovery_s(tps, forecast, left_rows, down_s)
        if took_s > s.most_s or tps < forecast[: int(took_s)].max():
            continue
        if slots == view.slots:
            return slots
        if slots < view.slots and here_tps < view.lag_rows:
            continue
        if tps > forecast.max():
            return slots
    return view.most_slots


class _Followed(Rival):
    """Keeps the rates of the last `keeps_s` seconds."""

    def __init__(self, given: DeciderQuestion, keeps_s: int) -> None:
        super().__init__(given)
        self._rates: deque[float] = deque(maxlen=keeps_s)
        self._planned_s: float | None = None
        self._looked_s = 0.0

    def _due(self, now: Turn1s, every_s: float) -> bool:
        self._rates.append(now.offered_tps)
        if now.in_force_s is None or now.at_s - self._looked_s < every_s:
            return False
        self._looked_s = now.at_s
        return True


class Daedalus(_Followed):
    """`daedalus`"""

    def __init__(self, given: DeciderQuestion, settings: DaedalusSettings = DAEDALUS) -> None:
        super().__init__(given, settings.look_s)
        self.settings = settings
        self._line, self._capacity = CapacityLine(), CapacityTable()

    def look(self, now: Turn1s) -> float | None:
        if now.in_force_s is not None and now.in_force_s >= self.settings.warm_s:
            self._line.hear(now.busy, now.done_tps / now.slots)
        if not self._due(now, self.settings.look_s):
            return None
        full_tps = self._line.at_full()
        if full_tps is not None and now.in_force_s is not None and now.in_force_s >= self.settings.warm_s:
            self._capacity.hear(now.slots, full_tps * now.slots)
        last_s = now.at_s - (-300.0 if self._planned_s is None else self._planned_s)
        if last_s < self.settings.apart_s or self._capacity.of(now.slots) <= 0:
            return None
        rates = list(self._rates)
        view = DaedalusView(
            now.slots, self.given.most_slots, sum(rates) / len(rates), sum(rates[-CHECKPOINT_S:]),
            now.offer.backlog, straight_on(rates, self.settings.ahead_s), last_s,
        )  # fmt: skip
        wanted = daedalus_slots(view, self._capacity, self.settings)
        if wanted == now.slots:
            return None
        self._planned_s = now.at_s
        return now.rate_of(wanted)


# ── Phoebe ──────────────────────────────────────────────────────────────────────────────────────


class PhoebeSettings(NamedTuple):
    look_s: float = 600.0
    most_s: float = 180.0
    ahead_s: int = 600


PHOEBE = PhoebeSettings()


def catch_up_s(capacity_tps: float, past: Sequence[float], forecast: Floats, down_s: float) -> float:
    """The time to do what came since the checkpoint and comes while it is down; then what came meanwhile; and so on
    until that is less than a second, or the forecast ends. With the time that it is down. past: rows/s of seconds."""
    rows = np.concatenate([[0.0], past, forecast]).cumsum()
    seconds = np.arange(len(rows), dtype=float)
    start_s, end_s, took_s = max(0.0, len(past) - CHECKPOINT_S), len(past) + down_s, 0.0
    while start_s < seconds[-1]:
        before, after = np.interp([start_s, end_s], seconds, rows)
        part_s = float(after - before) / capacity_tps
        took_s += part_s
        if part_s < 1:
            break
        start_s, end_s = end_s, end_s + part_s
    return took_s + down_s


class PhoebeView(NamedTuple):
    """each_tps: rows/s that a slot carries. past, forecast: rows/s of seconds."""

    slots: int
    most_slots: int
    each_tps: float
    past: Sequence[float]
    forecast: Floats
    down_s: float


def phoebe_slots(view: PhoebeView, s: PhoebeSettings) -> int:
    """The fewest slots that carry the forecast and recover in time; else those that recover soonest. It stays where
    the rate rises and the present size is valid, and where it would be one or two fewer."""
    bins = np.array_split(view.forecast, 4)
    most_tps = max(float(part.mean()) for part in bins)

    def takes_s(slots: int) -> float:
        return catch_up_s(slots * view.each_tps, view.past, view.forecast, view.down_s)

    def is_valid(slots: int) -> bool:
        return slots * view.each_tps > most_tps and takes_s(slots) < s.most_s

    if view.forecast[-1] > view.forecast[0] and is_valid(view.slots):
        return view.slots
    wanted = next((slots for slots in range(1, view.most_slots + 1) if is_valid(slots)), view.most_slots)
    return view.slots if view.slots - 2 <= wanted <= view.slots else wanted


class Phoebe(_Followed):
    """`phoebe`"""

    def __init__(self, given: DeciderQuestion, settings: PhoebeSettings = PHOEBE) -> None:
        super().__init__(given, settings.ahead_s)
        self.settings = settings

    def look(self, now: Turn1s) -> float | None:
        if not self._due(now, self.settings.look_s):
            return None
        rates = list(self._rates)
        down_s = now.horizon.enact_s + now.horizon.machine_s
        view = PhoebeView(
            now.slots, self.given.most_slots, now.carried_tps / now.slots, rates,
            straight_on(rates, self.settings.ahead_s), down_s,
        )  # fmt: skip
        wanted = phoebe_slots(view, self.settings)
        return None if wanted == now.slots else now.rate_of(wanted)
