"""The run's story in words: what came, when it re-planned and why, what that cost, what broke. Functions only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from headgate.dashboards.analytics.storage.result_tables import (
    BottleneckAnswer,
    Cost,
    Episode,
    LatencyEpoch,
    LeftOut,
    RateWindow,
    Replan,
    RunNote,
    Season,
    StabilityAnswer,
    TuplesTold,
)
from headgate.dashboards.report.analysis_files import Analysis
from headgate.dashboards.report.comparisons import changed, read_off
from headgate.dashboards.report.findings import (
    TROUBLE,
    episodes_of,
    findings,
    hurt_s,
    replans_near,
    told,
    troubles_near,
    trust,
)
from headgate.dashboards.report.report_charts import RUNS_DRAWN
from headgate.dashboards.report.report_wording import NOTHING, count, duration, listed, number, percent
from headgate.topology_runtime.stability.trial_evidence import UNSTABLE_SLOPE

# ── What whoever opens a report wants to know first, answered in a few lines: did it keep up, where did it
# hurt, was anything lost, what did it cost, what would have helped. What was not recorded is said to be
# unknown.

FINE, BROKE, UNKNOWN, PLAIN = "fine", "broke", "unknown", "plain"
UNREAD_SHARE = 0.005  # of what was due: less is what comes in the last moment
MOSTLY, AT_THE_END_S = 0.2, 5.0
HELP_MOST = 6
REMEDIES = {
    "slow": "Without it, or without what else runs on its host, its rows would have cost less.",
    "pair": "Apart they would not.",
    "leak": "Whatever runs there should give memory back.",
    "skew": "With another key, or more evenly routed, the others would have shared its rows.",
}  # by kind of finding


@dataclass(frozen=True)
class HeadAnswer:
    """`kind`: fine, broke, unknown, or plain (neither good nor bad); `text`: a line, or several."""

    question: str
    kind: str
    text: str


def answers(analysis: Analysis, run: str) -> list[HeadAnswer]:
    policies, since = read_off(analysis, run), changed(analysis, run)
    return [
        HeadAnswer("Did it keep up?", *kept_up(analysis, run)),
        HeadAnswer("Where did it hurt?", *where_it_hurt(analysis, run)),
        HeadAnswer("Was anything lost?", *what_became(analysis, run)),
        HeadAnswer("What did it cost?", PLAIN, price(analysis, run)),
        HeadAnswer("What would have helped?", PLAIN, what_helps(analysis, run)),
        *([HeadAnswer("What would other policies have done?", PLAIN, policies)] if policies else []),
        *([HeadAnswer("What changed since the last run?", PLAIN, since)] if since else []),
    ]


def told_of(analysis: Analysis, run: str) -> TuplesTold | None:
    """What the controller counted; all None where that was not recorded."""
    return next(iter(analysis.rows(TuplesTold, run)), None)


def kept_up(analysis: Analysis, run: str) -> tuple[str, str]:
    epochs = [row for row in analysis.rows(StabilityAnswer, run) if row.scope == "epoch"]
    unstable = sorted({row.epoch for row in epochs if row.stable is False})
    hurt = hurt_s(analysis.rows(Episode, run))
    whole = lasted_s(analysis, run)
    waited = f"for {duration(hurt)}{f' of {duration(whole)}' if whole else ''} rows waited for long"
    unread = _unread(analysis, run)
    if unstable:
        which = (
            f"in {'epoch' if len(unstable) == 1 else 'epochs'} {listed([str(epoch) for epoch in unstable])}"
        )
        return BROKE, f"No: not {which}{f'; {waited}' if hurt else ''}.{unread}"
    if unread:
        return BROKE, f"No{f': {waited}' if hurt else ''}.{unread}"
    if hurt:
        word = "Mostly" if whole is not None and hurt < MOSTLY * whole else "Not always"
        last_s = max(one.to_s for one in analysis.rows(Episode, run))
        ended = whole is not None and last_s > whole - AT_THE_END_S
        return BROKE, f"{word}: {waited}{', to its end' if ended else ', and then no longer'}."
    if not analysis.rows(LatencyEpoch, run) and not epochs:
        return UNKNOWN, "That is not known: no latency was recorded."
    if not any(row.stable for row in epochs):
        return (
            UNKNOWN,
            "Rows never waited for long, but no epoch lasted long enough to judge whether it was stable.",
        )
    some = any(row.stable is None for row in epochs)
    return (
        FINE,
        f"Yes: rows never waited for long{', in all epochs that lasted long enough to judge' if some else ''}.",
    )


def _unread(analysis: Analysis, run: str) -> str:
    counted = told_of(analysis, run)
    if counted is None or counted.offered is None or counted.emitted is None or not counted.offered:
        return ""
    share = (counted.offered - counted.emitted) / counted.offered
    if share < UNREAD_SHARE:
        return ""
    when = "when the run ended" if counted.over else "when its record ends"
    return (
        f" {counted.offered - counted.emitted:,} of {counted.offered:,} rows that were due ({percent(share)}) had "
        f"not been read {when}."
    )


def lasted_s(analysis: Analysis, run: str) -> float | None:
    cost = next((row for row in analysis.rows(Cost, run) if row.epoch is None), None)
    ends = [window.at_s + window.window_s for window in analysis.rows(RateWindow, run)]
    return cost.seconds if cost else max(ends, default=None)


def whole_windows(analysis: Analysis, run: str) -> list[RateWindow]:
    """Windows of the rates without the first and the last, and those in which the run was ending: of these a part is
    missing."""
    windows = sorted(analysis.rows(RateWindow, run), key=lambda window: (window.at_s, window.epoch))
    ending = min(
        (note.at_s for note in analysis.rows(RunNote, run) if note.kind == "ending"), default=float("inf")
    )
    inner = [window for window in windows[1:-1] if window.at_s + window.window_s <= ending]
    return inner or windows


def span(values: list[float]) -> str:
    """`60 to 120`; `60` when that is all."""
    low, high = number(min(values)), number(max(values))
    return low if low == high else f"{low} to {high}"


def where_it_hurt(analysis: Analysis, run: str) -> tuple[str, str]:
    episodes = episodes_of(analysis, run)
    if not episodes:
        if not analysis.rows(LatencyEpoch, run):
            return UNKNOWN, "That is not known: no latency was recorded."
        return FINE, "Nowhere: no row waited for long."
    worst = max(episodes, key=lambda one: one.peak_s)
    more = f" It is the worst of {len(episodes)} such stretches." if len(episodes) > 1 else ""
    return BROKE, told(analysis, run, worst) + more


def what_became(analysis: Analysis, run: str) -> tuple[str, str]:
    counted = told_of(analysis, run)
    if counted is None or counted.emitted is None or counted.lost is None:
        return UNKNOWN, "That is not known: what the controller counted is not in the trace."
    bad = []
    if counted.lost:
        bad.append(f"{counted.lost:,} were lost")
    if counted.dead_lettered:
        bad.append(f"{counted.dead_lettered:,} failed three times and were set aside as dead letters")
    if counted.replayed:
        bad.append(f"{counted.replayed:,} were sent once more")
    if counted.duplicates:
        bad.append(f"at least {counted.duplicates:,} reached a sink more than once")
    way = ""
    if counted.in_flight:
        ended = "the run" if counted.over else "its record"
        way = f" {counted.in_flight:,} were still on their way when {ended} ended."
    done = "" if counted.acked is None else f", {counted.acked:,} were processed whole"
    kind = BROKE if counted.lost or counted.dead_lettered else PLAIN if bad else FINE
    known = {"lost": counted.lost, "sent again": counted.replayed, "seen twice at a sink": counted.duplicates}
    none = [word for word, many in known.items() if many == 0]
    nothing = (
        f" None was counted as {', '.join(none[:-1])}{' or ' if none[1:] else ''}{none[-1]}." if none else ""
    )
    odd = f"; {listed(bad)}" if bad else ""
    return kind, f"Of {count(counted.emitted, 'row')} that were read{done}{odd}.{nothing}{way}"


def price(analysis: Analysis, run: str) -> str:
    cost = next((row for row in analysis.rows(Cost, run) if row.epoch is None), None)
    if cost is None:
        return "That is not known: no slots were recorded."
    if cost.usd is None:
        usd = "; what that is in dollars is not known: no prices"
    elif cost.usd == 0:
        usd = "; its VMs have a price of 0 USD"
    else:
        each = (
            f" ({number(cost.usd_per_million_tuples)} USD per million rows)"
            if cost.usd_per_million_tuples
            else ""
        )
        usd = f", {number(cost.usd)} USD{each}"
    most = max((row.slots_used for row in analysis.rows(Cost, run) if row.epoch is not None), default=0.0)
    saved = ""
    if most > 1.02 * cost.slots_used:
        saved = f" Its largest plan all the time would have taken {number(most * cost.seconds / 3600)}."
    return f"It used {number(cost.slot_hours)} slot-hours, {number(cost.slots_used)} slots in the mean{usd}.{saved}"


def what_helps(analysis: Analysis, run: str) -> str:
    helping = list(_helping(analysis, run))
    if helping:
        return "\n".join(helping[:HELP_MOST])
    if analysis.rows(Episode, run):
        return (
            "The run does not show it: nobody alone held up its rows, and no slot, pair or thread stands out."
        )
    return "Nothing that this run could show: it has no episode, and no slot, pair or thread stands out."


def _helping(analysis: Analysis, run: str) -> Iterator[str]:
    advice = [note for note in analysis.rows(RunNote, run) if note.kind == "advice"]
    if advice:
        first = advice[0]
        later = [r for r in analysis.rows(Replan, run) if r.reason != "start" and r.at_s >= first.at_s]
        often = f" ({count(len(advice), 'piece')} of advice in all)" if len(advice) > 1 else ""
        then = "" if later else " No plan followed."
        said = first.text.removeprefix("advice: ")
        yield f"What the controller advised at {duration(first.at_s)}: {said}{often}.{then}"
    for kind, sentence in findings(analysis, run):
        if kind is not None:
            yield f"{sentence} {REMEDIES[kind]}"
    if advice:
        return
    episodes = analysis.rows(Episode, run)
    troubled = [one for one in episodes if troubles_near(analysis, run, one)]
    if troubled:
        happened = dict(near for one in troubled for near in troubles_near(analysis, run, one))
        words = listed([f"at {duration(at_s)} {text}" for at_s, text in sorted(happened.items())], HELP_MOST)
        yield f"No other plan: {_some(len(troubled), len(episodes))} came with a failure ({words})."
    chased = [one for one in episodes if one not in troubled and replans_near(analysis, run, one)]
    if chased:
        yield (
            f"An earlier re-plan: {_some(len(chased), len(episodes))} came with one. With more headroom, or a "
            "season that the controller knows, it plans before the rate is there."
        )
    others = [one for one in episodes if one not in troubled and one not in chased]
    rest = [one.task for one in others if one.task is not None]
    if rest:
        task = max(dict.fromkeys(rest), key=rest.count)
        yield f"More room for {task}: it held up the rows in {_some(rest.count(task), len(episodes))}."


def _some(some: int, many: int) -> str:
    """Of the episodes."""
    return "the only stretch" if many == 1 else f"{some} of {many} stretches"


# ── ────────────────────────────────────────────────────────────────────────────────────────────────────

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
        whole.append(("broke", "There is nothing to report: no sample was recorded."))
    return [*chapters, Chapter("", whole)] if whole else chapters


def _of_run(analysis: Analysis, run: str) -> Iterator[tuple[str, str]]:
    yield "came", _what_came(analysis, run)
    replans = sorted((r for r in analysis.rows(Replan, run)), key=lambda replan: replan.at_s)
    if replans and replans[0].reason == "start":
        first = replans[0]
        on = f" on {count(first.slots, 'slot')}" if first.slots is not None else ""
        yield "came", f"It began with a plan for {number(first.rate_tps)} rows/s{on}."
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
        done = f"; {count(round(cost.tuples_acked), 'row')} were finished"
    return f"The run lasted {duration(lasted)}. It was offered {span(offered)} rows/s{done}."


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
    plan = f"planned for {number(replan.rate_tps)} rows/s"
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
        costs.append(f"{percent(replan.dip)} fewer rows came through in the 5 s after it")
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
        text = f"Half of the rows took at most {duration(worst.p50_s)}, 99 % at most {duration(worst.p99_s)}."
    else:
        text = (
            f"In the middle one of {count(len({row.epoch for row in slow}), 'epoch')} half of the rows took at most "
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


# ── The head of the page: answers to what is asked first, per run, and a few numbers ────────────────────


@dataclass(frozen=True)
class PageHead:
    """`answers`: run → its answers; numbers: what → value; more: of runs that are not answered here."""

    answers: dict[str, list[HeadAnswer]]
    numbers: dict[str, str]
    more: str = ""


def head_of(analysis: Analysis) -> PageHead:
    runs = analysis.runs
    more = (
        f"Answered are the first {RUNS_DRAWN} of {len(runs)} runs; the story has all."
        if len(runs) > RUNS_DRAWN
        else ""
    )
    return PageHead({run: answers(analysis, run) for run in runs[:RUNS_DRAWN]}, headline(analysis), more)


def headline(analysis: Analysis) -> dict[str, str]:
    """The numbers at the top, of all runs together: what → value."""
    latency = analysis.document.get("latency_ms") or {}
    p99 = latency.get("p99") if isinstance(latency, dict) else None
    whole = [row for row in analysis.rows(Cost) if row.epoch is None]
    acked = [row.tuples_acked for row in whole if row.tuples_acked is not None]
    counted = [told_of(analysis, run) for run in analysis.runs]
    lost = [row.lost for row in counted if row is not None and row.lost is not None]
    twice = [row.duplicates for row in counted if row is not None and row.duplicates is not None]
    episodes = analysis.rows(Episode)
    hurt = sum(hurt_s(analysis.rows(Episode, run)) for run in analysis.runs)
    later = [replan for replan in analysis.rows(Replan) if replan.reason != "start"]
    known = len(lost) == len(counted) > 0
    return {
        "rows waited for long": duration(hurt) if episodes or p99 is not None else NOTHING,
        "latency, 99 %": duration(p99 / 1e3) if isinstance(p99, int | float) else NOTHING,
        "rows finished": number(sum(acked)) if acked else NOTHING,
        "lost": f"{sum(lost):,}" if known else NOTHING,
        "duplicates, at least": f"{sum(twice):,}" if known and len(twice) == len(lost) else NOTHING,
        "re-plans": f"{len(later):,}" if analysis.rows(Replan) else NOTHING,
        "slot-hours": number(sum(row.slot_hours for row in whole)) if whole else NOTHING,
        "USD": number(sum(row.usd or 0.0 for row in whole))
        if whole and all(r.usd is not None for r in whole)
        else NOTHING,
    }
