"""What a controller says of finished rows that it needs no log of any more."""

from __future__ import annotations

import msgspec


class FinishedKept(msgspec.Struct, frozen=True, tag="finished_kept"):
    """Rows of positions below `floors` (source number, partition, position), in the first so many bytes of these logs
    (sink, thread, incarnation, bytes), are counted in what the controller has kept."""

    floors: tuple[tuple[int, int, int], ...] = ()
    logs: tuple[tuple[str, int, int, int], ...] = ()
