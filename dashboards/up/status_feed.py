"""Status and events of a controller without ever waiting for them: asked now, read when they come."""

from __future__ import annotations

from typing import Any

from headgate.topology_runtime import channels
from headgate.topology_runtime.keys.pairs import Contact
from headgate.topology_runtime.messages import Reply, Request
from headgate.topology_runtime.requests import from_here

NS = 1_000_000_000
EVERY_NS = NS // 2  # people read no faster
EAGER_NS = NS // 10  # until the first tuple is through: its time is told
PATIENCE_NS = 2 * NS  # then the answer is not coming: the controller was restarted, or is busy


class StatusFeed:
    """`latest`: the newest status. `take_events`: events not taken yet, each once."""

    def __init__(self, contact: Contact) -> None:
        self.latest: dict[str, Any] | None = None
        self.fresh = False
        self._events: list[dict[str, Any]] = []
        self._last_event = 0
        self._boot = 0
        self._asked_ns = 0
        self._answers_due = 0
        self._channel: channels.ClientChannel[Request, Reply] = channels.ClientChannel(
            channels.replies, contact
        )
        self._waiter = channels.Waiter([self._channel])

    def wait(self, timeout_s: float) -> None:
        """Until an answer comes, at most so long."""
        self._waiter.wait(timeout_s)

    def turn(self, now_ns: int, eager: bool) -> None:
        """Read what has come; ask again when it is time."""
        while (reply := self._channel.receive()) is not None:
            self._take(reply)
        waited_ns = now_ns - self._asked_ns
        if waited_ns >= PATIENCE_NS:
            self._answers_due = 0
        if self._answers_due == 0 and waited_ns >= (EAGER_NS if eager else EVERY_NS):
            self._asked_ns, self._answers_due = now_ns, 2
            self._channel.send(from_here(Request("status")))
            self._channel.send(from_here(Request("events", {"since": self._last_event})))

    def send(self, command: str) -> None:
        """An order whose answer shows in the next status."""
        self._channel.send(from_here(Request(command)))

    def take_events(self) -> list[dict[str, Any]]:
        events, self._events = self._events, []
        return events

    def take_status(self) -> dict[str, Any] | None:
        """The latest status if it is a new one."""
        fresh, self.fresh = self.fresh, False
        return self.latest if fresh else None

    def _take(self, reply: Reply) -> None:
        data = reply.data
        if not isinstance(data, dict):
            return  # a refusal: what was asked does not hold any more
        if data.get("schema") == "headgate/status/v1":
            self._answers_due = max(0, self._answers_due - 1)
            self.latest, self.fresh = data, True
            if data["boot"] != self._boot:  # a new life of the controller counts its events anew
                self._boot, self._last_event = data["boot"], 0
        elif data.get("schema") == "headgate/events/v1":
            self._answers_due = max(0, self._answers_due - 1)
            self._events += [event for event in data["events"] if event["number"] > self._last_event]
            self._last_event = max(self._last_event, data["last"])

    def close(self) -> None:
        self._channel.close(linger_ms=200)
