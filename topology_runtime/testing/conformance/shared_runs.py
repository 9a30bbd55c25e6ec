"""One run for all scenarios of a class that need one: it takes seconds to start. After a test that failed the next one
gets a new run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, Protocol, TypeVar


class Ends(Protocol):
    def close(self) -> None: ...


One = TypeVar("One", bound=Ends)


class Shared(Generic[One]):
    """make: starts one."""

    def __init__(self, make: Callable[[], One]) -> None:
        self._make = make
        self._one: One | None = None

    @contextmanager
    def use(self) -> Iterator[One]:
        if self._one is None:
            self._one = self._make()
        try:
            yield self._one
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        one, self._one = self._one, None
        if one is not None:
            one.close()
