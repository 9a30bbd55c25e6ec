"""What is said of profiles in free slots: parts of the wire messages (`messages`)."""

from __future__ import annotations

import msgspec

from headgate.topology_runtime.cluster import Slot


class ProfileSpec(msgspec.Struct, frozen=True, array_like=True):
    """The free slot `slot` measures `task` for `budget_s` at most. Another `number` is another profile. samples: on
    rows that the tasks above it make on that VM, since nothing runs yet; else on copies of rows that workers of the VM
    take in."""

    task: str
    slot: Slot
    number: int
    budget_s: float
    samples: bool = False


class ProfileAt(msgspec.Struct, frozen=True, array_like=True):
    """How far profile `number` is: points measured, of about so many."""

    number: int
    done: int
    of: int


class Profiled(msgspec.Struct, frozen=True, tag="profiled"):
    """How profile `number` ended: its model as JSON, as far as it came (b"": nothing was measured), and
    why it failed; of_task: it is the task that failed, not the host. Said again while it is still desired."""

    vm: str
    number: int
    model: bytes = b""
    error: str = ""
    of_task: bool = False
