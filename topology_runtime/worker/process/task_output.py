"""What tasks print and log, told apart by the thread that said it: records in the slot's log.

1. `sys.stdout` and `sys.stderr` of a worker know whose thread writes. A task's text becomes a record per line; half a
   line waits for its end. Of other threads, of C code and of other processes the log has plain text.
2. A line is written at once by the thread itself, in one call: what a task said before it died is there.
3. It costs little however much is said: beyond the budget lines are counted, and the count is told later. A log that
   takes nothing costs lines, never a row.
4. Secrets that this process has read are shown as `***` (wording.py), also in what a task itself prints.
5. `logging` is as Python has it. Only its handler of last resort is ours, so that a level is kept; a user's own
   configuration finds no handler of ours in its way.
"""

from __future__ import annotations

import io
import logging
import os
import sys
import threading
from collections.abc import Iterable
from typing import Any, TextIO

from headgate.topology_runtime.platform.clock import monotonic_ns, wall_ns
from headgate.topology_runtime.wire.output_messages import (
    DROPPED,
    ERR,
    LINE_MOST,
    OUT,
    LineBudget,
    SaidLine,
    cut,
    more,
    record,
)
from headgate.topology_runtime.wording import hidden

LINES_A_SECOND, CHARS_A_SECOND = 1_000, 256 * 1024  # of a slot
HALF_MOST = 4 * LINE_MOST  # characters without an end of a line: they are passed on, and it goes on


class SpeakingThread:
    """A thread of a task. dropped: its lines that were not written; told: how many of these were told of."""

    def __init__(self, task: str, thread: int) -> None:
        self.task, self.thread = task, thread
        self.dropped = self.told = 0
        self.halves = {OUT: "", ERR: ""}
        self.begun = {OUT: False, ERR: False}  # a part of the line is said already: the rest may be nothing


class TaskOutput:
    """Of one worker. fd: its log. The thread that speaks is found by itself; `tell` is for the main thread."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._mine = threading.local()
        self._budget = LineBudget(LINES_A_SECOND, CHARS_A_SECOND)
        self._speakers: list[SpeakingThread] = []

    def install(self) -> None:
        """From now on all that Python prints goes through here, unless somebody looks at a terminal."""
        if os.isatty(self._fd):
            return
        sys.stdout, sys.stderr = TaskStream(self, OUT, sys.stdout), TaskStream(self, ERR, sys.stderr)
        logging.lastResort = LastResort(self)

    @property
    def speaker(self) -> SpeakingThread | None:
        """Whose thread this is."""
        found: SpeakingThread | None = getattr(self._mine, "speaker", None)
        return found

    def speak_as(self, task: str, thread: int) -> SpeakingThread:
        """The thread that calls is this one of this task."""
        self._mine.speaker = speaker = SpeakingThread(task, thread)
        self._speakers.append(speaker)
        return speaker

    def over(self) -> None:
        """The thread that calls says no more: what it left without an end is said."""
        if (speaker := self.speaker) is not None:
            for level, half in speaker.halves.items():
                if half:
                    self.say(speaker, level, half)
            if speaker.dropped != speaker.told:
                self._tell(speaker)
            self._speakers.remove(speaker)
            self._mine.speaker = None

    def lend(self, speaker: SpeakingThread | None) -> SpeakingThread | None:
        """What the thread that calls says now is said by this one; who it was before."""
        before, self._mine.speaker = self.speaker, speaker
        return before

    def text(self, speaker: SpeakingThread, level: str, text: str) -> None:
        """A piece of what is printed."""
        half = speaker.halves[level] + text
        if "\n" in half:
            *lines, half = half.split("\n")
            for line in lines[not lines[0] and speaker.begun[level] :]:
                self.say(speaker, level, line)
            speaker.begun[level] = False
        elif len(half) > HALF_MOST:
            self.say(speaker, level, half)
            half, speaker.begun[level] = "", True
        speaker.halves[level] = half

    def say(self, speaker: SpeakingThread, level: str, line: str) -> None:
        self._budget.refill(monotonic_ns())
        if not self._budget.take(min(len(line), LINE_MOST)):
            speaker.dropped += 1
            return
        if speaker.dropped != speaker.told:
            self._tell(speaker)
        self._write(speaker, level, cut(hidden(line.removesuffix("\r"))))

    def tell(self) -> None:
        """Of what was left out, once there is room for words."""
        self._budget.refill(monotonic_ns())
        for speaker in list(self._speakers):
            if speaker.dropped != speaker.told and self._budget.lines > 0:
                self._tell(speaker)

    def _tell(self, speaker: SpeakingThread) -> None:
        count = speaker.dropped - speaker.told
        if self._write(speaker, DROPPED, more(count)):
            speaker.told += count

    def _write(self, speaker: SpeakingThread, level: str, text: str) -> bool:
        data = record(SaidLine(wall_ns(), speaker.task, speaker.thread, level, text))
        try:
            return os.write(self._fd, data) == len(data)
        except OSError:  # a full disk, or nobody reads: the line is one of those that are left out
            speaker.dropped += level != DROPPED
            return False


class TaskStream(io.TextIOBase):
    """`sys.stdout` or `sys.stderr`. beneath: for threads of nobody, and for whoever wants bytes or a descriptor."""

    def __init__(self, output: TaskOutput, level: str, beneath: TextIO) -> None:
        self._output, self._level, self._beneath = output, level, beneath

    def write(self, text: str, /) -> int:
        speaker = self._output.speaker
        if speaker is None:
            self._beneath.write(hidden(text))
            if "\n" in text:
                self._beneath.flush()
            return len(text)
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        self._output.text(speaker, self._level, text)
        return len(text)

    def writelines(self, lines: Iterable[str], /) -> None:  # type: ignore[override]
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        """Half a line waits for its end."""
        if self._output.speaker is None:
            self._beneath.flush()

    def close(self) -> None:
        """A task that closes it goes on printing, and so do the others."""

    def fileno(self) -> int:
        return self._beneath.fileno()

    def isatty(self) -> bool:
        return False

    def writable(self) -> bool:
        return True

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return "utf-8"

    @property
    def errors(self) -> str:  # type: ignore[override]
        return "backslashreplace"

    def __getattr__(self, name: str) -> Any:
        """`buffer`, `reconfigure`, …: of the stream beneath."""
        return getattr(self._beneath, name)


class LastResort(logging.Handler):
    """For what `logging` has no handler: warnings and worse, with their level."""

    def __init__(self, output: TaskOutput) -> None:
        super().__init__(logging.WARNING)
        self._output = output

    def emit(self, entry: logging.LogRecord) -> None:
        try:
            text = self.format(entry)
            speaker = self._output.speaker
            if speaker is None:
                sys.stderr.write(text + "\n")
                return
            for line in text.split("\n"):
                self._output.say(speaker, entry.levelname.lower(), line)
        except Exception:  # arguments that do not go with their text: said as Python does
            self.handleError(entry)
