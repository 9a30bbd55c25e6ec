"""The picture of a running controller: its changes as they are published, the whole when some are missing.

The controller may vanish and come back under a new life: the feed says that it is stale and asks again and
again. Used by one thread.
"""

from __future__ import annotations

from typing import Any

import msgspec

from headgate.dashboards.feeding.items import Change, Document, Item, Stale, Whole
from headgate.topology_runtime import channels
from headgate.topology_runtime.clock import monotonic_ns
from headgate.topology_runtime.errors import BadMessage
from headgate.topology_runtime.keys.pairs import Contact
from headgate.topology_runtime.messages import Reply, Request
from headgate.topology_runtime.picturing.merge_patch import advanced
from headgate.topology_runtime.requests import from_here

NS = 1_000_000_000
STALE_S = 2.0  # without a word; two ticks a second are usual
AGAIN_S = 0.5  # between two questions for the whole


class LiveFeed:
    """Of the controller on whose command port `contact` ends."""

    def __init__(self, contact: Contact) -> None:
        self._contact = contact
        self.document: Document | None = None
        self._asking: channels.ClientChannel[Request, Reply] = channels.ClientChannel(
            channels.replies, contact
        )
        self._stream: channels.SubscriberChannel | None = None
        self._stream_at = ""
        self._waiter = channels.Waiter([self._asking])
        self._heard_ns = monotonic_ns()
        self._asked_ns = 0
        self._whole_desired = True
        self._said_stale = False
        self._why = "the controller does not answer"

    def next(self, timeout_s: float) -> Item | None:
        """The next item, at most so much later."""
        until_ns = monotonic_ns() + int(timeout_s * NS)
        while True:
            found = self._heard() or self._late()
            left_ns = until_ns - monotonic_ns()
            if found is not None or left_ns <= 0:
                return found
            self._waiter.wait(min(left_ns / NS, AGAIN_S / 2))

    def close(self) -> None:
        self._asking.close(linger_ms=0)
        if self._stream is not None:
            self._stream.close(linger_ms=0)

    def _heard(self) -> Item | None:
        """One item of what has come; asks for the whole when it is missed."""
        found = self._answered() or self._published()
        if found is not None:
            self._heard_ns, self._said_stale = monotonic_ns(), False
        elif self._whole_desired and monotonic_ns() - self._asked_ns >= AGAIN_S * NS:
            self._asked_ns = monotonic_ns()
            self._asking.send(from_here(Request("snapshot")))
        return found

    def _late(self) -> Stale | None:
        silent_s = (monotonic_ns() - self._heard_ns) / NS
        if silent_s < STALE_S:
            return None
        self._whole_desired = True
        if self._said_stale:
            return None
        self._said_stale = True
        return Stale(silent_s, self._why)

    def _answered(self) -> Whole | None:
        while True:
            try:
                reply = self._asking.receive()
            except BadMessage:
                continue
            if reply is None:
                return None
            if reply.error is not None:
                self._why = reply.error[2]
            elif self._whole_desired and isinstance(reply.data, dict) and "snapshot" in reply.data:
                return self._begin(reply.data)

    def _begin(self, data: dict[str, Any]) -> Whole:
        self._listen_to(data["stream"])
        document: Document = data["snapshot"]
        self.document = document
        self._whole_desired, self._why = False, "the controller does not answer"
        return Whole(document)

    def _listen_to(self, stream: str) -> None:
        if stream == self._stream_at:
            return
        if self._stream is not None:
            self._stream.close(linger_ms=0)
        self._stream, self._stream_at = channels.SubscriberChannel(self._contact.to(stream)), stream
        self._waiter = channels.Waiter([self._asking, self._stream])

    def _published(self) -> Change | None:
        """The next delta that fits; one that does not makes the whole desired."""
        while self._stream is not None and (data := self._stream.receive_bytes()) is not None:
            try:
                delta: Document = msgspec.json.decode(data)
                after = self._after(delta)
            except (msgspec.DecodeError, KeyError, TypeError):
                self._whole_desired = True
                continue
            if after is not None:
                self.document = after
                return Change(delta, data, after)
        return None

    def _after(self, delta: Document) -> Document | None:
        known = self.document
        if known is None or self._whole_desired:
            return None
        if delta["boot"] == known["boot"] and delta["number"] <= known["number"]:
            return None  # published before the snapshot was
        after = advanced(known, delta)
        self._whole_desired = after is None
        return after
