"""Values to send: rows of every plain kind, and any message a type allows."""

from __future__ import annotations

import functools
import types
import typing
from datetime import UTC, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
from hypothesis import strategies as st

INT64 = st.integers(-(2**63), 2**63 - 1)


# ── rows ────────────────────────────────────────────────────────────────────────────────────────────

scalars = st.none() | st.booleans() | INT64 | st.floats(allow_nan=False) | st.text() | st.binary()
offsets = st.integers(-82_800, 82_800).map(lambda seconds: timezone(timedelta(seconds=seconds)))
moments = st.datetimes() | st.datetimes(timezones=st.just(UTC)) | st.datetimes(timezones=offsets)
exact = st.decimals(allow_nan=False) | st.dates() | st.times() | st.timedeltas() | st.uuids()
values = st.recursive(
    scalars | moments | exact,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(st.text(max_size=5), inner, max_size=4)
        | st.dictionaries(scalars | exact, inner, max_size=3)
        | st.sets(scalars | exact, max_size=3)
        | st.frozensets(scalars | exact, max_size=3)
    ),
    max_leaves=12,
)
flat_tuples = st.lists(scalars, max_size=5).map(tuple)
flat_dicts = st.dictionaries(st.text(max_size=5), scalars, max_size=5)
frames_of_rows = st.one_of(
    *(st.lists(kind, max_size=8) for kind in (scalars, flat_tuples, flat_dicts, values))
)


def same(a: Any, b: Any) -> bool:
    """Equal, of the same types all the way down, moments with the same offset."""
    if type(a) is not type(b):
        return False
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, datetime):
        if isinstance(a.tzinfo, ZoneInfo) and repr(a) != repr(b):
            return False
        return a == b and a.utcoffset() == b.utcoffset() and a.replace(tzinfo=None) == b.replace(tzinfo=None)
    if isinstance(a, time):
        return a == b and repr(a) == repr(b)
    if isinstance(a, float | Decimal):
        return repr(a) == repr(b)
    return bool(a == b)


# ── messages ────────────────────────────────────────────────────────────────────────────────────────


@functools.cache
def of_type(kind: Any) -> st.SearchStrategy[Any]:
    """Any value that a field of this type may have."""
    simple = {
        int: INT64,
        float: st.floats(allow_nan=False),
        str: st.text(max_size=8),
        bytes: st.binary(max_size=8),
        bool: st.booleans(),
        type(None): st.none(),
        msgspec.UnsetType: st.just(msgspec.UNSET),
        Any: st.none() | st.integers(0, 9) | st.text(max_size=3) | st.lists(st.integers(0, 9), max_size=3),
        msgspec.Raw: st.just(msgspec.Raw(msgspec.msgpack.encode([1, 2]))),
    }
    if kind in simple:
        return simple[kind]
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return st.deferred(lambda: struct(kind))
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Literal:
        return st.sampled_from(arguments)
    if origin in (typing.Union, types.UnionType):
        return st.one_of(*map(of_type, arguments))
    if origin is list:
        return st.lists(of_type(arguments[0]), max_size=2)
    if origin is dict:
        return st.dictionaries(of_type(arguments[0]), of_type(arguments[1]), max_size=2)
    if origin is tuple and arguments[-1] is Ellipsis:
        return st.lists(of_type(arguments[0]), max_size=2).map(tuple)
    if origin is tuple:
        return st.tuples(*map(of_type, arguments))
    raise TypeError(f"no values known for {kind}")


@functools.cache
def struct(kind: type[msgspec.Struct]) -> st.SearchStrategy[Any]:
    hints = typing.get_type_hints(kind)
    fields = {name: of_type(hints[name]) for name in kind.__struct_fields__}
    if kind.__name__ == "Schedule":
        fields["earlier"] = st.none()  # its type is its own
    return st.builds(kind, **fields)
