"""How good the predictions were, by mean absolute errors: what is signed cancels, and R² alone says little of figures
that hardly vary."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from headgate.dashboards.analytics.results import RateWindow, Residuals
from headgate.dashboards.report.analysis_files import Analysis
from headgate.dashboards.report.wording import count, listed, number, percent

GOOD_R2 = 0.95
GOOD_ERROR = 0.05  # of the slot, or of the rate


def trust(analysis: Analysis) -> Iterator[tuple[str, str]]:
    """Of all runs together: the rate, CPU and memory, and where CPU is predicted worst."""
    yield rate_words(analysis)
    known = {of: fit for of in ("cpu", "memory") if (fit := fit_of(analysis, of)).get("mae") is not None}
    if not known:
        yield (
            "broke",
            "How good the predictions of slots were cannot be told: nothing was predicted for what was measured.",
        )
        return
    names = {"cpu": "CPU", "memory": "memory"}
    parts = [
        f"{names[of]} by {points(fit['mae'])} of the slot{_r2(analysis, of)}" for of, fit in known.items()
    ]
    good = all(fit["mae"] <= GOOD_ERROR or (fit.get("r2") or 0.0) >= GOOD_R2 for fit in known.values())
    yield "fine" if good else "broke", f"The predictions of slots were off by, in the mean: {listed(parts)}."
    slots = [
        row
        for row in analysis.rows(Residuals)
        if row.of == "cpu" and row.by == "slot" and row.mae is not None
    ]
    if len(slots) > 1 and not good:
        worst = max(slots, key=lambda row: row.mae or 0.0)
        yield "broke", errs_most(worst)


def errs_most(slot: Residuals) -> str:
    """By its mean absolute error; and which way it errs, where it does so one way."""
    mae, mean = slot.mae or 0.0, slot.mean_residual or 0.0
    if abs(mean) > mae / 2:
        way = f"on average {points(abs(mean))} {'more' if mean > 0 else 'less'} was used than predicted"
    else:
        way = "now more was used than predicted, now less"
    return (
        f"CPU was predicted worst in slot {slot.name}, off by {points(mae)} of the slot in the mean: {way}."
    )


def fit_of(analysis: Analysis, of: str) -> dict[str, Any]:
    """What analysis.json says of a kind of prediction."""
    found = analysis.document.get(of)
    return found if isinstance(found, dict) else {}


def points(share: float | None) -> str:
    """`12.8 points`: hundredths, of a share that is itself in per cent."""
    return number(None if share is None else 100 * share, "points")


def _r2(analysis: Analysis, of: str) -> str:
    r2 = fit_of(analysis, of).get("r2")
    rows = (row for row in analysis.rows(Residuals) if row.of == of and row.by == "all")
    row = next(rows, None)
    offset = ""
    without = None if row is None else row.r2_without_offset
    if row is not None and row.r2 is not None and without is not None and without >= row.r2 + 0.1:
        offset = f", {number(without)} once its mean residual is taken off"
    return "" if r2 is None else f" (R² {number(r2)}{offset})"


def rate_words(analysis: Analysis) -> tuple[str, str]:
    """Was the predicted rate ever tried, and was it right then?"""
    windows = [w for w in analysis.rows(RateWindow) if w.predicted_tps]
    if not windows:
        return "came", "What rate the plans would carry was not predicted."
    tried = [(w.predicted_tps or 0.0, w.acked_tps) for w in windows if w.tried and w.acked_tps is not None]
    if not tried:
        return "came", f"The predicted rate was never tried: {most_offered(windows)}."
    predicted = sum(p for p, _ in tried) / len(tried)
    acked = sum(a for _, a in tried) / len(tried)
    fit = fit_of(analysis, "rate")
    error = sum(abs(a - p) for p, a in tried) / len(tried) if fit.get("mae") is None else fit["mae"]
    r2 = f", R² {number(fit['r2'])}" if fit.get("r2") is not None else ""
    share = error / acked if acked else None
    good = share is not None and share <= GOOD_ERROR
    return (
        "fine" if good else "broke",
        f"Where the plans were tried to their limit ({count(len(tried), 'window')}), {number(acked)} tuples/s came "
        f"through in the mean and {number(predicted)} were predicted (mean error {number(error)}, "
        f"{percent(share, 2)} of what came{r2}).",
    )


def most_offered(windows: list[RateWindow]) -> str:
    """`at most 80 % of it was offered (120 of 151 tuples/s)`."""
    shares = [
        (w.offered_tps / w.predicted_tps, w) for w in windows if w.predicted_tps and w.offered_tps is not None
    ]
    if not shares:
        return "how much was offered was not recorded"
    share, window = max(shares, key=lambda one: one[0])
    whole = f"{number(window.offered_tps)} of {number(window.predicted_tps)} tuples/s"
    return f"at most {percent(share, 2)} of it was offered ({whole})"
