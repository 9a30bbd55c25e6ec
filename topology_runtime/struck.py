"""What an agent and its workers say to each other of rows that workers do not survive."""

from __future__ import annotations

from typing import Literal

import msgspec

CallKind = Literal["row", "bucket", "read", "open", "close"]  # what user code is called for


class Struck(msgspec.Struct, frozen=True, array_like=True):
    """Calls of user code during which a worker hung or died, `times` times: the row with this identity
    (kind "bucket": rows kept together, named after the first; "read": a source at this position).
    error: what happened and where; traceback: the thread's stack."""

    task: str
    source: str
    partition: int
    position: int
    variant: int
    kind: CallKind
    times: int
    error: str
    traceback: str


class VmStrikes(msgspec.Struct, frozen=True, array_like=True):
    """Of one VM: the latest calls that were struck there, without their stacks, and how many workers were lost in calls
    of which nothing is known yet."""

    struck: tuple[Struck, ...] = ()
    unknown: int = 0


class Poisoned(msgspec.Struct, frozen=True, tag="poisoned"):
    """All of these that were struck too often: rows that are buried before user code meets them again,
    sources that wait before they read again."""

    struck: tuple[Struck, ...]
