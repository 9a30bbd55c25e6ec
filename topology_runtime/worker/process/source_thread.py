"""The work of a source's thread (what it decides is in source_task.py): reads user code or its spool, counts."""

from __future__ import annotations

import math
import sys
import time
from array import array
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from itertools import islice
from queue import Empty
from typing import Any

from msgspec.structs import replace

from headgate.topology_runtime.api.logic import Exhausted, LiveSource, OffsetSource
from headgate.topology_runtime.api.task_functions import key_function
from headgate.topology_runtime.platform.clock import monotonic_ns, wall_ns
from headgate.topology_runtime.platform.containment import explained
from headgate.topology_runtime.rates.schedule import NS
from headgate.topology_runtime.wire.messages import SourceStatus
from headgate.topology_runtime.wording import error_text
from headgate.topology_runtime.worker.calls.attempts import users_line
from headgate.topology_runtime.worker.calls.batches import rows_read
from headgate.topology_runtime.worker.meters import meter as mt
from headgate.topology_runtime.worker.process.task_thread import REST_S, SAID_MOST, TaskThread, ThreadWork
from headgate.topology_runtime.worker.sources.read_ahead import NO_OFFSET, ReadAhead
from headgate.topology_runtime.worker.sources.source_spool import Owner, Spool, SpoolsLeft, folder_of
from headgate.topology_runtime.worker.sources.source_task import SourceTask
from headgate.topology_runtime.worker.sources.source_watermark import watermark_of

# ── When rows of a live source came: what they say themselves, within bounds, else when they were taken ───

OLDEST_S = 60.0  # a row that says it is older is of another time, or its clock is off


def times_of(
    source: LiveSource[Any] | OffsetSource[Any], rows: Sequence[Any], now_ns: int
) -> tuple[list[int], str]:
    """UTC of each row (ns), and what is wrong with one; empty: nothing is."""
    times = [now_ns] * len(rows)
    if type(source).came in (LiveSource.came, OffsetSource.came):
        return times, ""
    wrong = ""
    for place, row in enumerate(rows):
        if isinstance(row, Exception):
            continue
        try:
            told_s = source.came(row)
            if told_s is None:
                continue
            old_s = now_ns / NS - float(told_s)
        except BaseException as error:  # user code: the row is taken all the same
            wrong = f"came() raised {error_text(error)}{users_line(error)}"
            continue
        if not math.isfinite(old_s) or old_s > OLDEST_S:
            wrong = f"a row says that it came {old_s:,.0f} s ago"
        else:
            times[place] = now_ns - max(0, int(old_s * NS))
    return times, wrong


LOOK_AGAIN_NS = NS // 50  # how soon an empty source is asked again …
LOOK_SOON_NS = NS // 250  # … or one whose rows arrive, while they do: a row waits so long at most to be seen
ARRIVING_NS = 2 * NS  # after a row came
TAKE_ROWS = 1024  # asked of an arriving source at once
RETRY_NS = NS  # after a source raised
MISSING_NS = 5 * NS  # rows that were given before and are not given again: said after so long
EMPTY_NS = 10 * NS  # rows are due, and a source that is read by a rate has none: said after so long
CANNOT_BE_READ, FAILS_IN, HAS_NONE = "cannot be read", "fails in", "gives no rows"
NO_ROWS = (
    f"none for {EMPTY_NS // NS} s, and by the rate some are due; at the end of its input it is to raise "
    "Exhausted, and one whose rows come when they come is an OffsetSource or a LiveSource"
)
DURABLE_FAILS = f"{FAILS_IN} durable()"
COMMIT_NS = NS // 2  # between two commits of offsets, and two looks at what is behind
OPEN_AGAIN_S = 0.1  # a disk that does not open a spool is asked again after so long


