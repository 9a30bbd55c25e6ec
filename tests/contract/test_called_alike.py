"""Tests of flows, the collection of sample rows, profiles and runs call a task in one and the same way."""

from __future__ import annotations

from typing import Any

import pytest
from called_flow import INNER, ROWS, called_flow

from headgate import testing
from headgate.topology_runtime.measuring.collect_rows import collect


@pytest.fixture(scope="module")
def tested(tmp_path_factory: pytest.TempPathFactory) -> testing.Result:
    return testing.run(called_flow(tmp_path_factory.mktemp("tested")))


@pytest.fixture(scope="module")
def sampled(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[tuple[str, Any]]]:
    folder = tmp_path_factory.mktemp("sampled")
    flow = called_flow(folder).build()
    stores = {f"store-{name}" for name in INNER}
    return collect(flow, stores, str(folder), lambda task: None)


@pytest.mark.parametrize("name", INNER)
def test_sample_rows_are_what_a_test_of_the_flow_gives(
    name: str, tested: testing.Result, sampled: dict[str, list[tuple[str, Any]]]
) -> None:
    rows = tested.rows[f"store-{name}"]
    assert rows and [row for _, row in sampled[f"store-{name}"]] == rows[: len(sampled[f"store-{name}"])]
    assert len(sampled[f"store-{name}"]) == len(rows)


def test_only_the_task_that_fails_on_some_rows_has_dead_letters(tested: testing.Result) -> None:
    assert {(one.task, one.row["id"]) for one in tested.dead_letters} == {
        ("fails", n) for n in range(0, ROWS, 10)
    }
