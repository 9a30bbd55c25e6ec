"""Dead letters of a run: which source positions they are, exactly; the dead letters themselves, as far as they are
kept. Pure.

Positions are intervals per source partition and task, so that many cost little. Of each task the first dead letters
are kept whole (row, error, traceback), up to a number and a size; of the others there are the positions alone.
What is new since the last look comes out as records that are only ever appended, to a file of the controller's
(`run_state_files.py`), from which the next life reads them, and to the trace.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import msgspec

from headgate.controller.knowledge.run_tallies import Spans
from headgate.topology_runtime.wire.dead_letter_messages import AGAIN_PARTITION, END_PARTITION, DeadLetter

LETTERS_MOST, BYTES_MOST = 2000, 8 << 20  # kept whole, of each task

GONE_MOST = 10_000  # dead letters that are gone of which it is remembered what they were

TOLD = (
    "task",
    "thread",
    "row",
    "error",
    "traceback",
    "variant",
    "feeder",
    "shape",
    "data",
)  # as its VM says it

Place = tuple[str, str, int]  # task, source, partition
Key = tuple[str, str, int, int, int]  # task, source, partition, position, variant
Origin = tuple[str, int, int]  # source, partition, position


class KeptDeadLetter(msgspec.Struct, frozen=True, tag_field="record", tag="letter"):
    """A dead letter that is kept whole. number: what commands know it by. wall_ns: when it was heard, UTC.

    variant, feeder, shape, data: see DeadLetter. of: the dead letter whose row was sent again and came to this. run:
    the earlier run that it is of, where it was number `of`. What has an `of` is no position of this run's sources."""

    number: int
    wall_ns: int
    task: str
    thread: int
    source: str
    partition: int
    position: int
    row: str
    error: str
    traceback: str
    variant: int = 0
    feeder: str = ""
    shape: int = 0
    data: bytes = b""
    of: int = 0
    run: str = ""

    @property
    def key(self) -> Key:
        if self.of:
            return self.task, self.run, AGAIN_PARTITION, self.of, self.variant
        return self.task, self.source, self.partition, self.position, self.variant

    @property
    def size_bytes(self) -> int:
        return len(self.row) + len(self.error) + len(self.traceback) + len(self.data)


class Dead(msgspec.Struct, frozen=True, tag_field="record", tag="dead"):
    """Positions `begin` … `end` − 1 of which a row died in `task`."""

    task: str
    source: str
    partition: int
    begin: int
    end: int


class Dropped(msgspec.Struct, frozen=True, tag_field="record", tag="dropped"):
    """A dead letter that an operator deleted; its position stays counted."""

    number: int


class ReplayAsked(msgspec.Struct, frozen=True, tag_field="record", tag="asked"):
    """The row of this dead letter is to be sent again."""

    number: int


class DeadLetterDone(msgspec.Struct, frozen=True, tag_field="record", tag="replayed"):
    """It was sent again and is done; its position stays counted."""

    number: int


class DiedAgain(msgspec.Struct, frozen=True, tag_field="record", tag="died_again"):
    """It was sent again, and made its task raise three times once more."""

    number: int
    error: str
    traceback: str


class Sums(msgspec.Struct, frozen=True, tag_field="record", tag="sums"):
    """How many there were before what follows was written whole."""

    dropped: int
    replayed: int
    mended: int


DeadLetterRecord = KeptDeadLetter | Dead | Dropped | ReplayAsked | DeadLetterDone | DiedAgain | Sums


