"""What the scenarios need to know of a source or a sink, and of the service behind it. Subclasses say it.

Rows are numbered: `{"n": 17, "text": "row 17"}`, plain values. What went in and came out is compared by these numbers,
outside headgate.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, NoReturn

from headgate.topology_runtime.api.logic import Row

WRONG_SECRET = (
    "no-such-secret-7351"  # stands in for the right one where a wrong one is tried; no message may have it
)
MISSING = "nosuchplace"  # the name of a topic, a table, that is not there

NumberedRow = dict[str, Any]


def numbered(first: int, count: int, text_bytes: int = 0) -> list[NumberedRow]:
    """So many rows from this number on, with texts of so many bytes."""
    return [{"n": n, "text": f"row {n}".ljust(text_bytes, "x")} for n in range(first, first + count)]


class UnderTest:
    """One object for each scenario, or for all that share a run. folder: empty. name: of no other object, for
    the topic, table or folder that it makes."""

    connector: ClassVar[str] = ""  # "module:Class", as `run` in a topology file
    threads: ClassVar[int] = 1

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.name = folder, name

    # ── each has ────────────────────────────────────────────────────────────────────────────────

    def start(self) -> None:
        """The service is there, and what it is read from or written to is made, and empty."""

    def stop(self) -> None:
        """All is over; also called when `start` failed."""

    def params(self) -> dict[str, Any]:
        """Of the connector, as in a topology file."""
        return {}

    # ── where there is such a thing ─────────────────────────────────────────────────────────────

    def kill(self) -> None:
        """The service ends at once (`kill -9`)."""
        self._lacks("kill")

    def start_again(self) -> None:
        """… and is back, at the same address, with what it had confirmed."""
        self._lacks("start_again")

    def wrong_secret(self) -> dict[str, Any]:
        """`params` with WRONG_SECRET as the password, token or key."""
        self._lacks("wrong_secret")

    def missing(self) -> dict[str, Any]:
        """`params` with MISSING as the name of the topic or table."""
        self._lacks("missing")

    def delete(self) -> None:
        """The topic, table or folder is deleted while it is in use."""
        self._lacks("delete")

    def _lacks(self, name: str) -> NoReturn:
        raise NotImplementedError(f"{type(self).__name__} has no `{name}`: the scenario says what it needs")

    @classmethod
    def connector_class(cls) -> type[Any]:
        module, _, name = cls.connector.partition(":")
        found: type[Any] = getattr(importlib.import_module(module), name)
        return found


class SourceUnderTest(UnderTest):
    """A source. Some scenarios skip where a method is not defined."""

    exactly_once: ClassVar[bool] = True  # False: rows may come twice after a fault, under another name
    flood: ClassVar[tuple[int, int]] = (10_000, 10_000)  # rows, bytes of each: more than is held in memory
    row_bytes: ClassVar[int] = 500_000  # of a large row

    def produce(self, rows: Sequence[NumberedRow], partition: int = 0) -> None:
        """Put rows into the service, without headgate. Returns when they are there."""
        raise NotImplementedError

    def number(self, row: Row) -> int:
        """Which row this is, as the source gives it."""
        return int(row["n"])

    def text(self, row: Row) -> str:
        return str(row["text"])

    def produce_bad(self) -> None:
        """One row that cannot be decoded."""
        self._lacks("produce_bad")

    def add_partition(self) -> int:
        """One partition more; its number."""
        self._lacks("add_partition")

    def forget(self) -> None:
        """The service keeps no row of those that were produced (retention), and takes new ones."""
        self._lacks("forget")

    def done(self, partition: int = 0) -> int:
        """How many rows of a partition the service has been told are done, as its own tools say."""
        self._lacks("done")

    def end(self) -> None:
        """No row will come any more, which the source can know."""
        self._lacks("end")


class SinkUnderTest(UnderTest):
    """A sink."""

    exactly_once: ClassVar[bool] = False  # True: rows written again under the same names change nothing
    ordered: ClassVar[bool] = True  # rows of one call stay in order
    row_bytes: ClassVar[int] = 500_000

    def stored(self) -> list[int]:
        """The numbers of all rows in the target, read without headgate, in its order; twice what is there twice."""
        raise NotImplementedError

    def row(self, row: NumberedRow) -> Row:
        """The row as the sink takes it."""
        return row

    def bad_row(self) -> Row:
        """One that the target does not take, however often it is tried."""
        self._lacks("bad_row")
