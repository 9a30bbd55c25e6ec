"""One run for all scenarios of a class that need one: it takes seconds to start. After a test that failed the next one
gets a new run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ClassVar, Generic, Protocol, TypeVar

import pytest

from headgate.topology_runtime.testing.conformance.needs import NO_SPOOL, lacking, needs, own
from headgate.topology_runtime.testing.conformance.patience import until
from headgate.topology_runtime.testing.conformance.real_runs import SOURCE, RealRun
from headgate.topology_runtime.testing.conformance.under_test import UnderTest


class Ends(Protocol):
    def close(self) -> None: ...


class WatchedRun(Ends, Protocol):
    """A run between a connector and rows of a test. give: more rows into it; wait: until all are where they are to be,
    and as often as they may be."""

    run: RealRun

    @property
    def made(self) -> UnderTest: ...
    def give(self) -> None: ...
    def wait(self) -> None: ...


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


class KillScenarios:
    """Of sources and sinks. tested: the task that the connector is."""

    of: ClassVar[type[UnderTest]]
    tested: ClassVar[str]

    @pytest.fixture(autouse=True)
    def applies(self, request: pytest.FixtureRequest) -> None:
        """Before anything is started."""
        if why := lacking(self.of, request.function):
            pytest.skip(why)

    def test_no_row_is_missing_though_a_worker_is_killed(self, runs: Shared[WatchedRun]) -> None:
        with runs.use() as run:
            run.give()
            run.wait()
            run.give()
            run.run.kill_worker(self.tested)
            run.give()
            run.wait()

    @needs(NO_SPOOL)
    def test_no_row_is_missing_though_a_vm_is_lost_with_its_disk(self, runs: Shared[WatchedRun]) -> None:
        with runs.use() as run:
            run.give()
            run.wait()
            run.run.kill_vm(self.tested)
            run.give()
            run.wait()

    def test_no_row_is_missing_though_the_controller_is_killed(self, runs: Shared[WatchedRun]) -> None:
        with runs.use() as run:
            run.give()
            run.run.kill_controller()
            run.give()
            run.wait()

    @needs(own("kill"))
    def test_no_row_is_missing_though_the_service_is_killed_and_away(self, runs: Shared[WatchedRun]) -> None:
        with runs.use() as run:
            run.give()
            run.wait()
            run.made.kill()
            if self.tested != SOURCE:  # rows wait for it
                run.give()
            until(lambda: run.run.alarms(self.tested), "for an alarm that the service is away")
            run.made.start_again()
            run.give()
            run.wait()
