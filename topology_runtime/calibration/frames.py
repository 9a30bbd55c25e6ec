"""How many rows a frame holds while a task is measured: as many as in a run at that rate. Pure."""

from __future__ import annotations

from collections.abc import Callable

from headgate.topology_runtime.data_plane import DataPlaneSettings, cap_at

ROWS_MOST = 64
ROWS_TRIED = (ROWS_MOST, 16, 4)  # of a task whose rows cost less than their frame
SURELY = 1.3  # times as many frames as come: what a frame costs differs by a fifth within minutes
CALL_ROWS_MOST = DataPlaneSettings().frame_rows


def frame_rows(per_thread_tps: float, gap_s: float) -> int:
    """Rows in a frame at this rate: what comes together while an edge waits its gap."""
    return max(1, min(ROWS_MOST, int(per_thread_tps * gap_s)))


def frames_that_hold(tps_with: Callable[[int], float], gap_s: float) -> int:
    """Rows in a frame of a task that has as much as it takes: the most that do come together in a gap at the rate
    that frames of so many allow (decision 80). tps_with: rows/s of a thread whose frames have so many rows. Frames of n
    rows allow at most n times the rate of single ones, so a task whose rows come less than one to a gap when they are
    single has none larger."""
    alone_tps = tps_with(1)
    if alone_tps * gap_s < 1:
        return 1
    for rows in ROWS_TRIED:
        tps = tps_with(rows)
        if tps * gap_s >= SURELY * rows:
            return frame_rows(tps, gap_s)
    return frame_rows(alone_tps, gap_s)


def call_rows(per_thread_tps: float) -> int:
    """Rows in a call of a batched task that has as much as it takes at this rate: what waits comes together, up to the
    cap that a run has for it."""
    return cap_at(CALL_ROWS_MOST, per_thread_tps)
