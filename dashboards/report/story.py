"""The run's story in words: what came, when it re-planned and why, what that cost, what broke. Functions only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from headgate.dashboards.analytics.results import (
    BottleneckAnswer,
    Cost,
    Episode,
    LatencyEpoch,
    LeftOut,
    Replan,
    RunNote,
    Season,
    StabilityAnswer,
)
from headgate.dashboards.report.analysis_files import Analysis
from headgate.dashboards.report.answers import FINE, kept_up, lasted_s, price, span, whole_windows
from headgate.dashboards.report.episode_words import TROUBLE, episodes_of, told
from headgate.dashboards.report.findings import findings
from headgate.dashboards.report.trust import trust
from headgate.dashboards.report.wording import count, duration, listed, number, percent
from headgate.topology_runtime.stability.evidence import UNSTABLE_SLOPE

REASONS = {
    "start": "to start",
    "rate_changed": "because the rate changed",
    "over_provisioned": "because it had more slots than it needed",
    "overloaded": "because it was overloaded",
    "latency_violated": "because rows took too long",
    "vm_loaded": "because a VM was loaded",
    "traffic_saved": "to save traffic between VMs",
    "model_off": "because a model was corrected",
    "refitted": "because a model was corrected by an analysis of the run",
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
TIGHT = 0.8  # of what a slot or a thread can do


@dataclass(frozen=True)
class Chapter:
    """What is told of a run: sentences, each complete; `kind` of each: came, replan, broke, fine, cost, next."""

    run: str
    sentences: list[tuple[str, str]]


def story(analysis: Analysis) -> list[Chapter]:
    """A chapter per run; one without a name when there is nothing to tell of."""
    chapters = [Chapter(run, list(_of_run(analysis, run))) for run in analysis.runs]
    left = analysis.rows(LeftOut)
    whole = list(trust(analysis)) if len(chapters) > 1 else []
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
    yield "came", how_often(replans) + _good_to_the_end(analysis, run, replans)
    for before, replan in list(zip([None, *replans], replans, strict=False))[:TOLD_MOST]:
        if before is not None:
            yield "replan", what_changed(before, replan)
    yield from _what_broke(analysis, run, replans)
    yield from _how_long(analysis, run)
    yield from _tightest(analysis, run)
    for found, sentence in findings(analysis, run):
        yield "broke" if found is not None else "came", sentence
    if len(analysis.runs) == 1:
        yield from trust(analysis)
    yield "cost", price(analysis, run)
    yield from _season(analysis, run)


def _what_came(analysis: Analysis, run: str) -> str:
    offered = [w.offered_tps for w in whole_windows(analysis, run) if w.offered_tps is not None]
    cost = next((row for row in analysis.rows(Cost, run) if row.epoch is None), None)
    lasted = lasted_s(analysis, run)
    if not offered:
        return f"The run lasted {duration(lasted)}; what was offered was not recorded."
    done = ""
    if cost and cost.tuples_acked is not None:
        done = f"; {count(round(cost.tuples_acked), 'tuple')} were finished"
    return f"The run lasted {duration(lasted)}. It was offered {span(offered)} tuples/s{done}."


def how_often(replans: list[Replan]) -> str:
    """How many re-plans, and why."""
    if not replans:
        return "Whether it re-planned is not known: its decisions were not recorded."
    later = [replan for replan in replans if replan.reason != "start"]
    if not later:
        return "It never re-planned."
    why = Counter(replan.reason for replan in later).most_common()
    if len(why) == 1:
        reason = REASONS.get(why[0][0], f"for {why[0][0]}")
        times = "once" if len(later) == 1 else f"{len(later)} times, each time"
        return f"It re-planned {times} {reason}."
    parts = [f"{many} {REASONS.get(reason, f'for {reason}')}" for reason, many in why]
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


def _good_to_the_end(analysis: Analysis, run: str, replans: list[Replan]) -> str:
    """What is said more of a run that kept its first plan."""
    if len(replans) != 1 or replans[0].reason != "start":
        return ""
    if kept_up(analysis, run)[0] == FINE:
        return " The first plan was good to the end."
    advised = any(note.kind == "advice" for note in analysis.rows(RunNote, run))
    return " The controller advised to." if advised else ""


def _what_broke(analysis: Analysis, run: str, replans: list[Replan]) -> Iterator[tuple[str, str]]:
    epochs = [row for row in analysis.rows(StabilityAnswer, run) if row.scope == "epoch"]
    growing = [row for row in epochs if row.stable is False and (row.slope or 0.0) > UNSTABLE_SLOPE]
    if growing:
        worst = max(growing, key=lambda row: row.slope or 0.0)
        yield (
            "broke",
            f"Latency grew fastest in epoch {worst.epoch}: by {number(worst.slope, digits=2)} s per second, from "
            f"{duration(worst.from_s)} to {duration(worst.to_s)}.",
        )
    for one in episodes_of(analysis, run)[:TOLD_MOST]:
        yield "broke", told(analysis, run, one)
    overloaded = [duration(replan.at_s) for replan in replans if replan.reason == "overloaded"]
    if overloaded and not any(row.stable is False for row in epochs) and not analysis.rows(Episode, run):
        yield (
            "broke",
            f"No epoch as a whole was unstable, but the controller found it overloaded at {listed(overloaded)}.",
        )
    for note in [note for note in analysis.rows(RunNote, run) if note.kind in TROUBLE][:TOLD_MOST]:
        yield "broke", f"At {duration(note.at_s)}: {note.text}."
    silent = max(replans, key=lambda replan: replan.silent_s or 0.0, default=None)
    if silent is not None and (silent.silent_s or 0.0) > 2.0:
        yield (
            "broke",
            f"The longest silence of a task was {duration(silent.silent_s)}, around epoch {silent.epoch}.",
        )


def _how_long(analysis: Analysis, run: str) -> Iterator[tuple[str, str]]:
    slow = [row for row in analysis.rows(LatencyEpoch, run) if row.p99_s is not None and row.tuples > 0]
    if not slow:
        return
    worst = max(slow, key=lambda row: row.p99_s or 0.0)
    middle = sorted(row.p50_s or 0.0 for row in slow)[len(slow) // 2]
    if len(slow) == 1:
        text = (
            f"Half of the tuples took at most {duration(worst.p50_s)}, 99 % at most {duration(worst.p99_s)}."
        )
    else:
        text = (
            f"In the middle one of {count(len({row.epoch for row in slow}), 'epoch')} half of the tuples took at most "
            f"{duration(middle)}; in the slowest, epoch {worst.epoch}, one in a hundred took more than "
            f"{duration(worst.p99_s)}."
        )
    yield "came", text


def _tightest(analysis: Analysis, run: str) -> Iterator[tuple[str, str]]:
    """The slot or the threads that came nearest to what they can do; whose queue grew."""
    rows = analysis.rows(BottleneckAnswer, run)
    if not rows:
        return
    row = max(rows, key=_load)
    load = _load(row)
    if (row.cpu_share or 0.0) >= (row.busy_share or 0.0):
        tasks = listed(
            [
                other.task
                for other in rows
                if (other.epoch, other.vm, other.slot) == (row.epoch, row.vm, row.slot)
            ]
        )
        what = f"slot {row.vm}/{row.slot}, with {percent(load)} of its CPU used (by {tasks} and whatever else is in it)"
    else:
        what = f"the threads of {row.task} in {row.vm}/{row.slot}, busy for {percent(load)} of the time"
    far = "Nothing was near its limit in the mean: the tightest" if load < TIGHT else "The tightest place"
    yield "came", f"{far} was {what}, in epoch {row.epoch}."
    for first in rows:
        others = [_load(other) for other in rows if other.epoch == first.epoch and other.rank > first.rank]
        if first.rank == 1 and (first.queue_growth_tps or 0.0) > 0 and others and max(others) > _load(first):
            yield (
                "came",
                f"In epoch {first.epoch} the queue before {first.task} in {first.vm}/{first.slot} grew, by "
                f"{number(first.queue_growth_tps, digits=2)} rows/s.",
            )


def _load(row: BottleneckAnswer) -> float:
    return row.load if row.load is not None else max(row.busy_share or 0.0, row.cpu_share or 0.0)


def _season(analysis: Analysis, run: str) -> Iterator[tuple[str, str]]:
    for row in analysis.rows(Season, run):
        if row.period_s is None:
            continue
        yield (
            "next",
            f"The rate repeats every {duration(row.period_s)} (strength {number(row.strength)} of 1).",
        )
        naive = row.naive_mae_tps
        if row.method is not None and row.mae_tps is not None and (naive is None or row.mae_tps < naive):
            yield (
                "next",
                f"On its end, which it had not seen, the forecast was off by {percent(row.relative_error)} "
                f"(by “{row.method}”).",
            )


def _left_words(left: list[LeftOut]) -> str:
    kinds = Counter(row.kind for row in left).most_common()
    rows = sum(row.rows or 0 for row in left)
    lost = f", with {rows:,} rows" if rows else ""
    return (
        f"Left out: {count(len(left), 'file')} ({listed([f'{many} {kind}' for kind, many in kinds])}){lost}."
    )
