"""Rows as columns: an array in place of each value of a row, so that numpy has them without a Python object for each.

`Columns` stands wherever a list of rows does. What a row is says how its columns stand together: a value alone (one
column), a tuple of values, a dict of values by name. A column is an array of numbers or truths whose first axis is the
rows (a row's value is a list where there are more axes), or of objects: texts, None, whatever a row may hold besides.
Numpy is imported when an array is asked for: who wants rows does without. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, compress
from math import prod
from typing import TYPE_CHECKING, Any, overload

import msgspec

from headgate.topology_runtime.errors import BadBatch

if TYPE_CHECKING:
    import numpy as np

ALONE, TUPLE, DICT = range(3)
OBJECTS = "O"
DTYPES = {
    "?": "b1", "b": "i1", "h": "i2", "i": "i4", "q": "i8", "B": "u1", "H": "u2", "I": "u4", "Q": "u8",
    "f": "f4", "d": "f8",
}  # fmt: skip
SIZES = {code: int(dtype[1]) for code, dtype in DTYPES.items()}
CODES = {(dtype[0], int(dtype[1])): code for code, dtype in DTYPES.items()}  # by numpy's kind and size
AXES_MOST = 4
FLOAT_MARK, FLOAT_BYTES = 0xCB, 9  # of a float in msgpack
WHOLE_MOST = 1 << 53  # whole numbers up to here are floats, too

_encode = msgspec.msgpack.Encoder().encode
Part = tuple[str, list[int], Any]  # code, length of each axis, the bytes; of objects: a list


class Columns(Sequence[Any]):
    """Rows that nobody changes. parts: columns as arrays, or as they came (`Part`) until an array is asked for."""

    __slots__ = ("_columns", "_count", "form", "names")

    def __init__(self, form: int, names: tuple[str, ...], count: int, columns: list[Any]) -> None:
        self.form, self.names = form, names
        self._count, self._columns = count, columns

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Any]:
        return iter(self.rows())

    @overload
    def __getitem__(self, place: int) -> Any: ...
    @overload
    def __getitem__(self, place: slice) -> Columns: ...
    def __getitem__(self, place: int | slice) -> Any:
        if isinstance(place, slice):
            count = len(range(*place.indices(self._count)))
            return self._with(count, [array[place] for array in self.arrays])
        place = range(self._count)[place]
        return self[place : place + 1].rows()[0]

    def take(self, places: Sequence[int]) -> Columns:
        """The rows at these places."""
        import numpy as np

        at = np.asarray(places, np.intp)
        return self._with(len(places), [_closed(array[at]) for array in self.arrays])

    def where(self, chosen: Sequence[bool]) -> Columns:
        """The rows for which this is true."""
        return self.take(list(compress(range(self._count), chosen)))

    def _with(self, count: int, arrays: list[Any]) -> Columns:
        return Columns(self.form, self.names, count, arrays)

    # ── what they are ───────────────────────────────────────────────────────────────────────────

    @property
    def arrays(self) -> list[np.ndarray[Any, Any]]:
        """Of each column, not to be written to."""
        for number, column in enumerate(self._columns):
            if type(column) is tuple:
                self._columns[number] = _array_in(column)
        return self._columns

    @property
    def given(self) -> Any:
        """The arrays as a row has its values: one, a tuple of them, a dict of them."""
        if self.form == DICT:
            return dict(zip(self.names, self.arrays, strict=True))
        return tuple(self.arrays) if self.form == TUPLE else self.arrays[0]

    def rows(self) -> list[Any]:
        """As plain values."""
        lists = list(map(_values, self._columns))
        if self.form == DICT:
            names = self.names
            return [dict(zip(names, values, strict=True)) for values in zip(*lists, strict=True)]
        return list(zip(*lists, strict=True)) if self.form == TUPLE else lists[0]

    def values_at(self, place: str | int | None) -> list[Any] | None:
        """What all rows have at this name or position, without the rest of them; None when that is not a column."""
        number = self._number(place)
        return None if number is None else _values(self._columns[number])

    def array_at(self, place: str | int | None) -> np.ndarray[Any, Any] | None:
        """As `values_at`, the array."""
        number = self._number(place)
        if number is None:
            return None
        column = self._columns[number]
        if type(column) is tuple:
            column = self._columns[number] = _array_in(column)
        array: np.ndarray[Any, Any] = column
        return array

    def _number(self, place: str | int | None) -> int | None:
        """Of the column at this name or position."""
        if self.form == DICT and place in self.names:
            return self.names.index(place)
        if self.form == TUPLE and type(place) is int and -len(self._columns) <= place < len(self._columns):
            return place
        return None

    @property
    def sound(self) -> bool:
        """Are all values sure to be plain?"""
        return all(_code(column) != OBJECTS for column in self._columns)

    @property
    def objects(self) -> list[list[Any]]:
        """The columns of objects: what may be no plain value is there alone."""
        return [_values(column) for column in self._columns if _code(column) == OBJECTS]

    @property
    def row_bytes(self) -> int:
        """Of a row, without its objects."""
        return sum(
            SIZES[code] * prod(axes[1:]) for code, axes, _ in map(_part, self._columns) if code != OBJECTS
        )

    @property
    def parts(self) -> list[Part]:
        """As they are written."""
        return list(map(_part, self._columns))

    @staticmethod
    def of_parts(form: int, names: Sequence[str], parts: Sequence[Part]) -> Columns:
        """What a peer wrote; ValueError when it is none."""
        named = len(set(names)) == len(names) == len(parts) if form == DICT else not names
        if form not in (ALONE, TUPLE, DICT) or not parts or not named or (form == ALONE and len(parts) > 1):
            raise ValueError("columns that make no rows")
        for code, axes, data in parts:
            if code == OBJECTS:
                sound = len(axes) == 1 and len(data) == axes[0]
            else:
                sound = code in SIZES and 0 < len(axes) <= AXES_MOST and min(axes[1:], default=1) > 0
                sound = sound and axes[0] >= 0 and SIZES[code] * prod(axes) == data.nbytes
            if not sound or axes[0] != parts[0][1][0]:
                raise ValueError("a column that is not as long as it says")
        return Columns(form, tuple(names), parts[0][1][0], list(parts))

    @staticmethod
    def joined(some: Sequence[Columns]) -> Columns | None:
        """All of these, one after the other; None when they are of different kinds."""
        import numpy as np

        first = some[0]
        kinds = {
            (one.form, one.names, *((array.dtype, array.shape[1:]) for array in one.arrays)) for one in some
        }
        if len(kinds) > 1:
            return None
        arrays = [
            _closed(np.concatenate(arrays)) for arrays in zip(*(one.arrays for one in some), strict=True)
        ]
        return first._with(sum(map(len, some)), arrays)


def chosen(rows: Sequence[Any], places: Sequence[int]) -> Sequence[Any]:
    """The rows at these places, as columns where they are."""
    return rows.take(places) if type(rows) is Columns else [rows[place] for place in places]


# ── a column ────────────────────────────────────────────────────────────────────────────────────


def _closed(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    array.flags.writeable = False
    return array


def _array_in(part: Part) -> np.ndarray[Any, Any]:
    import numpy as np

    code, axes, data = part
    if code == OBJECTS:
        return _closed(np.fromiter(data, dtype=object, count=len(data)))
    array = np.frombuffer(data, dtype=DTYPES[code]).reshape(axes)
    return _closed(array if array.flags.aligned else array.copy())


def _values(column: Any) -> list[Any]:
    """A column's values, plain."""
    if type(column) is not tuple:
        values: list[Any] = column.tolist()
        return values
    code, axes, data = column
    if code == OBJECTS:
        return list(data)
    view = memoryview(data).cast("B")
    if not axes[0]:
        return []
    return view.cast(code, axes).tolist() if len(axes) > 1 else view.cast(code).tolist()


