"""A recorded run as a feed: what its controller published, as fast as desired, paused and sought at will."""

from __future__ import annotations

import gzip
import math
import sys
import time
from bisect import bisect_right
from collections.abc import Iterator
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec

from headgate.dashboards.web.feed_items import Change, Document, Item, Whole
from headgate.topology_runtime.errors import InvalidInput
from headgate.topology_runtime.platform.clock import monotonic_ns
from headgate.topology_runtime.traces.line_parts import parts_of
from headgate.topology_runtime.traces.trace_tables import RUN_FILE, SCHEMA, VIEWS
from headgate.topology_runtime.wire.run_snapshot import (
    APART,
    HISTORY_S,
    Delta,
    ReplayNow,
    Row,
    advanced,
    appended,
    columns_of,
    patch_between,
    thinned,
)
from headgate.topology_runtime.wording import counted

# ── What was published of a run, as its trace keeps it: `views.jsonl` and its older, compressed parts ───
#
# A line is a snapshot without its past, or the delta that leads on from the line before; a snapshot begins
# the record and follows once a minute. Where lines are missing or cannot be read, the record goes on with its
# next snapshot.

RecordedDocument = dict[str, Any]
FAULTS_SHOWN = 10
HINT = "name the folder of one run, such as traces/TOPOLOGY/RUN"
WHOLE = "headgate/snapshot/v1"


class _Run(msgspec.Struct, frozen=True):
    schema: str


class _LineHead(msgspec.Struct, frozen=True):
    """What of a line is needed to find it again."""

    schema: str
    number: int
    boot: int
    now: str
    history: dict[str, list[int | float | None]] = {}  # whole numbers stay whole


class _Line(msgspec.Struct, frozen=True):
    at_s: float
    part: Path
    begin: int
    end: int
    whole: bool


class RecordedViews:
    """The record in `folder`. Raises InvalidInput. What cannot be read is left out and named on stderr."""

    def __init__(self, folder: Path) -> None:
        _check(folder)
        self._lines: list[_Line] = []
        self._rows: list[Row] = []
        self._row_times: list[float] = []  # when each was told: a view that was skipped travels with the next
        self._faults: list[str] = []
        self._before: tuple[int, int] | None = None  # (boot, number) of the last line that fits
        for part in parts_of(folder / VIEWS):
            self._read(part)
        if not self._lines:
            raise InvalidInput(
                f"{folder} holds no recorded views, so there is nothing to show",
                cause="it is of an older headgate, or was made without a controller",
                hint=f"`headgate analyze {folder}` reads its tables",
                faults=self._faults[:FAULTS_SHOWN],
            )
        if self._faults:
            sys.stderr.write(f"warning: left out of the trace: {counted(len(self._faults), 'part')}\n")
            sys.stderr.writelines(f"  - {fault}\n" for fault in self._faults[:FAULTS_SHOWN])
        self._times = [line.at_s for line in self._lines]
        self._place = -1
        self._document: RecordedDocument = {}

    @property
    def began_s(self) -> float:
        return self._times[0]

    @property
    def ended_s(self) -> float:
        return self._times[-1]

    def at(self, at_s: float) -> RecordedDocument:
        """The document at that time (seconds since 1970), without its past; the first one before it."""
        place = max(0, bisect_right(self._times, at_s) - 1)
        whole = next(n for n in range(place, -1, -1) if self._lines[n].whole)
        if not whole <= self._place <= place:
            self._place, self._document = whole, self._decoded(whole)
        for number in range(self._place + 1, place + 1):
            found = self._decoded(number)
            after = found if self._lines[number].whole else advanced(self._document, found)
            assert after is not None  # numbers were checked when the line was found
            self._document = after
        self._place = place
        return {key: value for key, value in self._document.items() if key != "history"}

    def past(self, at_s: float) -> RecordedDocument:
        """The last minutes before that time, in columns, thinned with age."""
        return columns_of(thinned(self._between(at_s - HISTORY_S, at_s)))

    def fresh(self, since_s: float, at_s: float) -> RecordedDocument:
        """The rows after `since_s`, in columns; nothing without any."""
        rows = self._between(max(since_s, at_s - HISTORY_S), at_s)
        return columns_of(rows) if rows else {}

    def _between(self, since_s: float, until_s: float) -> list[Row]:
        times = self._row_times
        return self._rows[bisect_right(times, since_s) : bisect_right(times, until_s)]

    def _decoded(self, number: int) -> RecordedDocument:
        line = self._lines[number]
        found: RecordedDocument = msgspec.json.decode(_content(line.part)[line.begin : line.end])
        return found

    def _read(self, part: Path) -> None:
        try:
            content = _content(part)
        except (OSError, EOFError) as error:
            self._faults.append(f"{part.name}: {error}")
            self._before = None
            return
        begin = 0
        while (end := content.find(b"\n", begin)) >= 0:
            self._add(part, begin, end, content)
            begin = end + 1

    def _add(self, part: Path, begin: int, end: int, content: bytes) -> None:
        try:
            head = msgspec.json.decode(content[begin:end], type=_LineHead)
            at_s = datetime.fromisoformat(head.now).timestamp()
            rows = list(_rows_of(head.history))
        except (msgspec.DecodeError, UnicodeDecodeError, ValueError) as error:
            self._faults.append(f"{part.name}, byte {begin}: {error}")
            self._before = None
            return
        whole = head.schema == WHOLE
        if not whole and self._before != (head.boot, head.number - 1):
            if self._before is not None:
                self._faults.append(f"{part.name}, byte {begin}: lines are missing before it")
            self._before = None
            return
        self._before = head.boot, head.number
        if self._lines and at_s < self._lines[-1].at_s:
            at_s = self._lines[-1].at_s  # a clock that was set back
        self._lines.append(_Line(at_s, part, begin, end, whole))
        latest = (self._rows[-1]["time"] or 0.0) if self._rows else 0.0
        new = [row for row in rows if (row["time"] or 0.0) > latest]
        self._rows += new
        self._row_times += [at_s] * len(new)


