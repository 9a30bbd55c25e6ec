"""Says on stderr how far a long wait is: a bar on a terminal, one line at the end elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from headgate.topology_runtime.output import console

Step = Callable[[int, int], None]  # told how many of the things are there, and how many were made just now


@contextmanager
def bar(what: str, total: int | None = None) -> Iterator[Step]:
    """Gives `step`. total: of the things asked for; None when nobody knows how many there are. Nothing is
    said where all of them were there."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    screen, began_s = console(sys.stderr), time.monotonic()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    made = 0
    with Progress(*columns, console=screen, transient=True, disable=not screen.is_terminal) as progress:
        task = progress.add_task(what, total=total)

        def step(there: int, made_now: int) -> None:
            nonlocal made
            made += made_now
            progress.update(task, completed=there)

        yield step
    if total is None or made:
        count = f"{made:,} " if made else ""
        print(f"{count}{what} in {time.monotonic() - began_s:.1f} s", file=sys.stderr)
