"""What rate to plan for, and when. Pure: all memory is in the forecast (`forecast.py`), the window and `Past`.

With P the planned rate, and *needed* what a plan must carry now (the rate with headroom, or what the forecast asks
for besides, whichever is more):

 up    when the rate was above P for two seconds on end, or would be where its trend leads until a plan is in force
       (5 s after the last one). Where bursts are known it must last as long as one of them: the queue takes those.
       The plan is for what is needed, or where the trend leads in 15 s, so that a ramp is a few plans; and for a
       recent peak just above at once.
 down  when less than 0.85 P was needed in each of the last 10 s, to the most of the last nine (the rate may have
       fallen within the first), not within 15 s of a plan that lowered the rate nor
       within 20 s of one that raised it; of these 15 s twice as many for each lowering of the last ten minutes that was
       undone within 30 s: a plan costs its moves. Two signals: it is not lowered while more rows wait than that plan
       would carry in a second, nor while the topology is unstable (`diagnosis.py`).
 season where one is believed, a plan is raised before the rise that it forecasts and lowered into troughs that are
       worth it (`lowered`); it is raised as above where more comes than was forecast.
 ahead a forecast reaches until a plan decided now would be in force: two seconds until a rate is sure, and what
       enacting took lately, the start of a VM included where the VMs there are do not suffice.
 come  of rows that are taken as they come, chance makes ±√n of n: a rate counts as above another where it is by
       three times that, over a second, or over five; the level is the mean of five seconds unless one second is
       above that: then what came since, of a step within this second in its newer half. A plan for a step is made
       from little, so for five seconds the level itself raises it again. What waits is to be done within a minute
       besides (`drain_tps`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec
import numpy as np
from msgspec.structs import replace

from headgate.controller.analyze.forecast import CHOSEN, Needed, RateForecast
from headgate.controller.analyze.season_detection import Coming
from headgate.controller.knowledge.diagnoses import Demand, Direction, Headroom, Horizon, Past
from headgate.controller.knowledge.measured_window import SERIES_STEP_S, MeasuredWindow
from headgate.controller.knowledge.offered_load import Lag
from headgate.topology_runtime.stability.slopes import Floats
from headgate.topology_runtime.wording import significant

# ── When a plan is best lowered, where it is known what comes. Pure ───
#
# A plan that is lowered holds the slots of the threads that leave until it is committed, and has to be raised
# again before the next rise. So lowering it from P to X for as long as no more than X is needed gains (P - X)
# × (that time - the time that slots are held and the next plan takes). From all times at which it might be
# lowered, and all at which it would be raised again, the one with the most gain is taken; it must be worth
# its moves.

BINS = 128  # that what comes is looked at in
NEARLY = 0.9  # of the most that could be gained: it is not waited for the rest


class Trough(NamedTuple):
    """From then until then no more is needed. gain_s: what lowering a plan for it saves, in seconds of that plan."""

    begins_s: int
    ends_s: int
    needed_tps: float
    gain_s: float


def best_trough(needs: Floats, planned_tps: float, held_s: float) -> Trough | None:
    """The one that is worth most. needs: of each second to come. held_s: of a trough, in which nothing is gained.
    None where nothing is."""
    full, wide_s = _binned(needs)
    begin, end = np.indices((len(full), len(full)))
    most = np.maximum.accumulate(np.where(end >= begin, full, 0.0), axis=1)
    long_s = wide_s * (end - begin + 1) - held_s
    gains = np.where(long_s > 0, (planned_tps - most) * long_s / planned_tps, -1.0)
    ends = gains.argmax(axis=1)
    each = gains[np.arange(len(full)), ends]
    at = 0 if each[0] >= NEARLY * each.max() else int(each.argmax())
    if each[at] <= 0:
        return None
    return Trough(at * wide_s, int(ends[at] + 1) * wide_s, float(most[at, ends[at]]), float(each[at]))


def next_trough(needs: Floats, planned_tps: float, held_s: float, worth_s: float) -> Trough | None:
    """The best one that gains so much; where it is still to come, the best of those that are over before it begins,
    and so on. None where none gains so much."""
    found = None
    trough = best_trough(needs, planned_tps, held_s)
    while trough is not None and trough.gain_s >= worth_s:
        found = trough
        trough = best_trough(needs[: found.begins_s], planned_tps, held_s) if found.begins_s else None
    return found


def step_to(needs: Floats, planned_tps: float, held_s: float, trough: Trough) -> Trough | None:
    """The best step on the way: the plan is lowered for what comes until the trough begins, and is committed by then,
    so that the slots of threads that leave in it are gone so much sooner. None where there is not enough time."""
    full, wide_s = _binned(needs[: trough.begins_s + 1])
    long_s = trough.begins_s - wide_s * np.arange(len(full))
    most = np.maximum.accumulate(full[::-1])[::-1]
    gains = np.where(long_s >= held_s, (planned_tps - most) * long_s / planned_tps, -1.0)
    at = 0 if gains[0] >= NEARLY * gains.max() else int(gains.argmax())
    if gains[at] <= 0:
        return None
    return Trough(at * wide_s, trough.begins_s, float(most[at]), float(gains[at]))


def _binned(needs: Floats) -> tuple[Floats, int]:
    """(the most in each bin, its width in s)."""
    wide_s = math.ceil(len(needs) / BINS)
    padded = np.concatenate((needs, np.full(-len(needs) % wide_s, needs[-1])))
    return padded.reshape(-1, wide_s).max(axis=1), wide_s


# ── What to plan for, and when, where a season says what comes. Pure ───
#
# up    before the first second that would be above the plan, as long before as a plan takes, and a VM where
# those there do not suffice for what comes until it could be there; for the most that comes within that time
# and `ahead_s` besides.
# down  where the next trough is worth it (`next_trough`): at once, or where more is gained by it in a while,
# then. While a deeper one is waited for, for as long as a plan takes to be committed or longer, a step on the
# way to it.

SPARE_S = 1.0  # a plan is decided so long before it has to be
WORTH_S = (
    2.5  # of the plan in force, that lowering it must save: as much as 15 % for the half minute of `UNDONE_S`
)


class Due(NamedTuple):
    """A rise that a plan has to be made for now. in_s: until it is above the plan; None: none is."""

    in_s: int | None
    goal_tps: float


class Lowering(NamedTuple):
    """To what rate, and why; or why not (and then to nothing)."""

    target_tps: float
    why: str
    no: str


def due(coming: Coming, planned_tps: float, horizon: Horizon, ahead_s: float) -> Due:
    """What has to be planned for now because it comes."""
    lead_s, machine_lead_s = (
        math.ceil(enact_s + SPARE_S) for enact_s in (horizon.enact_s, horizon.enact_s + horizon.machine_s)
    )
    if float(coming.needs[: max(machine_lead_s, lead_s + math.ceil(ahead_s))].max()) > horizon.room_tps:
        lead_s = machine_lead_s
    goal_tps = float(coming.needs[: lead_s + math.ceil(ahead_s)].max())
    above = (coming.rates[:lead_s] > planned_tps).nonzero()[0]
    return Due(int(above[0]) + 1 if len(above) else None, goal_tps)


def lowered(coming: Coming, planned_tps: float, horizon: Horizon, least_tps: float) -> Lowering:
    """Should the plan be lowered now? least_tps: it must carry so much."""
    committed_s = horizon.enact_s + horizon.held_s
    raised_s = math.ceil(horizon.enact_s + horizon.machine_s + SPARE_S)
    trough = next_trough(coming.needs, planned_tps, committed_s + raised_s, WORTH_S)
    every = coming.text
    if trough is None:
        return Lowering(0.0, "", f"no trough is long and deep enough to be worth it, {every}")
    if not trough.begins_s:
        text = f"no more than {trough.needed_tps:,.1f} rows/s is needed for {trough.ends_s} s, {every}"
        return Lowering(max(trough.needed_tps, least_tps), text, "")
    step = step_to(coming.needs, planned_tps, committed_s, trough)
    if step is not None and not step.begins_s and step.gain_s >= WORTH_S:
        way = f"on the way to {trough.needed_tps:,.1f}"
        text = f"no more than {step.needed_tps:,.1f} rows/s is needed for {step.ends_s} s, {way}, {every}"
        return Lowering(max(step.needed_tps, least_tps), text, "")
    soonest = trough if step is None or step.gain_s < WORTH_S else step
    no = f"{soonest.needed_tps:,.1f} rows/s is enough in {soonest.begins_s} s, {every}: it is waited for"
    return Lowering(0.0, "", no)


HEADROOM = (
    1.15  # the 95th percentile of how far predicted rates are off (docs/explanation/models-and-planning.md)
)
TREND_AGAIN_S, URGENT_AGAIN_S = 5.0, 1.0  # after a plan came into force
CHANCE = 3.0  # standard deviations of a count: one look in 700 is further off, and there are two a second
LEVEL_S = 5  # of arrivals
LASTING_S = (10, 20, 40, 80)  # means of so long say what five seconds cannot: few rows differ by chance
SURE_S = 2  # a step is believed after so long: a spike of a second is no step
TURN_S = 0.5  # from then until the loop's next turn, on average
KEPT_SHARE = 0.9  # of a burst's rate: a plan that carries so much has headroom for it
AHEAD_MOST_S = 60  # no enactment is waited for longer
KNOWN = 1.05  # of the highest rate of the last minutes: more than that is not planned for because it may come back
RISING = 1.02  # of the planned rate: a trend that leads to less above it is not worth a plan
SHORT_ROWS_S = 1.0  # of a lower plan's rate: more rows that wait keep it from being made
FLOOR_TPS = 1.0  # plans up to this rate are not lowered
UNDONE_MOST = 4  # plans that were undone make the next wait longer
LEAST_SHARE = 0.1  # one plan lowers the rate to a tenth at most: a rate of 0 cannot be planned for

_S = round(1 / SERIES_STEP_S)  # points a second


USUAL, FIXED = Horizon(), Headroom(HEADROOM)


class Offer(msgspec.Struct, frozen=True):
    """What is offered. rates: over half a second each, newest first. waits_tps: of
    sources whose rows are taken as they come, what is to be done besides of those that wait; None: the rate is a
    schedule's. cap_tps: more than that is not read. backlog: rows that were read, or due, and are not done."""

    rates: tuple[float, ...]
    waits_tps: float | None = None
    cap_tps: float = math.inf
    backlog: float = 0.0


