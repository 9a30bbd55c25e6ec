"""How far arriving sources are behind what comes: what that asks of a plan, and when a person is told. Pure.

A plan carries what comes with some headroom, so rows that wait are done with sooner or later. It is made for more
when that would take longer than `DRAIN_S`: a minute is longer than enacting a plan and fetching a VM take, so what
is planned is there in time to be of use, and it is short enough that nobody waits for yesterday's rows.
"""

from __future__ import annotations

import math

from msgspec.structs import replace

from headgate.controller.knowledge.arrivals import Lag
from headgate.controller.knowledge.windows import SERIES_STEP_S, Window

DRAIN_S = 60.0
LEAST_S = 2.0  # a row that waits for less waits for its turn, not for a plan
ALARM_S, OVER_S = 5.0, 2.0  # behind by so much and growing is an alarm; below the other it is over
GROWS, GROWS_S = 0.05, 5.0  # by so much of what comes, over so many seconds
CAPPED = 0.8  # of the cap is read where that is what keeps rows back

_POINTS = round(GROWS_S / SERIES_STEP_S)


def under_cap(window: Window, lags: tuple[Lag, ...], cap_tps: float) -> Window:
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


def alarm(before: str, lags: tuple[Lag, ...], window: Window) -> str:
    """What to say of a lag that grows; as `before` while it has not gone, empty when there is none."""
    worst = max(lags, key=lambda lag: lag.seconds, default=None)
    if worst is None or worst.seconds < OVER_S:
        return ""
    if before or worst.seconds < ALARM_S or not grows(window):
        return before
    return (
        f"lag growing: {worst.source} is {worst.rows:,} rows and {worst.seconds:.0f} s behind what comes "
        f"({window.offered_tps:,.0f} tuples/s come, {window.emitted_tps:,.0f} are read)"
    )


def grows(window: Window) -> bool:
    """Do more rows wait to be read than some seconds ago?"""
    series = window.progress
    if len(series.at_s) <= _POINTS:
        return False
    came, read = (column[-1] - column[-1 - _POINTS] for column in (series.offered, series.emitted))
    return came - read > max(1.0, GROWS * came)
