"""Moments at a multiple of real time, and what people are told of one."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from headgate.controller.knowledge import turns as t
from headgate.controller.replaying.exact_replay import Moment, decisions_of
from headgate.topology_runtime.utc import utc_iso

NS = 1_000_000_000
SLEEP_MOST_S = 3600.0


def paced(
    moments: Iterable[Moment],
    speed: float,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[Moment]:
    """The moments, each when it is due: `speed` seconds of the run in one of real time. A life that
    begins anew (another clock) follows at once."""
    began_s, first_ns = clock(), None
    for moment in moments:
        at_ns = moment.now.mono_ns
        if first_ns is None or isinstance(moment.event, t.Started):
            began_s, first_ns = clock(), at_ns
        wait_s = began_s + (at_ns - first_ns) / NS / speed - clock()
        if wait_s > 0:
            sleep(min(wait_s, SLEEP_MOST_S))
        yield moment


def lines_of(moment: Moment) -> Iterator[dict[str, Any]]:
    """What is worth a line: decisions, and what the controller said (`headgate/replayed/v1`)."""
    head = {"schema": "headgate/replayed/v1", "time": utc_iso(moment.now.wall_ns)}
    for instruction in moment.instructions:
        if isinstance(instruction, t.Say) and instruction.level != "debug":
            yield head | {"kind": "said", "level": instruction.level, "text": instruction.text}
        elif isinstance(instruction, t.Trace) and instruction.kind == "rates":
            yield head | {"kind": "rates", **instruction.data}
    for decision in decisions_of(moment.instructions):
        yield head | {
            "kind": "decision",
            **{key: decision[key] for key in ("epoch", "trigger", "action", "text")},
        }
