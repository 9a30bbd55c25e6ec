"""Sends the picture to whoever listens, and answers who asks for all of it. Thin: `views/picture.py` makes it.

It is shown each view of the run, and never waits: a listener that does not take its messages loses them.
While nobody listens and nothing is recorded, nothing is made but the history. What is recorded is what is sent.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from headgate.controller.knowledge.run_view import RunView
from headgate.controller.views.snapshots import SnapshotMaker
from headgate.topology_runtime import channels
from headgate.topology_runtime.addresses import Listening
from headgate.topology_runtime.channels import HERE
from headgate.topology_runtime.clock import monotonic_ns
from headgate.topology_runtime.keys.pairs import KeyGuard
from headgate.topology_runtime.snapshot import Delta

LINGER_MS = 200
WHOLE_NS = 60_000_000_000  # between two snapshots in the record: whoever seeks in it reads no more than that
REST = 50  # times as long as making a delta took passes before the next: 2 % of a core …
REST_MOST_NS = 1_000_000_000  # … but no more: two seconds of silence are taken for a dead controller


class Publisher:
    """A picture on its channel."""

    def __init__(self, guard: KeyGuard, port: int = 0, at: Listening = HERE) -> None:
        self._picture = SnapshotMaker()
        self._view: RunView | None = None
        self._told: RunView | None = None
        self._channel = channels.PublisherChannel(guard, at, port)
        self.endpoint = self._channel.endpoint
        self._rested_ns = self._whole_ns = 0
        self._record: Callable[[bytes], None] | None = None

    def ask_again(self) -> None:
        """Whoever listens must come in anew, if he may still."""
        self._channel.ask_again()

    def record(self, write: Callable[[bytes], None]) -> None:
        """From now on `write` gets a line for each delta, and now and then a snapshot in place of one."""
        self._record, self._whole_ns = write, 0

    def show(self, view: RunView) -> None:
        """Send what changed if anybody listens."""
        self._view = view
        if view.mono_ns >= self._rested_ns and self._watched():
            self._advance(view)
        else:
            self._picture.look(view)

    def snapshot(self) -> dict[str, Any]:
        """The whole picture, and where its changes are published."""
        if self._view is not None and self._told is not self._view:
            self._advance(self._view, whole=True)
        return {"snapshot": self._picture.snapshot(), "stream": self.endpoint}

    def _watched(self) -> bool:
        return self._channel.heard or self._record is not None

    def _advance(self, view: RunView, whole: bool = False) -> None:
        self._told, began_ns = view, monotonic_ns()
        delta = self._picture.advance(view, whole)
        data = msgspec.json.encode(delta)
        self._channel.send_bytes(data)
        if self._record is not None:
            self._record(data if view.mono_ns < self._whole_ns else self._whole(view, delta))
        self._rested_ns = view.mono_ns + min(REST_MOST_NS, REST * (monotonic_ns() - began_ns))

    def _whole(self, view: RunView, delta: Delta) -> bytes:
        """The snapshot that the delta leads to, with the delta's rows of history only."""
        self._whole_ns = view.mono_ns + WHOLE_NS
        return msgspec.json.encode({**self._picture.snapshot(), "history": delta.history})

    def close(self, over: bool = False) -> None:
        """over: so is the run, and whoever listens gets its last moment, as does the record."""
        if over and self._view is not None and self._watched():
            self._advance(self._view, whole=True)
        self._channel.close(LINGER_MS)
