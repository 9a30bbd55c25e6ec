"""Tables and changes of PostgreSQL on a real server: the scenarios of every source."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from postgres_under_test import Changes, OnServer, Table

from headgate.testing import scenarios
from headgate.topology_runtime.errors import ServiceAway
from headgate.topology_runtime.testing.conformance.opened import OpenedSource
from headgate.topology_runtime.testing.conformance.under_test import numbered
from real_services import Postgres

pytestmark = pytest.mark.live


@pytest.fixture(scope="module", autouse=True)
def server(running_services: Callable[[type[Postgres]], Postgres]) -> Iterator[None]:
    """One for all scenarios; each has a table of its own."""
    OnServer.running.append(lambda: running_services(Postgres))
    yield
    OnServer.running.pop()


TestTable = pytest.mark.full(scenarios(Table))


class TestChanges(scenarios(Changes)):  # type: ignore[misc]
    """Of changes."""

    def test_two_runs_do_not_take_rows_from_each_other(self, made: Changes) -> None:
        """One reads a slot; another waits until it is free."""
        made.produce(numbered(0, 100))
        with OpenedSource(made) as one, OpenedSource(made) as other:
            one.open_when_there()
            one.take(50)
            other.open_when_there()
            with pytest.raises(ServiceAway, match="cannot be read now") as away:
                other.poll()
            assert f'slot "{made.name}" is active' in (away.value.cause or "")
            one.close()
            assert [made.number(row) for _, row in other.take(100)] == list(range(100))
