"""Where a run is shown while it goes on: a picture drawn in place on a terminal, or lines. Always stderr."""

from __future__ import annotations

import sys
from collections import deque
from typing import TYPE_CHECKING, Protocol, TextIO

from headgate.dashboards.terminal.live_view import SPARKS, Status, clock, picture, tick_line, value_at
from headgate.topology_runtime.clock import monotonic_ns
from headgate.topology_runtime.output import console

if TYPE_CHECKING:
    from rich.live import Live

NS = 1_000_000_000
TICK_NS = NS


class Screen(Protocol):
    """What `up` shows to."""

    def show(self, status: Status) -> None:
        """The run as it is now."""

    def say(self, line: str) -> None:
        """A line that stays."""

    def close(self) -> None: ...


class Lines:
    """One line per tick, and the lines that stay between them."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._next_ns = 0

    def show(self, status: Status) -> None:
        now_ns = monotonic_ns()
        if now_ns >= self._next_ns:
            self._next_ns = now_ns + TICK_NS
            self.say(tick_line(status))

    def say(self, line: str) -> None:
        try:
            self._stream.write(line + "\n")
            self._stream.flush()
        except OSError:  # its file is full, or nobody reads: the run goes on without being told of
            return

    def close(self) -> None:
        return


class TerminalPicture:
    """The picture in place; lines that stay scroll above it."""

    def __init__(self, stream: TextIO, seconds: float | None) -> None:
        self._console = console(stream)
        self._seconds = seconds
        self._rates: deque[float] = deque(maxlen=SPARKS)
        self._live: Live | None = None
        self._second = -1

    def show(self, status: Status) -> None:
        if int(status["seconds"]) != self._second:  # one bar a second
            self._second = int(status["seconds"])
            self._rates.append(value_at(status, "rates.offered_now_tps") or 0.0)
        if self._live is None:
            from rich.live import Live

            self._live = Live(console=self._console, auto_refresh=False)
            self._live.start()
        self._live.update(picture(status, self._rates, self._seconds), refresh=True)

    def say(self, line: str) -> None:
        self._console.print(line, soft_wrap=True)

    def close(self) -> None:
        if self._live is not None:
            self._live.stop()


def screen(seconds: float | None) -> Screen:
    """A picture where there is a terminal."""
    if sys.stderr.isatty():
        return TerminalPicture(sys.stderr, seconds)
    return Lines(sys.stderr)


def at(seconds: float, text: str) -> str:
    """A line of a run with its time since the first tuple was due."""
    return f"{clock(seconds)} {text}"