def offer_of(window: MeasuredWindow, waits_tps: float | None = None, cap_tps: float = math.inf) -> Offer:
    """What a window says of it."""
    offered = np.array(window.progress.offered[-LEVEL_S * _S - 1 :])
    rates = np.maximum(0.0, offered[1:] - offered[:-1]) / SERIES_STEP_S  # who begins anew may know of less
    return Offer(tuple(rates[::-1].tolist()), waits_tps, cap_tps, window.backlog)


def demand(
    offer: Offer,
    forecast: RateForecast,
    planned_tps: float,
    past: Past,
    headroom: Headroom = FIXED,
    horizon: Horizon = USUAL,
) -> Demand:
    """Compare what is offered and forecast with `planned_tps`, the rate of the plan in force. The forecast has heard
    the newest second; what is needed now is added to what it remembers."""
    if len(offer.rates) < SURE_S * _S:
        text = f"no rate yet: {len(offer.rates) * SERIES_STEP_S:g} s of history"
        return Demand(0.0, planned_tps, "same", text, (), {"planned_tps": planned_tps, **headroom.evidence})
    seen = _seen(offer, forecast, past.since_up_s)
    drain_tps = min(offer.waits_tps or 0.0, max(0.0, offer.cap_tps - seen.base_tps))
    case = _Case(seen, forecast, planned_tps, past, headroom, horizon, drain_tps, offer)
    coming = forecast.coming(seen.chance_tps)
    asked = _by_trend(case) if coming is None else _by_season(case, coming)
    direction: Direction = "up" if asked.why_up else "down" if asked.why_down else "same"
    ways = (("up", asked.not_up), ("down", asked.not_down))
    rejected = tuple(f"scale {way} rejected: {no}" for way, no in ways if no)
    reason = asked.why_up or asked.why_down or "as planned for"
    return Demand(
        rate_tps=seen.now_tps,
        target_tps=asked.lower_tps if direction == "down" else asked.goal_tps,
        direction=direction,
        text=f"{seen.now_tps:,.1f} rows/s {_come(seen.now_tps, offer)}: {reason}{_for(seen, asked.needed, forecast)}",
        rejected=rejected,
        evidence=_evidence(seen, asked.needed, forecast, past)
        | {
            "planned_tps": float(planned_tps),
            **headroom.evidence,
            "rise_tps": asked.rise_tps,
            "ahead_s": float(asked.ahead_s),
        }
        | ({} if offer.waits_tps is None else {"waits_tps": offer.waits_tps})
        | ({} if coming is None else {"period_s": coming.period_s}),
    )


