"""Tables and paragraphs of the pages that the lab writes."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence

WIDE = 100  # characters of a line


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Its lines."""
    lines = ["|".join(("", *columns, "")), "|" + "---|" * len(columns)]
    return "\n".join([*lines, *("|".join(("", *map(str, row), "")) for row in rows)])


def wrapped(text: str) -> str:
    """A paragraph, or an item of a list, in lines; what begins a table stays as it is."""
    if text.startswith("|") or len(text) <= WIDE:
        return text
    indent = "  " if text.startswith("- ") else ""
    return textwrap.fill(text, WIDE, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
