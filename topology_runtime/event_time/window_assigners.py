"""Which windows of event time a row belongs to. Pure.

A window is the half-open span [start, end) in whole microseconds since 1970 UTC; so times before 1970 and after 2100
are as exact as any. What a topology file says is a dict: `{"tumbling": {"size_s": 60}}`; `tumbling(60)` makes it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from headgate.topology_runtime.errors import InvalidInput
from headgate.topology_runtime.wording import did_you_mean, shown

MICROS = 1_000_000
DAY_S = 86_400.0
WINDOWS_MOST = 10_000  # that one row may belong to
Spec = dict[str, Any]


class Span(NamedTuple):
    """[start, end) in µs."""

    start: int
    end: int


class FixedWindows:
    """Tumbling and sliding: windows of one size, one begins every `every` µs.

    >>> FixedWindows(size_s=60, every_s=30).windows(45_000_000)
    [Span(start=0, end=60000000), Span(start=30000000, end=90000000)]
    """

    def __init__(self, size_s: float, every_s: float | None = None, offset_s: float = 0) -> None:
        self.size = micros("size_s", size_s)
        self.every = self.size if every_s is None else micros("every_s", every_s)
        self.offset = micros("offset_s", offset_s, least=None)
        if self.every > self.size:
            raise InvalidInput(
                f"windows every {every_s!r} s of {size_s!r} s leave rows between them out",
                hint="every_s: at most size_s",
            )
        if self.size > self.every * WINDOWS_MOST:
            raise InvalidInput(
                f"a row would be in {self.size // self.every:,} windows",
                cause=f"size_s {size_s!r}, every_s {every_s!r}; {WINDOWS_MOST:,} at most",
                hint="a larger every_s",
            )

    def windows(self, at: int) -> list[Span]:
        """Those that hold this time, the earliest first. Python's // rounds down, before 1970 as well."""
        last = at - (at - self.offset) % self.every
        if self.every == self.size:
            return [Span(last, last + self.size)]
        starts = range(last, at - self.size, -self.every)
        return [Span(start, start + self.size) for start in reversed(starts)]


class SessionWindows:
    """Rows with less than `gap` between them are one session: it begins with its first row and ends `gap` after its
    last. `longest`: one that would become longer is cut.

    >>> SessionWindows(gap_s=10).own(3_000_000)
    Span(start=3000000, end=13000000)
    """

    def __init__(self, gap_s: float, longest_s: float = DAY_S) -> None:
        self.gap = micros("gap_s", gap_s)
        self.longest = micros("longest_s", longest_s)
        if self.longest < self.gap:
            raise InvalidInput(
                f"sessions of at most {longest_s!r} s cannot end after a gap of {gap_s!r} s",
                hint="longest_s: at least gap_s",
            )

    def own(self, at: int) -> Span:
        """The session of a row that is alone."""
        return Span(at, at + self.gap)


class GlobalWindows:
    """One window for all time: it fires early, and when the input has ended."""


WindowKind = FixedWindows | SessionWindows | GlobalWindows


def tumbling(size_s: float, offset_s: float = 0) -> Spec:
    """Windows that follow each other. offset_s: they begin so long after whole sizes since 1970 UTC: a day of New York
    in winter is `tumbling(86_400, 5 * 3600)`.

    >>> tumbling(60)
    {'tumbling': {'size_s': 60}}
    """
    return _checked({"tumbling": {"size_s": size_s} | ({"offset_s": offset_s} if offset_s else {})})


def sliding(size_s: float, every_s: float, offset_s: float = 0) -> Spec:
    """Windows of `size_s`, a new one every `every_s`: each row is in size_s / every_s of them.

    >>> sliding(60, 10)
    {'sliding': {'size_s': 60, 'every_s': 10}}
    """
    given = {"size_s": size_s, "every_s": every_s} | ({"offset_s": offset_s} if offset_s else {})
    return _checked({"sliding": given})


def session(gap_s: float, longest_s: float = DAY_S) -> Spec:
    """Rows of a key with less than `gap_s` between them. One that would become longer than `longest_s` is cut there,
    and the metric `sessions_cut` counts it.

    >>> session(1800)
    {'session': {'gap_s': 1800, 'longest_s': 86400.0}}
    """
    return _checked({"session": {"gap_s": gap_s, "longest_s": longest_s}})


def global_window() -> Spec:
    """One window for all time; it needs `early`, or input that ends.

    >>> global_window()
    {'global': {}}
    """
    return {"global": {}}


def _checked(spec: Spec) -> Spec:
    windows_of(spec)
    return spec


def windows_of(spec: Any) -> WindowKind:
    """What a topology says of windows. InvalidInput says what is wrong."""
    kinds: dict[str, tuple[type[Any], tuple[str, ...], tuple[str, ...]]] = {
        "tumbling": (FixedWindows, ("size_s",), ("offset_s",)),
        "sliding": (FixedWindows, ("size_s", "every_s"), ("offset_s",)),
        "session": (SessionWindows, ("gap_s",), ("longest_s",)),
        "global": (GlobalWindows, (), ()),
    }
    name, given = named_spec("windows", spec, kinds)
    kind, needed, optional = kinds[name]
    made: WindowKind = kind(**checked_names(f"windows {name!r}", given, needed, optional))
    return made


def named_spec(what: str, spec: Any, known: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """(name, what is given for it) of `"name"` or `{"name": {…}}`."""
    if isinstance(spec, str):
        spec = {spec: {}}
    if not isinstance(spec, Mapping) or len(spec) != 1:
        raise InvalidInput(
            f"{what}: {shown(spec)} is not one of {', '.join(known)}",
            hint='for example {"tumbling": {"size_s": 60}}',
        )
    name, given = next(iter(spec.items()))
    if name not in known:
        near = did_you_mean(str(name), list(known)) or f"; there are {', '.join(known)}"
        raise InvalidInput(f"{what}: there is no {shown(name)}{near}")
    if given is None:
        given = {}
    if not isinstance(given, Mapping):
        raise InvalidInput(f"{what} {name!r}: {shown(given)} is no table of params")
    return name, dict(given)


def checked_names(
    what: str, given: Mapping[str, Any], needed: tuple[str, ...], optional: tuple[str, ...] = ()
) -> dict[str, Any]:
    """These params, all that are needed and none that is unknown."""
    for name in given:
        if name not in (*needed, *optional):
            near = did_you_mean(str(name), [*needed, *optional])
            raise InvalidInput(f"{what} takes no {shown(name)}{near}")
    for name in needed:
        if name not in given:
            raise InvalidInput(f"{what} needs {name}")
    return dict(given)


def micros(name: str, seconds: Any, *, least: int | None = 1) -> int:
    """Seconds as µs, at least so many. InvalidInput for what is no number, not finite, or less."""
    good = isinstance(seconds, int | float) and not isinstance(seconds, bool) and math.isfinite(seconds)
    found: int | None = round(seconds * MICROS) if good else None
    if found is None or (least is not None and found < least):
        asks = "a number of seconds" + (", above 0" if least == 1 else ", 0 or more" if least == 0 else "")
        raise InvalidInput(f"{name}: {shown(seconds)} is not {asks}")
    return found
