"""A task's own figures: `context.metrics.counter("hits")`, `.gauge("cached")`, `.histogram("size")`.

Each belongs to one thread, which adds to it without a lock; somebody else takes what is new. Pure.
"""

from __future__ import annotations

import math
import re
from typing import Literal, NamedTuple, TypeVar

from headgate.topology_runtime.errors import InvalidInput

NAME = re.compile(r"[a-zA-Z][a-zA-Z0-9_]{0,63}")
NAMES_MOST = 32  # of a task
BUCKETS, ZERO = (
    128,
    64,
)  # two for each doubling: bucket b ends at 2^((b − ZERO) / 2); what is not above 0 is in the first
Kind = Literal["counter", "gauge", "histogram"]


class Taken(NamedTuple):
    """What is new: of a counter what was added, of a gauge its value, of a histogram the sum, how many, and
    (bucket, how many) of those that were observed."""

    kind: Kind
    value: float
    times: int = 0
    buckets: tuple[tuple[int, int], ...] = ()


class UserCounter:
    """Counts up.

    >>> hits = UserCounter()
    >>> hits.add()
    >>> hits.add(2)
    >>> hits.value
    3
    """

    def __init__(self) -> None:
        self.value: float = 0
        self._told: float | None = None

    def add(self, amount: float = 1) -> None:
        if not amount >= 0:
            raise ValueError(f"a counter counts up: {amount!r} cannot be added")
        self.value += amount

    def take(self) -> Taken | None:
        """What was added since it was taken last; a counter that is there is told of once at least."""
        value, told = self.value, self._told
        if value == told or not math.isfinite(value):
            return None
        self._told = value
        return Taken("counter", float(value - (told or 0)))


class UserGauge:
    """Is as it was set last.

    >>> cached = UserGauge()
    >>> cached.set(7)
    >>> cached.value
    7
    """

    def __init__(self) -> None:
        self.value: float | None = None

    def set(self, value: float) -> None:
        self.value = value

    def take(self) -> Taken | None:
        value = self.value
        return Taken("gauge", float(value)) if value is not None and math.isfinite(value) else None


class UserHistogram:
    """How values are spread, to a factor of 1.4.

    >>> size = UserHistogram()
    >>> for bytes in (10, 12, 800):
    ...     size.observe(bytes)
    >>> size.count
    3
    """

    def __init__(self) -> None:
        self.count, self.sum = 0, 0.0
        self._buckets, self._told = [0] * BUCKETS, [0] * BUCKETS
        self._told_sum = 0.0

    def observe(self, value: float) -> None:
        """One that is no number, or infinite, is passed over."""
        if value - value == 0:
            self._buckets[bucket_of(value)] += 1
            self.sum += value
            self.count += 1

    def take(self) -> Taken | None:
        now, total = list(self._buckets), self.sum
        new = tuple((at, more) for at, more in enumerate(map(int.__sub__, now, self._told)) if more)
        if not new or not math.isfinite(total):
            return None
        added, self._told, self._told_sum = total - self._told_sum, now, total
        return Taken("histogram", added, sum(more for _, more in new), new)


def bucket_of(value: float) -> int:
    if value <= 0:
        return 0
    mantissa, exponent = math.frexp(value)  # value = mantissa · 2^exponent, mantissa in [0.5, 1)
    bucket = ZERO + 2 * exponent - (mantissa <= 0.5**0.5) - (mantissa == 0.5)
    return 1 if bucket < 1 else min(bucket, BUCKETS - 1)


def bound_of(bucket: int) -> float:
    """The highest value that is in it."""
    return float(2.0 ** ((bucket - ZERO) / 2)) if bucket else 0.0


def percentile(buckets: dict[int, int], share: float) -> float | None:
    """The bound below which so large a share of the values lies; None without any."""
    left = share * sum(buckets.values())
    for bucket in sorted(buckets):
        left -= buckets[bucket]
        if left <= 1e-9:
            return bound_of(bucket)
    return None


Metric = UserCounter | UserGauge | UserHistogram
M = TypeVar("M", UserCounter, UserGauge, UserHistogram)


class UserMetrics:
    """Those of one thread of a task, by name. A name means one thing: asked for again it is the same object. Raises
    InvalidInput for a name that cannot be, or one too many."""

    def __init__(self) -> None:
        self.named: dict[str, Metric] = {}

    def counter(self, name: str) -> UserCounter:
        """It counts up: rows of a kind, hits of a cache."""
        return self._of(name, UserCounter)

    def gauge(self, name: str) -> UserGauge:
        """It goes up and down: entries of a cache, open connections."""
        return self._of(name, UserGauge)

    def histogram(self, name: str) -> UserHistogram:
        """How values are spread: sizes, times."""
        return self._of(name, UserHistogram)

    def _of(self, name: str, kind: type[M]) -> M:
        found = self.named.get(name) if isinstance(name, str) else None
        if found is None:
            found = self._new(name, kind)
        if not isinstance(found, kind):
            was, asked = (one.__name__.removeprefix("User").lower() for one in (type(found), kind))
            raise InvalidInput(
                f"metric {name!r} is a {was}, not a {asked}", hint="give each metric a name of its own"
            )
        return found

    def _new(self, name: str, kind: type[M]) -> M:
        if not isinstance(name, str) or not NAME.fullmatch(name):
            raise InvalidInput(
                f"invalid metric name {name!r:.80}",
                cause="names are a letter, then letters, digits and _, 64 characters at most",
                hint="for example cache_hits",
            )
        if len(self.named) == NAMES_MOST:
            raise InvalidInput(
                f"too many metrics: {name!r} would be number {NAMES_MOST + 1}",
                cause=f"a task has at most {NAMES_MOST}",
                hint="no names made of what is in rows",
            )
        self.named[name] = found = kind()
        return found

    def take(self) -> list[tuple[str, Taken]]:
        """What is new of each; by one thread, whichever."""
        return [(name, taken) for name, one in list(self.named.items()) if (taken := one.take()) is not None]