def _code(column: Any) -> str:
    return column[0] if type(column) is tuple else _code_of(column.dtype)


def _code_of(dtype: np.dtype[Any]) -> str:
    return CODES.get((dtype.kind, dtype.itemsize), OBJECTS)


def _part(column: Any) -> Part:
    if type(column) is tuple:
        part: Part = column
        return part
    code = _code(column)
    if code == OBJECTS:
        return code, [len(column)], column.tolist()
    flat = column if column.flags.c_contiguous else column.copy()
    return code, list(flat.shape), memoryview(flat.reshape(-1)).cast("B")


# ── what a task gave ────────────────────────────────────────────────────────────────────────────


def columns_in(answer: Any) -> Columns:
    """The columns that somebody's code gave: an array, a tuple of arrays, a dict of arrays by name. BadBatch when it
    did not. The arrays may not be written to from now on."""
    if isinstance(answer, dict):
        columns = [_column(value, f" {name!r}") for name, value in answer.items()]
        form, names = DICT, tuple(answer)
    elif isinstance(answer, tuple):
        form, names, columns = TUPLE, (), [_column(value, f" {n}") for n, value in enumerate(answer)]
    else:
        form, names, columns = ALONE, (), [_column(answer, "")]
    if not columns or not all(type(name) is str for name in names):
        raise _no_columns("columns without names" if columns else "no column")
    lengths = sorted({len(column) for column in columns})
    if len(lengths) > 1:
        raise _no_columns(f"columns of {lengths[0]:,} and of {lengths[-1]:,} values")
    return Columns(form, names, lengths[0], columns)