@dataclass
class DeadLetterQueue:
    """count: distinct source positions; keys: calls of `on_timer` or `finish`. dropped: dead letters that operators
    deleted; replayed: that were sent again and are done; mended: how many of this run's own rows that died are done
    after all; asked: that are to be sent again, in this order, each with the serial of this sending."""

    count: int = 0
    keys: int = 0
    dropped: int = 0
    replayed: int = 0
    mended: int = 0
    asked: dict[int, int] = field(default_factory=dict)
    kept: dict[int, KeptDeadLetter] = field(default_factory=dict)
    times: dict[int, int] = field(default_factory=dict)  # number → how often it died, in this life
    _numbers: dict[Key, int] = field(default_factory=dict)
    _gone: dict[Key, int] = field(default_factory=dict)  # the same, of those that are gone, the newest
    _were: dict[int, Origin] = field(default_factory=dict)  # number → what it came of, of those
    _all: defaultdict[tuple[str, int], Spans] = field(default_factory=lambda: defaultdict(Spans))
    _places: defaultdict[tuple[str, int], int] = field(default_factory=lambda: defaultdict(int))
    _of: defaultdict[Place, Spans] = field(default_factory=lambda: defaultdict(Spans))
    _counts: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))
    _size: defaultdict[str, list[int]] = field(default_factory=lambda: defaultdict(lambda: [0, 0]))
    next_number: int = 1
    _serial: int = 0
    _fresh: defaultdict[Place, Spans] = field(default_factory=lambda: defaultdict(Spans))
    _records: list[DeadLetterRecord] = field(default_factory=list)

    # ── what comes ──────────────────────────────────────────────────────────────────────────────

    def add(self, letter: DeadLetter, wall_ns: int) -> bool:
        """True for the first dead letter of a source position, or of a key. One that is known already is counted
        only."""
        if letter.of:
            self._add_again(letter, wall_ns)
            return False
        key = (letter.task, letter.source, letter.partition, letter.position, letter.variant)
        if key in self._numbers or key in self._gone:
            self._once_more(self._numbers.get(key, 0))
            return False
        kept = self.keeps(letter.task)
        if kept:
            self._keep(letter, wall_ns, (letter.source, letter.partition, letter.position))
        span = letter.position, letter.position + 1
        if not self._of[key[:3]].add(*span):
            return kept and letter.partition >= END_PARTITION
        self._fresh[key[:3]].add(*span)
        self._counts[letter.task] += 1
        return self._count(letter.source, letter.partition, *span)

    def _add_again(self, letter: DeadLetter, wall_ns: int) -> None:
        """The row of a dead letter, or what came of it, once it was sent again. Its position is counted; there is
        always room for what was there before."""
        if letter.again in self.asked:
            self._do(DiedAgain(letter.again, letter.error, letter.traceback))
            return
        if letter.again:
            self._once_more(letter.again)
            return
        key = (letter.task, "", AGAIN_PARTITION, letter.of, letter.variant)
        if key in self._numbers or key in self._gone:
            self._once_more(self._numbers.get(key, 0))
            return
        before = self.kept.get(letter.of)
        origin = (before.source, before.partition, before.position) if before else None
        self._keep(letter, wall_ns, origin or self._were.get(letter.of, (letter.source, -1, -1)))

    def _once_more(self, number: int) -> None:
        if number in self.kept:
            self.times[number] = self.times.get(number, 1) + 1

    def _count(self, source: str, partition: int, begin: int, end: int) -> bool:
        if partition >= END_PARTITION:  # of a key, at the end of the input: no position of a source
            return True
        new = sum(e - b for b, e in self._all[source, partition].add(begin, end))
        self.count += new
        self._places[source, partition] += new
        return new > 0

    def of_done(self, source: str, partition: int, below: int, above: int) -> int:
        """How many of a partition's positions that are done have died, where all below `below` are done and `above`
        others: a letter comes before its position is done. Of the others as many as may be."""
        place = source, partition
        if not (dead := self._places.get(place, 0)):
            return 0
        open_or_above = self._all[place].from_on(below)
        return dead - open_or_above + min(open_or_above, max(0, above))

    def _keep(self, letter: DeadLetter, wall_ns: int, origin: Origin) -> None:
        same = {name: getattr(letter, name) for name in (*TOLD, "of")}
        place: dict[str, Any] = dict(zip(("source", "partition", "position"), origin, strict=True))
        self._do(KeptDeadLetter(number=self.next_number, wall_ns=wall_ns, **place, **same))

    def take_in(self, letter: KeptDeadLetter) -> int:
        """A dead letter of an earlier run, number `of` of run `run` there; its number here. One that is here already
        is not taken twice."""
        number = self._numbers.get(letter.key)
        if number is None:
            number = self.next_number
            self._do(msgspec.structs.replace(letter, number=number))
        return number

    def keeps(self, task: str) -> bool:
        """Is there room for another whole dead letter of this task?"""
        letters, size_bytes = self._size[task]
        return letters < LETTERS_MOST and size_bytes < BYTES_MOST

    # ── what operators do ───────────────────────────────────────────────────────────────────────

    def drop(self, number: int) -> bool:
        """Delete this dead letter; False when there is none."""
        if number not in self.kept:
            return False
        self._do(Dropped(number))
        return True

    def ask(self, number: int) -> bool:
        """Have the row of this dead letter sent again; False when it is to be already, or there is none."""
        if number in self.asked or number not in self.kept:
            return False
        self._do(ReplayAsked(number))
        return True

    def done_again(self, number: int) -> None:
        """Its row was sent again and is done: it is no dead letter any more."""
        if number in self.asked:
            self._do(DeadLetterDone(number))

    def of(self, task: str | None = None) -> list[KeptDeadLetter]:
        """Dead letters that are kept, oldest first."""
        return [letter for letter in self.kept.values() if task in (None, letter.task)]

    def newest(self, most: int) -> list[KeptDeadLetter]:
        """The last few, oldest first."""
        return list(islice(reversed(self.kept.values()), most))[::-1]

    def counts(self) -> dict[str, int]:
        """Task → rows by their positions, kept whole or not."""
        return dict(sorted(self._counts.items()))

    # ── what lasts ──────────────────────────────────────────────────────────────────────────────

    def news(self) -> tuple[DeadLetterRecord, ...]:
        """What is new since the last call, to be appended: whole dead letters, and positions as intervals."""
        records, self._records = self._records, []
        fresh, self._fresh = self._fresh, defaultdict(Spans)
        return (*_dead(fresh), *records)

    def put_back(self, records: Sequence[DeadLetterRecord]) -> None:
        """What `news` gave did not get to the disk: it is news still."""
        self._records = [*records, *self._records]

    def whole(self) -> tuple[DeadLetterRecord, ...]:
        """All that there is, as short as can be; `Dropped` of dead letters that are gone leave the last number."""
        last = (
            (Dropped(self.next_number - 1),)
            if self.next_number > 1 and self.next_number - 1 not in self.kept
            else ()
        )
        born = sum(
            bool(letter.of and not letter.run) for letter in self.kept.values()
        )  # counted again when read
        sums = Sums(self.dropped, self.replayed, self.mended + born)
        return (sums, *_dead(self._of), *self.kept.values(), *map(ReplayAsked, self.asked), *last)

    def recall(self, records: Sequence[DeadLetterRecord]) -> None:
        """Begin from what an earlier life had appended."""
        for record in records:
            self._take(record)

    def _do(self, record: DeadLetterRecord) -> None:
        self._take(record)
        self._records.append(record)

    def _take(self, record: DeadLetterRecord) -> None:
        """What has happened, now or in an earlier life."""
        if not isinstance(record, Dead | Sums):
            self.next_number = max(self.next_number, record.number + 1)
        match record:
            case KeptDeadLetter(number):
                self.kept[number] = record
                self._numbers[record.key] = number
                self._resize(record, 1, record.size_bytes)
                self.mended -= bool(record.of and not record.run)  # what came of a row that is done is not
                of_key = record.partition >= END_PARTITION and not record.feeder  # rows came from some task
                self.keys += of_key and not record.run
            case Dead(task, source, partition, begin, end):
                fresh = self._of[task, source, partition].add(begin, end)
                self._counts[task] += sum(e - b for b, e in fresh)
                self._count(source, partition, begin, end)
            case Dropped(number) if number in self.kept:
                self._remove(self.kept[number])
                self.dropped += 1
            case ReplayAsked(number) if number in self.kept:
                self._serial += 1
                self.asked[number] = self._serial
            case DeadLetterDone(number) if number in self.kept:
                self.mended += not self.kept[number].run
                self.replayed += 1
                self._remove(self.kept[number])
            case DiedAgain(number, error, traceback):
                self.asked.pop(number, None)
                if (before := self.kept.get(number)) is not None:
                    self.kept[number] = msgspec.structs.replace(before, error=error, traceback=traceback)
                    self._resize(before, 0, self.kept[number].size_bytes - before.size_bytes)
                    self._once_more(number)
            case Sums(dropped, replayed, mended):
                self.dropped, self.replayed, self.mended = dropped, replayed, mended

    def _remove(self, letter: KeptDeadLetter) -> None:
        for of_it in (self.kept, self.asked, self.times):
            of_it.pop(letter.number, None)
        del self._numbers[letter.key]
        self._gone[letter.key] = letter.number
        self._were[letter.number] = letter.source, letter.partition, letter.position
        if len(self._gone) > GONE_MOST:
            del self._gone[next(iter(self._gone))], self._were[next(iter(self._were))]
        self._resize(letter, -1, -letter.size_bytes)

    def _resize(self, letter: KeptDeadLetter, letters: int, size_bytes: int) -> None:
        size = self._size[letter.task]
        size[0], size[1] = size[0] + letters, size[1] + size_bytes


def _dead(places: dict[Place, Spans]) -> Iterator[Dead]:
    for (task, source, partition), spans in sorted(places.items()):
        for begin, end in spans.all():
            yield Dead(task, source, partition, begin, end)


def records_of(lines: Iterable[bytes]) -> Iterator[DeadLetterRecord]:
    """Raises msgspec.DecodeError."""
    decode = msgspec.json.Decoder(DeadLetterRecord).decode
    return (decode(line) for line in lines if line)
