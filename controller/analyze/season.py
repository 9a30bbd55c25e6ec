"""Does the rate come back? A season found in the last minutes, or handed over, and how well it foresaw. Pure.

It hears one rate a second, keeps half an hour of them, and does so much work a second and no more.

 found     every few seconds: the shortest lag at which the rates resemble themselves about as much as at any (their
           autocorrelation, over ten minutes and over all that is kept); two whole periods must have been seen.
           Foreseen is the mean of what came one, two and three periods before.
 handed    over as a file (`Handed`): its profile is laid where it fits the last minutes best.
 scaled    both by what came in the last period against what was foreseen for it.
 believed  once for a whole period (of a handed one: a quarter, at least a minute) what it had foreseen `LOOK_S` before
           was off by at most half as much as level and trend were. So a found one is believed after three periods.
 given up  as soon as more than one row in a hundred came above what it foresaw with its margin, or it is no longer
           much better than level and trend. Whenever it was, it has to prove itself for twice as long. It is believed
           only once so many rows came that they would bear the steepest rise of the last half hour, unforeseen.
 margin    so much above what was foreseen that no more than `short_share` of the rows came above both.
"""

from __future__ import annotations

import math
from typing import NamedTuple, Protocol

import numpy as np

from controller.analyze.last_seconds import LastSeconds
from topology_runtime.stability.slopes import Floats

KEPT_S = 1800
RECENT_S = 600  # a season is sought in these, and where there is none, in all that is kept
SHORTEST_S = 30  # of a period: its troughs are shorter than a plan takes to be committed
CHECK_S = 5  # apart periods are sought
LOOK_S = 15  # ahead it is tried: a plan that is lowered holds its slots for about so long
ALIKE = 0.6  # a lag at which the rates resemble themselves less is no period
NEARLY = 0.9  # as much as at the best lag
BELIEVED, KEPT = 0.5, 0.75  # of the errors of level and trend
PROOF_S, PROOF_SHARE = 60, 0.25  # of a period, that a handed season has to prove itself
PERIODS = 3  # are averaged
MISSED = 0.01  # of the rows may come above what was foreseen
RISKED = 0.007  # of the rows of the last half hour: what one rise that is not foreseen may bring
JUMP_S, LATE_S = 2, 3  # a rise within so long that is not foreseen is above the plan for so long
SCALE_MOST = 2.0
STRIKES_MOST = 3
FLAT = 0.02  # of the mean: rates that vary less have no season worth a plan
KNOWN = 1.05  # of the highest rate that is kept: no season foresees more


class Handed(NamedTuple):
    """A season that was learned elsewhere: what came at each second of a period, in the middle and at most."""

    period_s: int
    middle: Floats
    high: Floats
    name: str


