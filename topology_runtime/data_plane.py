"""How the data plane behaves: settings that every worker of a run has alike."""

from __future__ import annotations

import msgspec

FRAME_ROWS = 2048  # in a frame of a run at most: a frame costs as much as some 250 rows of a quick task


def cap_at(most: int, modelled_tps: float | None, gap_s: float = 0.0) -> int:
    """Rows in a frame at most, for a thread of this rate: a tenth of a second of it, so that a slow task's frame still
    acks soon; or as many as come in a gap, if that is longer."""
    return most if modelled_tps is None else max(1, min(most, int(max(0.1, gap_s) * modelled_tps)))


class DataPlaneSettings(msgspec.Struct, frozen=True):
    """How the data plane behaves; the same for every worker of a run."""

    gap_s: float = 0.001  # flush an edge's buffer at once if its last flush is this old
    frame_rows: int = 256  # rows in a frame at most
    window_s: float = 2.0  # rows in flight (not kept) per source thread: at most modelled rate × this
    strict: bool = False  # round-trip rows on hops inside a worker too
    switch_interval_s: float = 0.005
