"""Calling a batched task: all rows at once, and a result for each. Pure but for the user's code."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from topology_runtime.errors import BadBatch

NO_LISTS = (
    str,
    bytes,
    bytearray,
    dict,
    set,
    frozenset,
)  # they can be iterated over and are no lists of results


class BatchCall:
    """The function of a batched task over the rows of a call."""

    def __init__(self, function: Callable[[list[Any]], Any]) -> None:
        self._function = function

    def __call__(self, rows: Sequence[Any]) -> list[Any]:
        """The results, one for each row. The list that the function gets is its own: it may change it."""
        results = listed(self._function(list(rows)))
        if len(results) != len(rows):
            raise wrong_number(len(results), len(rows))
        return results

    def one(self, row: Any) -> Any:
        """The result for a row in a call of its own."""
        return self([row])[0]


def listed(answer: Any) -> list[Any]:
    """The results in what a batched function gave: a list, whatever else gives results one by one, or an array."""
    tolist = getattr(answer, "tolist", None)
    if tolist is not None:
        answer = tolist()
    if isinstance(answer, NO_LISTS) or not isinstance(answer, Iterable):
        raise BadBatch(
            f"a batched task gave {_article(type(answer).__name__)} for its rows",
            cause="it is to give a list with a result for each row, in their order",
            hint="return a list as long as the one it takes",
        )
    return list(answer)


def wrong_number(given: int, rows: int) -> BadBatch:
    return BadBatch(
        f"a batched task gave {given:,} results for {rows:,} rows",
        cause="which result is whose cannot be known, so all rows of this call are dead letters",
        hint="return a result for each row: @keep_if leaves rows out, @flat_map gives many, a Hold unites rows",
    )


def _article(name: str) -> str:
    return f"an {name}" if name[:1] in "aeiou" else f"a {name}"