class Coming(NamedTuple):
    """From the next second on. rates: foreseen, the neighbours of each second and the margin included. needs: what a
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
    """What foresees: the shape of the next seconds, from the rates that are kept."""

    @property
    def period_s(self) -> float: ...

    def ahead(self, kept: Floats, seconds: int) -> Floats: ...


class Repeated(NamedTuple):
    """What came one, two and three periods before."""

    period_s: float

    def ahead(self, kept: Floats, seconds: int) -> Floats:
        periods = min(PERIODS, math.floor(len(kept) / self.period_s))
        second = np.arange(len(kept), dtype=float)
        at_s = len(kept) + np.arange(seconds, dtype=float)
        shapes = [np.interp(at_s - n * self.period_s, second, kept) for n in range(1, periods + 1)]
        last_tps = float(kept[-round(self.period_s) :].mean())
        usual_tps = float(kept[-round(periods * self.period_s) :].mean())
        mean: Floats = np.mean(shapes, axis=0)
        return mean * _scale(last_tps, usual_tps)


class Laid(NamedTuple):
    """A handed profile, laid so that its second `begins` is the first that is kept."""

    handed: Handed
    begins: int

    @property
    def period_s(self) -> float:
        return float(self.handed.period_s)

    def ahead(self, kept: Floats, seconds: int) -> Floats:
        seen = min(len(kept), self.handed.period_s)
        index = self.begins + np.arange(len(kept) - seen, len(kept) + seconds)
        shape = self.handed.middle[index % self.handed.period_s]
        return shape[seen:] * _scale(float(kept[-seen:].mean()), float(shape[:seen].mean()))


def _scale(last_tps: float, usual_tps: float) -> float:
    return min(SCALE_MOST, max(1 / SCALE_MOST, last_tps / usual_tps)) if usual_tps > 0 else 1.0


class Tracked:
    """A season and how well it foresaw, from `LOOK_S` ahead."""

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
        ahead = self.source.ahead(kept, LOOK_S + 1)
        self._said.add(float(ahead[LOOK_S - 1]))
        self._widest.add(float(ahead[LOOK_S - 2 :].max()))
        self._margins.add(self.margin_tps(short_share))

    def _judge(self, kept: Floats) -> None:
        proof_s = math.ceil(self.proof_s)
        span = max(proof_s, math.ceil(self.source.period_s))
        off, plain = float(self._off.values[-span:].sum()), float(self._plain_off.values[-span:].sum())
        if self.believed:
            self.failed = self._missed_much or off > KEPT * plain
        elif len(self._off.values) >= proof_s:
            risen_tps = float((kept[JUMP_S:] - kept[:-JUMP_S]).max())
            borne = LATE_S * risen_tps <= RISKED * float(kept.sum())
            self.believed = off <= BELIEVED * plain and borne and not self._missed_much
            self.failed = off > KEPT * plain

    @property
    def _missed_much(self) -> bool:
        rows, missed = self._rates.values[-RECENT_S:], self._missed.values[-RECENT_S:]
        return float(missed.sum()) > MISSED * float(rows.sum())

    @property
    def error(self) -> float:
        """Of what was foreseen over the last period, as a share of that of level and trend."""
        span = math.ceil(self.source.period_s)
        return float(self._off.values[-span:].sum()) / max(1e-9, float(self._plain_off.values[-span:].sum()))

    def margin_tps(self, short_share: float, chance_tps: float = 0.0) -> float:
        above = self._above.values[-RECENT_S:] - chance_tps
        above = -np.sort(-above[above > 0])
        if not len(above):
            return 0.0
        kept = np.cumsum(above) - short_share * float(self._rates.values[-RECENT_S:].sum())
        return max(0.0, float((kept / np.arange(1, len(above) + 1)).max()))

    def coming(self, kept: Floats, short_share: float, chance_tps: float, most_tps: float) -> Coming:
        seconds = math.floor(self.source.period_s)
        ahead = self.source.ahead(kept, seconds + 1)
        around = np.concatenate((kept[-1:], ahead))
        widest = np.maximum(np.maximum(around[:-2], around[1:-1]), around[2:])
        rates = np.minimum(widest + self.margin_tps(short_share, chance_tps), most_tps)
        needs = np.minimum(np.maximum(rates, KNOWN * widest), most_tps)
        return Coming(rates, needs, self.source.period_s, isinstance(self.source, Laid))


class SeasonWatch:
    """Looks for a season, and holds those that there are to what they foresaw."""

    def __init__(self, short_share: float, handed: Handed | None = None) -> None:
        self.short_share, self.handed = short_share, handed
        self._rates, self._plain = LastSeconds(KEPT_S), LastSeconds(LOOK_S)
        self._found: Tracked | None = None
        self._laid: Tracked | None = None
        self._heard = self._strikes = 0

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

    def _give_up(self) -> None:
        for tracked in (self._found, self._laid):
            if tracked is not None and tracked.failed:
                self._strikes = min(STRIKES_MOST, self._strikes + tracked.believed)
        self._found = None if self._found is not None and self._found.failed else self._found
        self._laid = None if self._laid is not None and self._laid.failed else self._laid

    def _look_again(self, kept: Floats) -> None:
        if self._found is None or not self._found.believed:
            period_s = period_of(kept[-RECENT_S:]) or period_of(kept)
            if period_s is not None and not (
                self._found is not None and abs(period_s / self._found.source.period_s - 1) < 0.03
            ):
                self._found = Tracked(Repeated(period_s), period_s * 2**self._strikes)
        if self.handed is not None and self._laid is None:
            self._laid = self._lay(self.handed, kept)

    def _lay(self, handed: Handed, kept: Floats) -> Tracked | None:
        proof_s = max(PROOF_S, PROOF_SHARE * handed.period_s)
        begins = laid(handed.middle, kept[-handed.period_s :]) if len(kept) >= proof_s else None
        if begins is None:
            return None
        return Tracked(Laid(handed, begins - max(0, len(kept) - handed.period_s)), proof_s * 2**self._strikes)

    def coming(self, chance_tps: float = 0.0) -> Coming | None:
        """What is foreseen by the season that is believed, the better one where there are two."""
        believed = [
            tracked for tracked in (self._found, self._laid) if tracked is not None and tracked.believed
        ]
        if not believed:
            return None
        best = min(believed, key=lambda tracked: tracked.error)
        kept = self._rates.values
        return best.coming(kept, self.short_share, chance_tps, KNOWN * float(kept.max()))


def laid(profile: Floats, rates: Floats) -> int | None:
    """The second of the profile that the first of these rates fits best; None where they fit nowhere."""
    long_s = len(profile)
    if rates.std() < FLAT * rates.mean():
        return None
    fits = []
    for begins in range(long_s):
        part = profile[(begins + np.arange(len(rates))) % long_s]
        fits.append(float(np.corrcoef(part, rates)[0, 1]) if part.std() > 0 else -1.0)
    best = int(np.argmax(fits))
    return best if fits[best] >= ALIKE else None


def period_of(rates: Floats) -> float | None:
    """In seconds; None where they do not repeat."""
    alike = _alike(rates)
    most = len(rates) // 2
    apart = np.flatnonzero(alike[: most + 1] < ALIKE / 2)
    if not len(apart):
        return None
    first = max(SHORTEST_S, int(apart[0]))
    best = float(alike[first : most + 1].max(initial=-1.0))
    if best < ALIKE:
        return None
    near = alike[first : most + 1] >= NEARLY * best
    begins = int(np.argmax(near))
    ends = begins + int(np.argmin(near[begins:])) if not near[begins:].all() else len(near)
    period_s = float(first + begins + np.argmax(alike[first + begins : first + ends]))
    if period_s in (first, most):
        return None  # rising still at the end
    return _sharper(alike, period_s)


def _sharper(alike: Floats, period_s: float) -> float:
    """By its multiples, as far as they can be told."""
    for times in range(2, 9):
        reach = max(2, math.ceil(0.02 * times * period_s))
        begins, ends = round(times * period_s) - reach, round(times * period_s) + reach + 1
        if ends > 3 * len(alike) // 4:
            break
        at = begins + int(np.argmax(alike[begins:ends]))
        if alike[at] < ALIKE or at in (begins, ends - 1):
            break
        period_s = at / times
    return period_s


def _alike(rates: Floats) -> Floats:
    """The correlation of the rates with themselves, by lag."""
    number = len(rates)
    off = rates - rates.mean()
    squares = np.cumsum(off**2)
    if number < 2 * SHORTEST_S or squares[-1] <= number * (FLAT * rates.mean()) ** 2:
        return np.ones(1)
    power = np.abs(np.fft.rfft(off, 2 * number)) ** 2
    sums = np.fft.irfft(power)[:number]
    heads, tails = squares[::-1], squares[-1] - np.concatenate(([0.0], squares[:-1]))
    return np.asarray(sums / np.sqrt(np.maximum(heads * tails, 1e-9 * squares[-1] ** 2)))
