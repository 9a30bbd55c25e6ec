"""What other policies would have done with the same offer, by the models, beside what the run did."""

from __future__ import annotations

from headgate.dashboards.analytics.run_figures import RECORDED, PolicyTried
from headgate.dashboards.report.analysis_files import Analysis
from headgate.dashboards.report.charts import Section, Table
from headgate.dashboards.report.wording import count, duration, number, percent

CHEAPER = 0.98  # of the slot-hours: less is no difference


def read_off(analysis: Analysis, run: str) -> str:
    """A line of reading, and one for each policy by its rank; "" when none was tried."""
    rows = analysis.rows(PolicyTried, run)
    own = next((row for row in rows if row.policy == RECORDED), None)
    if own is None:
        return ""
    ranked = sorted((row for row in rows if row.rank is not None), key=lambda row: row.rank or 0)
    failed = [row for row in rows if row.why is not None]
    return "\n".join(
        [
            _reading(own, ranked),
            _own(own),
            *(f"{row.rank}. {row.policy}: {_did(row)}." for row in ranked),
            *(f"{row.policy}: not begun ({row.why})." for row in failed),
        ]
    )


def _reading(own: PolicyTried, ranked: list[PolicyTried]) -> str:
    carrying = [row for row in ranked if row.carries]
    if not ranked:
        return "No policy could begin."
    if not carrying:
        return f"No policy carries what was offered; {ranked[0].policy} falls short by least."
    best = carrying[0]
    if own.violated_tuples > best.violated_tuples and best.slot_hours > own.slot_hours:
        return (
            f"{best.policy} would have fallen short by {_fewer(own, best)} fewer tuples than the run's plans, for "
            f"{percent(best.slot_hours / own.slot_hours - 1, 2)} more slot-hours."
        )
    if best.slot_hours < CHEAPER * own.slot_hours:
        return (
            f"{best.policy} carries what was offered with {percent(1 - best.slot_hours / own.slot_hours, 2)} fewer "
            "slot-hours than the run's plans."
        )
    return f"None carries what was offered with fewer slot-hours than the run's plans; the next is {best.policy}."


def _fewer(own: PolicyTried, best: PolicyTried) -> str:
    return f"{own.violated_tuples - best.violated_tuples:,.0f}"


def _own(own: PolicyTried) -> str:
    measured = "what it really failed to finish was not recorded"
    if own.measured_s is not None and own.measured_tuples is not None:
        measured = f"measured: {duration(own.measured_s)}, {count(round(own.measured_tuples), 'tuple')}"
    return f"The run, by its plans: {_did(own)}; {measured}."


def _did(row: PolicyTried) -> str:
    short = "never short"
    if row.violated_tuples:
        many = f"{row.violated_tuples:,.0f} of {row.offered:,.0f} tuples"
        short = f"short for {duration(row.violations_s)} ({many})"
    usd = "" if row.usd is None else f", {number(row.usd)} USD"
    return f"{number(row.slot_hours)} slot-hours{usd}, {short}, {count(row.replans, 're-plan')}"


def section(analysis: Analysis) -> Section:
    """All policies with all runs; empty when none was tried."""
    rows = analysis.rows(PolicyTried)
    if not rows:
        return Section("policies", "")
    words = [
        "Each policy was tried with what the run was offered, in a made world in which a plan carries exactly what the "
        "models predict: wrong models, faults and a disturbed machine are not in it. The line “recorded” shows how "
        "far that is from what happened: the run's plans by the same models, beside what was measured. First are those "
        "that carry what was offered but for a hundredth, by slot-hours; then the others, by how much they fall short."
    ]
    spelled = [
        {
            "run": row.run,
            "rank": row.rank,
            "policy": row.policy,
            "slot-hours": row.slot_hours,
            "USD": row.usd,
            "short, s": row.violations_s,
            "short, tuples": row.violated_tuples,
            "measured, s": row.measured_s,
            "measured, tuples": row.measured_tuples,
            "offered": row.offered,
            "re-plans": row.replans,
            "moves": row.moves,
            "remark": row.why or row.note or "",
        }
        for row in rows
    ]
    return Section("policies", "Other policies", words, [], [Table("Ranking", spelled)])
