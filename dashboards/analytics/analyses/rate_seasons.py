"""Seasonality of the offered rate, and a forecast that is tried on an end it has not seen.

The period is the one that a controller finds in the same rates (`topology_runtime/rates/season_learning.py`). The
forecast is seasonal naive with drift: one period before, plus what
a period has added in the mean (Hyndman and Athanasopoulos, Forecasting, section 5.2). Pure but for `seasons`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import groupby
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from headgate.dashboards.analytics.analyses.analysis_input import AnalysisInput
from headgate.dashboards.analytics.storage.data_folders import DataPlace
from headgate.dashboards.analytics.storage.result_tables import POINTS_MOST, Forecast, Season
from headgate.dashboards.analytics.storage.trace_runs import TraceRun
from headgate.topology_runtime.errors import InvalidInput
from headgate.topology_runtime.rates.learned_season import SCHEMA, LearnedFrom, LearnedSeason
from headgate.topology_runtime.rates.season_learning import ALIKE, correlations, learned_of, period_of
from headgate.topology_runtime.wire.wire_version import VERSION
from headgate.topology_runtime.wording import utc_iso

Floats = NDArray[np.float64]

BINS_MOST = 4096  # of a run's series
LEAST_BINS = 24
HELD_OUT = 0.2
FULL = 0.9  # of the seconds of a usual bin
SHARE = 0.95  # of the errors in the hold-out lie within the forecast's interval


def seasons(asked: AnalysisInput, files: DataPlace) -> tuple[list[Season], list[Forecast]]:
    """Of each run; what the controller can foresee by goes into this folder, as a season's file."""
    known = [row for row in asked.rows("rate_windows", "run", "w", "epoch") if row["offered_tps"] is not None]
    found: list[Season] = []
    series: list[Forecast] = []
    for run in asked.runs.values():
        mine = full_bins(put_together([row for row in known if row["run"] == run.key], asked.window_s))
        season, forecast = _of_run(asked, run, mine, files)
        found.append(season)
        series += forecast
    return found, series