class SourceWork(ThreadWork):
    """Of a task without in-edges."""

    def __init__(self, thread: TaskThread) -> None:
        super().__init__(thread)
        self.source = self.core.behaviour = SourceTask(self.core)
        self.desired, self.task, self.host = thread.desired, thread.task, thread.host
        self._spool: Spool | None = None
        self._ahead: ReadAhead | None = None  # of a source with offsets
        self._sought = False
        self._committed = self._kept = NO_OFFSET
        self._commit_ns = self._lag_ns = self._durable_ns = 0  # not before
        self._spools_left: SpoolsLeft | None = None
        self._times_wrong = False  # said once
        self._waited_at = -1
        self._arrived_ns = 0  # when a row came last (monotonic)
        self._polled = self._told_durable = 0  # rows that it gave; of which it knows that the disk has them
        self._over = False  # no row will come any more
        self._troubles: dict[str, str] = {}  # of reading, and of each call beside it
        self._empty_ns = 0  # since when it has no rows though some are due; 0: it has
        self._missing = -1, 0  # a position that was given before and is not given again, and since when

    def source_now(self) -> SourceStatus:
        name = self.desired.task, self.desired.partition, self.desired.thread
        if self.source.ledger is None:
            return SourceStatus(*name, 0, 0, 0, 0, 0, stopped=self.source.stopped_reading)
        words, at = self.host.meter.words, self.thread.at
        state = words[at + mt.SOURCE_STATE]
        emitted, acked, above, in_flight, replayed = words[
            at + mt.SOURCE_EMITTED : at + mt.SOURCE_REPLAYED + 1
        ]
        came = words[at + mt.SOURCE_ARRIVED : at + mt.SOURCE_SEEN_NS + 1]
        arrived, oldest_ns, seen_ns = came
        told = arrived, oldest_ns, seen_ns, state >> mt.RESTS_SHIFT
        offsets = mt.offsets_in(words, at)
        flags = bool(state & mt.STOPPED_BIT), bool(state & mt.EXHAUSTED_BIT)
        said = SourceStatus(*name, emitted, acked, above, in_flight, replayed, *flags, *told, offsets=offsets)
        return replace(said, held=bool(state & mt.HELD_BIT))

    def kept(self, offset: int) -> None:
        self._kept = max(self._kept, offset)

    def begin(self, logic: Any) -> None:
        if self.core.topology.timed_below(self.task.name):
            self.times = self.source.times = watermark_of(self.task, key_function, ends=())
        self.source.gives_errors = isinstance(logic, OffsetSource | LiveSource) or bool(
            getattr(logic, "gives_errors", False)
        )
        self.host.meter.words[self.thread.at + mt.SOURCE_PARTITION] = self.desired.partition + 1

    def close(self) -> None:
        if self._spools_left is not None:
            self._spools_left.close()
        if self._spool is not None:
            if self._spool.waiting:
                self._say(f"{self._spool.waiting} events were read that the disk never took: they are lost")
            with self._to_disk():
                self._spool.close()

    def cancel(self) -> None:
        if self._ahead is not None:
            self._commit_ns = 0
            self._note_offsets(self._ahead)

    def turn(self) -> None:
        """One look around: orders, acks, replays, what is due, flush."""
        thread, source = self.thread, self.source
        thread.look_round()
        self._hear()
        thread.busy = True
        now_ns = monotonic_ns()
        source.on_faults(thread.faults, now_ns)
        self._begin()
        if thread.rests:
            time.sleep(REST_S)
        elif not self.task.exclusive or thread.may_go_on():
            if self._spool is not None and source.takes_over:
                source.more_left = self._take_over(self._spool, now_ns)
            if source.arrivals is not None:
                self._take_arrivals()
            thread.post.begin()
            source.turn(now_ns, wall_ns(), self._rows)
            self.core.flush(monotonic_ns())
            thread.post.end_and_send()
        thread.working = False
        thread.count()
        self._count()
        if source.letters.any or self.again is not None:
            before, self.again = self.again, source.letters.now(self.desired.thread)
            if self.again != before:
                self.host.changed()
        thread.busy = False

    def _hear(self) -> None:
        """What is in the inbox; waits a little when that is nothing and nothing is due."""
        inbox, now_ns = self.thread.inbox, monotonic_ns()
        try:
            if inbox.empty():
                item = inbox.get(timeout=max(0.0, (self.source.wake_ns(now_ns, wall_ns()) - now_ns) / NS))
            else:
                item = inbox.get_nowait()
            while True:
                if item is not None:
                    self.core.hear(item, monotonic_ns())
                item = inbox.get_nowait()
        except Empty:
            return

    def _begin(self) -> None:
        """A ledger, once the controller has said from which position."""
        position = self.source.start_position()
        if position is None:
            return
        if isinstance(self.thread.logic, LiveSource) and not self._open_spool(position):
            return
        if isinstance(self.thread.logic, OffsetSource):
            self._ahead = ReadAhead(position, *self.source.goes_on_from)
            self.kept(self.source.goes_on_from[0])
        self.source.begin(position, self._spool or self._ahead)
        self._count()  # a read that does not come back is named by its position
        self.host.changed()

    @property
    def _owner(self) -> Owner:
        assert self.core.orders is not None
        desired = self.desired
        return Owner(desired.task, desired.partition, self.core.orders.desired.run, desired.thread)

    @property
    def _folder(self) -> str:
        return folder_of(self.host.directory, self._owner)

    def _take_over(self, spool: Spool, now_ns: int) -> bool:
        """What threads that are no more left here; is there more?"""
        if self._spools_left is None:
            self._spools_left = SpoolsLeft(self.host.directory, self._owner)
        assert self.core.orders is not None
        with self._to_disk():
            self._spools_left.look(self.core.orders)
            self._spools_left.take(spool, now_ns)
        return self._spools_left.more

    def _to_disk(self) -> AbstractContextManager[None]:
        """What the disk does not take is told, and ends nothing."""
        return self.host.disk.writing(f"the spool of {self.task.name}", self._folder)

    def _open_spool(self, position: int) -> bool:
        """False when the disk does not let us yet: tried again at the next turn. Lost rows are no such thing."""
        try:
            self._spool = Spool(self._folder, position, self.source.again_until)
            self._spool.syncs = type(self.thread.logic).durable is not LiveSource.durable
        except OSError as error:
            if error.errno is None:
                raise
            self.host.disk.failed(f"the spool of {self.task.name}", self._folder, error)
            time.sleep(OPEN_AGAIN_S)
            return False
        return True

    def _poll(self, spool: Spool, limit: int) -> None:
        """New events into the spool; none is asked for while the disk does not take the last ones."""
        if not self._takes(spool):
            return
        with self.thread.watch.calling(mt.READ):
            events = self._given(self.thread.logic.poll(limit))
            self._polled += len(events)
            times, wrong = times_of(self.thread.logic, events, wall_ns())
            self._say_times(wrong)
            with self._to_disk():
                for _, refused in spool.append(events, times):
                    self._say(f"an event was left out: {refused}")
        self._tell_durable(spool)

    def _say_times(self, wrong: str) -> None:
        if wrong and not self._times_wrong:
            self._times_wrong = True
            text = (
                f"headgate: source {self.task.name}: {wrong}; rows like this count from when they are taken"
            )
            print(text, file=sys.stderr, flush=True)

    def _tell_durable(self, spool: Spool) -> None:
        if self._polled == self._told_durable or spool.waiting:
            return
        if spool.syncs:
            with self._to_disk():
                spool.sync()
            if not spool.synced:
                return
        if (now_ns := monotonic_ns()) < self._durable_ns:
            return
        self._durable_ns = now_ns + RETRY_NS
        with self._beside(DURABLE_FAILS):
            self.thread.logic.durable(self._polled)
            self._told_durable, self._durable_ns = self._polled, 0

    def _takes(self, spool: Spool) -> bool:
        """Has the disk taken all that was read, and has it room for more?"""
        with self._to_disk():
            spool.accept()
        if not spool.waiting:
            self._tell_durable(spool)
        return not spool.waiting and DURABLE_FAILS not in self._troubles

    def _take_arrivals(self) -> None:
        """Rows that have come, into the spool; asked for often while they come."""
        source, now_ns = self.source, monotonic_ns()
        held = self._spool or self._ahead
        assert held is not None and source.ledger is not None
        before = held.end
        if self._over:
            if source.ledger.position >= held.end:
                source.exhausted = True
                self.host.changed()
            return
        if now_ns < source.quiet_until_ns or not source.takes(wall_ns()):
            return
        if held.full:
            if self._sought:
                self._ask_lag(now_ns)
            return
        if self.thread.watch.poison.any and self._waits(source.ledger.position, now_ns):
            return
        try:
            if isinstance(held, Spool):
                self._poll(held, TAKE_ROWS)
            else:
                self._read_ahead(held, now_ns)
        except Exhausted:
            self._over = True
            return
        except BaseException as error:  # user code: said in the worker's log, tried again
            self._say(explained(error) + users_line(error))
            source.quiet_until_ns, self._sought = now_ns + RETRY_NS, False
            return
        self._went_well()
        if held.end > before:
            self._arrived_ns = now_ns
        soon = now_ns - self._arrived_ns < ARRIVING_NS
        source.quiet_until_ns = monotonic_ns() + (LOOK_SOON_NS if soon else LOOK_AGAIN_NS)
        if held.end - before >= TAKE_ROWS:
            source.quiet_until_ns = 0

    def _read_ahead(self, ahead: ReadAhead, now_ns: int) -> None:
        """New rows behind their offsets; and what is behind them still."""
        logic: OffsetSource[Any] = self.thread.logic
        with self.thread.watch.calling(mt.READ):
            if not self._sought:
                logic.seek(ahead.next_offset or None)
                self._sought = True
            given = self._given(islice(logic.poll(TAKE_ROWS), TAKE_ROWS + 1))
            if len(given) > TAKE_ROWS:  # it gave more than it was asked for: what is left out is read again
                given.pop()
                self._sought = False
            times, wrong = times_of(logic, [row for _, row in given], wall_ns())
            self._say_times(wrong)
            ahead.append(given, times)
        self._ask_lag(now_ns)

    def _ask_lag(self, now_ns: int) -> None:
        """How much is behind what it gave, of a source with offsets; also while no more is taken."""
        if now_ns >= self._lag_ns:
            self._lag_ns = now_ns + COMMIT_NS
            with self._beside(f"{FAILS_IN} lag()"):
                self.source.behind = max(0, int(self.thread.logic.lag() or 0))

    def _given(self, rows: Iterable[Any]) -> list[Any]:
        """All that a poll gave; a generator may say behind its last rows that they are the last."""
        given: list[Any] = []
        try:
            given.extend(rows)
        except Exhausted:
            self._over = True
        return given

    @contextmanager
    def _beside(self, what: str) -> Iterator[None]:
        """A call that gives no rows: what it raises (Exhausted, too) is an alarm, and reading goes on."""
        try:
            with self.thread.watch.calling(mt.READ):
                yield
        except BaseException as error:  # user code: said in the worker's log, tried again
            self._say(explained(error) + users_line(error), what)
        else:
            self._went_well(what)

    def _commit(self) -> None:
        """Tell a source with offsets below which all is done, and the controller keeps that it is, now and then."""
        ahead, now_ns = self._ahead, monotonic_ns()
        done = min(ahead.acked_offset, self._kept) if ahead is not None and self._sought else NO_OFFSET
        if done in (NO_OFFSET, self._committed) or now_ns < self._commit_ns:
            return
        self._commit_ns = now_ns + COMMIT_NS
        with self._beside(f"{FAILS_IN} done()"):
            self.thread.logic.done(done)
            self._committed = done

    def _rows(self, position: int, limit: int) -> Sequence[Any]:
        source, now_ns = self.source, monotonic_ns()
        if source.arrivals is not None:
            held = self._spool or self._ahead
            return held.read(position, limit) if held is not None else []
        if self.thread.watch.poison.any and self._waits(position, now_ns):
            return []
        given_before = source.ledger is not None and position < source.ledger.position
        rows: Sequence[Any]
        try:
            if self._spool is not None:
                if position >= self._spool.end and not self._over:
                    self._poll(self._spool, limit)
                rows = self._spool.read(position, limit)
                if self._over and not rows:
                    raise Exhausted
            else:
                with self.thread.watch.calling(mt.READ):
                    rows = rows_read(self.thread.logic, position, limit)
        except Exhausted:
            rows = []
            if not given_before:
                source.exhausted = True
                self.host.changed()
                return rows
        except BaseException as error:  # user code: said in the worker's log, tried again
            self._say(explained(error) + users_line(error))
            source.quiet_until_ns = now_ns + RETRY_NS
            return []
        if given_before:
            if rows:
                self._went_well()
            else:
                self._misses(position, now_ns)
            return rows
        self._went_well()
        self._missing = -1, 0
        if rows:
            self._empty_ns = 0
            self._went_well(HAS_NONE)
        else:
            source.quiet_until_ns = now_ns + LOOK_AGAIN_NS
            self._is_empty(now_ns)
        return rows

    def _is_empty(self, now_ns: int) -> None:
        """It is read by a rate, so rows are due, and it has none: they count as offered."""
        self._empty_ns = self._empty_ns or now_ns
        if now_ns - self._empty_ns >= EMPTY_NS:
            self._say(NO_ROWS, HAS_NONE)

    def _misses(self, position: int, now_ns: int) -> None:
        """Rows that were given before are to be sent again, and there are none: of a log it may take a while."""
        if self._missing[0] != position:
            self._missing = position, now_ns
        self.source.quiet_until_ns = now_ns + LOOK_AGAIN_NS
        if now_ns - self._missing[1] >= MISSING_NS:
            self._say(
                f"position {position} is to be sent again, and what it gave from there it gives no more"
            )
            self.source.quiet_until_ns = now_ns + RETRY_NS

    def _waits(self, position: int, now_ns: int) -> bool:
        """Once in a worker's life, before it reads where earlier workers hung in it."""
        wait_s = self.thread.watch.poison.waits_s.get((self.desired.partition, position))
        if wait_s is None or self._waited_at == position:
            return False
        self._waited_at = position
        self._say(f"reading at position {position} has hung again and again; the next try is in {wait_s:g} s")
        self.source.quiet_until_ns = now_ns + int(wait_s * NS)
        return True

    def _say(self, trouble: str, what: str = CANNOT_BE_READ) -> None:
        """Once for each trouble, not once a second: in the worker's log, and to whoever looks at the run."""
        if (trouble := trouble[:SAID_MOST]) != self._troubles.get(what):
            self._troubles[what] = trouble
            text = f"headgate: source {self.task.name} {what}: {trouble}; tried again every second"
            print(text, file=sys.stderr, flush=True)
            self._tell_troubles()

    def _went_well(self, what: str = CANNOT_BE_READ) -> None:
        if self._troubles.pop(what, ""):
            self._tell_troubles()

    def _tell_troubles(self) -> None:
        said = (f"{what}: {trouble}"[:SAID_MOST] for what, trouble in self._troubles.items())
        self.unreadable = next(said, "")
        self.host.changed()

    def _forget(self, spool: Spool, acked: int) -> None:
        with self.host.disk.writing(f"the acked position of {self.task.name}", self._folder):
            spool.done_below(acked, monotonic_ns())
            if spool.waiting and not (self.source.reading or self.source.leaving):
                spool.accept()  # a run that ends: what was read is to last
        self._tell_durable(spool)

    def _count(self) -> None:
        """What came first, then what was read of it, each at one stroke: whoever reads the meter meanwhile sees
        no row that was read and did not come, and none that is nowhere."""
        source, words, at = self.source, self.host.meter.words, self.thread.at
        if (came := source.came(wall_ns())) is not None:
            words[at + mt.SOURCE_ARRIVED : at + mt.SOURCE_SEEN_NS + 1] = _words(*came)
        if source.ledger is not None:
            if self._ahead is not None:
                self._note_offsets(self._ahead)
            words[at + mt.SOURCE_EMITTED : at + mt.SOURCE_REPLAYED + 1] = _words(*source.counts)
            if self._spool is not None:
                self._forget(self._spool, source.ledger.acked)
        held = source.times is not None and source.times.held_by >= 0
        bits = mt.STOPPED_BIT * source.stopped | mt.EXHAUSTED_BIT * source.exhausted | mt.HELD_BIT * held
        state = bits | source.rests << mt.RESTS_SHIFT
        if state != words[at + mt.SOURCE_STATE]:
            words[at + mt.SOURCE_STATE] = state
            self.host.changed()

    def _note_offsets(self, ahead: ReadAhead) -> None:
        ledger, words = self.source.ledger, self.host.meter.words
        assert ledger is not None
        ahead.done_below(ledger.acked)
        at = self.thread.at + mt.SOURCE_OFFSETS
        pairs = ((position, ahead.offset_at(position)) for position in (ledger.acked, ledger.position))
        words[at : at + 6] = mt.offset_words(*pairs)
        self._commit()


def _words(*values: int) -> memoryview:
    return memoryview(array("q", values))
