"""What a window makes of its rows: one value that grows with each of them. Pure.

A window holds the value and not its rows, but for `collect`, `top` and `reduce`. Values merge, for sessions. Sums are
exact (Shewchuk's partial sums), so none of the built-in ones but `collect`, and those of the user's own functions,
depends on the order in which rows come. As in SQL, None is passed over by all that look at a value.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from itertools import repeat
from operator import itemgetter
from typing import Any

from headgate.topology_runtime.errors import InvalidInput
from headgate.topology_runtime.event_time.sketches import DistinctSketch, QuantileSketch, hashed, spelled
from headgate.topology_runtime.event_time.window_assigners import checked_names, named_spec
from headgate.topology_runtime.event_time.window_columns import (
    ColumnAt,
    RowGroups,
    compares,
    floats,
    partial_sums,
    whole_numbers,
)
from headgate.topology_runtime.wording import REFERENCE, shown

Find = Callable[[str], Any]  # the object of a reference
Getter = Callable[[Any], Any]
Place = str | int | None  # a field's name or a position; None: it is found by a function
INT_END = 1 << 63
FAR_FLOAT = 1e300  # below it, tens of thousands can be added
DEPTH_MOST = 8  # aggregates in aggregates


class WindowAggregate(ABC):
    """A value of rows. What a row has to give is asked for first (`part`), once for all its windows. A class that
    `changes` its values in place never raises in `add`; so a row that fails has changed nothing. sliced: does merging
    give what adding row by row does, and leave `other` as it is?"""

    changes = False
    sliced = False

    @abstractmethod
    def new(self) -> Any:
        """Of no rows."""

    def part(self, row: Any) -> Any:
        """What `add` needs of a row. Raises when the row has it not."""
        return row

    @abstractmethod
    def add(self, value: Any, part: Any) -> Any:
        """The value with one row more."""

    def folds(self, column_at: ColumnAt, groups: RowGroups) -> Sequence[Any] | None:
        """What `add_fold` needs of the rows of each of these groups; None: the rows are to be added one by one."""
        return None

    def takes_fold(self, value: Any, fold: Any, most: int) -> bool:
        """Is it sure that `add` and, with so many windows, `merges` would take each row of the group?"""
        return True

    def add_fold(self, value: Any, fold: Any) -> Any:
        """The value with all rows of the group more."""
        return self.merge(value, fold)

    @abstractmethod
    def merge(self, value: Any, other: Any) -> Any:
        """Of the rows of both; `other` is not used any more, but where it is `sliced`."""

    def merges(self, value: Any, part: Any, most: int) -> bool:
        """Of one that is sliced: is it sure that this value, with this part and after others of which this was true,
        merges with so many such values?"""
        return True

    def result(self, value: Any) -> Any:
        """What is given on: a plain value of its own, which does not change later."""
        return value

    def given(self, value: Any) -> Any:
        """The value after its result went on."""
        return value

    def save(self, value: Any) -> Any:
        """A plain value for it."""
        return value

    def restore(self, saved: Any) -> Any:
        return saved


class CountRows(WindowAggregate):
    """Rows, or with `of` those that have a value there."""

    sliced = True

    def __init__(self, of: Getter | None = None, place: Place = None) -> None:
        self._of, self._place = of, place

    def new(self) -> int:
        return 0

    def part(self, row: Any) -> int:
        return int(self._of is None or self._of(row) is not None)

    def folds(self, column_at: ColumnAt, groups: RowGroups) -> Sequence[int] | None:
        if self._of is None:
            return groups.sizes
        column = column_at(self._place)
        if column is None or column.dtype.kind != "O":
            return None if column is None else groups.sizes
        return [sum(one is not None for one in values) for values in groups.lists(column)]

    def add_fold(self, value: int, fold: int) -> int:
        return value + fold

    def add(self, value: int, part: int) -> int:
        return value + part

    def merge(self, value: int, other: int) -> int:
        return value + other


class ExactSum(WindowAggregate):
    """[count, sum of whole numbers and decimals, partial sums of floats]; None of no values. `mean`: the sum by the
    count."""

    sliced = True

    def __init__(self, of: Getter, mean: bool = False, place: Place = None) -> None:
        self._of, self._mean, self._place = of, mean, place

    def new(self) -> list[Any]:
        return [0, 0, []]

    def part(self, row: Any) -> Any:
        return numeric(self._of(row))

    def add(self, value: list[Any], part: Any) -> list[Any]:
        if part is None:
            return value
        if isinstance(part, float):
            return self._of_one_kind([value[0] + 1, value[1], added(value[2], part)])
        return self._of_one_kind([value[0] + 1, value[1] + part, value[2]])

    def _of_one_kind(self, value: list[Any]) -> list[Any]:
        if value[2] and isinstance(value[1], Decimal):
            raise TypeError("a sum of Decimal and float: let all be of one kind")
        if isinstance(value[1], int) and not -INT_END <= value[1] < INT_END:
            raise OverflowError("a sum of whole numbers is beyond 64 bits")
        return value

    def folds(self, column_at: ColumnAt, groups: RowGroups) -> Sequence[Any] | None:
        """(rows, their sum, floats, a bound of what they come to)."""
        column = column_at(self._place)
        if (whole := whole_numbers(column)) is not None:
            return list(zip(groups.sizes, groups.sums(column), repeat(None), repeat(whole)))
        if (bound := floats(column)) is not None:
            return list(zip(groups.sizes, repeat(0), groups.lists(column), repeat(bound)))
        return None

    def takes_fold(self, value: list[Any], fold: Any, most: int) -> bool:
        _, whole, partials = value
        if type(whole) is not int:
            return False
        if fold[2] is None:
            return abs(whole) + int(fold[3]) < INT_END // (4 * most)
        return bool(fold[3] + (2 * abs(partials[-1]) if partials else 0.0) < FAR_FLOAT)

    def add_fold(self, value: list[Any], fold: Any) -> list[Any]:
        count, whole, numbers, _ = fold
        partials = value[2] if numbers is None else partial_sums(value[2], numbers)
        return [value[0] + count, value[1] + whole, partials]

    def merge(self, value: list[Any], other: list[Any]) -> list[Any]:
        partials = value[2]
        for one in other[2]:
            partials = added(partials, one)
        return self._of_one_kind([value[0] + other[0], value[1] + other[1], partials])

    def merges(self, value: list[Any], part: Any, most: int) -> bool:
        """Whole numbers far from 64 bits, and floats far from the greatest."""
        if type(part) is int:
            far = INT_END // (4 * most)
            return -far < part < far and -far < value[1] < far
        return part is None or (type(part) is float and abs(part) < FAR_FLOAT and _is_small(value[2]))

    def result(self, value: list[Any]) -> Any:
        count, whole, partials = value
        if not count:
            return None
        total = math.fsum([*partials, whole]) if partials else whole
        return total / count if self._mean else total


class Extreme(WindowAggregate):
    """The least or the greatest value; None of none."""

    sliced = True

    def __init__(self, of: Getter, greatest: bool, place: Place = None) -> None:
        self._of, self._greatest, self._place = of, greatest, place

    def new(self) -> Any:
        return None

    def part(self, row: Any) -> Any:
        return ordered(self._of(row))

    def add(self, value: Any, part: Any) -> Any:
        return self.merge(value, part)

    def folds(self, column_at: ColumnAt, groups: RowGroups) -> Sequence[Any] | None:
        column = column_at(self._place)
        return groups.least(column, self._greatest) if compares(column) else None

    def takes_fold(self, value: Any, fold: Any, most: int) -> bool:
        return value is None or type(value) in (int, float)

    def merge(self, value: Any, other: Any) -> Any:
        if value is None or other is None:
            return other if value is None else value
        return other if (other > value if self._greatest else other < value) else value

    def merges(self, value: Any, part: Any, most: int) -> bool:
        """Numbers compare with each other."""
        return part is None or type(part) in (int, float)


class Quantiles(WindowAggregate):
    """The values at these shares: one, or a list of them."""

    changes = True

    def __init__(self, of: Getter, at: Any, error: float) -> None:
        shares = at if isinstance(at, list | tuple) else [at]
        if not shares or not all(_is_number(share) and 0 <= share <= 1 for share in shares):
            raise InvalidInput(f"quantile: {shown(at)} is not a share from 0 to 1, or a list of them")
        if not _is_number(error) or not 0.0001 <= error <= 0.5:
            raise InvalidInput(f"quantile: error {shown(error)} is not from 0.0001 to 0.5")
        self._of, self._at, self._error, self._shares = of, at, error, shares

    def new(self) -> QuantileSketch:
        return QuantileSketch(self._error)

    def part(self, row: Any) -> float | None:
        number = numeric(self._of(row))
        return None if number is None else float(number)

    def add(self, value: QuantileSketch, part: float | None) -> QuantileSketch:
        if part is not None:
            value.add(part)
        return value

    def merge(self, value: QuantileSketch, other: QuantileSketch) -> QuantileSketch:
        value.merge(other)
        return value

    def result(self, value: QuantileSketch) -> Any:
        found = [value.quantile(share) for share in self._shares]
        return found if isinstance(self._at, list | tuple) else found[0]

    def save(self, value: QuantileSketch) -> Any:
        return value.saved()

    def restore(self, saved: Any) -> QuantileSketch:
        return self.new().restored(saved)


class Distinct(WindowAggregate):
    """How many different values."""

    changes = sliced = True

    def __init__(self, of: Getter, error: float) -> None:
        if not _is_number(error) or not 0.004 <= error <= 0.26:
            raise InvalidInput(f"distinct: error {shown(error)} is not from 0.004 to 0.26")
        self._of, self._bits = of, max(4, math.ceil(2 * math.log2(1.04 / error)))

    def new(self) -> DistinctSketch:
        return DistinctSketch(self._bits)

    def part(self, row: Any) -> int | None:
        found = self._of(row)
        return None if found is None else hashed(found)

    def add(self, value: DistinctSketch, part: int | None) -> DistinctSketch:
        if part is not None:
            value.add(part)
        return value

    def merge(self, value: DistinctSketch, other: DistinctSketch) -> DistinctSketch:
        value.merge(other)
        return value

    def result(self, value: DistinctSketch) -> int:
        return value.count()

    def save(self, value: DistinctSketch) -> Any:
        return value.saved()

    def restore(self, saved: Any) -> DistinctSketch:
        return self.new().restored(saved)


class TopRows(WindowAggregate):
    """The `k` rows with the greatest values, the greatest first; of equal ones those whose text comes first."""

    def __init__(self, of: Getter, k: int) -> None:
        if isinstance(k, bool) or not isinstance(k, int) or not 1 <= k <= 10_000:
            raise InvalidInput(f"top: k {shown(k)} is not a number from 1 to 10,000")
        self._of, self._k = of, k

    def new(self) -> list[Any]:
        return []

    def part(self, row: Any) -> list[Any]:
        return [ordered(self._of(row)), row]

    def add(self, value: list[Any], part: list[Any]) -> list[Any]:
        if part[0] is None or (len(value) == self._k and part[0] < value[-1][0]):
            return value
        return self._best([*value, part])

    def _best(self, every: list[Any]) -> list[Any]:
        every = sorted(every, key=lambda one: spelled(one[1]))
        return sorted(every, key=itemgetter(0), reverse=True)[: self._k]

    def merge(self, value: list[Any], other: list[Any]) -> list[Any]:
        return self._best([*value, *other])

    def result(self, value: list[Any]) -> list[Any]:
        return [row for _, row in value]


class CollectRows(WindowAggregate):
    """All rows, in the order in which they came."""

    changes = True

    def __init__(self, of: Getter | None = None) -> None:
        self._of = of

    def new(self) -> list[Any]:
        return []

    def part(self, row: Any) -> Any:
        return row if self._of is None else self._of(row)

    def add(self, value: list[Any], part: Any) -> list[Any]:
        value.append(part)
        return value

    def merge(self, value: list[Any], other: list[Any]) -> list[Any]:
        return [*value, *other]

    def result(self, value: list[Any]) -> list[Any]:
        return list(value)

    def save(self, value: list[Any]) -> list[Any]:
        return list(value)

    def restore(self, saved: Any) -> list[Any]:
        return list(saved)


class Reduced(WindowAggregate):
    """function(a, b) → one row of two; [] before the first."""

    def __init__(self, function: Callable[[Any, Any], Any]) -> None:
        self._function = function

    def new(self) -> list[Any]:
        return []

    def add(self, value: list[Any], part: Any) -> list[Any]:
        return [self._function(value[0], part)] if value else [part]

    def merge(self, value: list[Any], other: list[Any]) -> list[Any]:
        return self.add(value, other[0]) if other else value

    def result(self, value: list[Any]) -> Any:
        return value[0] if value else None


class OfFunctions(WindowAggregate):
    """The user's own: init() → value, add(value, row) → value, merge(value, value) → value, result(value) → row."""

    def __init__(
        self,
        init: Callable[[], Any],
        add: Callable[[Any, Any], Any],
        merge: Callable[[Any, Any], Any],
        result: Callable[[Any], Any] | None,
    ) -> None:
        self._init, self._add, self._merge, self._result = init, add, merge, result

    def new(self) -> Any:
        return self._init()

    def add(self, value: Any, part: Any) -> Any:
        return self._add(value, part)

    def merge(self, value: Any, other: Any) -> Any:
        return self._merge(value, other)

    def result(self, value: Any) -> Any:
        return value if self._result is None else self._result(value)


