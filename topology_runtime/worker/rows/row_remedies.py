"""What is no plain value is refused by name, with the line that makes one of it. Pure: the libraries that values come
from are told by name, not imported."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Set
from dataclasses import is_dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any

import msgspec

from headgate.topology_runtime.errors import BadRow

PLAIN = (
    "None, bool, int, float, str, bytes, Decimal, datetime, date, time, timedelta, UUID, or tuples, lists, dicts and "
    "sets of them"
)
PANDAS = {
    "Timestamp": "x.to_pydatetime()", "Timedelta": "x.to_pytimedelta()", "NaTType": "None", "NAType": "None",
    "DataFrame": "x.to_dict('records')", "Series": "x.to_dict()",
}  # fmt: skip
NUMPY = {
    "ndarray": "x.tolist()",
    "datetime64": "x.astype('datetime64[us]').item()",  # of nanoseconds .item() makes an int
    "timedelta64": "x.astype('timedelta64[us]').item()",
    "longdouble": "float(x)",  # .item() gives the very same
}
MADE_OF = (str, bytes, bool, int, float, tuple, list, dict, set, frozenset)
NO_CLASSES = (datetime, date, time, timedelta, Decimal)


def refused(value: Any) -> BadRow:
    """Of a value that cannot travel."""
    kind = type(value)
    remedy = _remedy(value, kind)
    return BadRow(
        f"a row holds a {kind.__module__}.{kind.__qualname__}; rows are plain values",
        hint=f"for such an x give {remedy}; rows hold {PLAIN}" if remedy else f"emit {PLAIN}",
    )


def _remedy(value: Any, kind: type) -> str:
    library, name = kind.__module__.partition(".")[0], kind.__name__
    if library == "numpy":
        return NUMPY.get(name, "x.item()")
    if library == "pandas":
        return PANDAS.get(name, "x.tolist()" if hasattr(value, "tolist") else "str(x)")
    if isinstance(value, Enum):
        return "x.value"
    return _of_fields(value, kind) or _of_parts(value, kind)


def _of_fields(value: Any, kind: type) -> str:
    """Of a record."""
    if is_dataclass(value):
        return "dataclasses.asdict(x)"
    if isinstance(value, msgspec.Struct):
        return "msgspec.to_builtins(x)"
    if hasattr(kind, "model_dump"):
        return "x.model_dump()"
    if hasattr(kind, "__attrs_attrs__"):
        return "attrs.asdict(x)"
    return "x._asdict()" if isinstance(value, tuple) and hasattr(kind, "_asdict") else ""


def _of_parts(value: Any, kind: type) -> str:
    """Of something that a plain type can be made of."""
    for plain in MADE_OF:
        if isinstance(value, plain):
            return f"{plain.__name__}(x)"
    if isinstance(value, NO_CLASSES):
        base = next(base for base in kind.__mro__ if base in NO_CLASSES)
        return "Decimal(x)" if base is Decimal else f"a {base.__name__} of its fields"
    if isinstance(value, bytearray | memoryview):
        return "bytes(x)"
    if isinstance(value, complex):
        return "(x.real, x.imag)"
    if isinstance(value, Mapping):
        return "dict(x)"
    if isinstance(value, Set):
        return "set(x)"
    return "list(x)" if isinstance(value, deque | Iterable) else ""
