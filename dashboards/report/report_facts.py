"""What the report's sentences are made of: plain figures of a run, and of all runs together, out of the result tables.
What was not recorded is None, or an empty list. `sentences.jinja` says it in words.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from headgate.dashboards.analytics.storage import result_tables as r
from headgate.dashboards.analytics.storage.result_tables import waited_s
from headgate.dashboards.report.analysis_files import Analysis
from headgate.dashboards.report.report_wording import NOTHING, duration, number, percent

SLOW, DISTURBING = 0.9, 1.1  # of a speed and of a factor: as in docs/reference/report-metrics.md
BEFORE_S = 10.0  # what happened so long before an episode, or in it, is named with it
TROUBLE = (
    "vm_lost", "vm_restarted", "worker_died", "slot_quarantined", "state_lost", "trouble", "clock_step", "code",
    "speed",
)  # fmt: skip
UNREAD_SHARE = 0.005  # of what was due: less is what comes in the last moment
REASONS = {
    "start": "to start",
    "rate_changed": "because the rate changed",
    "over_provisioned": "because it had more slots than it needed",
    "overloaded": "because it was overloaded",
    "link_cut": "because two VMs did not reach each other",
    "latency_violated": "because rows took too long",
    "vm_loaded": "because a VM was loaded",
    "vm_speed": "because a VM became slower or faster",
    "traffic_saved": "to save traffic between VMs",
    "model_off": "because a model was corrected",
    "refitted": "because a model was corrected by an analysis of the run",
    "first_rows": "because a task was measured on its first rows",
    "vm_lost": "because a VM was lost",
    "vm_joined": "because a VM came",
    "vm_drained": "because a VM was drained",
    "slot_quarantined": "because a slot was given up",
    "thread_failed": "because a thread could not be built",
    "thread_costly": "because rows of a thread cost more than its siblings'",
    "out_of_memory": "because a slot ran out of memory",
    "events_unread": "because accepted events had no reader",
    "code_replaced": "because other code was given",
    "operator": "because an operator asked for it",
    "rollback": "because an operator brought a plan back",
    "rolled_back": "because the plan before it did not work",
}

Facts = dict[str, Any]


def run_facts(analysis: Analysis, run: str) -> Facts:
    """Its rows of every table by name, and: `whole` (its cost), `lasted_s`, `record` (how much of it was recorded),
    `waited_s`, `counted` (what the controller counted), `epochs` (their stability) … as the keys say."""
    rows: Facts = {name: analysis.rows(kind, run) for name, kind in r.TABLES.items()}
    epochs = [row for row in rows["stability"] if row.scope == "epoch"]
    replans = sorted(rows["replans"], key=lambda replan: replan.at_s)
    counted = next(iter(rows["tuples_told"]), None)
    notes, bottlenecks = rows["run_notes"], rows["bottlenecks"]
    later = [replan for replan in replans if replan.reason != "start"]
    troubles = [note for note in notes if note.kind in TROUBLE]
    happened = [(note.at_s, note.text) for note in troubles]
    replanned = [(replan.at_s, f"it re-planned (epoch {replan.epoch})") for replan in later]
    windows = whole_windows(analysis, run)
    return rows | {
        "run": run,
        "alone": len(analysis.runs) == 1,
        "whole": whole_cost(rows["cost"]),
        "most_slots": max((row.slots_used for row in rows["cost"] if row.epoch is not None), default=0.0),
        "lasted_s": lasted_s(analysis, run),
        "record": analysis.recorded.get(run),
        "waited_s": waited_s((one.from_s, one.to_s) for one in rows["episodes"]),
        "waited_until_s": max((one.to_s for one in rows["episodes"]), default=0.0),
        "offered": [w.offered_tps for w in windows if w.offered_tps is not None],
        "counted": counted,
        "unread": counted if counted and unread_share(counted) >= UNREAD_SHARE else None,
        "epochs": epochs,
        "unstable": sorted({row.epoch for row in epochs if row.stable is False}),
        "growing": [row for row in epochs if row.stable is False and row.slope is not None],
        "replans": replans,
        "later": later,
        "why": Counter(replan.reason for replan in later).most_common(),
        "episodes": [
            {
                "its": one,
                "troubles": [near for near in happened if one.from_s - BEFORE_S <= near[0] <= one.to_s],
                "replans": [near for near in replanned if one.from_s - BEFORE_S <= near[0] <= one.to_s],
            }
            for one in sorted(rows["episodes"], key=lambda one: one.from_s)
        ],
        "troubles": troubles,
        "advice": [note for note in notes if note.kind == "advice"],
        "latencies": sorted(
            (row for row in rows["latency_epochs"] if row.p99_s is not None and row.tuples > 0),
            key=lambda row: row.p50_s or 0.0,
        ),
        "tightest": max(bottlenecks, key=load, default=None),
        "queued": [row for row in bottlenecks if row.rank == 1 and _queue_alone(row, bottlenecks)],
        "found": found_of(rows),
        "policies": policies_of(rows["policies_tried"]),
        "changes": [changed(row) for row in rows["run_changes"] if row.differs],
        "compared": [row for row in rows["run_changes"] if row.differs is not None],
    }


def whole_cost(costs: Sequence[r.Cost]) -> r.Cost | None:
    return next((row for row in costs if row.epoch is None), None)


def lasted_s(analysis: Analysis, run: str) -> float | None:
    cost = whole_cost(analysis.rows(r.Cost, run))
    ends = [window.at_s + window.window_s for window in analysis.rows(r.RateWindow, run)]
    return cost.seconds if cost else max(ends, default=None)


def whole_windows(analysis: Analysis, run: str) -> list[r.RateWindow]:
    """Windows of the rates without the first and the last, and those in which the run was ending: of these a part is
    missing."""
    windows = sorted(analysis.rows(r.RateWindow, run), key=lambda window: (window.at_s, window.epoch))
    notes = analysis.rows(r.RunNote, run)
    ending = min((note.at_s for note in notes if note.kind == "ending"), default=float("inf"))
    inner = [window for window in windows[1:-1] if window.at_s + window.window_s <= ending]
    return inner or windows


def unread_share(counted: r.TuplesTold) -> float:
    """Of the rows that were due; 0 where that is not known."""
    if not counted.offered or counted.emitted is None:
        return 0.0
    return (counted.offered - counted.emitted) / counted.offered


def load(row: r.BottleneckAnswer) -> float:
    return row.load if row.load is not None else max(row.busy_share or 0.0, row.cpu_share or 0.0)


def _queue_alone(first: r.BottleneckAnswer, rows: Sequence[r.BottleneckAnswer]) -> bool:
    """Is it first of its epoch by its queue, though another has a higher load?"""
    others = [load(other) for other in rows if other.epoch == first.epoch and other.rank > first.rank]
    return (first.queue_growth_tps or 0.0) > 0 and bool(others) and max(others) > load(first)


def found_of(rows: Facts) -> Facts:
    """Slow slots, pairs that disturb each other (each once, with what the other costs), leaks, and of each task the
    threads that took in too much, the worst of each kind first. known: anything was sampled at all."""
    speeds, costs, skewed = rows["slot_speeds"], rows["pair_costs"], rows["skewed_threads"]
    bad = {(row.task, row.beside): row for row in costs if row.disturbs}
    pairs: dict[frozenset[str], tuple[r.PairCost, r.PairCost | None]] = {}
    for (task, beside), row in sorted(bad.items(), key=lambda pair: -pair[1].factor):
        pairs.setdefault(
            frozenset((task, beside)), (row, bad.get((beside, task)) if task != beside else None)
        )
    by_task: dict[str, list[r.SkewedThread]] = {}
    for row in sorted(skewed, key=lambda row: -row.times):
        by_task.setdefault(row.task, []).append(row)
    return {
        "known": bool(rows["tasks_residuals"] or speeds or costs or rows["leaks"] or skewed),
        "slow": sorted((row for row in speeds if row.slow), key=lambda row: row.speed),
        "fast": sum(row.low >= SLOW for row in speeds),
        "pairs": list(pairs.values()),
        "peaceful": sum(row.high <= DISTURBING for row in costs),
        "leaks": sorted(rows["leaks"], key=lambda row: row.full_in_s),
        "skewed": list(by_task.values()),
    }


# ── Other policies and the run before ───────────────────────────────────────────────────────────────────


def policies_of(rows: Sequence[r.PolicyTried]) -> Facts | None:
    """What the run did by the models (`own`), those that could begin by their rank, those that carry the offer."""
    own = next((row for row in rows if row.policy == r.RECORDED), None)
    ranked = sorted((row for row in rows if row.rank is not None), key=lambda row: row.rank or 0)
    failed = [row for row in rows if row.why is not None]
    carrying = [row for row in ranked if row.carries]
    return None if own is None else {"own": own, "ranked": ranked, "failed": failed, "carrying": carrying}


def changed(row: r.RunChange) -> str:
    """`Offered: 120 rows/s, was 60 rows/s (+100 %)`."""
    share = ""
    if row.value and row.before:
        change = row.value / row.before - 1
        share = f" ({'+' if change > 0 else '−'}{percent(abs(change))})"
    return f"{r.NOISE[row.figure].title}: {_said(row, row.value)}, was {_said(row, row.before)}{share}."


def _said(row: r.RunChange, value: float | None) -> str:
    """In its unit; of what is counted, and of waiting, nothing is said in words."""
    if value == 0 and row.figure == "waited_s":
        return "not at all"
    if value is not None and row.unit in ("rows", "re-plans"):
        return f"{value:,.0f}" if value else "none"
    return duration(value) if row.unit == "s" else number(value, row.unit if row.unit == "rows/s" else "")


# ── Of all runs together: how good the predictions were, what was left out, and the head's numbers ──────


def whole_facts(analysis: Analysis) -> Facts:
    """Predictions are judged by mean absolute errors: what is signed cancels, and R² alone says little of figures that
    hardly vary."""
    residuals, left = analysis.rows(r.Residuals), analysis.rows(r.LeftOut)
    windows = [w for w in analysis.rows(r.RateWindow) if w.predicted_tps]
    tried = [(w.predicted_tps or 0.0, w.acked_tps) for w in windows if w.tried and w.acked_tps is not None]
    fit = fit_of(analysis, "rate")
    errors = [abs(acked - predicted) for predicted, acked in tried]
    slots = [row for row in residuals if row.of == "cpu" and row.by == "slot" and row.mae is not None]
    return {
        "runs": analysis.runs,
        "predicted": bool(windows),
        "most_offered": most_offered(windows),
        "tried": len(tried),
        "rate_predicted": sum(predicted for predicted, _ in tried) / max(1, len(tried)),
        "rate_acked": sum(acked for _, acked in tried) / max(1, len(tried)),
        "rate_error": sum(errors) / max(1, len(errors)) if fit.get("mae") is None else fit["mae"],
        "rate_r2": fit.get("r2"),
        "fits": {
            of: {"r2": None, **fit, "without_offset": _without_offset(residuals, of)}
            for of in ("cpu", "memory")
            if (fit := fit_of(analysis, of)).get("mae") is not None
        },
        "worst_slot": max(slots, key=lambda row: row.mae or 0.0) if len(slots) > 1 else None,
        "latency": latency_errors(analysis.rows(r.LatencyForeseen)),
        "left": left,
        "left_kinds": Counter(row.kind for row in left).most_common(),
        "left_rows": sum(row.rows or 0 for row in left),
        "seasons": analysis.rows(r.Season),
        "refitted": sum(row.file is not None for row in analysis.rows(r.Refitted)),
        "models": analysis.document.get("models"),
    }


def latency_errors(rows: Sequence[r.LatencyForeseen]) -> Facts:
    """Of each quantile: of how many it is known, and by how much it was off in the mean; {}: none was predicted."""
    found = {}
    for of in ("p50", "p95", "p99"):
        errors = [abs(e) for row in rows if (e := getattr(row, f"{of}_error")) is not None]
        found[of] = {"n": len(errors), "error": sum(errors) / max(1, len(errors))}
    return found if found["p50"]["n"] else {}


def fit_of(analysis: Analysis, of: str) -> Facts:
    """What analysis.json says of a kind of prediction."""
    found = analysis.document.get(of)
    return found if isinstance(found, dict) else {}


def _without_offset(residuals: Sequence[r.Residuals], of: str) -> float | None:
    """R² once its mean residual is taken off, where that is much higher."""
    row = next((row for row in residuals if row.of == of and row.by == "all"), None)
    if row is None or row.r2 is None or row.r2_without_offset is None:
        return None
    return row.r2_without_offset if row.r2_without_offset >= row.r2 + 0.1 else None


def most_offered(windows: Sequence[r.RateWindow]) -> str:
    """`at most 80 % of it was offered (120 of 151 rows/s)`."""
    shares = [
        (w.offered_tps / w.predicted_tps, w) for w in windows if w.predicted_tps and w.offered_tps is not None
    ]
    if not shares:
        return "how much was offered was not recorded"
    share, window = max(shares, key=lambda one: one[0])
    whole = f"{number(window.offered_tps)} of {number(window.predicted_tps)} rows/s"
    return f"at most {percent(share, 2)} of it was offered ({whole})"


def headline(analysis: Analysis) -> dict[str, str]:
    """The numbers at the top, of all runs together: what → value."""
    latency = analysis.document.get("latency_ms")
    p99 = latency.get("p99") if isinstance(latency, dict) else None
    costs = [row for row in analysis.rows(r.Cost) if row.epoch is None]
    replans, episodes = analysis.rows(r.Replan), analysis.rows(r.Episode)
    acked = [row.tuples_acked for row in costs if row.tuples_acked is not None]
    counted = analysis.rows(r.TuplesTold)
    lost = [row.lost for row in counted if row.lost is not None]
    twice = [row.duplicates for row in counted if row.duplicates is not None]
    all_counted = len(lost) == len(analysis.runs) > 0
    hurt = sum(waited_s((o.from_s, o.to_s) for o in episodes if o.run == run) for run in analysis.runs)
    usd = [row.usd for row in costs if row.usd is not None]
    return {
        "rows waited for long": duration(hurt) if episodes or p99 is not None else NOTHING,
        "latency, 99 %": duration(p99 / 1e3) if isinstance(p99, int | float) else NOTHING,
        "rows finished": number(sum(acked)) if acked else NOTHING,
        "lost": f"{sum(lost):,}" if all_counted else NOTHING,
        "duplicates, at least": f"{sum(twice):,}" if all_counted and len(twice) == len(lost) else NOTHING,
        "re-plans": f"{sum(replan.reason != 'start' for replan in replans):,}" if replans else NOTHING,
        "slot-hours": number(sum(row.slot_hours for row in costs)) if costs else NOTHING,
        "USD": number(sum(usd)) if costs and len(usd) == len(costs) else NOTHING,
    }
