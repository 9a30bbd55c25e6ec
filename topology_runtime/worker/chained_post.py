"""The way out of one thread: frames for a thread that is chained to it are given to that by a direct call, all else to
the switchboard."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from topology_runtime.messages import Frame
from topology_runtime.state_moves import Barrier, StateAsked, StateMove, StateTaken
from topology_runtime.worker.acks import Addressed, summed
from topology_runtime.worker.switchboard import Switchboard


@dataclass(frozen=True)
class Ran:
    """What a frame took of the CPU, ns, and its acks, which are for the caller to send."""

    cpu_ns: int
    acks: Sequence[Addressed]


class Receiving(Protocol):
    """A thread of this worker that others may run (threads.py)."""

    def run_for(self, frame: Frame, before: int) -> Ran | None:
        """Take the frame now, in the calling thread, if all the `before` frames that its sender sent earlier are
        taken. None: it is to be put into the inbox."""


class ChainedPost:
    """Of one thread. targets: the threads that it may run; chained: those that it ran when it had a frame for
    them last. lent_ns: CPU that it spent on them. wire_bytes: that left the worker. The acks of a chain are sent by its
    first thread, those of a root as one, when all of the chain is done with a frame."""

    def __init__(self, board: Switchboard, threads: Mapping[int, Receiving]) -> None:
        self.slot, self.incarnation = board.slot, board.incarnation
        self._board, self._threads = board, threads
        self.targets: frozenset[int] = frozenset()
        self.chained: set[int] = set()
        self.lent_ns = self.wire_bytes = 0
        self._sent: dict[int, int] = {}
        self._acks: list[Addressed] = []  # of those that it ran; while another runs it, its own too
        self._run_by_another = False

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
        if self._acks and not self._run_by_another:
            acks, self._acks = self._acks, []
            self._board.send_acks(summed(acks))

    def _run(self, frame: Frame, before: int) -> bool:
        receiver = self._threads.get(frame.target)
        ran = receiver.run_for(frame, before) if receiver is not None else None
        if ran is None:
            return False
        self.lent_ns += ran.cpu_ns
        self._acks += ran.acks
        return True

    @contextmanager
    def run_by_another(self) -> Iterator[list[Addressed]]:
        """Acks go to whoever runs this thread meanwhile: they are in the list when it is done."""
        acks: list[Addressed] = []
        self._run_by_another = True
        try:
            yield acks
        finally:
            self._run_by_another = False
            acks += self._acks
            self._acks = []

    def send_acks(self, acks: Iterable[Addressed]) -> None:
        if self._run_by_another:
            self._acks += acks
        else:
            self._board.send_acks(acks)

    def send_word(self, word: Barrier | StateMove | StateTaken | StateAsked) -> None:
        self._board.send_word(word)
