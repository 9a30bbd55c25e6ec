"""What Python's collector looks at in a worker: what lives long is kept from it, what ended threads leave is not.

A thread and what belongs to it refer to each other. Frozen, they would stay for good: a worker that lives for months
would hold every thread that it ever had.
"""

from __future__ import annotations

import gc

THRESHOLDS = (50_000, 20, 50)  # frames make many short-lived tuples and no cycles


def begin() -> None:
    gc.set_threshold(*THRESHOLDS)


def keep() -> None:
    """What there is now will stay: it need not be looked at again and again."""
    gc.freeze()


def let_go() -> None:
    """Something of it has ended. Takes some 10 to 30 ms, in which no thread runs."""
    gc.unfreeze()
    gc.collect()
    gc.freeze()
