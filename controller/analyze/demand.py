"""What rate to plan for, and when. Pure: all memory is in the window's history and in `Past`.

Offered rates are steps: one seen on two points half a second apart is believed, so a step is decided one to
two seconds after it. Rules, with P the planned rate and h the headroom (1.25: a plan runs at 0.8 P):

 up    when the rate exceeds P (at once), or 0.9 P (10 s after the last plan), or would exceed P where its
       trend leads (5 s after). The plan is for the end of the trend × h, at most twice the rate × h.
 down  when rate × h was below 0.6 P for 8 s and the fall is over (or has lasted 12 s), not within 20 s of a
       plan that raised the rate, nor within 60 s of one that lowered it, nor while the rate flaps. So
       a rate must fall by 40 % below what was planned for: noise of ±10 % and waves of less than 1.67 : 1
       never cause a second plan, and higher waves two plans a minute at most on average.
 trend a rise of 25 % or more over 6, 12 or 24 s that is more than one step: besides its steepest two
       seconds, what came before or after must have risen by 23 % (noise of ±10 % can make 22 %), the
       rate must be above all older than 5 s, and have fallen by less than it rose (a wave has not).
 come  of rows that are taken as they come, chance makes ±√n of n: a rate counts as above another where it is by
       three times that, over a second, or over five; the level is the mean of five seconds unless one second is
       above that. What waits is to be done within a minute besides (`lag.py`).
 flap  within the last 90 s the rate was high, then as low as now for under 24 s, and came back; then it
       must have been low for 5 s longer than that.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from controller.knowledge.diagnoses import Demand, Direction, Past
from controller.knowledge.windows import SERIES_STEP_S, Window
from topology_runtime.stability.slopes import Floats

HEADROOM = 1.25
UP_SHARE, DOWN_SHARE = 0.9, 0.6  # of the planned rate
UP_AGAIN_S, TREND_AGAIN_S, URGENT_AGAIN_S = 10.0, 5.0, 1.0  # after a plan came into force
QUIET_S = 8.0  # low for so long before a plan is lowered
STILL_FALLING = 0.9  # of the rate 4 s ago
FALL_S = 12.0  # a fall that lasts longer is not waited for
DOWN_AFTER_UP_S = 20.0  # so after a step that lasted 8 s the step down is decided within 15 s
DOWN_AFTER_DOWN_S = 60.0  # so a flapping rate causes two plans a minute on average at most
FLAP_S, FLAP_MEMORY_S, FLAP_LONGER_S = 24.0, 90.0, 5.0
LOOKS = ((6, 8.0), (12, 8.0), (24, 16.0))  # a trend over so many seconds leads so many seconds ahead
RISE, RISE_BESIDES = 0.25, 1.23
CHANCE = 3.0  # standard deviations of a count: one look in 700 is further off, and there are two a second
LEVEL_S = 5  # of arrivals
TREND_CHANCE = 6.0  # a trend is a difference of two seconds, stretched by 4/3: three times its deviation
BESIDES_WEIGHT = 2.0  # a trend is at most twice as steep as it is without its steepest two seconds
AHEAD_MOST = 2.0  # the trend leads to at most twice the rate
RECENT_PEAK_S, RECENT_PEAK = 60.0, 1.3  # plan at once for a recent peak at most so much above the rate
FLOOR_TPS = 1.0  # plans up to this rate are not lowered
LEAST_SHARE = 0.1  # one plan lowers the rate to a tenth at most: a rate of 0 cannot be planned for

_S = round(1 / SERIES_STEP_S)  # points a second


def demand(
    window: Window,
    planned_tps: float,
    past: Past,
    headroom: float = HEADROOM,
    waits_tps: float | None = None,
    cap_tps: float = math.inf,
) -> Demand:
    """Compare what is offered with `planned_tps`, the rate of the plan in force. waits_tps: of sources whose rows
    are taken as they come, what is to be done besides of those that wait; None: the rate is a schedule's.
    cap_tps: more than that is not read."""
    rates = offered_rates(window)
    if len(rates) < 3:
        text = f"no rate yet: {window.progress.at_s[0] if window.progress.at_s else 0:.1f} s of history"
        return Demand(0.0, planned_tps, "same", text, (), {"planned_tps": planned_tps})
    now_tps, sure_tps = float(rates[0]), float(min(rates[0], rates[1]))
    rise_tps = _rise(rates)
    level_tps = max(now_tps, float(rates[1]), _newest_rate(window))
    drain_tps = waits_tps or 0.0
    if waits_tps is not None:
        sure_tps, level_tps = _arrivals(rates, sure_tps, level_tps)
        rise_tps = rise_tps if rise_tps > TREND_CHANCE * math.sqrt(level_tps) else 0.0
        now_tps = level_tps
        sure_tps, level_tps = min(sure_tps, cap_tps), min(level_tps, cap_tps)
        rise_tps, drain_tps = min(rise_tps, cap_tps - level_tps), min(drain_tps, cap_tps - level_tps)
    goal_tps = _goal(rates, level_tps, rise_tps) if waits_tps is None else level_tps + rise_tps
    why, not_up = _up(sure_tps + drain_tps, rise_tps, planned_tps, past.since_plan_s)
    read = np.minimum(rates, cap_tps)
    lower_tps, why_down, not_down = _down(read, planned_tps, past, headroom, rise_tps, drain_tps)
    direction: Direction = "up" if why else "down" if why_down else "same"
    rejected = tuple(f"scale {way} rejected: {no}" for way, no in (("up", not_up), ("down", not_down)) if no)
    return Demand(
        rate_tps=now_tps,
        target_tps=lower_tps if direction == "down" else goal_tps * headroom + drain_tps,
        direction=direction,
        text=f"{now_tps:.1f} t/s {_come(now_tps, waits_tps, cap_tps)}: {why or why_down or 'as planned for'}",
        rejected=rejected,
        evidence=_evidence(now_tps, rise_tps, goal_tps, planned_tps, headroom, past)
        | ({} if waits_tps is None else {"waits_tps": waits_tps}),
    )


def _come(now_tps: float, waits_tps: float | None, cap_tps: float) -> str:
    if waits_tps is None:
        return "offered"
    if now_tps > cap_tps:
        return f"come, {cap_tps:g} are read at most"
    return f"come and {waits_tps:.1f} t/s wait" if waits_tps else "come"


def _arrivals(rates: Floats, short_tps: float, level_tps: float) -> tuple[float, float]:
    """(the rate that is surely exceeded, the level): what a second shows counts where it is not chance."""
    seconds = rates[: LEVEL_S * _S : _S]
    mean_tps = float(seconds.mean())
    sure_tps = max(_least(short_tps, 1), _least(mean_tps, len(seconds)))
    stepped = _least(float(rates[0]), 1) > mean_tps
    return sure_tps, level_tps if stepped else mean_tps


def _least(rate_tps: float, seconds: int) -> float:
    """What is left of a rate that was measured over so long without what chance may have added."""
    return max(0.0, rate_tps - CHANCE * math.sqrt(max(0.0, rate_tps) / seconds))


def planned_for(offered_tps: float, planned_tps: float, headroom: float = HEADROOM) -> float:
    """The rate of the plan in force once `offered_tps` has been offered for a while and nothing else was: that
    of the present plan where it stays."""
    desired_tps = offered_tps * headroom
    if offered_tps > UP_SHARE * planned_tps:
        return desired_tps
    if planned_tps > FLOOR_TPS and desired_tps < DOWN_SHARE * planned_tps:
        return max(desired_tps, LEAST_SHARE * planned_tps)
    return planned_tps


def offered_rates(window: Window) -> Floats:
    """Rates over one second each, ending now, half a second ago, … (newest first)."""
    offered = np.array(window.progress.offered)
    rates: Floats = (offered[_S:] - offered[:-_S]) / (_S * SERIES_STEP_S)
    return rates[::-1]


def _newest_rate(window: Window) -> float:
    offered = window.progress.offered
    return (offered[-1] - offered[-2]) / SERIES_STEP_S


def _goal(rates: Floats, level_tps: float, rise_tps: float) -> float:
    """The rate to be ready for: the level, where its trend leads, or a recent peak just above."""
    goal = min(level_tps + rise_tps, AHEAD_MOST * level_tps)
    peak = float(rates[: int(RECENT_PEAK_S * _S)].max())
    return max(goal, peak) if peak <= RECENT_PEAK * level_tps else goal


def _rise(rates: Floats) -> float:
    """How much higher the rate will be where its trend leads, in t/s; 0 without a rising trend."""
    return max(_rise_over(rates, look_s, ahead_s) for look_s, ahead_s in LOOKS)


def _rise_over(rates: Floats, look_s: int, ahead_s: float) -> float:
    points = look_s * _S
    if len(rates) <= points:
        return 0.0
    seen = rates[: points + 1]
    rise = float(seen[0] - seen[-1])
    older = seen[5 * _S :]
    if rise < RISE * seen[0] or seen[0] <= 1.02 * older.max():
        return 0.0
    if np.maximum(0.0, seen[1:] - seen[:-1]).sum() > rise:  # it fell as much as it rose: a wave
        return 0.0
    jumps = seen[: -2 * _S] - seen[2 * _S :]
    at = int(jumps.argmax())
    besides = rise - max(0.0, float(jumps[at]))
    after, before = float(seen[at]), float(seen[at + 2 * _S])
    if seen[0] < RISE_BESIDES * after and before < RISE_BESIDES * seen[-1]:
        return 0.0
    return ahead_s * min(rise / look_s, BESIDES_WEIGHT * max(0.0, besides) / (look_s - 2))


def _up(sure_tps: float, rise_tps: float, planned_tps: float, since_plan_s: float) -> tuple[str, str]:
    """(why up, or why not)."""
    ahead_tps = sure_tps + rise_tps
    if sure_tps > planned_tps:
        what, wait_s = f"{sure_tps:.1f} t/s > {planned_tps:.1f} planned", URGENT_AGAIN_S
    elif rise_tps > 0 and ahead_tps > planned_tps:
        what, wait_s = f"rising to {ahead_tps:.1f} t/s > {planned_tps:.1f} planned", TREND_AGAIN_S
    elif sure_tps > UP_SHARE * planned_tps:
        what, wait_s = f"{sure_tps:.1f} t/s > {UP_SHARE:g} × {planned_tps:.1f} planned", UP_AGAIN_S
    else:
        return "", f"{ahead_tps:.1f} t/s ≤ {UP_SHARE:g} × {planned_tps:.1f} planned"
    if since_plan_s < wait_s:
        return "", f"{what}, but the plan is {since_plan_s:.1f} s old of {wait_s:g} s"
    return what, ""


def _down(
    rates: Floats, planned_tps: float, past: Past, headroom: float, rise_tps: float, drain_tps: float
) -> tuple[float, str, str]:
    """(rate to plan for, why down, or why not)."""
    quiet = int(QUIET_S * _S)
    peak_tps = float(rates[:quiet].max())
    desired_tps, low_tps = peak_tps * headroom + drain_tps, DOWN_SHARE * planned_tps
    if desired_tps >= low_tps:
        sum_ = f"{_sum(peak_tps, headroom, drain_tps)} = {desired_tps:.1f}"
        return 0.0, "", f"target {sum_} ≥ {DOWN_SHARE:g} × {planned_tps:.1f}"
    low = f"{_sum(peak_tps, headroom, drain_tps)} = {desired_tps:.1f} < {DOWN_SHARE:g} × {planned_tps:.1f}"
    if no := _why_wait(rates, low_tps / headroom, planned_tps, past, rise_tps):
        return 0.0, "", f"{low}, but {no}"
    target = max(float(rates[: quiet // 2].max()) * headroom + drain_tps, LEAST_SHARE * planned_tps)
    return target, f"{low} for {QUIET_S:g} s", ""


def _sum(peak_tps: float, headroom: float, drain_tps: float) -> str:
    return f"{peak_tps:.1f} t/s × {headroom:g}" + (f" + {drain_tps:.1f} that wait" if drain_tps else "")


def _why_wait(rates: Floats, low_tps: float, planned_tps: float, past: Past, rise_tps: float) -> str:
    """Why a plan that could be lowered is not yet."""
    low_s, came_back_s = _spells(rates, low_tps)
    if planned_tps <= FLOOR_TPS:
        return f"plans of {FLOOR_TPS:g} t/s and less are not lowered"
    if low_s < QUIET_S:
        return f"only for {low_s:.1f} s of {QUIET_S:g} s"
    if rise_tps > 0 or rates[0] > 1.1 * rates[_S]:
        return "the rate is rising"
    if past.since_plan_s < QUIET_S:
        return f"the plan is {past.since_plan_s:.1f} s old of {QUIET_S:g} s"
    if past.since_up_s < DOWN_AFTER_UP_S:
        return f"the rate was raised {past.since_up_s:.0f} s ago, {DOWN_AFTER_UP_S:g} s must pass"
    if past.since_down_s < DOWN_AFTER_DOWN_S:
        return f"the rate was lowered {past.since_down_s:.0f} s ago, {DOWN_AFTER_DOWN_S:g} s must pass"
    if came_back_s and low_s < came_back_s + FLAP_LONGER_S:
        return f"it came back lately after being as low for {came_back_s:.1f} s"
    if rates[0] < STILL_FALLING * rates[4 * _S] and low_s < FALL_S:
        return "the rate is still falling"
    return ""


def _spells(rates: Floats, low_tps: float) -> tuple[float, float]:
    """(how long the rate is below `low_tps` now, the longest it was low between two highs), in s.

    Only spells under FLAP_S that ended within FLAP_MEMORY_S count. What was before the history is unknown:
    a spell that reaches back there is not one between two highs."""
    low = np.concatenate(([False], rates < low_tps, [False]))
    turns = np.flatnonzero(low[1:] != low[:-1])
    spells = [(int(b), int(e)) for b, e in zip(turns[::2], turns[1::2], strict=True)]
    now_s = spells.pop(0)[1] / _S if spells and spells[0][0] == 0 else 0.0
    most = FLAP_S * _S
    back = [(e - b) / _S for b, e in spells if b < FLAP_MEMORY_S * _S and e - b < most and e < len(rates)]
    return now_s, max(back, default=0.0)


def _evidence(
    now_tps: float, rise_tps: float, goal_tps: float, planned_tps: float, headroom: float, past: Past
) -> dict[str, Any]:
    ages = {
        "since_plan_s": past.since_plan_s,
        "since_up_s": past.since_up_s,
        "since_down_s": past.since_down_s,
    }
    return {
        "offered_tps": now_tps,
        "rise_tps": rise_tps,
        "goal_tps": goal_tps,
        "planned_tps": planned_tps,
        "headroom": headroom,
        **{name: age for name, age in ages.items() if math.isfinite(age)},
    }
