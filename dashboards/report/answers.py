"""What whoever opens a report wants to know first, answered in a few lines: did it keep up, where did it hurt, was
anything lost, what did it cost, what would have helped. What was not recorded is said to be unknown."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from headgate.dashboards.analytics.results import (
    Cost,
    Episode,
    LatencyEpoch,
    RateWindow,
    Replan,
    RunNote,
    StabilityAnswer,
    TuplesTold,
)
from headgate.dashboards.report.analysis_files import Analysis
from headgate.dashboards.report.changes import changed
from headgate.dashboards.report.episode_words import episodes_of, hurt_s, replans_near, told, troubles_near
from headgate.dashboards.report.findings import findings
from headgate.dashboards.report.other_policies import read_off
from headgate.dashboards.report.wording import count, duration, listed, number, percent

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
            "Rows never waited for long, but no epoch lasted long enough to tell whether it was stable.",
        )
    some = any(row.stable is None for row in epochs)
    return (
        FINE,
        f"Yes: rows never waited for long{', in all epochs that lasted long enough to tell' if some else ''}.",
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
        f" {counted.offered - counted.emitted:,} of {counted.offered:,} tuples that were due ({percent(share)}) had "
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
    return kind, f"Of {count(counted.emitted, 'tuple')} that were read{done}{odd}.{nothing}{way}"


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
            f" ({number(cost.usd_per_million_tuples)} USD per million tuples)"
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
        return "The run does not tell: nobody alone held up its rows, and no slot, pair or thread stands out."
    return "Nothing that this run could tell: it has no episode, and no slot, pair or thread stands out."


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
