"""What an example needs around it, in one definition: services, rows, and a look at the result."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from real_services import Service

Row = dict[str, Any]


class Demo(ABC):
    """One example while it runs. `folder`: its own; `services`: by name, started."""

    needs: ClassVar[Sequence[type[Service]]] = ()
    about: ClassVar[str]  # what is shown at the end

    def __init__(self, folder: Path, services: Mapping[str, Service]) -> None:
        self.folder, self.services = folder, services

    @abstractmethod
    def environment(self) -> Mapping[str, str]:
        """Variables that the flow reads."""

    @abstractmethod
    def prepare(self) -> None:
        """Make what must be there before the flow runs."""

    def reads(self) -> bool:
        """Once a plan is in force: does the flow see all rows that are sent from now on?"""
        return True

    @abstractmethod
    def send(self, first: int, count: int) -> None:
        """Rows `first` to `first + count` of the example's input, by a client without headgate."""

    @abstractmethod
    def results(self, sent: int) -> list[Row] | None:
        """What is in the target, read by a client without headgate; None while not all of `sent` rows are in it."""

    def close(self) -> None:
        """End what the demo itself has started."""
        return None
