"""The offered load as a pure function of time: a step function of rates and its integral.

A source's position p (0, 1, 2 …) has one *intended* emit time, so a restarted source
knows both how far it should be and how late it is. Times are UTC nanoseconds.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from functools import cached_property

import msgspec

NS = 1_000_000_000
EARLIER_KEPT = 4  # changes of rate whose intended times a late source still knows


def _cut(schedule: Schedule | None, depth: int) -> Schedule | None:
    if schedule is None or depth <= 0:
        return None
    return msgspec.structs.replace(schedule, earlier=_cut(schedule.earlier, depth - 1))


class Schedule(msgspec.Struct, frozen=True, dict=True):
    """From `start_ns` on: `steps` of (seconds after start, rows/s), repeating after `period_s`
    (0: the last rate goes on for ever). Steps ascend and begin at 0. `base` positions are offered
    before `start_ns` (used when the rate is set again in a running topology).

    `end_ns` > 0 ends the offer. `earlier` is what was offered before a change of rate. To sources whose rows are
    taken as they come the rates are a cap; `uncapped`: not even that."""

    start_ns: int
    steps: tuple[tuple[float, float], ...]
    period_s: float = 0.0
    base: float = 0.0
    end_ns: int = 0
    earlier: Schedule | None = None
    uncapped: bool = False

    @cached_property
    def _cumulative(self) -> tuple[float, ...]:
        """Tuples offered before each step begins, within one period."""
        out, total = [], 0.0
        for i, (at_s, rate) in enumerate(self.steps):
            out.append(total)
            if i + 1 < len(self.steps):
                total += (self.steps[i + 1][0] - at_s) * rate
        return tuple(out)

    @cached_property
    def _times(self) -> tuple[float, ...]:
        return tuple(at_s for at_s, _ in self.steps)

    @cached_property
    def _per_period(self) -> float:
        if self.period_s <= 0:
            return 0.0
        i = bisect_left(self._times, self.period_s) - 1  # the last step that begins within a period
        return self._cumulative[i] + (self.period_s - self._times[i]) * self.steps[i][1]

    @cached_property
    def highest_tps(self) -> float:
        """Ever offered, before changes of the rate too."""
        return max(*(rate for _, rate in self.steps), self.earlier.highest_tps if self.earlier else 0.0)

    def rate_at(self, now_ns: int) -> float:
        """Rows/s offered at `now_ns`."""
        if self.end_ns and now_ns >= self.end_ns:
            return 0.0
        return self._rate_at(now_ns)

    def _rate_at(self, now_ns: int) -> float:
        """As if the offer had no end."""
        if now_ns < self.start_ns:
            return self.earlier.rate_at(now_ns) if self.earlier else 0.0
        t = (now_ns - self.start_ns) / NS
        if self.period_s > 0:
            t %= self.period_s
        return self.steps[max(0, bisect_right(self._times, t) - 1)][1]

    def cap_at(self, now_ns: int) -> float:
        """Rows/s that sources whose rows are taken as they come may emit at most, also after the end (infinite:
        all)."""
        return math.inf if self.uncapped else self._rate_at(now_ns)

    def offered(self, now_ns: int) -> float:
        """Tuples offered since the run began, `base` included; not rounded."""
        if self.end_ns:
            now_ns = min(now_ns, self.end_ns)
        if now_ns < self.start_ns and self.earlier:
            return min(self.base, self.earlier.offered(now_ns))
        t = (now_ns - self.start_ns) / NS
        if t <= 0:
            return self.base
        total = self.base
        if self.period_s > 0:
            periods, t = divmod(t, self.period_s)
            total += periods * self._per_period
        i = max(0, bisect_right(self._times, t) - 1)
        return total + self._cumulative[i] + (t - self._times[i]) * self.steps[i][1]

    def due(self, now_ns: int) -> int:
        """How many positions are due before `now_ns`: 0, 1, …, due − 1."""
        return math.ceil(self.offered(now_ns) - 1e-9)

    def intended_ns(self, position: float) -> int | None:
        """When the tuple of this position is due (None: never, the offer ends before)."""
        want = position - self.base
        if want < 0:
            return self.earlier.intended_ns(position) if self.earlier else self.start_ns
        t = 0.0
        if self.period_s > 0:
            if self._per_period <= 0:
                return None
            periods, want = divmod(want, self._per_period)
            t = periods * self.period_s
        i = max(0, bisect_right(self._cumulative, want) - 1)
        while self.steps[i][1] <= 0:
            i += 1
            if i == len(self.steps):
                return None
        t += self.steps[i][0] + max(0.0, want - self._cumulative[i]) / self.steps[i][1]
        due = self.start_ns + int(t * NS)
        return None if self.end_ns and due >= self.end_ns else due

    def changed(self, now_ns: int, rate_tps: float) -> Schedule:
        """The same offer up to `now_ns`, then `rate_tps` for ever."""
        before = msgspec.structs.replace(self, earlier=_cut(self.earlier, EARLIER_KEPT - 1))
        return Schedule(now_ns, ((0.0, rate_tps),), 0.0, self.offered(now_ns), self.end_ns, before)

    def ended(self, now_ns: int) -> Schedule:
        """The same offer, ending at `now_ns`."""
        return msgspec.structs.replace(self, end_ns=now_ns)
