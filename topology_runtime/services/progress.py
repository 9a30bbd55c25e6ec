"""Says on stderr how far a long wait is: a bar on a terminal, one line at the end elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def bar(what: str, total: int | None = None) -> Iterator[Callable[[int], None]]:
    """Gives `step(done)`. total: of the steps; None when nobody knows how many there are."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console, began_s = Console(stderr=True), time.monotonic()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    done = 0
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(what, total=total)

        def step(reached: int) -> None:
            nonlocal done
            done = reached
            progress.update(task, completed=reached)

        yield step
    took_s = time.monotonic() - began_s
    if total is None or done:
        count = f"{done:,} " if done else ""
        print(f"{count}{what} in {took_s:.1f} s", file=sys.stderr)