class Several(WindowAggregate):
    """Some at once, by name: {"bids": …, "highest": …}. Those that may raise come first."""

    def __init__(self, named: dict[str, WindowAggregate]) -> None:
        self._named = dict(sorted(named.items(), key=lambda one: one[1].changes))
        self._all = list(self._named.values())
        self._adds, self._parts = [one.add for one in self._all], [one.part for one in self._all]
        self._folds = [one.add_fold for one in self._all]
        self.sliced = all(one.sliced for one in self._all)
        self._unsure = [
            (number, one.merges)
            for number, one in enumerate(self._all)
            if type(one).merges is not WindowAggregate.merges
        ]
        self._unsure_folds = [
            (number, one.takes_fold)
            for number, one in enumerate(self._all)
            if type(one).takes_fold is not WindowAggregate.takes_fold
        ]
        self._order = list(named)

    def new(self) -> list[Any]:
        return [one.new() for one in self._all]

    def part(self, row: Any) -> list[Any]:
        return [part(row) for part in self._parts]

    def add(self, value: list[Any], part: list[Any]) -> list[Any]:
        return [add(old, new) for add, old, new in zip(self._adds, value, part, strict=True)]

    def folds(self, column_at: ColumnAt, groups: RowGroups) -> Sequence[Any] | None:
        found = [one.folds(column_at, groups) for one in self._all]
        if any(one is None for one in found):
            return None
        return list(zip(*(one for one in found if one is not None), strict=True))

    def takes_fold(self, value: list[Any], fold: Any, most: int) -> bool:
        return all(takes(value[number], fold[number], most) for number, takes in self._unsure_folds)

    def add_fold(self, value: list[Any], fold: Any) -> list[Any]:
        return [add(part, of_group) for add, part, of_group in zip(self._folds, value, fold, strict=True)]

    def merge(self, value: list[Any], other: list[Any]) -> list[Any]:
        return [one.merge(*parts) for one, *parts in zip(self._all, value, other, strict=True)]

    def merges(self, value: list[Any], part: list[Any], most: int) -> bool:
        return all(merges(value[number], part[number], most) for number, merges in self._unsure)

    def result(self, value: list[Any]) -> dict[str, Any]:
        results = {
            name: one.result(part) for (name, one), part in zip(self._named.items(), value, strict=True)
        }
        return {name: results[name] for name in self._order}

    def save(self, value: list[Any]) -> list[Any]:
        return [one.save(part) for one, part in zip(self._all, value, strict=True)]

    def restore(self, saved: list[Any]) -> list[Any]:
        return [one.restore(part) for one, part in zip(self._all, saved, strict=True)]


