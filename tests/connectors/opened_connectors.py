"""Connectors that a test opens and calls itself, and names of rows as a run gives them."""

from __future__ import annotations

from typing import Any

from headgate.topology_runtime.api.logic import Context, RowId


class Opened:
    """All that were opened are closed together. name: of the task, and of what is at the service."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._opened: list[Any] = []

    def opened(self, connector: Any) -> Any:
        self._opened.append(connector)
        connector.open(Context(self.name, 1, 0, 1, ""))
        return connector

    def close(self) -> None:
        for connector in self._opened:
            connector.close()


def ids(first: int, count: int) -> list[RowId]:
    return [RowId("run", "source", 0, first + n, 0) for n in range(count)]
