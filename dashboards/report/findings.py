"""What was found of slots, tasks and threads, in sentences: slow slots, pairs that disturb each other, memory that only
grew, threads that took in too much. Where nothing was found it is said, and where nothing could be told, that.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from headgate.dashboards.analytics.storage.result_tables import (
    Episode,
    Leak,
    PairCost,
    RateWindow,
    Replan,
    Residuals,
    RunNote,
    SkewedThread,
    SlotSpeed,
    TaskResidual,
)
from headgate.dashboards.report.analysis_files import Analysis
from headgate.dashboards.report.report_wording import count, duration, listed, number, percent

SLOW, DISTURBING = 0.9, 1.1  # of a speed and of a factor: as in docs/reference/report-metrics.md

Finding = tuple[str | None, str]  # what was found: slow, pair, leak, skew; None: nothing. The sentence


def findings(analysis: Analysis, run: str) -> Iterator[Finding]:
    """One sentence or more of each kind, whether something was found or not."""
    if not analysis.rows(TaskResidual, run) and not any(
        analysis.rows(kind, run) for kind in (SlotSpeed, PairCost, Leak, SkewedThread)
    ):
        yield None, "Nothing is known of slots and threads: no samples of tasks were recorded."
        return
    yield from slow_slots(analysis.rows(SlotSpeed, run))
    yield from disturbing_pairs(analysis.rows(PairCost, run))
    yield from leaks(analysis.rows(Leak, run))
    yield from skewed_threads(analysis.rows(SkewedThread, run))


def slow_slots(speeds: list[SlotSpeed]) -> Iterator[Finding]:
    for row in sorted((row for row in speeds if row.slow), key=lambda row: row.speed):
        yield (
            "slow",
            f"{place(row).capitalize()} is slow: it does {percent(row.speed, 2)} of what the others do with the same "
            f"CPU time ({percent(row.low, 2)} to {percent(row.high, 2)}).",
        )
    if any(row.slow for row in speeds):
        return
    sure = sum(row.low >= SLOW for row in speeds)
    if not speeds:
        yield None, "How fast its slots are against each other cannot be determined from this run."
    elif not sure:
        few = f"the speeds of {count(len(speeds), 'slot')} are known too roughly"
        yield None, f"Whether a slot was slow cannot be determined: {few}."
    else:
        rest = _rest(len(speeds) - sure)
        yield (
            None,
            f"No slot was found to be slow: {sure} of {count(len(speeds), 'slot')} surely are not{rest}.",
        )


def place(row: SlotSpeed) -> str:
    """`slot vm1/0`, or the whole `VM vm1`."""
    return f"VM {row.vm}" if row.slot is None else f"slot {row.vm}/{row.slot}"


def disturbing_pairs(costs: list[PairCost]) -> Iterator[Finding]:
    told: set[tuple[str, str]] = set()
    bad = {(row.task, row.beside): row for row in costs if row.disturbs}
    for (task, beside), row in sorted(bad.items(), key=lambda pair: -pair[1].factor):
        if (beside, task) in told:
            continue
        told.add((task, beside))
        other = bad.get((beside, task))
        both = f"; a row of {beside} beside {task} × {number(other.factor)}" if other else ""
        yield (
            "pair",
            f"A row of {task} costs × {number(row.factor)} the CPU time with {beside} in its slot (× {number(row.low)} "
            f"to {number(row.high)}){both}.",
        )
    if bad:
        return
    sure = sum(row.high <= DISTURBING for row in costs)
    if not costs:
        yield None, "What tasks cost each other in a slot cannot be determined from this run."
    elif not sure:
        few = f"the costs of {count(len(costs), 'pair')} are known too roughly"
        yield None, f"Whether tasks disturb each other in a slot cannot be determined: {few}."
    else:
        rest = _rest(len(costs) - sure)
        yield (
            None,
            f"No task was found to disturb another in its slot: {sure} of {count(len(costs), 'pair')} surely do "
            f"not{rest}.",
        )


def _rest(unsure: int) -> str:
    if not unsure:
        return ""
    return (
        f", of the other {unsure} it cannot be determined"
        if unsure > 1
        else ", of the other one it cannot be determined"
    )


def leaks(found: list[Leak]) -> Iterator[Finding]:
    for row in sorted(found, key=lambda row: row.full_in_s):
        pace = f" by {number(row.bytes_per_s / 1024)} KiB/s" if row.bytes_per_s is not None else ""
        yield (
            "leak",
            f"The memory of slot {row.vm}/{row.slot} ({listed(row.tasks)}) only grew{pace}, from "
            f"{duration(row.from_s)} to {duration(row.to_s)}: {percent(row.held)} of it was held then, and "
            f"{duration(row.full_in_s)} later it would have been full.",
        )
    if not found:
        yield None, "No slot's memory only grew."


def skewed_threads(found: list[SkewedThread]) -> Iterator[Finding]:
    for task in dict.fromkeys(row.task for row in found):
        mine = [row for row in found if row.task == task]
        worst = max(mine, key=lambda row: row.times)
        epochs = len({row.epoch for row in mine})
        often = f" (in {count(epochs, 'epoch')}; the worst)" if len(mine) > 1 else ""
        yield (
            "skew",
            f"A thread of {task} took in {number(worst.times, digits=2)} times what its median thread did{often}: in "
            f"epoch {worst.epoch} thread {worst.thread} in {worst.vm}/{worst.slot} {number(worst.rate_tps)} rows/s "
            f"against {number(worst.middle_tps)}.",
        )
    if not found:
        yield None, "No thread took in twice what others of its task did."


# ── When rows waited for long, who held them up, and what happened meanwhile, in words ──────────────────

BEFORE_S = 10.0  # what happened so long before an episode, or in it, is named with it
NAMED_MOST = 3
TROUBLE = (
    "vm_lost", "vm_restarted", "worker_died", "slot_quarantined", "state_lost", "trouble", "clock_step", "code",
)  # fmt: skip


def episodes_of(analysis: Analysis, run: str) -> list[Episode]:
    return sorted(analysis.rows(Episode, run), key=lambda one: one.from_s)


def hurt_s(episodes: list[Episode]) -> float:
    """How long rows waited for long on any path."""
    whole, until = 0.0, float("-inf")
    for one in sorted(episodes, key=lambda one: one.from_s):
        whole += max(0.0, one.to_s - max(one.from_s, until))
        until = max(until, one.to_s)
    return whole


def told(analysis: Analysis, run: str, one: Episode) -> str:
    """`From 41.7 s to 46.7 s rows waited for up to 1.87 s …` and what came before it."""
    who = "nobody alone held them up"
    if one.task is not None:
        held = f", for {duration(one.held_s)} each on average" if one.held_s is not None else ""
        where = f" in slot {one.vm}/{one.slot}" if one.vm is not None and one.slot is not None else ""
        who = f"{one.task}{where} held them up{held}"
    words = (
        f"From {duration(one.from_s)} to {duration(one.to_s)} rows took up to {duration(one.peak_s)} (outside of such "
        f"stretches 9 in 10 took less than {duration(one.usual_s)}): {who}."
    )
    happened = around(analysis, run, one)
    return words + (f" {happened}" if happened else "")


def around(analysis: Analysis, run: str, one: Episode) -> str:
    """What happened shortly before it or in it, as a sentence."""
    near = sorted([*troubles_near(analysis, run, one), *replans_near(analysis, run, one)])
    words = listed([f"at {duration(at_s)} {text}" for at_s, text in near], NAMED_MOST)
    return f"Around that time: {words}." if near else ""


def troubles_near(analysis: Analysis, run: str, one: Episode) -> list[tuple[float, str]]:
    """(when, the controller's words) of what went wrong besides."""
    notes = [(note.at_s, note.text) for note in analysis.rows(RunNote, run) if note.kind in TROUBLE]
    return [(at_s, text) for at_s, text in notes if one.from_s - BEFORE_S <= at_s <= one.to_s]


def replans_near(analysis: Analysis, run: str, one: Episode) -> list[tuple[float, str]]:
    plans = [replan for replan in analysis.rows(Replan, run) if replan.reason != "start"]
    return [
        (replan.at_s, f"it re-planned (epoch {replan.epoch})")
        for replan in plans
        if one.from_s - BEFORE_S <= replan.at_s <= one.to_s
    ]


# ── How good the predictions were, by mean absolute errors: what is signed cancels, and R² alone says
# little of figures that hardly vary.

GOOD_R2 = 0.95
GOOD_ERROR = 0.05  # of the slot, or of the rate


def trust(analysis: Analysis) -> Iterator[tuple[str, str]]:
    """Of all runs together: the rate, CPU and memory, and where CPU is predicted worst."""
    yield rate_words(analysis)
    known = {of: fit for of in ("cpu", "memory") if (fit := fit_of(analysis, of)).get("mae") is not None}
    if not known:
        yield (
            "broke",
            "How good the predictions of slots were cannot be determined: nothing was predicted for what was measured.",
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
        f"Where the plans were tried to their limit ({count(len(tried), 'window')}), {number(acked)} rows/s came "
        f"through in the mean and {number(predicted)} were predicted (mean error {number(error)}, "
        f"{percent(share, 2)} of what came{r2}).",
    )


def most_offered(windows: list[RateWindow]) -> str:
    """`at most 80 % of it was offered (120 of 151 rows/s)`."""
    shares = [
        (w.offered_tps / w.predicted_tps, w) for w in windows if w.predicted_tps and w.offered_tps is not None
    ]
    if not shares:
        return "how much was offered was not recorded"
    share, window = max(shares, key=lambda one: one[0])
    whole = f"{number(window.offered_tps)} of {number(window.predicted_tps)} rows/s"
    return f"at most {percent(share, 2)} of it was offered ({whole})"
