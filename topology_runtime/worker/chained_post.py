"""The way out of one thread: frames for a thread that is chained to it are given to that by a direct call, all else to
the switchboard."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from headgate.topology_runtime.messages import Frame
from headgate.topology_runtime.state_moves import Barrier, StateAsked, StateMove, StateTaken
from headgate.topology_runtime.worker.acks import Addressed, summed
from headgate.topology_runtime.worker.switchboard import Switchboard


class Ran(NamedTuple):
    """When it was done with a frame, by the CPU clock of the calling thread, ns; and the acks, which are for the
    caller to send."""

    cpu_ns: int
    acks: Sequence[Addressed]


class Receiving(Protocol):
    """A thread of this worker that others may run (threads.py)."""

    def run_for(self, frame: Frame, before: int, cpu_ns: int) -> Ran | None:
        """Take the frame now, in the calling thread, if all the `before` frames that its sender sent earlier are
        taken. None: it is to be put into the inbox. cpu_ns: what the calling thread's CPU clock says."""


class ChainedPost:
    """Of one thread. targets: the threads that it may run; chained: those that it ran when it had a frame for
    them last. lent_ns: CPU that it spent on them. wire_bytes: that left the worker. cpu_ns: what the CPU clock said
    when it was read last within what is done now; 0: it was not. A chain reads it once for each of its threads."""

    def __init__(self, board: Switchboard, threads: Mapping[int, Receiving]) -> None:
        self.slot, self.incarnation = board.slot, board.incarnation
        self._board, self._threads = board, threads
        self.targets: frozenset[int] = frozenset()
        self.chained: set[int] = set()
        self.lent_ns = self.wire_bytes = self.cpu_ns = 0
        self._sent: dict[int, int] = {}
        self._acks: list[Addressed] | None = None  # while they are gathered

    def begin(self, cpu_ns: int = 0) -> None:
        """From now on acks are gathered: of a frame, of the thread and of all that it runs, those of a root leave as
        one when all of these are done."""
        self._acks, self.cpu_ns = [], cpu_ns

    def end(self) -> Sequence[Addressed]:
        """What was gathered, for whoever runs this thread."""
        acks, self._acks, self.cpu_ns = self._acks or (), None, 0
        return acks

    def end_and_send(self) -> None:
        if acks := self.end():
            self._board.send_acks(summed(acks))

    def deliver(self, frames: Iterable[Frame]) -> None:
        for frame in frames:
            target = frame.target
            before = self._sent.get(target, 0)
            self._sent[target] = before + 1
            if target in self.targets and self._run(frame, before):
                self.chained.add(target)
                continue
            self.chained.discard(target)
            if wire_bytes := self._board.deliver((frame,)):
                self.wire_bytes += wire_bytes
                if self.cpu_ns:
                    self.cpu_ns = time.thread_time_ns()  # to write it was this thread's work

    def _run(self, frame: Frame, before: int) -> bool:
        receiver = self._threads.get(frame.target)
        if receiver is None:
            return False
        cpu_ns = self.cpu_ns or time.thread_time_ns()
        ran = receiver.run_for(frame, before, cpu_ns)
        if ran is None:
            return False
        self.lent_ns += ran.cpu_ns - cpu_ns
        self.cpu_ns = ran.cpu_ns if self._acks is not None else 0
        self.send_acks(ran.acks)
        return True

    def send_acks(self, acks: Iterable[Addressed]) -> None:
        if self._acks is not None:
            self._acks += acks
        else:
            self._board.send_acks(acks)

    def send_word(self, word: Barrier | StateMove | StateTaken | StateAsked) -> None:
        self._board.send_word(word)
