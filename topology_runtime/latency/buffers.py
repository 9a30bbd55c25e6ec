"""When the buffer of a channel should leave. Pure.

First rule, ours: a buffer leaves a *gap* after the one before; the gaps along a sequence are shares of what its limit
leaves for them, so one look is enough. Second rule, paper 4's equations 2 and 3, by size: where rows wait in a
buffer for longer than 5 ms and longer than its sender worked on them, it shrinks by 0.98 a ms; where they do not wait
at all, it grows by a tenth. By itself it takes many looks, and at low rates it swings.
"""

from __future__ import annotations

import math

AIMED = 0.8  # of the limit: what the gaps leave room for
LEAST_SHARE = 0.1  # of the limit: buffers are left so much together, whatever else takes long
LEAST_MS = 5.0  # a buffer that rows wait in for less is not shrunk
SHRINK, GROW = 0.98, 1.1
NONE_MS = 0.05  # about no wait


def share_ms(limit_ms: float, fixed_ms: float, hops: int) -> float:
    """The gap of one channel of a sequence that takes `fixed_ms` beside its buffers."""
    return max(AIMED * limit_ms - fixed_ms, LEAST_SHARE * limit_ms) / hops


def resized(rows: int, waited_ms: float, worked_ms: float, most: int) -> int:
    """Equations 2 and 3: rows in a buffer from now on, of `rows` before; waited_ms: in it, on average; worked_ms: the
    latency of the sender's task."""
    if waited_ms > max(LEAST_MS, worked_ms):
        return max(1, math.floor(rows * math.pow(SHRINK, waited_ms)))
    if waited_ms < NONE_MS:
        return min(most, max(rows + 1, math.floor(rows * GROW)))
    return rows