def put_together(windows: Sequence[Any], window_s: int) -> list[Any]:
    """Windows, ascending, as at most 4096 bins: tps, w of the first, n, bin_s."""
    if not windows:
        return []
    begin = windows[0]["w"]
    each = -(-(windows[-1]["w"] - begin + 1) // BINS_MOST)
    found = []
    for place, group in groupby(windows, key=lambda row: (row["w"] - begin) // each):
        its = list(group)
        tps, n = sum(row["offered_tps"] for row in its) / len(its), sum(row["n"] for row in its)
        found.append({"place": place, "bin_s": each * window_s, "tps": tps, "w": its[0]["w"], "n": n})
    return found


def full_bins(bins: Sequence[Any]) -> Sequence[Any]:
    """Without a first and a last one that the beginning and the end of the run cut short (`n`: seconds in it)."""
    usual = sorted(each["n"] for each in bins)[len(bins) // 2] if bins else 0
    first = bool(bins) and bins[0]["n"] < FULL * usual
    last = bool(bins) and bins[-1]["n"] < FULL * usual
    return bins[first : len(bins) - last]


def _of_run(
    asked: AnalysisInput, run: TraceRun, rows: Sequence[Any], files: DataPlace
) -> tuple[Season, list[Forecast]]:
    if len(rows) < LEAST_BINS:
        why = f"{len(rows)} stretches of {asked.window_s} s are too few: {LEAST_BINS} are needed"
        return Season(run.key, *(None,) * 8, why), []
    bin_s = float(rows[0]["bin_s"])
    places = np.array([row["place"] for row in rows])
    values = np.interp(np.arange(places[-1] + 1), places, [row["tps"] for row in rows])
    begin_s = asked.window_at_s(run.key, rows[0]["w"], asked.window_s)
    until_us = asked.begin_us.get(run.key, 0) + round((begin_s + len(values) * bin_s) * 1e6)
    of = SeasonOf(run.topology, run.place.uri, utc_iso(until_us * 1000), VERSION)
    if (data := season_data(values, bin_s, of)) is not None:
        content = json.dumps(data, indent=1, allow_nan=False).encode()
        (files / f"{run.topology}-{run.name}.json").write(content + b"\n")
    return judged(run.key, values, bin_s, begin_s)


def judged(run: str, values: Floats, bin_s: float, begin_s: float) -> tuple[Season, list[Forecast]]:
    """Season and forecast of one evenly spaced series, rows/s."""
    held = max(1, int(HELD_OUT * len(values)))
    seen, unseen = values[:-held], values[-held:]
    before_s, whole_s = (period_of(each, len(values) * bin_s, bin_s) for each in (seen, values))
    period, whole = (None if each is None else round(each / bin_s) for each in (before_s, whole_s))
    fitted = extended(seen, period, held)
    error = np.abs(fitted - unseen)
    naive = float(np.abs(unseen - seen[-1]).mean())
    reach = float(np.quantile(error, SHARE))
    why = None if period or whole else f"no period repeats at least twice with correlation {ALIKE}"
    season = Season(
        run=run,
        period_s=whole_s,
        strength=float(correlations(values, 1)[whole]) if whole else None,
        power_share=power_share(values, whole) if whole else None,
        method="seasonal naive with drift" if period else "last value",
        holdout_s=held * bin_s,
        mae_tps=float(error.mean()),
        relative_error=float(error.mean() / values.mean()) if values.mean() > 0 else None,
        naive_mae_tps=naive,
        why=why,
    )
    ahead = extended(values, whole, max(held, min(whole or held, len(values) // 2)))
    end = len(values)
    rows = [*_rows(run, "actual", values, 0, bin_s, begin_s, None)]
    rows += _rows(run, "fitted", fitted, end - held, bin_s, begin_s, reach)
    rows += _rows(run, "forecast", ahead, end, bin_s, begin_s, reach)
    return season, rows


def power_share(values: Floats, period: int) -> float:
    """Share of the periodogram that lies at the period and its harmonics, each with a bin to either side."""
    power = np.abs(np.fft.rfft(_detrended(values))) ** 2
    base, near = len(values) / period, np.zeros(len(power), bool)
    for harmonic in range(1, int(period / 2) + 1):
        at = round(harmonic * base)
        near[max(1, at - 1) : at + 2] = True
    return float(power[near].sum() / power[1:].sum())


def extended(values: Floats, period: int | None, steps: int) -> Floats:
    """The series `steps` bins on, never below 0. With a period: as one before, with the drift of
    a period; without: the last value."""
    n = len(values)
    if period is None:
        return np.full(steps, max(0.0, float(values[-1])))
    drift = float((values[period:] - values[:-period]).mean())
    ahead = np.arange(steps)
    times = ahead // period + 1
    ahead_values: Floats = np.maximum(0.0, values[n - period + ahead % period] + times * drift)
    return ahead_values


def _detrended(values: Floats) -> Floats:
    at = np.arange(len(values)) - (len(values) - 1) / 2
    middle: Floats = values - values.mean()
    return middle - at * float(at @ middle) / float(at @ at)


def _rows(
    run: str, kind: str, values: Floats, first: int, bin_s: float, begin_s: float, reach: float | None
) -> list[Forecast]:
    step = -(-len(values) // (POINTS_MOST // 3))
    return [
        Forecast(
            run, kind, begin_s + (first + n) * bin_s, float(values[n]),
            None if reach is None else max(0.0, float(values[n]) - reach),
            None if reach is None else float(values[n]) + reach,
        )
        for n in range(0, len(values), step)
    ]  # fmt: skip


# ── A season as runs are given it ──────────────────────────────────────────────────────────────────────


class SeasonOf(NamedTuple):
    """Of which topology it is, from where, until when, made by which headgate."""

    topology: str
    source: str
    until: str
    version: str


def season_data(values: Floats, bin_s: float, of: SeasonOf) -> dict[str, Any] | None:
    """Of an evenly spaced series, rows/s; None where nothing comes back that could be forecast."""
    seconds = round(len(values) * bin_s)
    middles_s = (np.arange(len(values)) + 0.5) * bin_s
    try:
        found = learned_of([np.interp(np.arange(seconds) + 0.5, middles_s, values)], None, iter)
    except InvalidInput:
        return None
    learned = LearnedFrom((of.source,), float(seconds), found.periods, of.until, of.version, found.held_out)
    middle, high = (tuple(each.tolist()) for each in (found.middle, found.high))
    season = LearnedSeason(SCHEMA, of.topology, found.period_s, middle, high, learned)
    return msgspec.to_builtins(season)  # type: ignore[no-any-return]
