"""Dead letters of a run: which source positions they are, exactly; the letters themselves, as far as they are
kept. Pure.

Positions are intervals per source partition and task, so that many cost little. Of each task the first letters
are kept whole (row, error, traceback), up to a number and a size; of the others there are the positions alone.
What is new since the last look comes out as records that are only ever appended, to a file of the controller's
(`letter_file.py`), from which the next life reads them, and to the trace.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

import msgspec

from controller.knowledge.spans import Spans
from topology_runtime.messages import DeadLetter

LETTERS_MOST, BYTES_MOST = 2000, 8 << 20  # kept whole, of each task

Place = tuple[str, str, int]  # task, source, partition
Row = tuple[str, str, int, int]  # task, source, partition, position


class Letter(msgspec.Struct, frozen=True, tag_field="record", tag="letter"):
    """A letter that is kept whole. number: what commands know it by. wall_ns: when it was heard, UTC."""

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

    @property
    def key(self) -> Row:
        return self.task, self.source, self.partition, self.position

    @property
    def size_bytes(self) -> int:
        return len(self.row) + len(self.error) + len(self.traceback)


class Dead(msgspec.Struct, frozen=True, tag_field="record", tag="dead"):
    """Positions `begin` … `end` − 1 of which a row died in `task`."""

    task: str
    source: str
    partition: int
    begin: int
    end: int


class Dropped(msgspec.Struct, frozen=True, tag_field="record", tag="dropped"):
    """A letter that an operator had forgotten; its position stays counted."""

    number: int


LetterRecord = Letter | Dead | Dropped


@dataclass
class Letters:
    """count: distinct source positions. dropped: letters that operators had forgotten."""

    count: int = 0
    dropped: int = 0
    kept: dict[int, Letter] = field(default_factory=dict)
    times: dict[int, int] = field(default_factory=dict)  # number → how often it died, in this life
    _numbers: dict[Row, int] = field(default_factory=dict)
    _all: defaultdict[tuple[str, int], Spans] = field(default_factory=lambda: defaultdict(Spans))
    _of: defaultdict[Place, Spans] = field(default_factory=lambda: defaultdict(Spans))
    _counts: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))
    _size: defaultdict[str, list[int]] = field(default_factory=lambda: defaultdict(lambda: [0, 0]))
    _next: int = 1
    _fresh: defaultdict[Place, Spans] = field(default_factory=lambda: defaultdict(Spans))
    _records: list[LetterRecord] = field(default_factory=list)

    # ── what comes ──────────────────────────────────────────────────────────────────────────────

    def bury(self, letter: DeadLetter, wall_ns: int) -> bool:
        """True for the first letter of a source position. One that is known already is counted only."""
        row = (letter.task, letter.source, letter.partition, letter.position)
        if not self._of[row[:3]].add(letter.position, letter.position + 1):
            if (number := self._numbers.get(row)) is not None:
                self.times[number] = self.times.get(number, 1) + 1
            return False
        self._fresh[row[:3]].add(letter.position, letter.position + 1)
        self._counts[letter.task] += 1
        self._keep(letter, wall_ns)
        return self._count(letter.source, letter.partition, letter.position, letter.position + 1)

    def _count(self, source: str, partition: int, begin: int, end: int) -> bool:
        new = sum(e - b for b, e in self._all[source, partition].add(begin, end))
        self.count += new
        return new > 0

    def _keep(self, letter: DeadLetter, wall_ns: int) -> None:
        if not self.keeps(letter.task):
            return
        kept = Letter(
            self._next,
            wall_ns,
            letter.task,
            letter.thread,
            letter.source,
            letter.partition,
            letter.position,
            letter.row,
            letter.error,
            letter.traceback,
        )
        self._next += 1
        self._put(kept)
        self._records.append(kept)

    def _put(self, letter: Letter) -> None:
        self.kept[letter.number] = letter
        self._numbers[letter.key] = letter.number
        size = self._size[letter.task]
        size[0], size[1] = size[0] + 1, size[1] + letter.size_bytes

    def keeps(self, task: str) -> bool:
        """Is there room for another whole letter of this task?"""
        letters, size_bytes = self._size[task]
        return letters < LETTERS_MOST and size_bytes < BYTES_MOST

    # ── what operators do ───────────────────────────────────────────────────────────────────────

    def drop(self, number: int) -> bool:
        """Forget this letter; False when there is none."""
        if number not in self.kept:
            return False
        self._remove(number)
        self._records.append(Dropped(number))
        return True

    def _remove(self, number: int) -> None:
        letter = self.kept.pop(number)
        del self._numbers[letter.key]
        self.times.pop(number, None)
        size = self._size[letter.task]
        size[0], size[1] = size[0] - 1, size[1] - letter.size_bytes
        self.dropped += 1

    def of(self, task: str | None = None) -> list[Letter]:
        """Letters that are kept, oldest first."""
        return [letter for letter in self.kept.values() if task in (None, letter.task)]

    def newest(self, most: int) -> list[Letter]:
        """The last few, oldest first."""
        return list(islice(reversed(self.kept.values()), most))[::-1]

    def counts(self) -> dict[str, int]:
        """Task → rows by their positions, kept whole or not."""
        return dict(sorted(self._counts.items()))

    # ── what lasts ──────────────────────────────────────────────────────────────────────────────

    def news(self) -> tuple[LetterRecord, ...]:
        """What is new since the last call, to be appended: whole letters, and positions as intervals."""
        records, self._records = self._records, []
        fresh, self._fresh = self._fresh, defaultdict(Spans)
        return (*_dead(fresh), *records)

    def whole(self) -> tuple[LetterRecord, ...]:
        """All that there is, as short as can be; `Dropped` of letters that are gone leave the last number."""
        last = (Dropped(self._next - 1),) if self._next > 1 and self._next - 1 not in self.kept else ()
        return (*_dead(self._of), *self.kept.values(), *last)

    def recall(self, records: Sequence[LetterRecord]) -> None:
        """Begin from what an earlier life had appended."""
        for record in records:
            match record:
                case Letter():
                    self._put(record)
                    self._next = max(self._next, record.number + 1)
                case Dead(task, source, partition, begin, end):
                    fresh = self._of[task, source, partition].add(begin, end)
                    self._counts[task] += sum(e - b for b, e in fresh)
                    self._count(source, partition, begin, end)
                case Dropped(number):
                    self._next = max(self._next, number + 1)
                    if number in self.kept:
                        self._remove(number)


def _dead(places: dict[Place, Spans]) -> Iterator[Dead]:
    for (task, source, partition), spans in sorted(places.items()):
        for begin, end in spans.all():
            yield Dead(task, source, partition, begin, end)


def records_of(lines: Iterable[bytes]) -> Iterator[LetterRecord]:
    """Raises msgspec.DecodeError."""
    decode = msgspec.json.Decoder(LetterRecord).decode
    return (decode(line) for line in lines if line)
