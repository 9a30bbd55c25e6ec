"""The rows of one source, in the order and at the (virtual) times at which they come: those that a test gives, or what
the source itself reads."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from headgate.topology_runtime.api.logic import Exhausted, LiveSource
from headgate.topology_runtime.api.references import last_lines
from headgate.topology_runtime.api.topology import Topology
from headgate.topology_runtime.errors import InvalidInput
from headgate.topology_runtime.wording import did_you_mean

NS = 1_000_000_000
FRAME_ROWS = 256  # that come at once
ROWS_MOST = 1_000_000  # of a source that is read
QUIET_S, LOOK_S = 5.0, 0.01  # a source that gives nothing for so long has no end; it is asked again so often

Rows = Sequence[Any]
Coming = Iterator[tuple[int, Rows]]  # after so many ns since the beginning, these rows


@dataclass(frozen=True)
class Pause:
    """Between two rows of an input: so many seconds."""

    seconds: float


def wait(seconds: float) -> Pause:
    """So many seconds pass before the next row comes, in no time: windows fire as if they had.

    >>> wait(60)
    Pause(seconds=60)
    """
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds < 1e9:
        raise InvalidInput(f"cannot wait {seconds!r} seconds", hint="0 or more, as in testing.wait(60)")
    return Pause(seconds)


def checked(topology: Topology, inputs: Mapping[str, Iterable[Any]] | None) -> dict[str, Iterable[Any]]:
    """Inputs of sources that there are."""
    names = [task.name for task in topology.sources]
    for name, rows in (inputs or {}).items():
        if name not in names:
            near = did_you_mean(name, names) or f"; there are {', '.join(names)}"
            raise InvalidInput(f"no source {name!r} in topology {topology.name!r}{near}")
        if isinstance(rows, str | bytes | Mapping) or not isinstance(rows, Iterable):
            what = f"inputs of {name!r} are of type {type(rows).__name__}"
            raise InvalidInput(what, hint="give a list of rows, as in {'lines': ['a line', 'another']}")
    return dict(inputs or {})


def given(rows: Iterable[Any]) -> Coming:
    """Rows of a test, with waits between them."""
    at_ns, some = 0, list[Any]()
    for row in rows:
        if isinstance(row, Pause):
            yield at_ns, some
            at_ns, some = at_ns + int(row.seconds * NS), []
            continue
        some.append(row)
        if len(some) == FRAME_ROWS:
            yield at_ns, some
            some = []
    yield at_ns, some


def read(name: str, source: Any, most: int | None, sleep: Callable[[float], None] = time.sleep) -> Coming:
    """What the source itself reads until it raises `Exhausted`, or `most` rows of it (of one that is no LiveSource: or
    until it gives nothing for a while). Raises InvalidInput for one that raises something else, or does not end."""
    position, quiet_s, limit = 0, 0.0, most or ROWS_MOST
    while position < limit:
        many = min(FRAME_ROWS, limit - position)
        try:
            rows = read_now(source, position, many)
        except Exhausted:
            return
        except Exception as error:  # user code
            what = f"source {name!r} raised {type(error).__name__} at position {position:,}"
            raise InvalidInput(what, cause=last_lines(error)) from error
        if rows:
            position, quiet_s = position + len(rows), 0.0
            yield 0, rows
        elif most is not None and quiet_s >= QUIET_S and not isinstance(source, LiveSource):
            what = f"source {name!r} gives no more rows after {position:,} and has not ended: raise `Exhausted` there"
            print(what, file=sys.stderr, flush=True)
            return
        elif most is None and quiet_s >= QUIET_S:
            raise InvalidInput(
                f"source {name!r} gives no more rows and does not end",
                cause=f"nothing in {QUIET_S:g} s after row {position:,}",
                hint=f"raise `Exhausted` at its end, or give its rows: inputs={{{name!r}: […]}}",
            )
        else:
            sleep(LOOK_S)
            quiet_s += LOOK_S
    if most is None:
        raise InvalidInput(
            f"source {name!r} does not end",
            cause=f"it gave {position:,} rows, and there are more",
            hint=f"raise `Exhausted` at its end, or give its rows: inputs={{{name!r}: […]}}",
        )


def read_now(source: Any, position: int, most: int) -> Rows:
    """What a source has there, at most so many rows."""
    if isinstance(source, LiveSource):
        return list(islice(source.poll(most), most))
    from headgate.topology_runtime.worker.calls.batches import rows_read  # with all messages of workers

    return rows_read(source, position, most)


def in_turn(coming: Mapping[str, Coming]) -> Iterator[tuple[str, int, Rows]]:
    """(source, ns since the beginning, rows) of all sources in order of time; at the same time they take turns."""
    ahead: list[tuple[int, int, int, str, Rows]] = []
    names = list(coming)

    def put(turn: int, name: str) -> None:
        if (found := next(coming[name], None)) is not None:
            ahead.append((found[0], turn, names.index(name), name, found[1]))

    for name in names:
        put(0, name)
    while ahead:
        at_ns, turn, _, name, rows = first = min(ahead, key=lambda one: one[:3])
        ahead.remove(first)
        yield name, at_ns, rows
        put(turn + 1, name)
