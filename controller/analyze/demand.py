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
 season where one is believed, a plan is raised before the rise that it foresees and lowered into troughs that are
       worth it (`seasonal.py`); it is raised as above where more comes than was foreseen.
 ahead a forecast reaches until a plan decided now would be in force: two seconds until a rate is sure, and what
       enacting took lately, the start of a VM included where the VMs there are do not suffice.
 come  of rows that are taken as they come, chance makes ±√n of n: a rate counts as above another where it is by
       three times that, over a second, or over five; the level is the mean of five seconds unless one second is
       above that: then what came since, of a step within this second in its newer half. A plan for a step is made
       from little, so for five seconds the level itself raises it again. What waits is to be done within a minute
       besides (`lag.py`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec
import numpy as np

from headgate.controller.analyze.forecast import CHOSEN, Needed, RateForecast
from headgate.controller.analyze.season import Coming
from headgate.controller.analyze.seasonal import Lowering, due, lowered
from headgate.controller.knowledge.diagnoses import Demand, Direction, Horizon, Past
from headgate.controller.knowledge.windows import SERIES_STEP_S, Window
from headgate.topology_runtime.faults.words import significant
from headgate.topology_runtime.stability.slopes import Floats

HEADROOM = 1.15  # the 95th percentile of how far predicted rates are off (docs/measured-models.md)
TREND_AGAIN_S, URGENT_AGAIN_S = 5.0, 1.0  # after a plan came into force
CHANCE = 3.0  # standard deviations of a count: one look in 700 is further off, and there are two a second
LEVEL_S = 5  # of arrivals
LASTING_S = (10, 20, 40, 80)  # means of so long say what five seconds cannot: few rows differ by chance
SURE_S = 2  # a step is believed after so long: a spike of a second is none
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


USUAL = Horizon()


class Offer(msgspec.Struct, frozen=True):
    """What is offered. rates: over half a second each, newest first. waits_tps: of
    sources whose rows are taken as they come, what is to be done besides of those that wait; None: the rate is a
    schedule's. cap_tps: more than that is not read. backlog: rows that were read, or due, and are not done."""

    rates: tuple[float, ...]
    waits_tps: float | None = None
    cap_tps: float = math.inf
    backlog: float = 0.0


def offer_of(window: Window, waits_tps: float | None = None, cap_tps: float = math.inf) -> Offer:
    """What a window says of it."""
    offered = np.array(window.progress.offered[-LEVEL_S * _S - 1 :])
    rates = (offered[1:] - offered[:-1]) / SERIES_STEP_S
    return Offer(tuple(rates[::-1].tolist()), waits_tps, cap_tps, window.backlog)


def demand(
    offer: Offer,
    forecast: RateForecast,
    planned_tps: float,
    past: Past,
    headroom: float = HEADROOM,
    horizon: Horizon = USUAL,
) -> Demand:
    """Compare what is offered and foreseen with `planned_tps`, the rate of the plan in force. The forecast has heard
    the newest second; what is needed now is added to what it remembers."""
    if len(offer.rates) < SURE_S * _S:
        text = f"no rate yet: {len(offer.rates) * SERIES_STEP_S:g} s of history"
        return Demand(0.0, planned_tps, "same", text, (), {"planned_tps": planned_tps, "headroom": headroom})
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
        text=f"{seen.now_tps:,.1f} t/s {_come(seen.now_tps, offer)}: {reason}{_for(seen, asked.needed, forecast)}",
        rejected=rejected,
        evidence=_evidence(seen, asked.needed, forecast, past)
        | {
            "planned_tps": float(planned_tps),
            "headroom": headroom,
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
        if recent - before > CHANCE * math.sqrt(recent / since + before / (len(seconds) - since)):
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
    headroom: float
    horizon: Horizon
    drain_tps: float
    offer: Offer


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
    rise_tps = min(
        rise_tps if rise_tps > seen.chance_tps else 0.0, max(0.0, case.offer.cap_tps - seen.base_tps)
    )
    why, not_up = _up(seen.sure_tps + drain_tps, rise_tps, case.planned_tps, case.past)
    lower_tps, why_down, not_down = _down(case, needed)
    goal_tps = _goal(seen, needed, forecast, case.headroom) + drain_tps
    return _Asked(needed, ahead_s, goal_tps, why, not_up, lower_tps, why_down, not_down, rise_tps)


def _by_season(case: _Case, coming: Coming) -> _Asked:
    """By what a season foresees; whatever that is, a plan is raised where more comes than it is for."""
    seen, planned_tps, drain_tps = case.seen, case.planned_tps, case.drain_tps
    rise = due(coming, planned_tps - drain_tps, case.horizon, case.forecast.tuning.ahead_s)
    needed = Needed(max(case.headroom * seen.base_tps, float(coming.needs[0])), "season")
    case.forecast.remember(needed)
    why, not_up = _up(seen.sure_tps + drain_tps, 0.0, planned_tps, case.past)
    goal_tps = rise.goal_tps
    if why:
        goal_tps = max(goal_tps, case.headroom * seen.newest_tps)
    elif rise.in_s is not None:
        what = f"a rise to {rise.goal_tps:,.1f} t/s is due in {rise.in_s} s, {coming.text}"
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
        ahead_s = min(AHEAD_MOST_S, math.ceil(SURE_S + TURN_S + enact_s))
        needed = forecast.needed(seen.base_tps, headroom, ahead_s, seen.chance_tps)
        if needed.tps <= horizon.room_tps:
            break
    return needed, ahead_s


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


def planned_for(offered_tps: float, planned_tps: float, headroom: float = HEADROOM) -> float:
    """The rate of the plan in force once `offered_tps` has been offered for a while and nothing else was: that
    of the present plan where it stays."""
    desired_tps = offered_tps * headroom
    if offered_tps > planned_tps:
        return desired_tps
    if planned_tps > FLOOR_TPS and desired_tps < CHOSEN.down_share * planned_tps:
        return max(desired_tps, LEAST_SHARE * planned_tps)
    return planned_tps


def _up(sure_tps: float, rise_tps: float, planned_tps: float, past: Past) -> tuple[str, str]:
    """(why up, or why not)."""
    ahead_tps = sure_tps + rise_tps
    if sure_tps > planned_tps:
        what, wait_s = f"{sure_tps:,.1f} t/s > {planned_tps:,.1f} planned", URGENT_AGAIN_S
    elif ahead_tps > RISING * planned_tps:
        what, wait_s = f"rising to {ahead_tps:,.1f} t/s > {planned_tps:,.1f} planned", TREND_AGAIN_S
    else:
        return "", f"{ahead_tps:,.1f} t/s ≤ {planned_tps:,.1f} planned"
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
    low = f"{desired_tps:,.1f} t/s needed{for_waits}"
    limit = f"{t.down_share:g} × {planned_tps:,.1f} planned"
    highest_tps = max(desired_tps, (most_tps or 0.0) + case.drain_tps)
    if highest_tps + chance_tps >= t.down_share * planned_tps:
        return 0.0, "", f"{highest_tps:,.1f} t/s needed ≥ {limit}"
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
    """Why no plan is lowered, whatever is foreseen; empty where it may be."""
    if case.planned_tps <= FLOOR_TPS:
        return f"plans of {FLOOR_TPS:g} t/s and less are not lowered"
    if case.offer.backlog > SHORT_ROWS_S * target_tps:
        return f"{case.offer.backlog:.0f} rows wait"
    return ""


# ── in words and numbers ────────────────────────────────────────────────────────────────────────


def _come(now_tps: float, offer: Offer) -> str:
    if offer.waits_tps is None:
        return "offered"
    if now_tps > offer.cap_tps:
        return f"come, {significant(offer.cap_tps, 6)} are read at most"
    return f"come and {offer.waits_tps:,.1f} t/s wait" if offer.waits_tps else "come"


def _for(seen: _Rates, needed: Needed, forecast: RateForecast) -> str:
    """What is kept in hand besides headroom, and what is left to the queue."""
    bursts = forecast.bursts
    if bursts.number:
        kept = "headroom is kept for them"
        if forecast.burst_tps(seen.base_tps) < KEPT_SHARE * bursts.peak_tps:
            kept = f"the queue takes them, rows may wait {forecast.queue_s:g} s"
        return f" ({bursts.number} bursts to {bursts.peak_tps:,.0f} t/s lately: {kept})"
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
