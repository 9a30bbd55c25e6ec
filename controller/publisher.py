"""Sends the picture to whoever listens, and answers who asks for all of it. Thin: `picture.py` makes it.

It runs on the controller's thread and never waits: a listener that does not take its messages loses them.
While nobody listens and nothing is recorded, nothing is made but the history. What is recorded is what is sent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from controller.core.loop import Loop
from controller.knowledge.turns import Now
from controller.views.in_task import InTask, Percentiles
from controller.views.picture import Picture
from controller.views.view_input import ViewInput
from topology_runtime import channels
from topology_runtime.clock import monotonic_ns
from topology_runtime.messages import SampleBlock
from topology_runtime.snapshot import Delta

EVERY_NS = 500_000_000  # between two deltas: people read no faster
FRESH_NS = EVERY_NS + EVERY_NS // 2  # a snapshot for who asks while nobody listens is not older
LINGER_MS = 200
WHOLE_NS = 60_000_000_000  # between two snapshots in the record: whoever seeks in it reads no more than that
REST = 50  # times as long as making a delta took passes before the next: 2 % of a core …
REST_MOST_NS = 1_000_000_000  # … but no more: two seconds of silence are taken for a dead controller
NOTHING: Mapping[str, Percentiles] = {}


class Publisher:
    """A picture on its channel."""

    def __init__(self, loop: Loop, port: int = 0) -> None:
        self._loop = loop
        self._picture = Picture()
        self._in_task = InTask()
        self._channel = channels.PublisherChannel(port=port)
        self.endpoint = self._channel.endpoint
        self._next_ns = self._rested_ns = self._made_ns = self._whole_ns = 0
        self._record: Callable[[bytes], None] | None = None

    def record(self, write: Callable[[bytes], None]) -> None:
        """From now on `write` gets a line for each delta, and now and then a snapshot in place of one."""
        self._record, self._whole_ns = write, 0

    def turn(self, now: Now) -> None:
        """When it is time: look, and send what changed if anybody listens."""
        if now.mono_ns < self._next_ns:
            return
        self._next_ns = max(self._next_ns + EVERY_NS, now.mono_ns + EVERY_NS // 2)
        if now.mono_ns >= self._rested_ns and (self._channel.heard or self._record is not None):
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
        self._made_ns, began_ns = now.mono_ns, monotonic_ns()
        topology = self._loop.knowledge.topology
        tasks = [task.name for task in topology.tasks] if topology else []
        sight = self._sight(now, self._in_task.percentiles(tasks, now.mono_ns))
        delta = self._picture.advance(sight, whole)
        data = msgspec.json.encode(delta)
        self._channel.send_bytes(data)
        if self._record is not None:
            self._record(data if now.mono_ns < self._whole_ns else self._whole(now, delta))
        self._rested_ns = now.mono_ns + min(REST_MOST_NS, REST * (monotonic_ns() - began_ns))

    def _whole(self, now: Now, delta: Delta) -> bytes:
        """The snapshot that the delta leads to, with the delta's rows of history only."""
        self._whole_ns = now.mono_ns + WHOLE_NS
        return msgspec.json.encode({**self._picture.snapshot(), "history": delta.history})

    def _sight(self, now: Now, in_task: Mapping[str, Percentiles] = NOTHING) -> ViewInput:
        loop = self._loop
        return ViewInput(
            loop.knowledge, loop.members, loop.seen, loop.finished.duplicates, loop.ending.stage, now, in_task
        )

    def close(self, now: Now | None = None) -> None:
        """now: the run is over, and whoever listens gets its last moment, as does the record."""
        if now is not None and (self._channel.heard or self._record is not None):
            self._advance(now, whole=True)
        self._channel.close(LINGER_MS)
