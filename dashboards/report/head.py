"""The head of the page: answers to what is asked first, per run, and a few numbers."""

from __future__ import annotations

from dataclasses import dataclass

from headgate.dashboards.analytics.results import Cost, Episode, Replan
from headgate.dashboards.report.analysis_files import Analysis
from headgate.dashboards.report.answers import HeadAnswer, answers, told_of
from headgate.dashboards.report.charts import RUNS_DRAWN
from headgate.dashboards.report.episode_words import hurt_s
from headgate.dashboards.report.wording import NOTHING, duration, number


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
        "tuples finished": number(sum(acked)) if acked else NOTHING,
        "lost": f"{sum(lost):,}" if known else NOTHING,
        "duplicates, at least": f"{sum(twice):,}" if known and len(twice) == len(lost) else NOTHING,
        "re-plans": f"{len(later):,}" if analysis.rows(Replan) else NOTHING,
        "slot-hours": number(sum(row.slot_hours for row in whole)) if whole else NOTHING,
        "USD": number(sum(row.usd or 0.0 for row in whole))
        if whole and all(r.usd is not None for r in whole)
        else NOTHING,
    }