class _Rates(msgspec.Struct, frozen=True):
    """now: offered. sure: surely exceeded. base: the level to plan for, newest: the same where it is stepped up to
    just now. chance: a difference of less says nothing."""

    now_tps: float
    sure_tps: float
    base_tps: float
    newest_tps: float
    chance_tps: float = 0.0


def _seen(offer: Offer, forecast: RateForecast, since_up_s: float) -> _Rates:
    known = forecast.bursts.number > 0
    lasting_s = forecast.tuning.burst_s if known else SURE_S
    halves = np.array(offer.rates)
    seconds = (halves[:-1] + halves[1:]) / 2
    if offer.waits_tps is None:
        sure_tps = float(halves[: _S * lasting_s].min())
        base_tps = sure_tps if known else max(forecast.level_tps, sure_tps)
        newest_tps = base_tps if known else max(base_tps, float(seconds[0]))
        return _Rates(
            float(seconds[0]), *(min(tps, offer.cap_tps) for tps in (sure_tps, base_tps, newest_tps))
        )
    sure_tps, level_tps = _arrivals(seconds, float(halves[0]), lasting_s)
    raised = not known and since_up_s < LEVEL_S
    sure_tps = level_tps if raised else max(sure_tps, _lasting(forecast, level_tps))
    base_tps = min(sure_tps if known else level_tps, offer.cap_tps)
    chance_tps = CHANCE * math.sqrt(max(0.0, level_tps))
    return _Rates(level_tps, min(sure_tps, offer.cap_tps), base_tps, base_tps, chance_tps)


