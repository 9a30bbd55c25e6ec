"""What is said of a profile in a spare slot: parts of the wire messages (`messages`)."""

from __future__ import annotations

import msgspec

from topology_runtime.cluster import Slot


class ProfileSpec(msgspec.Struct, frozen=True, array_like=True):
    """The spare slot `slot` measures `task`, on copies of rows that workers of its VM take in, for
    `budget_s` at most. Another `number` is another profile."""

    task: str
    slot: Slot
    number: int
    budget_s: float


class Profiled(msgspec.Struct, frozen=True, tag="profiled"):
    """How profile `number` ended: its model as JSON, as far as it came (b"": nothing was measured), and
    why it failed. Said again while it is still desired."""

    vm: str
    number: int
    model: bytes = b""
    error: str = ""
