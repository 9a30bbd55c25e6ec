"""How long a plan has been in the making. Shells that have a clock hand it in; nothing here reads one. Pure.

A search is bounded by its steps, so that the same request gives the same plan on any machine. On a machine that is busy
with other things that may take long, so whoever waits hands in a clock, and the search ends in time with the best it
has. Where no clock is handed in, as in replays and simulations, steps alone count.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

Clock = Callable[[], float]  # seconds, of which only differences mean something


def _stopped() -> float:
    return 0.0


_clock: ContextVar[Clock] = ContextVar("clock", default=_stopped)
_most_s: ContextVar[float | None] = ContextVar("most_s", default=None)
_began_s: ContextVar[float] = ContextVar("began_s", default=0.0)


@contextmanager
def clocked(clock: Clock, most_s: float | None = None) -> Iterator[None]:
    """Somebody waits for the plans that are made within; so long for the search of one (left out: as is usual)."""
    before, allowed = _clock.set(clock), _most_s.set(most_s)
    try:
        with begun():
            yield
    finally:
        _clock.reset(before)
        _most_s.reset(allowed)


@contextmanager
def begun() -> Iterator[None]:
    """A plan is made from now on."""
    before = _began_s.set(now_s())
    try:
        yield
    finally:
        _began_s.reset(before)


def now_s() -> float:
    """By the clock that was handed in; 0 without any."""
    return _clock.get()()


def ends_s(usual_s: float) -> float:
    """What `waited_s` comes to when a search that begins now has to end; never, where nobody waits."""
    if _clock.get() is _stopped:
        return math.inf
    most_s = _most_s.get()
    return waited_s() + (usual_s if most_s is None else most_s)


def waited_s() -> float:
    """Seconds since the plan was started; 0 where nobody waits."""
    return now_s() - _began_s.get()
