"""A trace folder → what is replayed of it. Raises InvalidInput naming file and line.

A torn last line is refused, like any other fault: what a controller that was killed left half written is cut
off when it is started again, so a tear that stays means that the trace is not complete.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from controller.monitor.trace import DECISIONS, INPUTS, RUN
from controller.replaying.recorded import Line, Run, decisions_of, in_order, lines_of, run_of
from topology_runtime.errors import InvalidInput

PIECE_BYTES = 1 << 20  # of inputs decoded at a time
TAKEN_FOR_TRACE = "name the folder of one run, such as traces/TOPOLOGY/RUN"


class Recording:
    """A run that was recorded. decisions: its lines, as they are. pieces: (from, to) in `inputs.jsonl`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.run: Run = run_of(_read(folder, RUN), str(folder / RUN))
        where = str(folder / DECISIONS)
        data = _read(folder, DECISIONS)
        _refuse_torn(data[-1:], data.count(b"\n") + 1, where)
        self.decisions: list[bytes] = data.splitlines()
        decisions_of(self.decisions, where)
        self.pieces = _pieces(folder / INPUTS)

    def lines(self, pieces: Iterator[tuple[int, int]] | None = None) -> Iterator[Line]:
        """All inputs in order; `pieces`: `self.pieces`, watched by somebody who shows how far it is."""
        where = str(self.folder / INPUTS)
        return in_order(self._numbered(iter(self.pieces) if pieces is None else pieces, where), where)

    def _numbered(self, pieces: Iterator[tuple[int, int]], where: str) -> Iterator[tuple[int, Line]]:
        number = 1
        with open(where, "rb") as file:
            for begin, end in pieces:
                file.seek(begin)
                for line in lines_of(file.read(end - begin), number, where):
                    yield number, line
                    number += 1


def _read(folder: Path, name: str) -> bytes:
    try:
        return (folder / name).read_bytes()
    except OSError as error:
        raise InvalidInput(
            f"{folder} is no trace that can be replayed",
            cause=f"{name}: {error.strerror}",
            hint=TAKEN_FOR_TRACE,
        ) from error


def _refuse_torn(last: bytes, number: int, where: str) -> None:
    if last not in (b"", b"\n"):
        raise InvalidInput(
            f"{where}: line {number} is torn: it has no end",
            cause="the run is being recorded still, or the machine died while it was",
            hint="wait for the run to end, or cut off that line in a copy",
        )


def _pieces(path: Path) -> tuple[tuple[int, int], ...]:
    """Where `path` may be cut: whole lines, about PIECE_BYTES each."""
    found, begin, lines = [], 0, 0
    try:
        with open(path, "rb") as file:
            while data := file.read(PIECE_BYTES):
                data += file.readline()
                lines += data.count(b"\n")
                if not data.endswith(b"\n"):
                    _refuse_torn(data[-1:], lines + 1, str(path))
                found.append((begin, begin + len(data)))
                begin += len(data)
    except OSError as error:
        raise InvalidInput(
            f"{path.parent} is no trace that can be replayed",
            cause=f"{path.name}: {error.strerror}",
            hint=TAKEN_FOR_TRACE,
        ) from error
    return tuple(found)
