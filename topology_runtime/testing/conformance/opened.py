"""A source or a sink in the test's own process, called as a worker calls it: one thread, one call at a time."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

from headgate.topology_runtime.api.logic import Context, Exhausted, LiveSource, OffsetSource, Row, RowId
from headgate.topology_runtime.errors import ServiceAway
from headgate.topology_runtime.testing.conformance.patience import until
from headgate.topology_runtime.testing.conformance.under_test import UnderTest

AGAIN_S = 0.1  # a call to a service that is away comes again after so long
Given = tuple[int, Any]  # offset (or position), row


def threads_now() -> int:
    """Of this process, those of libraries too."""
    return len(os.listdir("/proc/self/task"))


class Opened:
    """An object of the connector. threads_before: of this process, when it was not there yet."""

    def __init__(self, of: UnderTest, params: dict[str, Any] | None = None, partition: int = 0) -> None:
        self.of, self._partition = of, partition
        self.threads_before = threads_now()
        self._params = of.params() if params is None else params
        self.logic: Any = None
        self.context = self._context(of.folder)

    def _context(self, folder: Path) -> Context:
        return Context("tested", self._partition, self._partition, self.of.threads, str(folder))

    def open(self) -> None:
        """Raises what it raises."""
        self.logic = self.of.connector_class()(**self._params)
        if hasattr(self.logic, "open"):
            self.logic.open(self.context)

    def open_when_there(self) -> None:
        """As a worker does: again and again while the service is away."""
        self._when_there(self.open, self.close)

    def _when_there(self, call: Callable[[], Any], after: Callable[[], Any]) -> Any:
        last = [""]

        def tried() -> list[Any]:
            try:
                return [call()]
            except ServiceAway as error:
                last[0] = str(error)
                after()
                time.sleep(AGAIN_S)
                return []

        return until(tried, lambda: f"for the service, which is away: {last[0]}")[0]

    def close(self) -> None:
        logic, self.logic = self.logic, None
        if hasattr(logic, "close"):
            logic.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class OpenedSource(Opened):
    """next: the offset (or position) to go on from; None: nothing was read."""

    def __init__(self, of: UnderTest, params: dict[str, Any] | None = None, partition: int = 0) -> None:
        super().__init__(of, params, partition)
        self.next: int | None = None
        self.polled, self.ended = 0, False
        self._sought = False

    def open(self) -> None:
        super().open()
        self._sought = False

    def poll(self, limit: int = 100) -> list[Given]:
        """Once. Raises what it raises; then it goes on from where it was."""
        logic = self.logic
        try:
            if isinstance(logic, OffsetSource):
                if not self._sought:
                    logic.seek(self.next)
                    self._sought = True
                given = list(logic.poll(limit))
            elif isinstance(logic, LiveSource):
                given = list(enumerate(logic.poll(limit), self.polled))
            else:
                given = list(enumerate(logic.read(self.next or 0, limit), self.next or 0))
        except Exhausted:
            self.ended = True
            return []
        except BaseException:
            self._sought = False
            raise
        self.polled += len(given)
        if given:
            self.next = given[-1][0] + 1
        return given

    def durable(self) -> None:
        """What it gave is on disk."""
        if isinstance(self.logic, LiveSource):
            self.logic.durable(self.polled)

    def take(self, count: int) -> list[Given]:
        """So many rows; calls come again while the service is away. Fails when they do not come."""
        found: list[Given] = []

        def more() -> bool:
            with contextlib.suppress(ServiceAway):
                found.extend(self.poll(count - len(found)))
            return len(found) >= count

        until(more, lambda: f"for {count} rows from offset {self.next}; {len(found)} came")
        return found

    def refuses(self, unless: Callable[[], bool] = lambda: False) -> BaseException | None:
        """What opening or polling raises, however often it has to be asked; None: `unless` came first."""
        raised: list[BaseException] = []

        def tried() -> bool:
            try:
                if self.logic is None:
                    self.open()
                self.poll()
            except Exception as error:
                raised.append(error)
            return bool(raised) or unless()

        until(tried, "for an error: neither `open` nor `poll` raised one")
        return raised[0] if raised else None


class OpenedSink(Opened):
    """Its rows have the names that a worker would give them."""

    def write(self, rows: Sequence[Row], first: int) -> None:
        """Once. Raises what it raises."""
        self.logic.write(rows, [RowId("run", "numbers", 0, first + n, 0) for n in range(len(rows))])

    def write_when_there(self, rows: Sequence[Row], first: int) -> None:
        """As a worker does: the same rows again and again while the service is away."""
        self._when_there(lambda: self.write(rows, first), lambda: None)

    def refuses(self, rows: Sequence[Row], first: int) -> BaseException | None:
        """What opening or writing raises; None: nothing."""
        try:
            if self.logic is None:
                self.open()
            self.write(rows, first)
        except Exception as error:
            return error
        return None
