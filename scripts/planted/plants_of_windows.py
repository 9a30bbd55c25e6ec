"""Bugs in windows and joins of event time."""

from __future__ import annotations

from planted.planting import Plant, one

PANES = "topology_runtime/event_time/window_panes.py"
JOINS = "topology_runtime/event_time/stream_joins.py"
SQL = "tests/event_time/test_windows_against_sql.py"
MODEL = "tests/event_time/test_windows_against_a_model.py"
REPORTS = "tests/event_time/test_window_reports.py"

OF_WINDOWS: tuple[Plant, ...] = (
    one(
        "a window is open at its end",
        PANES,
        "span.end + self._firing.lateness > mark]",
        "span.end + self._firing.lateness >= mark]",
        test=MODEL,
    ),
    one(
        "late rows change nothing",
        PANES,
        "if pane.rows and not pane.on_time:",
        "if pane.rows:",
        test=MODEL,
    ),
    one(
        "rows since a pane are never forgotten",
        PANES,
        "        pane.fresh = 0\n",
        "",
        test=MODEL,
    ),
    one(
        "a session that is gone is forgotten",
        PANES,
        "any(pane.closed for pane in touching) or",
        "any(pane.closed and pane.rows < 0 for pane in touching) or",
        test=SQL,
    ),
    one(
        "a late row may begin before its session",
        PANES,
        "if over and all(",
        "if over and not touching and all(",
        test=REPORTS,
    ),
    one(
        "what merged sessions gave is not taken back",
        PANES,
        "told=[one for pane in members for one in pane.told],",
        "told=[one for pane in members[:1] for one in pane.told],",
        test=REPORTS,
    ),
    one(
        "sessions that merge lose their delay",
        PANES,
        "due=min(dues, default=None),",
        "due=None,",
        test=REPORTS,
    ),
    one(
        "a join forgets what is late",
        JOINS,
        "gone = bisect_left(rows, time.at_us - self._lateness",
        "gone = bisect_left(rows, time.at_us",
        test=SQL,
    ),
)