def _arrivals(rates: Floats, half_tps: float, lasting_s: int) -> tuple[float, float]:
    """(the rate that is surely exceeded, the level): what a second shows counts where it is not chance. half_tps: of
    the newest half second."""
    seconds, short_tps = rates[::_S], float(rates[: _S * (lasting_s - 1) + 1].min())
    mean_tps = float(seconds.mean())
    sure_tps = max(_least(short_tps, 1), _least(mean_tps, len(seconds)))
    return sure_tps, max(mean_tps, _stepped(seconds, max(half_tps, float(rates[:2].max()))))


def _stepped(seconds: Floats, newest_tps: float) -> float:
    """The rate since a step up within these seconds, newest first, that chance does not make; 0: there is none."""
    level_tps = 0.0
    for since in range(1, len(seconds)):
        recent, before = float(seconds[:since].mean()), float(seconds[since:].mean())
        spread = max(0.0, recent / since + before / (len(seconds) - since))
        if recent - before > CHANCE * math.sqrt(spread):  # what is behind may fall by itself
            level_tps = max(level_tps, newest_tps if since == 1 else recent)
    return level_tps


def _lasting(forecast: RateForecast, level_tps: float) -> float:
    """What was surely exceeded for long, as far as it still is."""
    means = ((forecast.mean_tps(seconds), seconds) for seconds in LASTING_S)
    return min(
        level_tps, max((_least(mean, seconds) for mean, seconds in means if mean is not None), default=0.0)
    )


def _least(rate_tps: float, seconds: int) -> float:
    """What is left of a rate that was measured over so long without what chance may have added."""
    return max(0.0, rate_tps - CHANCE * math.sqrt(max(0.0, rate_tps) / seconds))


@dataclass(frozen=True)
class _Case:
    """All that a demand is made from. drain_tps: for what waits, besides."""

    seen: _Rates
    forecast: RateForecast
    planned_tps: float
    past: Past
    room: Headroom
    horizon: Horizon
    drain_tps: float
    offer: Offer

    @property
    def headroom(self) -> float:
        return self.room.factor

    @property
    def down_share(self) -> float:
        return self.room.down_share(self.forecast.tuning.down_share)


class _Asked(NamedTuple):
    """What is needed now, and the rate to plan for when it is raised; why it is raised or not, and lowered (to what)
    or not."""

    needed: Needed
    ahead_s: int
    goal_tps: float
    why_up: str
    not_up: str
    lower_tps: float
    why_down: str
    not_down: str
    rise_tps: float = 0.0


