"""What threads tell each other beside rows: barriers when routes change, keyed state on its way to a new owner, and how
far event time has come."""

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


class Watermark(msgspec.Struct, frozen=True, tag="e", array_like=True):
    """No rows of source thread `sender` from before `at_us` (event time, µs) are expected: those that it read are done.
    Later than any time: it is not waited for now (`timed.IDLE_US`). Said when it changes, and every second; the last
    one counts."""

    sender: int
    target: int
    at_us: int


class RangeWatermarks(msgspec.Struct, frozen=True, tag="r", array_like=True):
    """The same of key ranges of task number `task`, as far as they are the sender's: (first, how many, version of the
    range there, µs). Of a range the highest version counts, and of that the last one said. kept: (range, number) where
    rows are counted exactly once: what its timers gave below that number never comes again."""

    sender: int
    target: int
    task: int
    ranges: tuple[tuple[int, int, int, int], ...]
    kept: tuple[tuple[int, int], ...] = ()


class ReadTo(msgspec.Struct, frozen=True, tag="d", array_like=True):
    """Source thread `sender` has read rows up to `at_us` (event time less its lateness, µs). Later than any time: it is
    not waited for now. Said to threads of sources with a `max_drift`, when it changes, and every second."""

    sender: int
    target: int
    at_us: int


MoveWord = Barrier | StateMove | StateTaken | StateAsked
TimeWord = Watermark | RangeWatermarks
StateWord = MoveWord | TimeWord | ReadTo
