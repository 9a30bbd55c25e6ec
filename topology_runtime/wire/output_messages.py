"""What tasks print, on its way: from a thread of a worker into its slot's log, from there by the agent to the
controller, which keeps it with the run. Pure.

A slot's log is what its process and its children wrote to file descriptors 1 and 2. What a task's thread said is a
record in it: MARK, then JSON, to the end of the line. Everything else there is said by the slot.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from headgate.topology_runtime.wording import counted, visible

NS = 1_000_000_000
MARK = b"\x1e"  # no text has it, or it is a part of one
THREAD_MOST = 1 << 31
LINE_MOST, CUT = 4_000, " … (the line is longer)"  # characters; the rest of a line is left out
OUT, ERR, DROPPED = (
    "out",
    "err",
    "dropped",
)  # levels besides those of `logging`: two streams, and lines left out


class SaidLine(msgspec.Struct, frozen=True, array_like=True):
    """What a thread of a task said, as it is in its slot's log. time_ns: UTC."""

    time_ns: int
    task: str
    thread: int
    level: str
    text: str


class OutputLine(msgspec.Struct, frozen=True, array_like=True):
    """One line; of the slot itself where `task` is empty."""

    time_ns: int
    slot: int
    task: str
    thread: int
    level: str
    text: str


class OutputLines(msgspec.Struct, frozen=True, tag="output"):
    """Lines of the slots of a VM, those of each in their order."""

    vm: str
    boot: int
    lines: tuple[OutputLine, ...] = ()


_encode, _decoder = msgspec.json.Encoder().encode, msgspec.json.Decoder(SaidLine)


def record(said: SaidLine) -> bytes:
    """A line of a slot's log."""
    return MARK + _encode(said) + b"\n"


def cut(text: str) -> str:
    """A line that is not too long, of characters that can be written as UTF-8."""
    text = text if text.isascii() else text[: 2 * LINE_MOST].encode("utf-8", "backslashreplace").decode()
    return text if len(text) <= LINE_MOST else text[: LINE_MOST - len(CUT)] + CUT


def lines_in(line: bytes, slot: int, now_ns: int) -> list[OutputLine]:
    """What one line of a slot's log says, without its end: a record, or words of the slot, or words without an end
    and then a record. now_ns: when the slot's own words count as said."""
    plain, mark, rest = line.partition(MARK)
    found = []
    if plain.strip():
        found.append(
            OutputLine(now_ns, slot, "", 0, ERR, cut(plain.decode("utf-8", "backslashreplace").rstrip("\r")))
        )
    if mark:
        try:
            said = _decoder.decode(rest)
            at_ns, thread = min(abs(said.time_ns), now_ns + NS), min(abs(said.thread), THREAD_MOST)
            task, level = cut(said.task)[:256], cut(said.level)[:16]
            found.append(OutputLine(at_ns, slot, task, thread, level, cut(said.text)))
        except (
            msgspec.DecodeError,
            UnicodeDecodeError,
        ):  # a task wrote the mark itself, or its process was killed
            found.append(OutputLine(now_ns, slot, "", 0, ERR, cut(rest.decode("utf-8", "backslashreplace"))))
    return found


def more(count: int) -> str:
    """The text of lines that are left out."""
    return f"… {counted(count, 'line')} more"


_MORE = re.compile(r"… ([\d,]+) lines? more")


def stands_for(line: Mapping[str, Any]) -> int:
    """How many lines this one says are left out; itself where it does not."""
    found = _MORE.fullmatch(line["text"]) if line["level"] == DROPPED else None
    return int(found[1].replace(",", "")) if found else 1


# ── How many lines are passed on: so many at once, so many a second; what is more is counted ────────────


class LineBudget:
    """Lines and characters, by the clock of the caller."""

    def __init__(self, lines_a_second: int, chars_a_second: int, at_once_s: int = 5) -> None:
        self._lines, self._chars, self._at_once_s = lines_a_second, chars_a_second, at_once_s
        self.lines, self.chars = lines_a_second * at_once_s, chars_a_second * at_once_s
        self._since_ns = 0

    def refill(self, now_ns: int) -> None:
        """What a tenth of a second brings, not more often than that."""
        passed_ns = now_ns - self._since_ns
        if passed_ns >= NS // 10:
            self._since_ns = now_ns
            passed_s = min(passed_ns / NS, self._at_once_s)
            self.lines = min(self.lines + int(self._lines * passed_s), self._lines * self._at_once_s)
            self.chars = min(self.chars + int(self._chars * passed_s), self._chars * self._at_once_s)

    def take(self, chars: int) -> bool:
        """Is there room for one more line of so many characters?"""
        if self.lines <= 0 or self.chars <= 0:
            return False
        self.lines -= 1
        self.chars -= chars
        return True


# ── As people see them ──────────────────────────────────────────────────────────────────────────────────


def prefix(line: Mapping[str, Any]) -> str:
    """`parse/3`, or `vm1/0` of the slot itself. line: as a trace holds it."""
    who = f"{line['task']}/{line['thread']}" if line["task"] else f"{line['vm']}/{line['slot']}"
    return visible(who)


def line_words(line: Mapping[str, Any]) -> str:
    """`parse/3 | text`; a level of `logging` is named."""
    level = line["level"]
    named = "" if level in (OUT, ERR, DROPPED) else f"{visible(level)}: "
    return f"{prefix(line)} | {named}{visible(line['text'])}"


def is_of(line: Mapping[str, Any], who: str) -> bool:
    """Is it of this task, thread (`parse/3`), VM or slot (`vm1/0`)? Of everybody: of none in particular."""
    task, vm = line["task"], line["vm"]
    names = ("", task, f"{task}/{line['thread']}" if task else "", vm, f"{vm}/{line['slot']}")
    return who in names
