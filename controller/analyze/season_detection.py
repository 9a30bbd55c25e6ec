"""Does the rate come back? A season found in the last minutes, or handed over, and how well it forecast. Pure.

It hears one rate a second, keeps half an hour of them, and does so much work a second and no more.

 found     every few seconds: the shortest lag at which the rates resemble themselves about as much as at any (their
           autocorrelation, over ten minutes and over all that is kept); two whole periods must have been seen.
           The forecast is the mean of what came one, two and three periods before.
 handed    over as a file (`Handed`): laid where it fits the last minutes best, again until it is believed.
 scaled    both by what came in the last period against what was forecast for it.
 believed  once for a whole period (of a handed one: a tenth, at least a minute) what it had forecast `LOOK_S` before
           was off by at most half as much as level and trend were. So a found one is believed after three periods.
 given up  as soon as more than one row in a hundred came above what it forecast with its margin, or it is no longer
           much better than level and trend. Whenever it was, it has to prove itself for twice as long. It is believed
           only once so many rows came that they would bear the steepest rise of the last half hour, unforeseen.
 margin    so much above what was forecast that no more than `short_share` of the rows came above both.
"""

from __future__ import annotations

import math
from typing import NamedTuple, Protocol

import numpy as np

from headgate.topology_runtime.rates.season_learning import (
    BELIEVED,
    KEPT_S,
    LOOK_S,
    Handed,
    laid,
    part_of,
    period_of,
)
from headgate.topology_runtime.stability.slopes import Floats

# ── The last values of one a second, kept without copying. Pure ─────────────────────────────────────────


