"""What changed against the run before, or the one that was named: what differs by more than runs differ anyway."""

from __future__ import annotations

from collections.abc import Callable

from headgate.dashboards.analytics.storage.result_tables import RECORDED, PolicyTried, RunChange
from headgate.dashboards.report.analysis_files import Analysis
from headgate.dashboards.report.report_charts import Section, Table
from headgate.dashboards.report.report_wording import NOTHING, count, duration, number, percent

Words = Callable[[float | None], str]


def _tps(value: float | None) -> str:
    return number(value, "rows/s")


def _waited(value: float | None) -> str:
    return "not at all" if value == 0 else duration(value)


def _many(value: float | None) -> str:
    return NOTHING if value is None else f"{value:,.0f}" if value else "none"


FIGURES: dict[str, tuple[str, Words]] = {
    "seconds": ("It lasted", duration),
    "offered_tps": ("Offered", _tps),
    "acked_tps": ("Finished", _tps),
    "p50_s": ("Half of the rows took at most", duration),
    "p95_s": ("95 % of the rows took at most", duration),
    "p99_s": ("99 % of the rows took at most", duration),
    "waited_s": ("Rows waited for long for", _waited),
    "slots": ("Slots in the mean", number),
    "slot_hours": ("Slot-hours", number),
    "usd": ("USD", number),
    "replans": ("Re-plans", _many),
    "lost": ("Lost rows", _many),
    "dead_lettered": ("Dead letters", _many),
    "replayed": ("Rows sent once more", _many),
    "duplicates": ("Duplicates at sinks, at least", _many),
}


def changed(analysis: Analysis, run: str) -> str:
    """A line for each figure that differs; "" when there is no run to compare with."""
    rows = analysis.rows(RunChange, run)
    if not rows:
        return ""
    against, known = rows[0].against, [row for row in rows if row.differs is not None]
    lines = [told(row) for row in known if row.differs]
    if not lines:
        return f"Nothing by more than runs differ anyway, against {against} ({count(len(known), 'figure')} compared)."
    rest = len(known) - len(lines)
    same = (
        f" (the other {count(rest, 'figure')} differ by no more than runs differ anyway)" if rest > 1 else ""
    )
    return "\n".join([f"Against {against}{same}:", *lines])


def told(row: RunChange) -> str:
    """`Offered: 120 rows/s, was 60 rows/s (+100 %)`."""
    label, words = FIGURES[row.figure]
    value, before = words(row.value), words(row.before)
    share = ""
    if row.value and row.before:
        change = row.value / row.before - 1
        share = f" ({'+' if change > 0 else '−'}{percent(abs(change))})"
    return f"{label}: {value}, was {before}{share}."


def changes_section(analysis: Analysis) -> Section:
    """All figures against those of the other run; empty when there is none."""
    rows = analysis.rows(RunChange)
    if not rows:
        return Section("changes", "")
    words = [
        "Only what differs by more than two runs of the same do is named above; "
        "docs/reference/report-metrics.md says by how much that is."
    ]
    spelled = [
        {
            "run": row.run,
            "against": row.against,
            "figure": FIGURES[row.figure][0],
            "value": row.value,
            "before": row.before,
            "unit": row.unit,
            "differs": row.differs,
        }
        for row in rows
    ]
    return Section("changes", "Against the run before", words, [], [Table("All figures", spelled)])


# ── What other policies would have done with the same offer, by the models, beside what the run did ─────

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
            *(f"{row.policy}: not started ({row.why})." for row in failed),
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
            f"{best.policy} would have fallen short by {_fewer(own, best)} fewer rows than the run's plans, for "
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
        measured = f"measured: {duration(own.measured_s)}, {count(round(own.measured_tuples), 'row')}"
    return f"The run, by its plans: {_did(own)}; {measured}."


def _did(row: PolicyTried) -> str:
    short = "never short"
    if row.violated_tuples:
        many = f"{row.violated_tuples:,.0f} of {row.offered:,.0f} rows"
        short = f"short for {duration(row.violations_s)} ({many})"
    usd = "" if row.usd is None else f", {number(row.usd)} USD"
    return f"{number(row.slot_hours)} slot-hours{usd}, {short}, {count(row.replans, 're-plan')}"


def policies_section(analysis: Analysis) -> Section:
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
            "short, rows": row.violated_tuples,
            "measured, s": row.measured_s,
            "measured, rows": row.measured_tuples,
            "offered": row.offered,
            "re-plans": row.replans,
            "moves": row.moves,
            "remark": row.why or row.note or "",
        }
        for row in rows
    ]
    return Section("policies", "Other policies", words, [], [Table("Ranking", spelled)])