def _rows_of(columns: dict[str, list[int | float | None]]) -> Iterator[Row]:
    for values in zip(*columns.values(), strict=True):
        row = dict(zip(columns, values, strict=True))
        if row.get("time") is None:
            raise ValueError("a row of history without its time")
        yield row


@lru_cache(maxsize=2)
def _content(part: Path) -> bytes:
    if part.suffix == ".gz":
        with gzip.open(part) as file:
            return file.read()
    return part.read_bytes()


def _check(folder: Path) -> None:
    path = folder / RUN_FILE
    try:
        found = msgspec.json.decode(path.read_bytes(), type=_Run)
    except OSError as error:
        raise InvalidInput(
            f"{folder} is no trace", cause=f"{RUN_FILE}: {error.strerror}", hint=HINT
        ) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{path} is not what headgate records", cause=str(error)) from error
    if found.schema != SCHEMA:
        raise InvalidInput(f"{path} is of another headgate", cause=f"schema {found.schema}, known {SCHEMA}")


# ── ────────────────────────────────────────────────────────────────────────────────────────────────────

NS = 1_000_000_000
EVERY_S = 0.5  # between two items, however fast the trace goes by


class TraceFeed:
    """Of the trace in `folder`. Raises InvalidInput. Used by one thread."""

    def __init__(self, folder: Path, speed: float = 1.0) -> None:
        self._views = RecordedViews(folder)
        self._began_s = math.floor(self._views.began_s)
        self._length_s = max(1.0, math.ceil(self._views.ended_s) - self._began_s)
        self._speed, self._paused = speed, False
        self._at_s = 1.0  # since the trace began
        self._clock_ns = monotonic_ns()
        self._next_ns = 0
        self._number = 0
        self._shown_s = 0.0  # since 1970
        self.document: Document | None = None

    @property
    def length_s(self) -> float:
        return self._length_s

    @property
    def ended(self) -> bool:
        """Was its last moment shown?"""
        return self.document is not None and self.document["replay"].get("ended", False) is True

    def control(self, seek_s: float | None, speed: float | None, paused: bool | None) -> None:
        """Go on from there, so fast, or not at all; the next item is a whole document after a leap."""
        self._move()
        if seek_s is not None:
            self._at_s = min(max(1.0, seek_s), self._length_s)
            self.document = None
        if speed is not None:
            self._speed = speed
        if paused is not None:
            self._paused = paused
        self._next_ns = 0

    def next(self, timeout_s: float) -> Item | None:
        """The next item, at most so much later; while paused, and at the end, changes of nothing."""
        wait_s = min(timeout_s, (self._next_ns - monotonic_ns()) / NS)
        if wait_s > 0:
            time.sleep(wait_s)
        if monotonic_ns() < self._next_ns:
            return None
        self._next_ns = monotonic_ns() + int(EVERY_S * NS)
        self._move()
        return self._item()

    def close(self) -> None:
        """Nothing is held."""

    def _move(self) -> None:
        now_ns = monotonic_ns()
        if not self._paused:
            self._at_s = min(self._length_s, self._at_s + (now_ns - self._clock_ns) / NS * self._speed)
        self._clock_ns = now_ns

    def _item(self) -> Item:
        before = self.document
        after = self._made()
        if before is None:
            self._number += 1
            self._shown_s = self._began_s + self._at_s
            self.document = {**after, "number": self._number, "history": self._views.past(self._shown_s)}
            return Whole(self.document)
        return self._change(before, after, patch_between(_bare(before), _bare(after)))

    def _change(self, before: Document, after: Document, patch: Document) -> Change:
        self._number += 1
        until_s = self._began_s + self._at_s
        rows, self._shown_s = self._views.fresh(self._shown_s, until_s), until_s
        delta = Delta(number=self._number, boot=0, now=after["now"], patch=patch, history=rows)
        history = appended(before["history"], rows)
        self.document = {**after, "number": self._number, "history": history}
        plain: Document = msgspec.to_builtins(delta)
        return Change(plain, msgspec.json.encode(delta), self.document)

    def _made(self) -> Document:
        at_s = round(self._at_s, 1)
        replay = ReplayNow(
            at_s=at_s,
            length_s=self._length_s,
            speed=self._speed,
            paused=self._paused,
            ended=at_s >= self._length_s,
        )
        told = self._views.at(self._began_s + self._at_s)
        return {**told, "boot": 0, "origin": "trace", "replay": msgspec.to_builtins(replay)}


def _bare(document: Document) -> Document:
    return {name: value for name, value in document.items() if name not in APART}
