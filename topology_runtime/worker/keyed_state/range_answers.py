"""The messages by which a keeper answers for key ranges, and when they are sent (again): no more of them are made than
may be on their way, for a state may be larger than memory. Pure but for the disk of a keeper that is gone, which the
caller gives."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby

import msgspec

from headgate.topology_runtime.api.topology import KEY_RANGES
from headgate.topology_runtime.wire.state_moves import RangeCopy, StateAsked, StateMove
from headgate.topology_runtime.worker.keyed_state.keyed_rows import KeyedRows
from headgate.topology_runtime.worker.keyed_state.state_snapshots import SnapshotStore

NS = 1_000_000_000
RESEND_NS = NS // 2
MOVE_MOST_BYTES = 1 << 20  # of a message; one range alone may be more
WINDOW_BYTES = 16 << 20  # sent and not yet taken


@dataclass
class _Message:
    move: StateMove
    size: int
    sent_ns: int = -RESEND_NS

    def open(self, pending: set[int]) -> bool:
        return any(copy.key_range in pending for copy in self.move.copies)


class Moves:
    """Answers of thread `thread` by one set of routes."""

    def __init__(self, thread: int) -> None:
        self._thread, self._number = thread, -1
        self._messages: list[_Message] = []

    def due(self, number: int, rows: KeyedRows, now_ns: int) -> list[StateMove]:
        """What is to be sent now, the longest unsent first; what was taken is sent no more."""
        pending = rows.ranges.pending
        if number != self._number:
            self._number, self._messages = number, []
        self._messages = [message for message in self._messages if message.open(pending)]
        told = {copy.key_range for message in self._messages for copy in message.move.copies}
        held = sum(message.size for message in self._messages)
        for message in self._made(rows, told) if held < WINDOW_BYTES and not pending <= told else ():
            self._messages.append(message)
            if (held := held + message.size) >= WINDOW_BYTES:
                break
        room = WINDOW_BYTES - sum(m.size for m in self._messages if now_ns - m.sent_ns < RESEND_NS)
        sent: list[StateMove] = []
        for message in sorted(self._messages, key=lambda m: m.sent_ns):
            if now_ns - message.sent_ns < RESEND_NS or room <= 0:
                break
            message.sent_ns = now_ns
            room -= message.size
            sent.append(message.move)
        return sent

    def _made(self, rows: KeyedRows, but: set[int] | frozenset[int] = frozenset()) -> Iterator[_Message]:
        """Messages for all pending ranges `but` these, in their order: where several keepers answer for a range, none
        of them waits for what another is not to send yet."""
        for owner, ranges in groupby(sorted(rows.ranges.pending - but), rows.ranges.owner):
            assert owner is not None
            for copies in _chunks(map(rows.copy, ranges)):
                size = sum(len(copy.data) for copy in copies)
                yield _Message(StateMove(self._thread, owner, self._number, copies), size)


def _chunks(copies: Iterable[RangeCopy]) -> Iterator[tuple[RangeCopy, ...]]:
    chunk: list[RangeCopy] = []
    size = 0
    for copy in copies:
        if chunk and size + len(copy.data) > MOVE_MOST_BYTES:
            yield tuple(chunk)
            chunk, size = [], 0
        chunk.append(copy)
        size += len(copy.data)
    if chunk:
        yield tuple(chunk)


def answers_for(asked: StateAsked, disk: SnapshotStore) -> Iterator[StateMove]:
    """The answers of a thread that is no more, from its last snapshot."""
    try:
        saved = disk.load()
        copies_of_all = saved.by_range()[1] if saved is not None else ()
    except (OSError, msgspec.DecodeError):
        yield StateMove(asked.target, asked.sender, asked.number, (), asked.thread)
        return
    for copies in _chunks(_of_all_ranges(copies_of_all)):
        yield StateMove(asked.target, asked.sender, asked.number, copies, asked.thread)


def _of_all_ranges(copies: Iterable[RangeCopy]) -> Iterator[RangeCopy]:
    """These, in the order of their ranges, and that there is nothing of the others."""
    place = 0
    for copy in copies:
        yield from map(RangeCopy, range(place, copy.key_range))
        yield copy
        place = copy.key_range + 1
    yield from map(RangeCopy, range(place, KEY_RANGES))
