"""What changed against the run before, or the one that was named: what differs by more than runs differ anyway."""

from __future__ import annotations

from collections.abc import Callable

from headgate.dashboards.analytics.run_figures import RunChange
from headgate.dashboards.report.analysis_files import Analysis
from headgate.dashboards.report.charts import Section, Table
from headgate.dashboards.report.wording import NOTHING, count, duration, number, percent

Words = Callable[[float | None], str]


def _tps(value: float | None) -> str:
    return number(value, "tuples/s")


def _waited(value: float | None) -> str:
    return "not at all" if value == 0 else duration(value)


def _many(value: float | None) -> str:
    return NOTHING if value is None else f"{value:,.0f}" if value else "none"


FIGURES: dict[str, tuple[str, Words]] = {
    "seconds": ("It lasted", duration),
    "offered_tps": ("Offered", _tps),
    "acked_tps": ("Finished", _tps),
    "p50_s": ("Half of the tuples took at most", duration),
    "p95_s": ("95 % of the tuples took at most", duration),
    "p99_s": ("99 % of the tuples took at most", duration),
    "waited_s": ("Rows waited for long for", _waited),
    "slots": ("Slots in the mean", number),
    "slot_hours": ("Slot-hours", number),
    "usd": ("USD", number),
    "replans": ("Re-plans", _many),
    "lost": ("Lost tuples", _many),
    "dead_lettered": ("Dead letters", _many),
    "replayed": ("Tuples sent once more", _many),
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
    """`Offered: 120 tuples/s, was 60 tuples/s (+100 %)`."""
    label, words = FIGURES[row.figure]
    value, before = words(row.value), words(row.before)
    share = ""
    if row.value and row.before:
        change = row.value / row.before - 1
        share = f" ({'+' if change > 0 else '−'}{percent(abs(change))})"
    return f"{label}: {value}, was {before}{share}."


def section(analysis: Analysis) -> Section:
    """All figures against those of the other run; empty when there is none."""
    rows = analysis.rows(RunChange)
    if not rows:
        return Section("changes", "")
    words = [
        "Only what differs by more than two runs of the same do is named above; docs/figures-of-a-run.md says by how "
        "much that is."
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
