"""The events of Nexmark's auctions: persons, auctions and bids, 1 : 3 : 46, made by their number, so that any part of
them can be made again. Written from the published description of the benchmark (Beam's documentation, "Nexmark
benchmark suite"). Needs numpy and nothing of headgate: other systems read the same events.

Event n comes n / rate seconds after BASE_MS. Of each 50 events the first is a person, three are auctions, 46 bids. Half
of the bids go to one hot auction in a hundred, three quarters are made by a hot bidder, three quarters of the auctions
are opened by a hot seller. Prices are cents, spread evenly by their logarithm.

>>> Auctions(events=50).rows(("person",), 0, 1)[0]["date_time"] == BASE_MS
True
>>> Auctions(events=1000).count(("auction", "bid"))
980
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

Columns = dict[str, np.ndarray[Any, Any]]
Kinds = Sequence[str]
OFFSETS = {"person": range(1), "auction": range(1, 4), "bid": range(4, 50)}  # of each 50 events
KINDS, EPOCH = tuple(OFFSETS), 50
BASE_MS = 1_436_918_400_000  # 2015-07-15T00:00:00Z
FIRST_ID, FIRST_CATEGORY, CATEGORIES = 1000, 10, 5
ACTIVE_PEOPLE, OPEN_AUCTIONS, HOT_EVERY = 1000, 100, 100
STATES = ("AZ", "CA", "ID", "OR", "WA", "WY")
CITIES = (
    "Phoenix",
    "Los Angeles",
    "San Francisco",
    "Boise",
    "Portland",
    "Bend",
    "Redmond",
    "Seattle",
    "Kent",
)
CHANNELS = ("Google", "Facebook", "Baidu", "Apple")
OTHER_CHANNELS, POOL = 10_000, 1024


def _texts(values: Sequence[str]) -> np.ndarray[Any, Any]:
    found = np.empty(len(values), dtype=object)
    found[:] = values
    return found


def _code(number: int, length: int) -> str:
    """Letters that look like chance."""
    letters = []
    for _ in range(length):
        number = (number * 6_364_136_223_846_793_005 + 1_442_695_040_888_963_407) % 2**64
        letters.append(chr(97 + (number >> 33) % 26))
    return "".join(letters)


PRICES = np.round(10 ** (np.arange(65536) / 65536 * 6) * 100).astype(np.int64)
CHANNEL_NAMES = _texts([*CHANNELS, *(f"channel-{n}" for n in range(OTHER_CHANNELS))])
URLS = _texts([f"https://auctions.example/{_code(n, 12)}/item.htm?query=1" for n in range(POOL)])
NAMES = _texts([f"{_code(n, 6).title()} {_code(n + POOL, 8).title()}" for n in range(POOL)])
EMAILS = _texts([f"{_code(n, 7)}@{_code(n + POOL, 5)}.example" for n in range(POOL)])
CARDS = _texts([" ".join(f"{(n * 7919 + k * 104_729) % 10_000:04d}" for k in range(4)) for n in range(POOL)])
ITEMS = _texts([_code(n, 10) for n in range(POOL)])
DESCRIPTIONS = _texts([_code(n, 100) for n in range(POOL)])
CITY_NAMES, STATE_NAMES = _texts(CITIES), _texts(STATES)
EXTRAS = {  # about 200, 500 and 100 bytes an event
    kind: _texts([_code(n + at * POOL, size) for n in range(POOL)])
    for at, (kind, size) in enumerate({"person": 100, "auction": 300, "bid": 20}.items())
}


@dataclass(frozen=True)
class Auctions:
    """events: how many in all; rate: of events a second, in event time; disorder: within groups of so many rows they
    come in another order (1: as they happened); hot_…: the share that goes to hot ones. Raises ValueError."""

    events: int
    rate: float = 10_000.0
    disorder: int = 1
    seed: int = 0
    hot_auctions: float = 0.5
    hot_bidders: float = 0.75
    hot_sellers: float = 0.75

    def __post_init__(self) -> None:
        shares = (self.hot_auctions, self.hot_bidders, self.hot_sellers)
        if self.events < 0 or self.disorder < 1 or not 0 < self.rate < float("inf"):
            raise ValueError("events: 0 or more; disorder: 1 or more; rate: above 0")
        if not all(0 <= share <= 1 for share in shares):
            raise ValueError(f"shares of hot ones lie between 0 and 1, and these are {shares}")

    def count(self, kinds: Kinds) -> int:
        """How many events of these kinds there are."""
        offsets = _offsets(kinds)
        whole, rest = divmod(self.events, EPOCH)
        return whole * len(offsets) + int(np.searchsorted(offsets, rest))

    def lateness_s(self, kinds: Kinds) -> float:
        """A row comes at most so many seconds of event time after a newer one."""
        if self.disorder == 1:
            return 0.0
        epochs = -(-self.disorder // len(_offsets(kinds))) + 1
        return epochs * EPOCH / self.rate + 0.001

    def numbers(self, kinds: Kinds, first: int, rows: int, step: int = 1) -> np.ndarray[Any, Any]:
        """Event numbers of the rows at positions first, first + step, … among the events of these kinds."""
        there = self.count(kinds)
        at = np.arange(first, min(there, first + rows * step), step, dtype=np.int64)
        if self.disorder > 1:
            at = self._shuffled(at, there)
        epoch, place = np.divmod(at, len(offsets := _offsets(kinds)))
        return epoch * EPOCH + offsets[place]  # type: ignore[no-any-return]

    def _shuffled(self, at: np.ndarray[Any, Any], there: int) -> np.ndarray[Any, Any]:
        """Each whole group of rows in an order of its own; the last one, if it is not whole, stays."""
        size = self.disorder
        stride = next(n for n in range(size * 5 // 8 + 1, 2 * size + 2) if np.gcd(n, size) == 1)
        group, place = np.divmod(at, size)
        turn = (self._chance(group, 9) % np.uint64(size)).astype(np.int64)
        return np.where((group + 1) * size <= there, group * size + (place * stride + turn) % size, at)

    def _chance(self, numbers: np.ndarray[Any, Any], field: int) -> np.ndarray[Any, Any]:
        """64 bits for each number (splitmix64)."""
        with np.errstate(over="ignore"):
            seed = np.uint64(((self.seed * 16 + field) * 0xD1342543DE82EF95 + 0x9E3779B97F4A7C15) % 2**64)
            x = numbers.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + seed
            x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            return x ^ (x >> np.uint64(31))

    def _times(self, numbers: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return BASE_MS + (numbers * (1000.0 / self.rate)).astype(np.int64)

    @cached_property
    def _open_ms(self) -> int:
        """An auction is open so long on average: about 100 are at any time."""
        return max(1, int(OPEN_AUCTIONS * EPOCH / 3 / self.rate * 1000))

    def columns(self, kind: str, first: int, rows: int, step: int = 1) -> Columns:
        """Events of one kind as columns: numbers as int64, texts as objects; fewer at the end, then none."""
        numbers = self.numbers((kind,), first, rows, step)
        return self._made(kind, numbers)

    def rows(self, kinds: Kinds, first: int, rows: int, step: int = 1) -> list[dict[str, Any]]:
        """Events as dicts; of several kinds each has its `kind`."""
        numbers = self.numbers(kinds, first, rows, step)
        if len(kinds) == 1:
            return _dicts(self._made(kinds[0], numbers))
        place, found = numbers % EPOCH, np.empty(len(numbers), dtype=object)
        for kind in kinds:
            here = (place >= OFFSETS[kind].start) & (place < OFFSETS[kind].stop)
            made = [{"kind": kind, **row} for row in _dicts(self._made(kind, numbers[here]))]
            found[np.flatnonzero(here)] = _texts(made)  # type: ignore[arg-type]
        return list(found)

    def _made(self, kind: str, numbers: np.ndarray[Any, Any]) -> Columns:
        return {"person": self._persons, "auction": self._auctions, "bid": self._bids}[kind](numbers)

    def _persons(self, numbers: np.ndarray[Any, Any]) -> Columns:
        bits, more = self._chance(numbers, 0), self._chance(numbers, 1)
        name = _part(bits, 0, POOL)
        return {
            "id": FIRST_ID + numbers // EPOCH,
            "name": NAMES[name],
            "email": EMAILS[name],
            "credit_card": CARDS[_part(bits, 16, POOL)],
            "city": CITY_NAMES[_part(bits, 32, len(CITIES))],
            "state": STATE_NAMES[_part(bits, 48, len(STATES))],
            "date_time": self._times(numbers),
            "extra": EXTRAS["person"][_part(more, 0, POOL)],
        }

    def _auctions(self, numbers: np.ndarray[Any, Any]) -> Columns:
        bits, more, rest = (self._chance(numbers, field) for field in (2, 3, 4))
        times, initial = self._times(numbers), PRICES[_part(more, 0, 65536)]
        return {
            "id": FIRST_ID + numbers // EPOCH * 3 + numbers % EPOCH - 1,
            "item": ITEMS[_part(bits, 0, POOL)],
            "description": DESCRIPTIONS[_part(bits, 16, POOL)],
            "initial_bid": initial,
            "reserve": initial + PRICES[_part(more, 16, 65536)],
            "date_time": times,
            "expires": times + 1 + _part(more, 32, 2 * self._open_ms),
            "seller": self._people(numbers, bits, 32, self.hot_sellers, 0),
            "category": FIRST_CATEGORY + _part(more, 48, CATEGORIES),
            "extra": EXTRAS["auction"][_part(rest, 0, POOL)],
        }

    def _bids(self, numbers: np.ndarray[Any, Any]) -> Columns:
        bits, more, rest = (self._chance(numbers, field) for field in (5, 6, 7))
        newest = numbers // EPOCH * 3 + 2  # of the auctions that there are
        oldest = np.maximum(newest - OPEN_AUCTIONS, 0)
        auction = oldest + _part(bits, 16, newest - oldest + 1)
        hot = _part(bits, 0, 65536) < self.hot_auctions * 65536
        other = len(CHANNELS) + _part(more, 32, OTHER_CHANNELS)
        channel = np.where(_part(more, 48, 2) == 0, _part(rest, 16, len(CHANNELS)), other)
        return {
            "auction": FIRST_ID + np.where(hot, newest // HOT_EVERY * HOT_EVERY, auction),
            "bidder": self._people(numbers, bits, 32, self.hot_bidders, 1),
            "price": PRICES[_part(more, 0, 65536)],
            "channel": CHANNEL_NAMES[channel],
            "url": URLS[_part(more, 16, POOL)],
            "date_time": self._times(numbers),
            "extra": EXTRAS["bid"][_part(rest, 0, POOL)],
        }

    def _people(
        self, numbers: np.ndarray[Any, Any], bits: np.ndarray[Any, Any], at: int, share: float, above: int
    ) -> np.ndarray[Any, Any]:
        """Each a person that there is: a hot one, or one of the newest."""
        newest = numbers // EPOCH
        oldest = np.maximum(newest - ACTIVE_PEOPLE + 1, 0)
        other = oldest + _part(bits, at, newest - oldest + 1)
        hot = np.minimum(newest // HOT_EVERY * HOT_EVERY + above, newest)
        return FIRST_ID + np.where(_part(bits, at + 16, 4096) < share * 4096, hot, other)


def _part(bits: np.ndarray[Any, Any], at: int, of: Any) -> np.ndarray[Any, Any]:
    """16 of the bits, from this one on, as a number below `of` (at most 65,536)."""
    some = ((bits >> np.uint64(at)) & np.uint64(0xFFFF)).astype(np.int64)
    return some * of >> 16  # type: ignore[no-any-return]


def _offsets(kinds: Kinds) -> np.ndarray[Any, Any]:
    if not kinds or not set(kinds) <= set(KINDS):
        raise ValueError(f"kinds are some of {', '.join(KINDS)}, and these are {kinds!r}")
    return np.array(sorted(n for kind in set(kinds) for n in OFFSETS[kind]), dtype=np.int64)


def _dicts(columns: Columns) -> list[dict[str, Any]]:
    names = tuple(columns)
    return [
        dict(zip(names, row, strict=True))
        for row in zip(*(column.tolist() for column in columns.values()), strict=True)
    ]
