"""The run's story in words: what came, when it re-planned and why, what that cost, what broke. Functions only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from dashboards.analytics.results import (
    BottleneckAnswer,
    Cost,
    LatencyEpoch,
    LeftOut,
    RateWindow,
    Replan,
    Residuals,
    Season,
    StabilityAnswer,
    TuplesTold,
)
from dashboards.report.analysis_files import Analysis
from dashboards.report.wording import NOTHING, count, duration, listed, number, percent

REASONS = {
    "start": "to start",
    "rate_changed": "because the rate changed",
    "over_provisioned": "because it had more slots than it needed",
    "overloaded": "because it was overloaded",
    "latency_violated": "because rows took too long",
    "model_off": "because a model was corrected",
    "first_rows": "because a task was measured on its first rows",
    "vm_lost": "because a VM was lost",
    "vm_joined": "because a VM came",
    "vm_drained": "because a VM was drained",
    "slot_quarantined": "because a slot was given up",
    "events_unread": "because accepted events had no reader",
    "code_replaced": "because other code was given",
    "operator": "because an operator asked for it",
    "rollback": "because an operator brought a plan back",
    "rolled_back": "because the plan before it did not work",
}
TOLD_MOST = 12  # re-plans of a run that are told one by one
GOOD_R2 = 0.95


@dataclass(frozen=True)
class Chapter:
    """What is told of a run: sentences, each complete; `kind` of each: came, replan, broke, fine, cost, next."""

    run: str
    sentences: list[tuple[str, str]]


def story(analysis: Analysis) -> list[Chapter]:
    """A chapter per run; one without a name when there is nothing to tell of."""
    chapters = [Chapter(run, list(_of_run(analysis, run))) for run in analysis.runs]
    left = analysis.rows(LeftOut)
    whole = list(_trust(analysis)) if len(chapters) > 1 else []
    if left:
        whole.append(("broke", _left_words(left)))
    if not chapters:
        whole.append(("broke", "There is nothing to tell: no sample was recorded."))
    return [*chapters, Chapter("", whole)] if whole else chapters


def _of_run(analysis: Analysis, run: str) -> Iterator[tuple[str, str]]:
    yield "came", _what_came(analysis, run)
    replans = sorted((r for r in analysis.rows(Replan, run)), key=lambda replan: replan.at_s)
    if replans and replans[0].reason == "start":
        first = replans[0]
        on = f" on {count(first.slots, 'slot')}" if first.slots is not None else ""
        yield "came", f"It began with a plan for {number(first.rate_tps)} tuples/s{on}."
    yield "came", how_often(replans)
    for before, replan in list(zip([None, *replans], replans, strict=False))[:TOLD_MOST]:
        if before is not None:
            yield "replan", what_changed(before, replan)
    yield from _what_broke(analysis, run, replans)
    if len(analysis.runs) == 1:
        yield from _trust(analysis)
    yield from _tightest(analysis, run)
    yield from _price(analysis, run)
    yield from _season(analysis, run)


def _what_came(analysis: Analysis, run: str) -> str:
    windows = analysis.rows(RateWindow, run)
    offered = [w.offered_tps for w in windows if w.offered_tps is not None]
    cost = next((row for row in analysis.rows(Cost, run) if row.epoch is None), None)
    lasted = cost.seconds if cost else max((w.at_s for w in windows), default=None)
    if not offered:
        return f"The run lasted {duration(lasted)}; what was offered was not recorded."
    span = f"{number(min(offered))} to {number(max(offered))}"
    done = ""
    if cost and cost.tuples_acked is not None:
        done = f" and finished {number(cost.tuples_acked)} of them"
    return f"The run lasted {duration(lasted)}. It was offered {span} tuples/s{done}."


def how_often(replans: list[Replan]) -> str:
    """How many re-plans, and why."""
    if not replans:
        return "Whether it re-planned is not known: its decisions were not recorded."
    later = [replan for replan in replans if replan.reason != "start"]
    if not later:
        return "It never re-planned: the first plan was good to the end."
    why = Counter(replan.reason for replan in later).most_common()
    parts = [f"{many} {REASONS.get(reason, f'for {reason}')}" for reason, many in why]
    if len(why) == 1:
        reason = REASONS.get(why[0][0], f"for {why[0][0]}")
        times = "once" if len(later) == 1 else f"{len(later)} times, each time"
        return f"It re-planned {times} {reason}."
    return f"It re-planned {len(later)} times: {listed(parts)}."


def what_changed(before: Replan, replan: Replan) -> str:
    """One re-plan: why, from what to what, and what it cost."""
    reason = REASONS.get(replan.reason, f"for {replan.reason}")
    plan = f"planned for {number(replan.rate_tps)} tuples/s"
    if replan.slots is not None:
        same = before.slots is None or before.slots == replan.slots
        plan += f" on {count(replan.slots, 'slot')}" + ("" if same else f" instead of {before.slots}")
    costs = []
    if replan.moves is not None:
        verb = "started or left" if replan.moves else "had to start or leave"
        costs.append(f"{count(replan.moves, 'thread')} {verb}")
    if replan.enacted_s is not None:
        costs.append(f"it was in force after {duration(replan.enacted_s)}")
    if replan.pause_ms is not None:
        costs.append(f"output paused for at most {duration(replan.pause_ms / 1e3)}")
    elif replan.silent_s:
        costs.append(f"a task was silent for {duration(replan.silent_s)}")
    rising = before.rate_tps is None or replan.rate_tps is None or replan.rate_tps >= before.rate_tps
    if replan.dip is not None and replan.dip > 0.05 and rising:  # else fewer were offered, too
        costs.append(f"{percent(replan.dip)} fewer tuples came through in the 5 s after it")
    more = f"; {listed(costs)}" if costs else ""
    return f"At {duration(replan.at_s)} (epoch {replan.epoch}) it re-planned {reason}: {plan}{more}."


def _what_broke(analysis: Analysis, run: str, replans: list[Replan]) -> Iterator[tuple[str, str]]:
    epochs = [row for row in analysis.rows(StabilityAnswer, run) if row.scope == "epoch"]
    unstable = sorted({row.epoch for row in epochs if row.stable is False})
    if unstable:
        which = listed([str(epoch) for epoch in unstable])
        worst = max((row for row in epochs if row.stable is False), key=lambda row: row.slope or 0.0)
        yield (
            "broke",
            f"It did not keep up in {'epoch' if len(unstable) == 1 else 'epochs'} {which}: latency grew by up to "
            f"{number(worst.slope)} s per second.",
        )
    overloaded = [duration(replan.at_s) for replan in replans if replan.reason == "overloaded"]
    if overloaded and not unstable:
        yield (
            "broke",
            f"No epoch as a whole was unstable, but it was found overloaded at {listed(overloaded)}.",
        )
    elif not unstable and any(row.stable for row in epochs):
        yield "fine", "It kept up in every epoch that lasted long enough to tell."
    silent = max(replans, key=lambda replan: replan.silent_s or 0.0, default=None)
    if silent is not None and (silent.silent_s or 0.0) > 2.0:
        yield (
            "broke",
            f"The longest silence of a task was {duration(silent.silent_s)}, around epoch {silent.epoch}.",
        )
    slow = [row for row in analysis.rows(LatencyEpoch, run) if row.p99_s is not None]
    if slow:
        worst_row = max(slow, key=lambda row: row.p99_s or 0.0)
        typical = sorted(row.p50_s or 0.0 for row in slow)[len(slow) // 2]
        yield (
            "came",
            f"A tuple took {duration(typical)} (median of a typical epoch); in the slowest, epoch "
            f"{worst_row.epoch}, one in a hundred took more than {duration(worst_row.p99_s)}.",
        )


def _trust(analysis: Analysis) -> Iterator[tuple[str, str]]:
    """How good the predictions were; of all runs together."""
    document = analysis.document
    values = {of: (document.get(of) or {}).get("r2") for of in ("rate", "cpu", "memory")}
    known = {of: r2 for of, r2 in values.items() if r2 is not None}
    if not known:
        yield (
            "broke",
            "How good the predictions were cannot be told: nothing was predicted for what was measured.",
        )
        return
    good = all(r2 >= GOOD_R2 for r2 in known.values())
    names = {"rate": "rate", "cpu": "CPU", "memory": "memory"}
    parts = [f"{number(r2)} for {names[of]}{_offset(analysis, of)}" for of, r2 in known.items()]
    yield "fine" if good else "broke", f"R² of predicted against actual is {listed(parts)}."
    slots = [
        row for row in analysis.rows(Residuals) if (row.of, row.by) == ("cpu", "slot") and row.mae is not None
    ]
    if slots and not good:
        worst = max(slots, key=lambda row: row.mae or 0.0)
        yield "broke", errs_most(worst)


def errs_most(slot: Residuals) -> str:
    """By its mean absolute error; and which way it errs, where it does so one way."""
    mae, mean = slot.mae or 0.0, slot.mean_residual or 0.0
    if abs(mean) > mae / 2:
        way = f"on average {number(100 * abs(mean))} points {'more' if mean > 0 else 'less'} than predicted"
    else:
        way = "now more, now less than predicted"
    return f"The CPU prediction errs most for slot {slot.name}, by {percent(mae)} of the slot in the mean: {way}."


def _offset(analysis: Analysis, of: str) -> str:
    """What R² would be without a constant offset, where that is the whole difference."""
    rows = (row for row in analysis.rows(Residuals) if row.of == of and row.by == "all")
    row = next(rows, None)
    if row is None or row.r2 is None or row.r2_without_offset is None or row.r2_without_offset < row.r2 + 0.1:
        return ""
    return f" ({number(row.r2_without_offset)} once its mean residual is taken off)"


def _tightest(analysis: Analysis, run: str) -> Iterator[tuple[str, str]]:
    rows = [row for row in analysis.rows(BottleneckAnswer, run) if row.rank == 1]
    if rows:
        load = {id(row): row.busy_share if row.load is None else row.load for row in rows}
        row = max(rows, key=lambda row: load[id(row)] or 0.0)
        task, often = Counter(row.task for row in rows).most_common(1)[0]
        yield (
            "came",
            f"The bottleneck was {task} in {often} of {count(len(rows), 'epoch')}; at worst {row.task} in slot "
            f"{row.vm}/{row.slot} was at {percent(load[id(row)])} of what it can do (epoch {row.epoch}).",
        )


def _price(analysis: Analysis, run: str) -> Iterator[tuple[str, str]]:
    cost = next((row for row in analysis.rows(Cost, run) if row.epoch is None), None)
    if cost is None:
        return
    usd = (
        f", {number(cost.usd)} USD"
        if cost.usd is not None
        else "; what that is in dollars is not known: no prices"
    )
    per = cost.usd_per_million_tuples
    each = f", {number(per)} USD per million tuples" if per is not None else ""
    most = max((row.slots_used for row in analysis.rows(Cost, run) if row.epoch is not None), default=None)
    saved = ""
    if most and cost.slots_used < most:
        saved = f" Its largest plan all the time would have taken {number(most * cost.seconds / 3600)}."
    yield "cost", f"It used {number(cost.slot_hours)} slot-hours{usd}{each}.{saved}"


def _season(analysis: Analysis, run: str) -> Iterator[tuple[str, str]]:
    for row in analysis.rows(Season, run):
        if row.period_s is not None:
            strength = number(row.strength)
            yield "next", f"The rate repeats every {duration(row.period_s)} (strength {strength} of 1)."
        if row.method is not None and row.relative_error is not None:
            yield "next", f"What comes can be foretold to {percent(row.relative_error)} (by “{row.method}”)."


def _left_words(left: list[LeftOut]) -> str:
    kinds = Counter(row.kind for row in left).most_common()
    rows = sum(row.rows or 0 for row in left)
    lost = f", with {rows:,} rows" if rows else ""
    return (
        f"Left out: {count(len(left), 'file')} ({listed([f'{many} {kind}' for kind, many in kinds])}){lost}."
    )


def headline(analysis: Analysis) -> dict[str, str]:
    """The numbers at the top: what → value."""
    document = analysis.document
    latency = document.get("latency_ms") or {}
    p99 = latency.get("p99") if isinstance(latency, dict) else None
    whole = [row for row in analysis.rows(Cost) if row.epoch is None]
    acked = [row.tuples_acked for row in whole if row.tuples_acked is not None]
    later = [replan for replan in analysis.rows(Replan) if replan.reason != "start"]
    return {
        "R² of the rate": number((document.get("rate") or {}).get("r2")),
        "R² of CPU": number((document.get("cpu") or {}).get("r2")),
        "R² of memory": number((document.get("memory") or {}).get("r2")),
        "re-plans": f"{len(later):,}",
        "latency, 99 %": duration(p99 / 1e3) if isinstance(p99, int | float) else NOTHING,
        "tuples done": number(sum(acked)) if acked else NOTHING,
        "lost": _told(analysis, "lost"),
        "duplicates": _told(analysis, "duplicates"),
        "slot-hours": number(sum(row.slot_hours for row in whole)) if whole else NOTHING,
        "rows read": number(document.get("rows")),
    }


def _told(analysis: Analysis, what: str) -> str:
    """Of all runs together, as their controllers counted; unknown when it is of one of them."""
    counts = [getattr(row, what) for row in analysis.rows(TuplesTold)]
    return NOTHING if not counts or None in counts else f"{sum(counts):,}"
