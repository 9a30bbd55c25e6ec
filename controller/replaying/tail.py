"""The inputs of a run that goes on, as they are written. Raises InvalidInput as `trace_reading` does."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterator
from pathlib import Path

from headgate.controller.replaying.recorded import InputLine, in_order, lines_of
from headgate.topology_runtime.line_parts import number_of, parts_of
from headgate.topology_runtime.trace_tables import INPUTS


def tailed(folder: Path, goes_on: Callable[[], bool]) -> Iterator[InputLine]:
    """All inputs of the run in order, from its first on. `goes_on` is called whenever there is none just now: it waits,
    and says whether to look again."""
    return in_order(_numbered(folder / INPUTS, goes_on), str(folder / INPUTS))


def _numbered(path: Path, goes_on: Callable[[], bool]) -> Iterator[tuple[str, int, InputLine]]:
    part, begin, number = 1, 0, 1  # the part that is read, from which byte on, and the line that begins there
    while True:
        aside = _aside(path, part)
        data = _read(aside or path, begin)
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


def _read(path: Path, begin: int) -> bytes:
    try:
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except FileNotFoundError:  # between two parts
        return b""
    return data[begin:]
