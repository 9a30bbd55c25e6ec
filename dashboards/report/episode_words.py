"""When rows waited for long, who held them up, and what happened meanwhile, in words."""

from __future__ import annotations

from headgate.dashboards.analytics.results import Episode, Replan, RunNote
from headgate.dashboards.report.analysis_files import Analysis
from headgate.dashboards.report.wording import duration, listed

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
