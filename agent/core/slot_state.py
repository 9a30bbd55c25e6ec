"""What an agent knows of one of its slots and of the worker in it. Pure; the caller says what time it is."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Literal

from headgate.topology_runtime.api.cluster import Slot
from headgate.topology_runtime.latency.latency_messages import PathNow
from headgate.topology_runtime.wire.dead_letter_messages import SentAgain
from headgate.topology_runtime.wire.messages import (
    ThreadSpec,
    ThreadStatus,
    Token,
    VmHeard,
    WorkerReport,
    WorkerStatus,
)
from headgate.topology_runtime.wire.report_messages import KeysSeen

NS, MS = 1_000_000_000, 1_000_000
CRASHES_MOST, CRASHES_WITHIN_NS = 3, 60 * NS  # one more in this time: the slot is quarantined
TRIED_AGAIN_NS = 60 * NS  # after its last crash, a slot that was given up and round which nobody planned …
FREE_AGAIN_DOUBLED = 5  # … and twice as long each time, up to half an hour, one that has no thread
START_LIMIT_NS = 60 * NS  # user code may import much in a slow slot; a hanging import ends here

Status = Literal["empty", "starting", "running", "exited", "quarantined"]


@dataclass(slots=True)
class SlotState:
    """Slot `slot` and its present or last worker, `incarnation` 0 when there never was one.

    ended: threads that have finished for good and are still listed as desired. leaving: the worker said
    that it exits. quitting: it was ordered to. kill_at_ns: when it is killed (again) for `kill_why` if it
    still lives then. killed_for: why it was. hung: the thread whose call took too long, −1 none. troubles:
    of its worker with the disk. unlogged, unlogged_before: finished rows without a log, of its worker and of
    those before it. letters: dead letters that its worker has reported. again: those that it sends again. given_up:
    quarantined, whatever lives there. code: the number of what its worker runs; code_desired: of what it should. paths:
    of latency constraints, what its worker manages."""

    slot: Slot
    status: Status = "empty"
    incarnation: int = 0
    desired: tuple[ThreadSpec, ...] = ()
    endpoint: str = ""
    token: Token = field(default_factory=Token)
    ready: bool = False
    threads: tuple[ThreadStatus, ...] = ()
    ended: dict[int, ThreadStatus] = field(default_factory=dict)
    leaving: bool = False
    quitting: bool = False
    kill_at_ns: int | None = None
    kill_why: str = ""
    killed_for: str = ""
    hung: int = -1
    crashes: int = 0
    crashed_ns: deque[int] = field(default_factory=deque)
    last_exit: str = ""
    quarantined_epoch: int = -1
    given_up: bool = False
    times_given_up: int = 0
    code: int = 0
    code_desired: int = 0
    troubles: tuple[str, ...] = ()
    unlogged: int = 0
    unlogged_before: int = 0
    letters: int = 0
    again: tuple[SentAgain, ...] = ()
    keys: tuple[KeysSeen, ...] = ()
    paths: tuple[PathNow, ...] = ()
    heard: tuple[VmHeard, ...] = ()

    @property
    def live(self) -> bool:
        return self.status in ("starting", "running")

    @property
    def said(self) -> Status:
        """What others see: a slot that is given up is quarantined, whatever lives there."""
        return "quarantined" if self.given_up else self.status

    @property
    def open_threads(self) -> list[ThreadSpec]:
        """Wanted threads that have not finished for good. One that answers for snapshots is another by then."""
        return [t for t in self.desired if t.answers or not (t.leaving and t.thread in self.ended)]

    def lacks_worker(self, now_ns: int) -> bool:
        """Is one to be started? In a quarantined slot only what answers for snapshots lives, started once a second."""
        if self.status != "quarantined":
            return self.status in ("empty", "exited") and bool(self.open_threads)
        late = not self.crashed_ns or now_ns - self.crashed_ns[-1] >= NS
        return late and bool(self.desired) and all(t.answers for t in self.desired)

    def try_again(self, now_ns: int) -> str:
        """Has nothing else taken its threads for a minute, or has it been without any for a while? Then it is given up
        no more, and its crashes count again. Why it is tried again; empty: it is not."""
        if self.status != "quarantined":
            return ""
        rested_ns = now_ns - self.crashed_ns[-1] if self.crashed_ns else now_ns
        if any(not (t.leaving or t.answers) for t in self.desired):
            why = "nothing took its threads" if rested_ns >= TRIED_AGAIN_NS else ""
        else:
            free_ns = TRIED_AGAIN_NS << min(self.times_given_up, FREE_AGAIN_DOUBLED)
            why = "it has rested, plans may use it" if not self.desired and rested_ns >= free_ns else ""
        if why:
            self._take_up()
        return why

    def now(self) -> WorkerStatus | None:
        """What a report says of this slot; None when there never was a worker."""
        if (said := self.said) == "empty":
            return None
        threads = self.threads
        if self.ended:
            reported = {thread.thread for thread in threads}
            threads += tuple(now for n, now in self.ended.items() if n not in reported)
        return WorkerStatus(
            self.slot, self.incarnation, said, self.endpoint, self.token, self.ready, threads,
            self.crashes, self.last_exit, self.again, self.paths, self.heard,
        )  # fmt: skip

    # ── changes ─────────────────────────────────────────────────────────────────────────────────

    def want(self, desired: tuple[ThreadSpec, ...], epoch: int) -> None:
        """New orders. A quarantined slot is free again when a later epoch puts threads into it."""
        self.desired = desired
        self.code_desired = desired[0].code if desired else self.code
        here = {thread.thread for thread in desired}
        self.ended = {n: now for n, now in self.ended.items() if n in here}
        if self.given_up and epoch > self.quarantined_epoch and not all(t.leaving for t in desired):
            self._take_up()

    def _take_up(self) -> None:
        self.given_up = False
        self.status = "exited" if self.status == "quarantined" else self.status
        self.crashed_ns.clear()

    def spawned(self, incarnation: int, now_ns: int) -> None:
        self.status, self.incarnation, self.letters = "starting", incarnation, 0
        self.code = self.code_desired
        self._forget_worker()
        self.kill_at_ns = now_ns + START_LIMIT_NS
        self.kill_why = f"no word from it for {START_LIMIT_NS // NS} s"

    def running(self, endpoint: str) -> None:
        """Its imports are done and its socket is bound."""
        if self.status == "starting":
            self.status = "running"
            if not self.quitting:
                self.kill_at_ns, self.kill_why = None, ""
        self.endpoint = endpoint

    def report(self, report: WorkerReport) -> None:
        self.token, self.ready = report.token, report.ready
        if report.threads != self.threads:  # the same object while nothing changes: cheap to compare
            self.threads = report.threads
            here = {thread.thread for thread in self.desired}
            self.ended.update({now.thread: now for now in report.threads if now.ended and now.thread in here})
        self.leaving = self.leaving or report.leaving
        self.letters += len(report.letters)
        self.again, self.keys, self.paths, self.heard = report.again, report.keys, report.paths, report.heard
        self.troubles, self.unlogged = report.troubles, report.unlogged

    def kill_at(self, when_ns: int, why: str) -> None:
        """Kill it at `when_ns`, or earlier if that was decided before."""
        if self.kill_at_ns is None or self.status == "starting" or when_ns < self.kill_at_ns:
            self.kill_at_ns, self.kill_why = when_ns, why

    def kill_due(self, now_ns: int) -> bool:
        """Is it time to kill it? Then again in a second, while it lives."""
        if self.kill_at_ns is None or now_ns < self.kill_at_ns or not self.live:
            return False
        self.killed_for = self.kill_why
        self.kill_at_ns = now_ns + NS
        return True

    def exited(self, how: str, clean: bool, now_ns: int, epoch: int, excused: bool = False) -> None:
        """Its process is gone. Not a crash: it was ordered to quit, or it ended itself in order. Where a row is to
        blame (excused), the crash is told and does not count against the slot."""
        crashed = not (self.quitting or clean)
        self.last_exit = f"{self.killed_for}: {how}" if self.killed_for and not clean else how
        self.status = "exited"
        self._forget_worker()
        self.crashes += crashed
        if crashed and not excused:
            self._count_crash(now_ns, epoch)
        if self.given_up:
            self.status = "quarantined"

    def _count_crash(self, now_ns: int, epoch: int) -> None:
        self.crashed_ns.append(now_ns)
        while now_ns - self.crashed_ns[0] > CRASHES_WITHIN_NS:
            self.crashed_ns.popleft()
        if len(self.crashed_ns) > CRASHES_MOST:
            self.times_given_up += not self.given_up
            self.given_up, self.quarantined_epoch = True, epoch

    def _forget_worker(self) -> None:
        self.endpoint, self.token, self.ready, self.threads = "", Token(), False, ()
        self.leaving = self.quitting = False
        self.troubles, self.again, self.keys, self.paths, self.heard = (), (), (), (), ()
        self.unlogged_before, self.unlogged = self.unlogged_before + self.unlogged, 0
        self.kill_at_ns, self.kill_why, self.killed_for, self.hung = None, "", "", -1
