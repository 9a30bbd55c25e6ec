"""A progress bar for planning commands that take over a second; on stderr, and only on a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from rich.progress import Progress

PATIENCE_S = 1.0

Item = TypeVar("Item")


def waited(items: Sequence[Item], text: str, patience_s: float = PATIENCE_S) -> Iterator[Item]:
    """The items one by one, with a bar once they have taken longer than `patience_s`."""
    started_s, bar = time.monotonic(), None
    try:
        for done, item in enumerate(items, 1):
            yield item
            if bar is None and sys.stderr.isatty() and time.monotonic() - started_s > patience_s:
                bar = _bar(text, len(items))
            if bar is not None:
                bar.update(bar.task_ids[0], completed=done)
    finally:
        if bar is not None:
            bar.stop()


def _bar(text: str, total: int) -> Progress:
    from rich.progress import Progress

    from headgate.topology_runtime.output import console

    bar = Progress(console=console(sys.stderr), transient=True)
    bar.add_task(text, total=total)
    bar.start()
    return bar