def _by_trend(case: _Case) -> _Asked:
    """By level, trend, errors and bursts."""
    seen, forecast, drain_tps = case.seen, case.forecast, case.drain_tps
    needed, ahead_s = _needed(seen, forecast, case.headroom, case.horizon)
    forecast.remember(needed)
    rise_tps = forecast.rise_tps(ahead_s)
    if rise_tps <= seen.chance_tps or _falls(case.offer):
        rise_tps = 0.0
    rise_tps = min(rise_tps, max(0.0, case.offer.cap_tps - seen.base_tps))
    why, not_up = _up(seen.sure_tps + drain_tps, rise_tps, case.planned_tps, case.past)
    lower_tps, why_down, not_down = _down(case, needed)
    goal_tps = _goal(seen, needed, forecast, case.headroom) + drain_tps
    return _Asked(needed, ahead_s, goal_tps, why, not_up, lower_tps, why_down, not_down, rise_tps)


def _falls(offer: Offer) -> bool:
    """Is less offered in the newest half second than in one of the last three seconds? Then what rose was a spike, and
    is over. (Of rows that are taken as they come, chance decides that.)"""
    return offer.waits_tps is None and offer.rates[0] < max(offer.rates[: 3 * _S])


def _by_season(case: _Case, coming: Coming) -> _Asked:
    """By what a season forecasts; whatever that is, a plan is raised where more comes than it is for."""
    seen, planned_tps, drain_tps = case.seen, case.planned_tps, case.drain_tps
    rise = due(coming, planned_tps - drain_tps, case.horizon, case.forecast.tuning.ahead_s)
    needed = Needed(max(case.headroom * seen.base_tps, float(coming.needs[0])), "season")
    case.forecast.remember(needed)
    why, not_up = _up(seen.sure_tps + drain_tps, 0.0, planned_tps, case.past)
    goal_tps = rise.goal_tps
    if why:
        goal_tps = max(goal_tps, case.headroom * seen.newest_tps)
    elif rise.in_s is not None:
        what = f"a rise to {rise.goal_tps:,.1f} rows/s is due in {rise.in_s} s, {coming.text}"
        late = case.past.since_plan_s < URGENT_AGAIN_S
        why, not_up = (
            ("", f"{what}, but the plan is {case.past.since_plan_s:.1f} s old") if late else (what, "")
        )
    no = _never_down(case, planned_tps)
    if not no and case.past.since_plan_s < case.horizon.held_s:
        no = "the plan is not committed yet"
    lowering = Lowering(0.0, "", no)
    if not no:
        least_tps = max(KNOWN * seen.base_tps, LEAST_SHARE * planned_tps)
        lowering = lowered(coming, planned_tps - drain_tps, case.horizon, least_tps)
    lower_tps, why_down, not_down = lowering
    return _Asked(
        needed, rise.in_s or 0, goal_tps + drain_tps, why, not_up, lower_tps + drain_tps, why_down, not_down
    )


def _needed(seen: _Rates, forecast: RateForecast, headroom: float, horizon: Horizon) -> tuple[Needed, int]:
    """What a plan must carry, and how far ahead that looks: until a VM has come where those there do not suffice."""
    for enact_s in (horizon.enact_s, horizon.enact_s + horizon.machine_s):
        ahead_s = ahead_of(enact_s)
        needed = forecast.needed(seen.base_tps, headroom, ahead_s, seen.chance_tps)
        if needed.tps <= horizon.room_tps:
            break
    return needed, ahead_s


def ahead_of(enact_s: float) -> int:
    """Seconds until a plan for a rate that is seen now would be in force."""
    return min(AHEAD_MOST_S, math.ceil(SURE_S + TURN_S + enact_s))


def _goal(seen: _Rates, needed: Needed, forecast: RateForecast, headroom: float) -> float:
    """The rate to plan for when it is raised."""
    t, base_tps = forecast.tuning, seen.newest_tps
    known_tps = max(KNOWN * forecast.recent_tps, headroom * base_tps)
    goal_tps = max(
        needed.tps, min(headroom * (base_tps + forecast.rise_tps(t.ahead_s)), known_tps * t.beyond)
    )
    if forecast.recent_tps <= t.peak_ratio * goal_tps:
        goal_tps = max(goal_tps, KNOWN * forecast.recent_tps)
    return goal_tps


