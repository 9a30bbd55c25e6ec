"""What rate will come: level, damped trend, and how wrong that was lately. Pure; so much work a second, and no more.

It hears one rate a second and keeps ten minutes of them.

 level, trend   Holt's two averages with a damped trend. A rate that is off by more than chance makes is a step:
                the level goes there at once, and the trend learns nothing from it. A rise in each of three seconds
                on end is a trend at once, as steep as in the least of them.
 error          by how much more came than was forecast, over the time that a plan takes to be in force. From these
                errors the *margin*: so much above the forecast that, had it always been added, no more than
                `short_share` of the rows of the last ten minutes would have come above a plan.
 burst          a rise that is over before a plan could help. Two of them are known, from then on they are neither
                level nor error: the queue takes them, as far as rows may wait (`queue_s`). A plan must then carry
                what comes besides and the most that they bring in any so many seconds, spread over these and the wait.
 season         what comes back after a period (`season_detection.py`); where one is believed, it is planned for.

Nothing that is asked of a plan for errors is above what came in the last ten minutes (`recent_tps`).
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import msgspec
import numpy as np

from headgate.controller.analyze.season_detection import Coming, LastSeconds, SeasonWatch, margin_of
from headgate.topology_runtime.rates.season_learning import LOOK_S, Handed
from headgate.topology_runtime.stability.slopes import Floats

MEMORY_S = 600
SPANS_S = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)  # in the longer ones several bursts fall
APART = 4  # times as long as they last bursts are apart, on average
LIKE_SHARE = 0.25  # of one step's errors: another that is as large makes a pattern of the two
SPARE = 1.05  # of all that comes on average: else what waits would never go


class Tuning(msgspec.Struct, frozen=True):
    """The constants of forecast and demand; docs/explanation/load-forecasting.md has the reason and the curve of each.

    level_share, trend_share: of what is new in a second. damping: of the trend, a second. step_scatter: a rate this
    many times its usual error off is a step. short_share: of rows that may come above a plan. burst_s: a rise of
    less is a burst; burst_height: and is at least so much higher. queue_share: of the time that rows may wait is
    planned with. quiet_s: low for so long before a plan is lowered; down_share: so low. again_s: after a plan that
    lowered the rate; hold_s: after one that raised it, besides.
    ahead_s: a plan that is made for a rise reaches so far, but at most `beyond` times what came in the last minutes.
    peak_ratio: a recent peak at most so much above is planned for at once."""

    level_share: float = 0.5
    trend_share: float = 0.1
    damping: float = 0.9
    step_scatter: float = 4.0
    short_share: float = 0.002
    burst_s: int = 4
    burst_height: float = 0.25
    queue_share: float = 0.7
    quiet_s: float = 10.0
    down_share: float = 0.85
    again_s: float = 15.0
    hold_s: float = 5.0
    ahead_s: float = 15.0
    beyond: float = 1.2
    peak_ratio: float = 1.3


CHOSEN = Tuning()


class Needed(NamedTuple):
    """What a plan must carry, and what asks for it: `level`, `trend`, `errors`, `bursts` or `season`."""

    tps: float
    what: str


class Bursts(NamedTuple):
    """Those of the last ten minutes, once there were two, if they are rare. rows: the most that they brought, above
    what came besides, within each of `SPANS_S`. mean_tps: what they brought in a second, on average."""

    number: int = 0
    peak_tps: float = 0.0
    mean_tps: float = 0.0
    rows: tuple[float, ...] = ()

    def carried_tps(self, base_tps: float, wait_s: float) -> float:
        """What a plan must carry while `base_tps` comes besides, so that no row waits longer, and what waits has
        gone before the next burst."""
        spans = zip(self.rows, SPANS_S, strict=False)
        one_tps = max(((rows + base_tps * span_s) / (span_s + wait_s) for rows, span_s in spans), default=0.0)
        return max(one_tps, SPARE * (base_tps + self.mean_tps)) if self.number else 0.0


class RateForecast:
    """Of the offered rate. queue_s: rows may wait so long."""

    def __init__(self, queue_s: float, tuning: Tuning = CHOSEN, handed: Handed | None = None) -> None:
        self.tuning, self.queue_s = tuning, queue_s
        self.level_tps = self.trend = self.scatter_tps = 0.0
        self.bursts = Bursts()
        self.recent_tps = 0.0
        self._rates, self._levels, self._trends = (
            LastSeconds(MEMORY_S),
            LastSeconds(MEMORY_S),
            LastSeconds(MEMORY_S),
        )
        self._needs = LastSeconds(MEMORY_S)
        self._season = SeasonWatch(tuning.short_share, handed)
        self._burst_ages: list[int] = []
        self._burst_peaks: list[float] = []

    @property
    def seconds(self) -> int:
        """So many were heard, of those that are kept."""
        return len(self._rates.values)

    def mean_tps(self, seconds: int) -> float | None:
        """Of the last so many; None: fewer were heard."""
        rates = self._rates.values[-seconds:]
        return float(rates.mean()) if len(rates) == seconds else None

    def hear(self, rate_tps: float) -> None:
        """The rate of the second that is over."""
        if not self.seconds:
            self.level_tps, self.scatter_tps = rate_tps, 0.02 * rate_tps
        self._smooth(rate_tps)
        self._rates.add(rate_tps)
        self._levels.add(self.level_tps)
        self._trends.add(max(0.0, self.trend))
        self._season.hear(rate_tps, self.level_tps + self.trend * self._damped(LOOK_S))
        self._look_for_bursts()
        rates = self._rates.values
        self.recent_tps = float(_opened(rates, self._sure_s).max())

    def hand(self, season: Handed | None) -> None:
        """Another season than the one that was handed over before."""
        self._season.hand(season)

    def _smooth(self, rate_tps: float) -> None:
        t = self.tuning
        error = rate_tps - self.level_tps - t.damping * self.trend
        usual = max(t.step_scatter * self.scatter_tps, 0.08 * self.level_tps, 1e-9)
        self.trend *= t.damping
        if abs(error) > usual:
            self.level_tps = rate_tps
        else:
            self.level_tps += self.trend + t.level_share * error
            self.trend += t.trend_share * error
        before = self._rates.values[-3:].tolist()
        if len(before) == 3:
            self.trend = max(self.trend, min(b - a for a, b in pairwise([*before, rate_tps])))
        most = t.step_scatter * self.scatter_tps + 0.05 * self.level_tps
        self.scatter_tps += 0.03 * (min(abs(error), most) - self.scatter_tps)

    # ── bursts ──────────────────────────────────────────────────────────────────────────────────

    @property
    def _sure_s(self) -> int:
        """A rate that lasts for so long is one that stays."""
        return self.tuning.burst_s if self.bursts.number else 2

    def _look_for_bursts(self) -> None:
        """Has one ended just now? Higher than before and after, for less than `burst_s`."""
        t = self.tuning
        self._burst_ages = [age + 1 for age in self._burst_ages]
        if self._burst_ages and self._burst_ages[0] >= MEMORY_S:
            del self._burst_ages[0], self._burst_peaks[0]
        last = self._rates.values[-t.burst_s - 1 :].tolist()
        for long_s in range(1, min(t.burst_s, len(last) - 1)):
            around, within = max(last[-2 - long_s], last[-1]), last[-1 - long_s : -1]
            if min(within) - around > max(t.step_scatter * self.scatter_tps, t.burst_height * around):
                self._burst_ages.append(0)
                self._burst_peaks.append(max(within))
                break
        spread_s = self._burst_ages[0] - self._burst_ages[-1] if self._burst_ages else 0
        if spread_s < APART * t.burst_s * (len(self._burst_ages) - 1) or len(self._burst_ages) < 2:
            self.bursts = Bursts()  # none, or so many that they are half of what comes
        else:
            peak_tps = max(self._burst_peaks)
            self.bursts = Bursts(len(self._burst_ages), peak_tps, *self._burst_rows())

    def _burst_rows(self) -> tuple[float, tuple[float, ...]]:
        """What came above all that lasted for `burst_s`: in a second on average, and at most within each span."""
        rates, burst_s = self._rates.values, self.tuning.burst_s
        lasting = _opened(rates, burst_s)
        padded = np.concatenate((np.zeros(burst_s - 1), lasting, np.zeros(burst_s - 1)))
        base = -_opened(-padded, burst_s)
        # of the newest it is not known yet whether they last
        sums = np.concatenate(([0.0], np.cumsum((rates - base)[: -burst_s + 1 or None])))
        rows = tuple(float((sums[s:] - sums[:-s]).max()) for s in SPANS_S if s < len(sums))
        return float(sums[-1] / max(1, len(sums) - 1)), rows

    def burst_tps(self, base_tps: float) -> float:
        """What a plan must carry for the bursts that are known while `base_tps` comes besides."""
        return self.bursts.carried_tps(base_tps, self.tuning.queue_share * self.queue_s)

    # ── what is forecast ────────────────────────────────────────────────────────────────────────

    def rise_tps(self, ahead_s: float) -> float:
        """What the trend adds within so long; nothing where it falls, and while bursts come."""
        if self.bursts.number:
            return 0.0
        return min(max(0.0, self.trend) * self._damped(ahead_s), self.level_tps)

    def _damped(self, ahead_s: float) -> float:
        share = self.tuning.damping
        return share * float(1 - share**ahead_s) / (1 - share)

    def margin_tps(self, ahead_s: int, chance_tps: float = 0.0) -> float:
        """So much above the forecasts of the last minutes, and all but `short_share` of what came was below it.
        A lone step is no pattern, and left out. chance_tps: an error of so much is chance. While bursts come there is
        none: the queue takes them."""
        rates = self._rates.values
        if len(rates) <= ahead_s or self.bursts.number:
            return 0.0
        foreseen = self._levels.values[:-ahead_s] + self._trends.values[:-ahead_s] * self._damped(ahead_s)
        errors = _without_lone(np.maximum(0.0, rates[ahead_s:] - foreseen - chance_tps), ahead_s + 1)
        return margin_of(errors, self.tuning.short_share * float(rates.mean()) * MEMORY_S)

    def foreseen_tps(self, ahead_s: int) -> float | None:
        """What was forecast so long ago of the newest second; None where fewer were heard, and while bursts come."""
        if len(self._rates.values) <= ahead_s or self.bursts.number:
            return None
        level_tps, trend = self._levels.values[-1 - ahead_s], self._trends.values[-1 - ahead_s]
        return float(level_tps + trend * self._damped(ahead_s))

    def coming(self, chance_tps: float = 0.0) -> Coming | None:
        """What a season forecasts; None where none is believed, and while bursts come."""
        return None if self.bursts.number else self._season.coming(chance_tps)

    def needed(self, base_tps: float, headroom: float, ahead_s: int, chance_tps: float = 0.0) -> Needed:
        """What a plan must carry while the rate is `base_tps`."""
        rise_tps = self.rise_tps(ahead_s)
        rise_tps = rise_tps if rise_tps > chance_tps else 0.0
        errors_tps = base_tps + rise_tps + self.margin_tps(ahead_s, chance_tps)
        return max(
            Needed(headroom * base_tps, "level"),
            Needed(base_tps + rise_tps, "trend"),
            Needed(min(errors_tps, self.recent_tps), "errors"),
            Needed(self.burst_tps(base_tps), "bursts"),
            key=lambda needed: needed.tps,
        )

    def remember(self, needed: Needed) -> None:
        """What was needed in this second."""
        self._needs.add(needed.tps)

    def most_needed(self, seconds: int) -> float | None:
        """In the last seconds; None before so many were heard."""
        needs = self._needs.values
        return float(needs[-seconds:].max()) if len(needs) >= seconds else None


def _without_lone(errors: Floats, long_s: int) -> Floats:
    """Errors, each at least 0, without those of the worst `long_s` on end where no others are as much as
    `LIKE_SHARE` of them."""
    if len(errors) < long_s:
        return errors
    worst = int(np.argmax(_sums(errors, long_s)))
    others = errors.copy()
    others[worst : worst + long_s] = 0.0
    like = float(_sums(others, long_s).max()) >= LIKE_SHARE * float(_sums(errors, long_s)[worst])
    return errors if like else others


def _sums(values: Floats, long: int) -> Floats:
    """Of each so many in a row."""
    sums = np.concatenate(([0.0], np.cumsum(values)))
    return sums[long:] - sums[:-long]


def _opened(rates: Floats, seconds: int) -> Floats:
    """The rates that lasted for so long: the least of each so many in a row."""
    if len(rates) < seconds:
        return rates[:1]
    found = rates[: len(rates) - seconds + 1]
    for after in range(1, seconds):
        found = np.minimum(found, rates[after : len(rates) - seconds + 1 + after])
    return found