# ── numbers ─────────────────────────────────────────────────────────────────────────────────────


def numeric(value: Any) -> Any:
    """It, if it is a finite number, or None. Raises ValueError for one that is not: the row becomes a dead letter."""
    if value is None:
        return None
    if not isinstance(value, int | float | Decimal) or not math.isfinite(value):
        raise ValueError(f"{shown(value)} is not a finite number")
    return value


def ordered(value: Any) -> Any:
    """It, to be compared; NaN and infinity are refused."""
    return numeric(value) if isinstance(value, float | Decimal) else value


def added(partials: list[float], number: float) -> list[float]:
    """Partial sums whose exact sum is that of all numbers so far (J. R. Shewchuk, 1997); a new list."""
    kept: list[float] = []
    for one in partials:
        if abs(number) < abs(one):
            number, one = one, number
        high = number + one
        low = one - (high - number)
        if low:
            kept.append(low)
        number = high
    if not math.isfinite(number):
        raise ValueError("a sum is too great for a float")
    kept.append(number)
    return kept


def _is_small(partials: list[float]) -> bool:
    """The last one is the greatest."""
    return not partials or abs(partials[-1]) < FAR_FLOAT


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


# ── from what a topology says ───────────────────────────────────────────────────────────────────

# name → (params that are needed, those that may be left out)
KNOWN: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "count": ((), ("of",)),
    "sum": ((), ("of",)),
    "mean": ((), ("of",)),
    "min": ((), ("of",)),
    "max": ((), ("of",)),
    "quantile": (("at",), ("of", "error")),
    "distinct": ((), ("of", "error")),
    "top": (("k",), ("of",)),
    "collect": ((), ("of",)),
    "reduce": (("function",), ()),
    "functions": (("init", "add", "merge"), ("result",)),
}
SEVERAL = "several"
QUANTILE_ERROR, DISTINCT_ERROR = 0.01, 0.02


