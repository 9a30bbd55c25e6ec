"""Sends the picture to whoever listens, and answers who asks for all of it. Thin: `picture.py` makes it.

It runs on the controller's thread and never waits: a listener that does not take its messages loses them.
While nobody listens nothing is made but the history.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from controller.core.loop import Loop
from controller.knowledge.turns import Now
from controller.views.in_task import InTask, Percentiles
from controller.views.picture import Picture
from controller.views.sight import Sight
from topology_runtime import channels
from topology_runtime.messages import SampleBlock

EVERY_NS = 500_000_000  # between two deltas: people read no faster
FRESH_NS = EVERY_NS + EVERY_NS // 2  # a snapshot for who asks while nobody listens is not older
LINGER_MS = 200
NOTHING: Mapping[str, Percentiles] = {}


class Publisher:
    """A picture on its channel."""

    def __init__(self, loop: Loop, port: int = 0) -> None:
        self._loop = loop
        self._picture = Picture()
        self._in_task = InTask()
        self._channel = channels.PublisherChannel(port=port)
        self.endpoint = self._channel.endpoint
        self._next_ns = self._made_ns = 0

    def turn(self, now: Now) -> None:
        """When it is time: look, and send what changed if anybody listens."""
        if now.mono_ns < self._next_ns:
            return
        self._next_ns = max(self._next_ns + EVERY_NS, now.mono_ns + EVERY_NS // 2)
        if self._channel.heard:
            self._advance(now)
        else:
            self._picture.look(self._sight(now))

    def add(self, block: SampleBlock, now: Now) -> None:
        """Samples that have come."""
        self._in_task.add(block, now.mono_ns)

    def snapshot(self, now: Now) -> dict[str, Any]:
        """The whole picture, and where its changes are published."""
        if now.mono_ns - self._made_ns > FRESH_NS or not self._made_ns:
            self._advance(now, whole=True)
        return {"snapshot": self._picture.snapshot(), "stream": self.endpoint}

    def _advance(self, now: Now, whole: bool = False) -> None:
        self._made_ns = now.mono_ns
        topology = self._loop.knowledge.topology
        tasks = [task.name for task in topology.tasks] if topology else []
        sight = self._sight(now, self._in_task.percentiles(tasks, now.mono_ns))
        delta = self._picture.advance(sight, whole)
        self._channel.send_bytes(msgspec.json.encode(delta))

    def _sight(self, now: Now, in_task: Mapping[str, Percentiles] = NOTHING) -> Sight:
        loop = self._loop
        return Sight(
            loop.knowledge, loop.members, loop.seen, loop.finished.duplicates, loop.ending.stage, now, in_task
        )

    def close(self, now: Now | None = None) -> None:
        """now: the run is over, and whoever listens gets its last moment."""
        if now is not None and self._channel.heard:
            self._advance(now, whole=True)
        self._channel.close(LINGER_MS)
