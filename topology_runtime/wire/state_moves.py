"""What threads tell each other when routes change: barriers, and keyed state on its way to a new owner."""

from __future__ import annotations

import msgspec


class Barrier(msgspec.Struct, frozen=True, tag="m", array_like=True):
    """Thread `sender` sends nothing more to leaving thread `target` by routes older than `number`."""

    sender: int
    target: int
    number: int


class RangeCopy(msgspec.Struct, frozen=True, array_like=True):
    """What a thread has of a key range: `version` −1 and no data when it has nothing."""

    key_range: int
    version: int = -1
    data: bytes = b""


class StateMove(msgspec.Struct, frozen=True, tag="s", array_like=True):
    """What `sender`, which obeys routes `number` and has their barriers, has of ranges that are `target`'s by
    them. Sent again until taken; the sender changes these states no more. `gone`: it speaks for this thread,
    which is no more; with no copies at all: that thread's snapshot cannot be read."""

    sender: int
    target: int
    number: int
    copies: tuple[RangeCopy, ...]
    gone: int | None = None


class StateTaken(msgspec.Struct, frozen=True, tag="t", array_like=True):
    """By routes `number` these ranges are the sender's, and it has them durably."""

    sender: int
    target: int
    number: int
    ranges: tuple[int, ...]


class StateAsked(msgspec.Struct, frozen=True, tag="q", array_like=True):
    """Thread `thread` of `task` is no more: what does its last snapshot on the target's VM say of its ranges?
    The target answers for it, with StateMoves by routes `number`."""

    sender: int
    target: int
    number: int
    task: str
    thread: int
