"""Rows (dicts) as a table of Arrow, with every column of every row, and no value changed to fit.

`Table.from_pylist` takes the columns of the first row alone, and of 1.5 for whole numbers it makes 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headgate.topology_runtime.errors import BadRow


def table_of(rows: Sequence[dict[str, Any]], where: str, schema: Any = None) -> Any:
    """schema: the columns to be; others are refused, and those that no row has are null. Left out, they are as the
    values say, and text where all are None. Raises BadRow.

    >>> table_of([{"a": 1}, {"b": "x"}], "here").to_pylist()
    [{'a': 1, 'b': None}, {'a': None, 'b': 'x'}]
    """
    import pyarrow as pa

    columns = dict.fromkeys(name for row in rows for name in row)
    if schema is not None and (odd := [name for name in columns if name not in schema.names]):
        hint = f"its columns: {', '.join(schema.names[:20])}"
        raise BadRow(f"{where} has no column for {odd[0]!r} of a row", hint=hint)
    fields = schema if schema is not None else [pa.field(name, pa.null()) for name in columns]
    arrays, types = [], []
    for field in fields:
        try:
            array = pa.array([row.get(field.name) for row in rows])
            kind = field.type if schema is not None else array.type
            if schema is None and pa.types.is_null(kind):
                kind = pa.string()
            arrays.append(_as(array, kind))
            types.append(pa.field(field.name, kind))
        except (pa.ArrowException, OverflowError) as error:
            what = f"a value of {field.name!r} does not fit into {where}"
            raise BadRow(what, cause=str(error).splitlines()[0]) from error
    return pa.table(arrays, schema=schema if schema is not None else pa.schema(types))


def _as(array: Any, kind: Any) -> Any:
    """Numbers become other numbers where none is changed; text stays text."""
    import pyarrow as pa

    def family(of: Any) -> str:
        if pa.types.is_integer(of) or pa.types.is_floating(of) or pa.types.is_decimal(of):
            return "number"
        return next(
            (name for name in ("string", "binary", "boolean", "timestamp") if name in str(of)), str(of)
        )

    plain = not pa.types.is_nested(kind) and not pa.types.is_null(array.type)
    if plain and array.type != kind and family(array.type).removeprefix("large_") != family(kind):
        raise pa.ArrowTypeError(f"it is {array.type}, and {kind} is due")
    return array.cast(kind)
