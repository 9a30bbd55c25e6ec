"""A recorded run as a feed: what its controller published, as fast as desired, paused and sought at will."""

from __future__ import annotations

import math
import time
from pathlib import Path

import msgspec

from headgate.dashboards.feeding.items import Change, Document, Item, Whole
from headgate.dashboards.feeding.recorded_views import RecordedViews
from headgate.topology_runtime.clock import monotonic_ns
from headgate.topology_runtime.picturing.merge_patch import APART, appended, patch_between
from headgate.topology_runtime.snapshot import Delta, ReplayNow

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
