"""What an agent tells its workers of their machine's clock."""

from __future__ import annotations

import msgspec


class ClockOff(msgspec.Struct, frozen=True, tag="clock"):
    """Add so much to this machine's UTC to have the controller's."""

    offset_ns: int