class LastSeconds:
    """The last `most` values, oldest first."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._twice = np.zeros(2 * most)
        self._next = self._count = self.added = 0

    def add(self, value: float) -> None:
        self._twice[self._next] = self._twice[self._next + self._most] = value
        self._next = (self._next + 1) % self._most
        self.added += 1
        self._count = min(self._count + 1, self._most)

    @property
    def values(self) -> Floats:
        end = self._next + self._most
        return self._twice[end - self._count : end]


# ── How much more than was forecast has to be carried so that few rows come above it. Pure ──────────────


def margin_of(above: Floats, rows: float) -> float:
    """The least for which at most so many rows would have come above it. above: by how much more came than was
    forecast, of each second."""
    above = -np.sort(-above[above > 0])
    if not len(above):
        return 0.0
    return max(0.0, float(((np.cumsum(above) - rows) / np.arange(1, len(above) + 1)).max()))


RECENT_S = 600  # a season is sought in these, and where there is none, in all that is kept
AHEAD_S = 240  # are forecast: longer ahead nothing is decided
CHECK_S = 5  # apart periods are sought
KEPT = 0.75  # of the errors of level and trend, at most, once it is believed
LAID_S, LAID_SHARE = 60, 0.25  # of a period, that a handed season is laid by
PROOF_SHARE = 0.1  # of a period, that it then has to prove itself, `LAID_S` at least
SAME = 0.02  # of a period apart: it is laid as before
PERIODS = 3  # are averaged
MISSED = 0.01  # of the rows may come above what was forecast
RISKED = 0.007  # of the rows of the last half hour: what one rise that is not forecast may bring
JUMP_S, LATE_S = 2, 3  # a rise within so long that is not forecast is above the plan for so long
SCALE_MOST = 2.0
STRIKES_MOST = 3
KNOWN = 1.05  # of the highest rate that is kept: no season forecasts more


class Coming(NamedTuple):
    """From the next second on. rates: forecast, the neighbours of each second and the margin included. needs: what a
    plan must carry for them."""

    rates: Floats
    needs: Floats
    period_s: float
    handed: bool

    @property
    def text(self) -> str:
        return f"as every {self.period_s:.0f} s" + (
            ", by the season that was handed over" if self.handed else ""
        )


class SeasonSource(Protocol):
    """What forecasts: the shape of the next seconds, from the rates that are kept."""

    @property
    def period_s(self) -> float: ...

    def ahead(self, kept: Floats, seconds: int) -> tuple[Floats, Floats]:
        """(what is forecast, and at most)."""
        ...


class Repeated(NamedTuple):
    """What came one, two and three periods before."""

    period_s: float

    def ahead(self, kept: Floats, seconds: int) -> tuple[Floats, Floats]:
        periods = min(PERIODS, math.floor(len(kept) / self.period_s))
        second = np.arange(len(kept), dtype=float)
        at_s = len(kept) + np.arange(seconds, dtype=float)
        shapes = [np.interp(at_s - n * self.period_s, second, kept) for n in range(1, periods + 1)]
        last_tps = float(kept[-round(self.period_s) :].mean())
        usual_tps = float(kept[-round(periods * self.period_s) :].mean())
        mean: Floats = np.mean(shapes, axis=0) * _scale(last_tps, usual_tps)
        return mean, mean


class Laid(NamedTuple):
    """A handed profile; `begins_s` of its period is the first second that was ever heard, `heard` the newest."""

    handed: Handed
    begins_s: float
    heard: LastSeconds

    @property
    def period_s(self) -> float:
        return self.handed.period_s

    def ahead(self, kept: Floats, seconds: int) -> tuple[Floats, Floats]:
        period_s, middle, high = self.handed
        seen = min(len(kept), math.ceil(period_s))
        at_s = self.begins_s + self.heard.added - seen + np.arange(seen + seconds, dtype=float)
        parts = part_of(at_s, period_s, len(middle))
        usual_tps = float(
            middle[parts[:seen]].mean()
        )  # the run may be at another scale than what was learned from
        scale = float(kept[-seen:].mean()) / usual_tps if usual_tps > 0 else 1.0
        return middle[parts[seen:]] * scale, high[parts[seen:]] * scale


def _scale(last_tps: float, usual_tps: float) -> float:
    return min(SCALE_MOST, max(1 / SCALE_MOST, last_tps / usual_tps)) if usual_tps > 0 else 1.0


class Tracked:
    """A season and how well it forecast, from `LOOK_S` ahead."""

    def __init__(self, source: SeasonSource, proof_s: float) -> None:
        self.source, self.proof_s = source, proof_s
        self.believed = self.failed = False
        self._said, self._widest, self._margins = (LastSeconds(LOOK_S) for _ in range(3))
        self._rates, self._above, self._missed = (LastSeconds(KEPT_S) for _ in range(3))
        self._off, self._plain_off = LastSeconds(KEPT_S), LastSeconds(KEPT_S)

    def hear(self, kept: Floats, plain_tps: float | None, short_share: float) -> None:
        """The newest rate is the last of those kept; `plain_tps` was said of it by level and trend."""
        rate_tps = float(kept[-1])
        said, widest = self._said.values, self._widest.values
        if len(said) == LOOK_S and plain_tps is not None:
            above = rate_tps - float(widest[0])
            if len(self._above.values) > LOOK_S:  # by then there is a margin
                self._missed.add(max(0.0, above - float(self._margins.values[0])))
            self._above.add(above)
            self._off.add(abs(rate_tps - float(said[0])))
            self._plain_off.add(abs(rate_tps - plain_tps))
            self._rates.add(rate_tps)
            self._judge(kept)
        middle, high = self.source.ahead(kept, LOOK_S + 1)
        self._said.add(float(middle[LOOK_S - 1]))
        self._widest.add(float(high[LOOK_S - 2 :].max()))
        self._margins.add(self.margin_tps(short_share))

    def _judge(self, kept: Floats) -> None:
        proof_s = math.ceil(self.proof_s)
        span = max(proof_s, math.ceil(self.source.period_s))
        off, plain = float(self._off.values[-span:].sum()), float(self._plain_off.values[-span:].sum())
        if self.believed:
            self.failed = self._missed_much or off > KEPT * plain
        elif len(self._off.values) >= proof_s:
            risen_tps = float((kept[JUMP_S:] - kept[:-JUMP_S]).max())
            seconds = (
                KEPT_S if isinstance(self.source, Laid) else len(kept)
            )  # a handed one held for longer already
            borne = LATE_S * risen_tps <= RISKED * seconds * float(kept.mean())
            self.believed = off <= BELIEVED * plain and borne and not self._missed_much
            self.failed = off > KEPT * plain

    @property
    def _missed_much(self) -> bool:
        rows, missed = self._rates.values[-RECENT_S:], self._missed.values[-RECENT_S:]
        return float(missed.sum()) > MISSED * float(rows.sum())

    @property
    def error(self) -> float:
        """Of what was forecast over the last period, as a share of that of level and trend."""
        span = math.ceil(self.source.period_s)
        return float(self._off.values[-span:].sum()) / max(1e-9, float(self._plain_off.values[-span:].sum()))

    def margin_tps(self, short_share: float, chance_tps: float = 0.0) -> float:
        above = self._above.values[-RECENT_S:] - chance_tps
        return margin_of(above, short_share * float(self._rates.values[-RECENT_S:].sum()))

    def coming(self, kept: Floats, short_share: float, chance_tps: float, most_tps: float) -> Coming:
        seconds = min(AHEAD_S, math.floor(self.source.period_s))
        _, high = self.source.ahead(kept, seconds + 1)
        around = np.concatenate((kept[-1:], high))
        widest = np.maximum(np.maximum(around[:-2], around[1:-1]), around[2:])
        rates = np.minimum(widest + self.margin_tps(short_share, chance_tps), most_tps)
        needs = np.minimum(np.maximum(rates, KNOWN * widest), most_tps)
        return Coming(rates, needs, self.source.period_s, isinstance(self.source, Laid))

    def highest_tps(self, kept: Floats) -> float:
        """Of a whole period."""
        return float(self.source.ahead(kept, math.ceil(self.source.period_s))[1].max())


class SeasonWatch:
    """Looks for a season, and holds those that there are to what they forecast."""

    def __init__(self, short_share: float, handed: Handed | None = None) -> None:
        self.short_share, self.handed = short_share, handed
        self._rates, self._plain = LastSeconds(KEPT_S), LastSeconds(LOOK_S)
        self._found: Tracked | None = None
        self._laid: Tracked | None = None
        self._heard = self._strikes = self._handed_strikes = 0

    def hear(self, rate_tps: float, plain_tps: float) -> None:
        """The rate of the second that is over, and what level and trend say of the one `LOOK_S` later."""
        self._rates.add(rate_tps)
        self._heard += 1
        plain = self._plain.values
        said_tps = float(plain[0]) if len(plain) == LOOK_S else None
        self._plain.add(plain_tps)
        kept = self._rates.values
        for tracked in (self._found, self._laid):
            if tracked is not None:
                tracked.hear(kept, said_tps, self.short_share)
        self._give_up()
        if self._heard % CHECK_S == 0:
            self._look_again(kept)

    def hand(self, handed: Handed | None) -> None:
        """Another one in place of what was handed over before; what is believed of that is, until it errs."""
        self.handed = handed
        if self._laid is not None and not self._laid.believed:
            self._laid = None

    def _give_up(self) -> None:
        if self._found is not None and self._found.failed:
            self._strikes = min(STRIKES_MOST, self._strikes + self._found.believed)
            self._found = None
        if self._laid is not None and self._laid.failed:
            self._handed_strikes = min(STRIKES_MOST, self._handed_strikes + self._laid.believed)
            self._laid = None

    def _look_again(self, kept: Floats) -> None:
        if self._found is None or not self._found.believed:
            period_s = period_of(kept[-RECENT_S:]) or period_of(kept)
            if period_s is not None and not (
                self._found is not None and abs(period_s / self._found.source.period_s - 1) < 0.03
            ):
                self._found = Tracked(Repeated(period_s), period_s * 2**self._strikes)
        if self.handed is not None and (self._laid is None or not self._laid.believed):
            self._lay(self.handed, kept)

    def _lay(self, handed: Handed, kept: Floats) -> None:
        """Where it fits best by now; there it has to prove itself."""
        period_s = handed.period_s
        last = kept[-math.ceil(period_s) :]
        if len(kept) < max(LAID_S, LAID_SHARE * period_s) or (begins_s := laid(handed, last)) is None:
            return
        first_s = (begins_s - (self._rates.added - len(last))) % period_s
        if self._laid is not None and isinstance(self._laid.source, Laid):
            apart_s = abs(first_s - self._laid.source.begins_s)
            if min(apart_s, period_s - apart_s) < SAME * period_s:
                return
        proof_s = max(LAID_S, PROOF_SHARE * period_s) * 2**self._handed_strikes
        self._laid = Tracked(Laid(handed, first_s, self._rates), proof_s)

    def coming(self, chance_tps: float = 0.0) -> Coming | None:
        """What is forecast by the season that is believed, the better one where there are two."""
        believed = [one for one in (self._found, self._laid) if one is not None and one.believed]
        if not believed:
            return None
        best = min(believed, key=lambda tracked: tracked.error)
        kept = self._rates.values
        known_tps = float(kept.max())
        if isinstance(best.source, Laid):
            known_tps = max(known_tps, best.highest_tps(kept))
        return best.coming(kept, self.short_share, chance_tps, KNOWN * known_tps)