def planned_for(offered_tps: float, planned_tps: float, headroom: Headroom = FIXED) -> float:
    """The rate of the plan in force once `offered_tps` has been offered for a while and nothing else was: that
    of the present plan where it stays."""
    desired_tps = offered_tps * headroom.factor
    if offered_tps > planned_tps:
        return desired_tps
    if planned_tps > FLOOR_TPS and desired_tps < headroom.down_share(CHOSEN.down_share) * planned_tps:
        return max(desired_tps, LEAST_SHARE * planned_tps)
    return planned_tps


def _up(sure_tps: float, rise_tps: float, planned_tps: float, past: Past) -> tuple[str, str]:
    """(why up, or why not)."""
    ahead_tps = sure_tps + rise_tps
    if sure_tps > planned_tps:
        what, wait_s = f"{sure_tps:,.1f} rows/s > {planned_tps:,.1f} planned", URGENT_AGAIN_S
    elif ahead_tps > RISING * planned_tps:
        what, wait_s = f"rising to {ahead_tps:,.1f} rows/s > {planned_tps:,.1f} planned", TREND_AGAIN_S
    else:
        return "", f"{ahead_tps:,.1f} rows/s ≤ {planned_tps:,.1f} planned"
    if past.since_plan_s < wait_s:
        return "", f"{what}, but the plan is {past.since_plan_s:.1f} s old of {wait_s:g} s"
    return what, ""


def _down(case: _Case, needed: Needed) -> tuple[float, str, str]:
    """(rate to plan for, why down, or why not)."""
    seen, forecast, planned_tps, past = case.seen, case.forecast, case.planned_tps, case.past
    t = forecast.tuning
    quiet_s = math.ceil(t.quiet_s)
    most_tps = forecast.most_needed(quiet_s)
    settled_tps = forecast.most_needed(max(1, quiet_s - 1))
    risen_tps = seen.base_tps + forecast.rise_tps(t.ahead_s)
    desired_tps = max(settled_tps if settled_tps is not None else needed.tps, risen_tps) + case.drain_tps
    chance_tps = seen.chance_tps / math.sqrt(LEVEL_S)  # of the level, a mean of so long
    for_waits = f", {case.drain_tps:,.1f} of it for what waits" if case.drain_tps else ""
    low = f"{desired_tps:,.1f} rows/s needed{for_waits}"
    down_share = case.down_share
    limit = f"{down_share:.3g} × {planned_tps:,.1f} planned"
    highest_tps = max(desired_tps, (most_tps or 0.0) + case.drain_tps)
    if highest_tps + chance_tps >= down_share * planned_tps:
        return 0.0, "", f"{highest_tps:,.1f} rows/s needed ≥ {limit}"
    target_tps = max(desired_tps, LEAST_SHARE * planned_tps)
    again_s = t.again_s * 2 ** min(past.undone, UNDONE_MOST)
    no = _never_down(case, target_tps)
    if no:
        pass
    elif most_tps is None:
        no = f"for less than {quiet_s} s"
    elif past.since_down_s < again_s:
        no = f"the plan was lowered {past.since_down_s:.0f} s ago, {again_s:g} s must pass"
    elif past.since_up_s < t.hold_s + again_s:
        no = f"the plan was raised {past.since_up_s:.0f} s ago, {t.hold_s + again_s:g} s must pass"
    if no:
        return 0.0, "", f"{low} < {limit}, but {no}"
    return target_tps, f"{low} < {limit} for {quiet_s} s", ""


def _never_down(case: _Case, target_tps: float) -> str:
    """Why no plan is lowered, whatever is forecast; empty where it may be."""
    if case.planned_tps <= FLOOR_TPS:
        return f"plans of {FLOOR_TPS:g} rows/s and less are not lowered"
    if case.offer.backlog > SHORT_ROWS_S * target_tps:
        return f"{case.offer.backlog:.0f} rows wait"
    return ""


# ── in words and numbers ────────────────────────────────────────────────────────────────────────