def _column(value: Any, name: str) -> np.ndarray[Any, Any]:
    import numpy as np

    if type(value) is np.ndarray and 0 < value.ndim <= 2 and value.size and value.dtype.isnative:
        if _code_of(value.dtype) != OBJECTS:
            return _closed(value)
    elif isinstance(value, list):
        return array_of(value)
    if not hasattr(value, "__array__") or np.ndim(value) == 0:
        raise _no_columns(f"{article(type(value).__name__)} as column{name}")
    array = np.asarray(value)
    if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
        return array_of(value.tolist())
    kind, code = array.dtype.kind, _code_of(array.dtype)
    if kind in "cmV":
        raise _no_columns(
            f"values of type {array.dtype.name} in column{name}", "rows are made of plain values"
        )
    if code == OBJECTS and kind == "f":
        array = array.astype("float32" if array.dtype.itemsize < 4 else "float64")
    elif kind == "M":
        return array_of(array.astype("datetime64[us]").tolist())
    elif code == OBJECTS and kind != "O":
        return array_of(array.tolist())
    if array.ndim > 1 and (kind == "O" or array.ndim > AXES_MOST or not prod(array.shape[1:])):
        return array_of(array.tolist())
    return _closed(array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("=")))


def _no_columns(
    what: str, cause: str = "it is to give an array, a tuple of arrays or a dict of arrays"
) -> BadBatch:
    return BadBatch(
        f"a batched task gave {what}", cause=cause, hint="a column has a value for each row, in their order"
    )


def article(name: str) -> str:
    return f"an {name}" if name[:1] in "aeiou" else f"a {name}"


# ── rows into columns ───────────────────────────────────────────────────────────────────────────


def grouped(rows: Sequence[Any]) -> list[tuple[Sequence[int], Columns]]:
    """Columns of all rows that are alike, dicts with the same names or tuples of the same length, and their places."""
    if isinstance(rows, Columns):
        return [(range(len(rows)), rows)]
    groups: dict[Any, list[int]] = {}
    for place, row in enumerate(rows):
        groups.setdefault(_likeness(row), []).append(place)
    return [(places, _columns([rows[place] for place in places], like)) for like, places in groups.items()]


def _likeness(row: Any) -> Any:
    """What rows of the same columns have in common."""
    kind = type(row)
    if kind is dict and row:
        return frozenset(row)
    return len(row) if kind is tuple and row else None


def _columns(rows: list[Any], like: Any) -> Columns:
    if like is None or (type(like) is frozenset and not all(type(name) is str for name in like)):
        return Columns(ALONE, (), len(rows), [array_of(rows)])
    if type(like) is int:
        return Columns(TUPLE, (), len(rows), [array_of(list(values)) for values in zip(*rows, strict=True)])
    names = tuple(rows[0])
    return Columns(DICT, names, len(rows), [array_of([row[name] for row in rows]) for name in names])


def array_of(values: list[Any]) -> np.ndarray[Any, Any]:
    """The column of these values: of numbers or truths where all are, of lists of numbers where all have one length;
    whole numbers among floats become floats. Else of objects, as they are."""
    import numpy as np

    first = values[0] if values else None
    width = len(first) if type(first) is list and first and type(first[0]) is float else 0
    if (width or type(first) is float) and (floats := _floats(values, width)) is not None:
        return _closed(floats)
    types = set(map(type, values))
    if types == {list} and (length := len(values[0])) and all(len(value) == length for value in values):
        inner = list(chain.from_iterable(values))
        dtype = _dtype_of(inner, set(map(type, inner)))
        if dtype:
            return _closed(np.fromiter(inner, dtype, len(inner)).reshape(len(values), length))
    elif dtype := _dtype_of(values, types):
        return _closed(np.fromiter(values, dtype, len(values)))
    return _array_in((OBJECTS, [len(values)], values))


def _floats(values: list[Any], width: int = 0) -> np.ndarray[Any, Any] | None:
    """These floats, or lists of so many of them, by way of their bytes in msgpack, which is faster than one by one:
    there a float is a mark and eight bytes. None when there is anything else: it has another mark or length. A tuple
    and a list are written alike, so they are told apart before; an Enum of floats is written and taken as its float."""
    import numpy as np

    if width and list(map(type, values)).count(list) < len(values):
        return None
    try:
        data, head = _encode(values), _encode([0.0] * width)[: -FLOAT_BYTES * width] if width else b""
    except (TypeError, ValueError, OverflowError, RecursionError):
        return None
    begin = len(data) - len(values) * (len(head) + FLOAT_BYTES * max(1, width))
    if begin != (1 if len(values) < 16 else 3 if len(values) < 1 << 16 else 5):
        return None
    one = np.dtype([("mark", "u1"), ("value", ">f8")])
    cells = np.frombuffer(data, [("head", "u1", (len(head),)), ("it", one, (max(1, width),))], offset=begin)
    marks, heads = cells["it"]["mark"], cells["head"]
    if not (marks == FLOAT_MARK).all() or not (heads == np.frombuffer(head, "u1")).all():
        return None
    floats = cells["it"]["value"].astype("f8")
    return floats if width else floats.reshape(-1)


def _dtype_of(values: list[Any], types: set[type]) -> str:
    if types == {float}:
        return "float64"
    if types == {bool}:
        return "bool"
    if types == {int} and min(values) >= -(1 << 63) and max(values) < 1 << 63:
        return "int64"
    if types == {int, float} and all(abs(value) <= WHOLE_MOST for value in values if type(value) is int):
        return "float64"
    return ""
