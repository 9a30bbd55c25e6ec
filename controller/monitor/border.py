"""What may cross the border from an agent: names, sizes, numbers that make sense. Pure.

Types are checked when bytes are decoded, columns of samples by `blocks`; the rest is here.
"""

from __future__ import annotations

import math
import re
from collections import deque
from dataclasses import dataclass, field

from topology_runtime.errors import BadMessage
from topology_runtime.messages import DeadLetters, FromAgent, Hello, Report, SampleBlock, SourceNow

NS = 1_000_000_000
NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
SLOTS_MOST = 1024
THREADS_MOST = 4096  # in one message
LETTERS_MOST = 1000  # in one message
POSITION_MOST = 1 << 62
TROUBLES_MOST, TROUBLE_MOST = 16, 8192  # of a disk; letters of each
BAD_MOST, BAD_WITHIN_NS = 10, 10 * NS  # bad messages from a peer …
BANNED_NS = 60 * NS  # … that are too many, and for how long it is not heard then


def check(message: FromAgent) -> None:
    """Raises BadMessage when a message cannot be meant."""
    if not NAME.fullmatch(message.vm):
        raise BadMessage("the name of a VM", cause=repr(message.vm[:80]))
    if isinstance(message, Hello):
        _check_hello(message)
    elif isinstance(message, Report):
        _check_report(message)
    elif isinstance(message, DeadLetters):
        _check_letters(message)
    elif isinstance(message, SampleBlock) and len(message.tasks) > THREADS_MOST:
        raise BadMessage("samples of too many threads", cause=str(len(message.tasks)))


def _check_hello(hello: Hello) -> None:
    cores_fit = math.isfinite(hello.slot_cores) and 0 < hello.slot_cores <= 1
    if not 1 <= hello.slots <= SLOTS_MOST or not cores_fit or hello.slot_memory_bytes <= 0:
        raise BadMessage("slots that cannot be", cause=f"{hello.slots} of {hello.slot_cores} cores")
    if hello.boot <= 0:
        raise BadMessage("a boot number that cannot be", cause=str(hello.boot))


def _check_report(report: Report) -> None:
    if sum(len(worker.threads) for worker in report.workers) > THREADS_MOST:
        raise BadMessage("a report of too many threads")
    if any(worker.slot.vm != report.vm for worker in report.workers):
        raise BadMessage("a report of another VM's slots")
    if len(report.troubles) > TROUBLES_MOST or any(len(text) > TROUBLE_MOST for text in report.troubles):
        raise BadMessage("troubles of a disk that are too many or too long")
    if not 0 <= report.unlogged <= POSITION_MOST:
        raise BadMessage("a count of rows that cannot be", cause=str(report.unlogged))
    for source in report.sources:
        _check_source(source)


def _check_letters(message: DeadLetters) -> None:
    if len(message.letters) > LETTERS_MOST or not 0 <= message.waiting <= message.first <= POSITION_MOST:
        raise BadMessage("dead letters that cannot be", cause=f"{len(message.letters)} from {message.first}")
    for letter in message.letters:
        if not (0 <= letter.position < POSITION_MOST and 0 <= letter.partition <= POSITION_MOST):
            raise BadMessage("a dead letter of no position", cause=f"{letter.source}/{letter.partition}")


def _check_source(now: SourceNow) -> None:
    ordered = 0 <= now.acked <= POSITION_MOST and 0 <= now.emitted <= POSITION_MOST and now.partition >= 0
    counted = min(now.acked_above, now.in_flight, now.replayed) >= 0
    if not (ordered and counted) or now.acked_above > POSITION_MOST:
        raise BadMessage("source positions that cannot be", cause=f"{now.task}/{now.partition}")


@dataclass(slots=True)
class Conduct:
    """Which peers sent how many bad messages lately, by the monotonic clock of the caller."""

    bad: dict[bytes, deque[int]] = field(default_factory=dict)
    banned_until: dict[bytes, int] = field(default_factory=dict)
    counted: dict[str, int] = field(default_factory=dict)  # reason → how often

    def banned(self, peer: bytes, now_ns: int) -> bool:
        until = self.banned_until.get(peer)
        if until is not None and now_ns >= until:
            del self.banned_until[peer]
            return False
        return until is not None

    def blame(self, peer: bytes, why: str, now_ns: int) -> bool:
        """Count a bad message; True when its peer is banned for it."""
        self.counted[why] = self.counted.get(why, 0) + 1
        times = self.bad.setdefault(peer, deque())
        times.append(now_ns)
        while times[0] < now_ns - BAD_WITHIN_NS:
            times.popleft()
        if len(times) < BAD_MOST:
            return False
        del self.bad[peer]
        self.banned_until[peer] = now_ns + BANNED_NS
        return True
