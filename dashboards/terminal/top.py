"""`headgate top`: a run on a whole terminal, with keys. Needs the extra `top`."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from headgate.dashboards.terminal.connection import contact_of, controller_option, data_of
from headgate.topology_runtime.channels import ask
from headgate.topology_runtime.errors import HeadgateError, UsageError
from headgate.topology_runtime.keys.pairs import Contact
from headgate.topology_runtime.messages import Request

if TYPE_CHECKING:
    from headgate.dashboards.terminal.top_rows import StatusReading

ANSWER_S = 1.5  # then the picture is stale anyway
EVENTS_MOST, DECISIONS_MOST = 500, 100


@click.command()
@controller_option
def top(controller: str | None) -> None:
    """Watch tasks, slots, VMs, decisions and events of a run; keys sort, filter and freeze (? tells).

    `headgate watch` is the same for logs and pipes."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError(
            "`headgate top` needs a terminal", hint="`headgate watch` or `headgate status -o json`"
        )
    try:
        from headgate.dashboards.terminal.top_app import Top
    except ModuleNotFoundError as error:
        raise missing(error) from error
    reader = StatusReader(contact_of(controller))
    reader.read()  # what is wrong is said before the screen is taken
    Top(reader.read_or_none, time.monotonic).run()


def missing(error: ModuleNotFoundError) -> UsageError:
    """The extra is not installed."""
    return UsageError(
        "`headgate top` needs Textual, which is not installed",
        cause=str(error),
        hint="pip install 'headgate[top]', or use `headgate watch`",
    )


class StatusReader:
    """Asks a controller for its status, its decisions, and the events since the last time."""

    def __init__(self, contact: Contact) -> None:
        self._contact = contact
        self._events: deque[Mapping[str, Any]] = deque(maxlen=EVENTS_MOST)
        self._last = self._boot = 0

    def read(self) -> StatusReading:
        """Raises Unreachable, Refused."""
        from headgate.dashboards.terminal.top_rows import StatusReading

        status = self._ask("status")
        if status["boot"] != self._boot:  # a new life of the controller counts its events anew
            self._boot, self._last = status["boot"], 0
        told = self._ask("events", since=self._last)
        self._events += [event for event in told["events"] if event["number"] > self._last]
        self._last = max(self._last, told["last"])
        decisions = self._ask("explain", last=DECISIONS_MOST)["decisions"]
        return StatusReading(status, tuple(self._events), tuple(decisions))

    def read_or_none(self) -> StatusReading | None:
        """None while there is no answer, or a refusal."""
        try:
            return self.read()
        except HeadgateError:
            return None

    def _ask(self, command: str, **arguments: Any) -> Any:
        return data_of(ask(self._contact, Request(command, arguments), ANSWER_S))
