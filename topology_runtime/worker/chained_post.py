"""The way out of one thread: frames for a thread that is chained to it are given to that by a direct call, all else to
the switchboard."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from topology_runtime.messages import Frame
from topology_runtime.state_moves import Barrier, StateAsked, StateMove, StateTaken
from topology_runtime.worker.acks import Addressed
from topology_runtime.worker.switchboard import Switchboard


class Receiving(Protocol):
    """A thread of this worker that others may run (threads.py)."""

    def run_for(self, frame: Frame, before: int) -> int | None:
        """Take the frame now, in the calling thread, if all the `before` frames that its sender sent earlier are
        taken: the CPU that it took, in ns. None: it is to be put into the inbox."""


class ChainedPost:
    """Of one thread. targets: the threads that it may run; chained: those that it ran when it had a frame for
    them last. lent_ns: CPU that it spent on them. wire_bytes: that left the worker."""

    def __init__(self, board: Switchboard, threads: Mapping[int, Receiving]) -> None:
        self.slot, self.incarnation = board.slot, board.incarnation
        self._board, self._threads = board, threads
        self.targets: frozenset[int] = frozenset()
        self.chained: set[int] = set()
        self.lent_ns = self.wire_bytes = 0
        self._sent: dict[int, int] = {}

    def deliver(self, frames: Iterable[Frame]) -> None:
        for frame in frames:
            target = frame.target
            before = self._sent.get(target, 0)
            self._sent[target] = before + 1
            if target in self.targets and self._run(frame, before):
                self.chained.add(target)
            else:
                self.chained.discard(target)
                self.wire_bytes += self._board.deliver((frame,))

    def _run(self, frame: Frame, before: int) -> bool:
        receiver = self._threads.get(frame.target)
        spent_ns = receiver.run_for(frame, before) if receiver is not None else None
        self.lent_ns += spent_ns or 0
        return spent_ns is not None

    def send_acks(self, acks: Iterable[Addressed]) -> None:
        self._board.send_acks(acks)

    def send_word(self, word: Barrier | StateMove | StateTaken | StateAsked) -> None:
        self._board.send_word(word)
