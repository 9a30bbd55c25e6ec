"""Aggregates of windows as plain values, which travel in topologies: `sum_of("price")` is `{"sum": {"of": "price"}}`.

of: what of a row: a field's name, a position, a function at the top of a module, or None: the row itself. None in rows
is passed over, as in SQL.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from headgate.topology_runtime.api.references import reference_of, resolve
from headgate.topology_runtime.event_time.aggregates import DISTINCT_ERROR, QUANTILE_ERROR, aggregate_of
from headgate.topology_runtime.event_time.window_assigners import Spec

Of = str | int | Callable[[Any], Any] | None


def count(of: Of = None) -> Spec:
    """How many rows; with `of`, how many that have a value there.

    >>> count()
    {'count': {}}
    """
    return _made("count", of)


def sum_of(of: Of = None) -> Spec:
    """The sum: of floats the exact one, rounded once. A sum of ints beyond 64 bits is refused, row by row.

    >>> sum_of("price")
    {'sum': {'of': 'price'}}
    """
    return _made("sum", of)


def mean_of(of: Of = None) -> Spec:
    """The sum by the count.

    >>> mean_of(1)
    {'mean': {'of': 1}}
    """
    return _made("mean", of)


def min_of(of: Of = None) -> Spec:
    """The least value.

    >>> min_of("price")
    {'min': {'of': 'price'}}
    """
    return _made("min", of)


def max_of(of: Of = None) -> Spec:
    """The greatest value.

    >>> max_of("price")
    {'max': {'of': 'price'}}
    """
    return _made("max", of)


def quantile(of: Of = None, at: float | Sequence[float] = 0.5, error: float = QUANTILE_ERROR) -> Spec:
    """The value below which this share lies (0.5: the median), or some of them; off by at most `error` of the value.

    >>> quantile("ms", [0.5, 0.99])
    {'quantile': {'of': 'ms', 'at': [0.5, 0.99], 'error': 0.01}}
    """
    return _made("quantile", of, at=at if isinstance(at, int | float) else list(at), error=error)


def distinct(of: Of = None, error: float = DISTINCT_ERROR) -> Spec:
    """How many different values: exact to 256, then with `error` as the standard error of the share.

    >>> distinct("user")
    {'distinct': {'of': 'user', 'error': 0.02}}
    """
    return _made("distinct", of, error=error)


def top(k: int, of: Of = None) -> Spec:
    """The `k` rows with the greatest values, the greatest first.

    >>> top(3, "price")
    {'top': {'of': 'price', 'k': 3}}
    """
    return _made("top", of, k=k)


def collect(of: Of = None) -> Spec:
    """All rows (or values) as a list, in the order in which they came: the window holds them all.

    >>> collect()
    {'collect': {}}
    """
    return _made("collect", of)


def reduce(function: Callable[[Any, Any], Any] | str) -> Spec:
    """function(a, b) → one row for two; in any order.

    >>> reduce("shop:dearer")
    {'reduce': {'function': 'shop:dearer'}}
    """
    return {"reduce": {"function": _reference(function)}}


def aggregate(
    init: Callable[[], Any] | str,
    add: Callable[[Any, Any], Any] | str,
    merge: Callable[[Any, Any], Any] | str,
    result: Callable[[Any], Any] | str | None = None,
) -> Spec:
    """Your own: init() → value, add(value, row) → value, merge(value, value) → value (of sessions), result(value) →
    what is given on. Values are plain and never changed in place.

    >>> aggregate("shop:nothing", "shop:add", "shop:merge")
    {'functions': {'init': 'shop:nothing', 'add': 'shop:add', 'merge': 'shop:merge'}}
    """
    named = {"init": _reference(init), "add": _reference(add), "merge": _reference(merge)}
    return {"functions": named | ({} if result is None else {"result": _reference(result)})}


def several(**named: Spec | str) -> Spec:
    """Some at once; the result is a dict of theirs.

    >>> several(bids=count(), highest=max_of("price"))
    {'several': {'bids': {'count': {}}, 'highest': {'max': {'of': 'price'}}}}
    """
    return _checked({"several": dict(named)})


def _made(name: str, of: Of, **params: Any) -> Spec:
    given: dict[str, Any] = {} if of is None else {"of": _reference(of) if callable(of) else of}
    spec = {name: given | params}
    return spec if callable(of) else _checked(spec)


def _checked(spec: Spec) -> Spec:
    """Refused now if it is wrong; functions that it names are looked up later."""
    aggregate_of(spec, lambda reference: resolve)
    return spec


def _reference(function: Callable[..., Any] | str) -> str:
    return function if isinstance(function, str) else reference_of(function)
