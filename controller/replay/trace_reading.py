"""A trace folder → what is replayed of it. Raises InvalidInput naming file and line.

The last line of a file may be half written: the run goes on, or its machine died. It is left out and said; any
other fault is refused, since what follows it could not be what was.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from headgate.controller.replay.recorded_run import (
    InputLine,
    RecordedRun,
    decisions_of,
    in_order,
    lines_of,
    run_of,
)
from headgate.topology_runtime.errors import InvalidInput
from headgate.topology_runtime.traces.line_parts import number_of, parts_of
from headgate.topology_runtime.traces.trace_tables import DECISIONS, INPUTS, RUN_FILE
from headgate.topology_runtime.wording import counted

PIECE_BYTES = 1 << 16  # of inputs decoded at a time: what comes of it is still near the core when it is used
TAKEN_FOR_TRACE = "name the folder of one run, such as traces/TOPOLOGY/RUN"


@dataclass(frozen=True, slots=True)
class Piece:
    """Whole lines of a file of inputs: bytes `begin` … `end` − 1, or all of a compressed one (`end` 0)."""

    path: Path
    begin: int
    end: int

    def read(self) -> bytes:
        if self.end:
            with open(self.path, "rb") as file:
                file.seek(self.begin)
                return file.read(self.end - self.begin)
        try:
            return gzip.decompress(self.path.read_bytes())
        except (OSError, EOFError, zlib.error) as error:
            raise InvalidInput(f"{self.path} is no whole part of a trace", cause=str(error)) from error


def recorded_run(folder: Path) -> RecordedRun:
    """What ran, and how it began."""
    return run_of(_read(folder, RUN_FILE), str(folder / RUN_FILE))


class Recording:
    """A run that was recorded. decisions: its lines, as they are. pieces: the inputs in order. torn: files
    whose last line is half written."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.run = recorded_run(folder)
        data = _read(folder, DECISIONS)
        whole = data.rfind(b"\n") + 1
        self.decisions: list[bytes] = data[:whole].splitlines()
        decisions_of(self.decisions, str(folder / DECISIONS))
        self.pieces, inputs_torn = _pieces(folder)
        self.torn = [DECISIONS] * (whole < len(data)) + [INPUTS] * inputs_torn

    def lines(self, pieces: Iterator[Piece] | None = None) -> Iterator[InputLine]:
        """All inputs in order; `pieces`: `self.pieces`, watched by somebody who shows how far it is."""
        numbered = _numbered(iter(self.pieces) if pieces is None else pieces)
        return in_order(numbered, str(self.folder / INPUTS))


def _numbered(pieces: Iterator[Piece]) -> Iterator[tuple[str, int, InputLine]]:
    """(file, number of the line, line)."""
    where, number = "", 1
    for piece in pieces:
        if where != str(piece.path):
            where, number = str(piece.path), 1
        for line in lines_of(piece.read(), number, where):
            yield where, number, line
            number += 1


def _read(folder: Path, name: str) -> bytes:
    try:
        return (folder / name).read_bytes()
    except OSError as error:
        raise _no_trace(folder, name, error) from error


def _no_trace(folder: Path, name: str, error: OSError) -> InvalidInput:
    cause = f"{name}: {error.strerror}"
    return InvalidInput(f"{folder} is no trace that can be replayed", cause=cause, hint=TAKEN_FOR_TRACE)


def _pieces(folder: Path) -> tuple[tuple[Piece, ...], bool]:
    """(all inputs, is the last line half written?)."""
    *parts, newest = parts_of(folder / INPUTS) or [folder / INPUTS]
    if (first := number_of(parts[0] if parts else newest)) > 1:
        raise InvalidInput(
            f"{folder} cannot be replayed: its beginning is gone",
            cause=f"the first {counted(first - 1, 'part')} of {INPUTS} were removed",
            hint="keep more of long runs (`up --set trace-keep=gb=N`)",
        )
    found: list[Piece] = []
    torn: Path | None = None
    for part in (*parts, newest):
        if torn is not None:
            raise InvalidInput(f"{torn} ends in half a line, but {part.name} goes on after it")
        if part.suffix == ".gz":
            found.append(Piece(part, 0, 0))
            continue
        try:
            torn = part if _cut(part, found) else None
        except OSError as error:
            raise _no_trace(folder, part.name, error) from error
    return tuple(found), torn is not None


def _cut(path: Path, found: list[Piece]) -> bool:
    """Cut into whole lines, about PIECE_BYTES each; is there half a line behind them?"""
    begin = 0
    with open(path, "rb") as file:
        while data := file.read(PIECE_BYTES):
            data += file.readline()
            whole = data.rfind(b"\n") + 1
            if whole:
                found.append(Piece(path, begin, begin + whole))
            if whole < len(data):
                return True
            begin += len(data)
    return False


# ── The inputs of a run that goes on, as they are written. Raises InvalidInput as `trace_reading` does ───


def tailed(folder: Path, goes_on: Callable[[], bool]) -> Iterator[InputLine]:
    """All inputs of the run in order, from its first on. `goes_on` is called whenever there is none just now: it waits,
    and says whether to look again."""
    return in_order(_numbered_as_written(folder / INPUTS, goes_on), str(folder / INPUTS))


def _numbered_as_written(path: Path, goes_on: Callable[[], bool]) -> Iterator[tuple[str, int, InputLine]]:
    part, begin, number = 1, 0, 1  # the part that is read, from which byte on, and the line that begins there
    while True:
        aside = _aside(path, part)
        data = _read_from(aside or path, begin)
        if aside is None and _aside(path, part) is not None:
            continue  # put aside meanwhile: what was read may be of the next one
        whole = data.rfind(b"\n") + 1
        for line in lines_of(data[:whole], number, str(path)):
            yield str(path), number, line
            number += 1
        begin += whole
        if aside is not None:
            part, begin, number = part + 1, 0, 1
        elif not whole and not goes_on():
            return


def _aside(path: Path, part: int) -> Path | None:
    """The file of a part that is not written any more."""
    return next((found for found in parts_of(path) if found != path and number_of(found) == part), None)


def _read_from(path: Path, begin: int) -> bytes:
    try:
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except FileNotFoundError:  # between two parts
        return b""
    return data[begin:]