def _come(now_tps: float, offer: Offer) -> str:
    if offer.waits_tps is None:
        return "offered"
    if now_tps > offer.cap_tps:
        return f"come, {significant(offer.cap_tps, 6)} are read at most"
    return f"come and {offer.waits_tps:,.1f} rows/s wait" if offer.waits_tps else "come"


def _for(seen: _Rates, needed: Needed, forecast: RateForecast) -> str:
    """What is kept in hand besides headroom, and what is left to the queue."""
    bursts = forecast.bursts
    if bursts.number:
        kept = "headroom is kept for them"
        if forecast.burst_tps(seen.base_tps) < KEPT_SHARE * bursts.peak_tps:
            kept = f"the queue takes them, rows may wait {forecast.queue_s:g} s"
        return f" ({bursts.number} bursts to {bursts.peak_tps:,.0f} rows/s lately: {kept})"
    return " (with headroom for rises as those of the last minutes)" if needed.what == "errors" else ""


def _evidence(seen: _Rates, needed: Needed, forecast: RateForecast, past: Past) -> dict[str, Any]:
    ages = {
        "since_plan_s": past.since_plan_s,
        "since_up_s": past.since_up_s,
        "since_down_s": past.since_down_s,
    }
    bursts = forecast.bursts
    return {
        "offered_tps": seen.now_tps,
        "level_tps": seen.base_tps,
        "needed_tps": needed.tps,
        "recent_tps": forecast.recent_tps,
        **({"burst_tps": bursts.peak_tps} if bursts.number else {}),
        **{name: age for name, age in ages.items() if math.isfinite(age)},
    }


# ── How far arriving sources are behind what comes: what that asks of a plan, and when a person is alarmed.
# Pure
#
# A plan carries what comes with some headroom, so rows that wait are done with sooner or later. It is made
# for more when that would take longer than `DRAIN_S`: a minute is longer than enacting a plan and fetching a
# VM take, so what is planned is there in time to be of use, and it is short enough that nobody waits for
# yesterday's rows.

DRAIN_S = 60.0
LEAST_S = 2.0  # a row that waits for less waits for its turn, not for a plan
ALARM_S, OVER_S = 5.0, 2.0  # behind by so much and growing is an alarm; below the other it is over
GROWS, GROWS_S = 0.05, 5.0  # by so much of what comes, over so many seconds
CAPPED = 0.8  # of the cap is read where that is what keeps rows back

_POINTS = round(GROWS_S / SERIES_STEP_S)


def under_cap(window: MeasuredWindow, lags: tuple[Lag, ...], cap_tps: float) -> MeasuredWindow:
    """The window to judge the topology by: where a cap keeps rows back, it was offered what was read, not what came."""
    series = window.progress
    if not math.isfinite(cap_tps) or len(series.at_s) <= _POINTS or all(x.seconds < LEAST_S for x in lags):
        return window
    if (series.emitted[-1] - series.emitted[-1 - _POINTS]) / GROWS_S < CAPPED * cap_tps:
        return window  # not even that is read
    return replace(window, progress=replace(series, offered=series.emitted))


def drain_tps(lags: tuple[Lag, ...]) -> float:
    """Rows/s that are to be done besides those that come, so that none waits longer than `DRAIN_S`."""
    return max((lag.rows / DRAIN_S for lag in lags if lag.seconds >= LEAST_S), default=0.0)


def lag_alarm(before: str, lags: tuple[Lag, ...], window: MeasuredWindow) -> str:
    """What to say of a lag that grows; as `before` while it has not gone, empty when there is none."""
    worst = max(lags, key=lambda lag: lag.seconds, default=None)
    if worst is None or worst.seconds < OVER_S:
        return ""
    if before or worst.seconds < ALARM_S or not lag_grows(window):
        return before
    return (
        f"lag growing: {worst.source} is {worst.rows:,} rows and {worst.seconds:.0f} s behind what comes "
        f"({window.offered_tps:,.0f} rows/s come, {window.emitted_tps:,.0f} are read)"
    )


def lag_grows(window: MeasuredWindow) -> bool:
    """Do more rows wait to be read than some seconds ago?"""
    series = window.progress
    if len(series.at_s) <= _POINTS:
        return False
    came, read = (column[-1] - column[-1 - _POINTS] for column in (series.offered, series.emitted))
    return came - read > max(1.0, GROWS * came)