def aggregate_of(spec: Any, find: Find, depth: int = 0) -> WindowAggregate:
    """What a topology says of an aggregate: `"count"`, `{"sum": {"of": "price"}}`. InvalidInput says what is wrong."""
    name, given = named_spec("aggregate", spec, {**KNOWN, SEVERAL: ()})
    if name == SEVERAL:
        if not given or depth == DEPTH_MOST:
            raise InvalidInput("aggregate 'several' needs at least one, and no more than 8 within each other")
        return Several({part: aggregate_of(one, find, depth + 1) for part, one in given.items()})
    checked_names(f"aggregate {name!r}", given, *KNOWN[name])
    if name == "reduce":
        return Reduced(_function(given["function"], find))
    if name == "functions":
        result = given.get("result")
        init, add, merge = (_function(given[part], find) for part in ("init", "add", "merge"))
        return OfFunctions(init, add, merge, None if result is None else _function(result, find))
    of = value_of(given["of"], find) if given.get("of") is not None else None
    if name == "count":
        return CountRows(of, place_of(of, given))
    if name == "collect":
        return CollectRows(of)
    return _valued(name, itself if of is None else of, given)


def _valued(name: str, of: Getter, given: dict[str, Any]) -> WindowAggregate:
    if name == "quantile":
        return Quantiles(of, given["at"], given.get("error", QUANTILE_ERROR))
    if name == "distinct":
        return Distinct(of, given.get("error", DISTINCT_ERROR))
    if name == "top":
        return TopRows(of, given["k"])
    if name in ("min", "max"):
        return Extreme(of, name == "max", place_of(of, given))
    return ExactSum(of, name == "mean", place_of(of, given))


def place_of(of: Getter | None, given: Mapping[str, Any]) -> Place:
    """Where a row has what `of` looks at."""
    return given["of"] if type(of) is itemgetter else None


def itself(row: Any) -> Any:
    return row


def value_of(of: Any, find: Find) -> Getter:
    """row → value: a field's name, a position, or `module:function`; as the keys of edges."""
    if isinstance(of, str) and REFERENCE.fullmatch(of):
        return _function(of, find)
    if isinstance(of, bool) or not isinstance(of, str | int):
        raise InvalidInput(f"of: {shown(of)} is no field's name, position or module:function")
    return itemgetter(of)


def _function(reference: Any, find: Find) -> Callable[..., Any]:
    found = find(reference) if isinstance(reference, str) else reference
    if not callable(found):
        raise InvalidInput(f"{shown(reference)} is no function")
    function: Callable[..., Any] = found
    return function
