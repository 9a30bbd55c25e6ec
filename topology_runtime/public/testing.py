"""Tests of flows, without a cluster: a flow is run in this process, over rows that the test gives.

from headgate import testing

result = testing.run(flow, {"lines": ["a,1", "b,2"]})
assert result.rows["store"] == [{"name": "a", "value": 1}, {"name": "b", "value": 2}]
assert result.dead_letters == []
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from headgate.topology_runtime.api.builder import Builder
from headgate.topology_runtime.api.topology import Topology
from headgate.topology_runtime.testing.input_rows import wait
from headgate.topology_runtime.testing.run_results import FailedRow, Result

TYPE_CHECKING = False
if TYPE_CHECKING:
    from headgate.topology_runtime.testing.conformance import SinkUnderTest as SinkUnderTest
    from headgate.topology_runtime.testing.conformance import SourceUnderTest as SourceUnderTest
    from headgate.topology_runtime.testing.conformance import scenarios as scenarios

CONFORMANCE = {"SinkUnderTest", "SourceUnderTest", "scenarios"}  # imported on first use: they need pytest
__all__ = ["FailedRow", "Result", "SinkUnderTest", "SourceUnderTest", "run", "scenarios", "wait"]


def __getattr__(name: str) -> Any:
    if name not in CONFORMANCE:
        raise AttributeError(f"module 'headgate.testing' has no attribute {name!r}")
    from headgate.topology_runtime.testing import conformance

    return getattr(conformance, name)


def run(
    flow: Builder | Topology, inputs: Mapping[str, Iterable[Any]] | None = None, *, workers: int = 0
) -> Result:
    """Everything that comes of these rows: `rows` per sink, `dead_letters`, `states` per keyed task.

    inputs: source → its rows, with `testing.wait(seconds)` between them where time is to pass. A source that is left
    out is read until it raises `Exhausted`. At the end of the input open panes fire and keyed tasks `finish`.

    workers: so many real worker processes instead, which find the flow's code by its modules.

    >>> from headgate import Source, topology
    >>> class Numbers(Source):
    ...     def read(self, position, limit):
    ...         return range(position, position + limit)
    >>> def double(row):
    ...     return 2 * row
    >>> flow = topology("doubles")
    >>> _ = flow.source("numbers", Numbers) >> flow.task("double", double)
    >>> run(flow, {"numbers": [1, 2, "a"]}).rows
    {'double': [2, 4, 'aa']}
    """
    if workers:
        from headgate.topology_runtime.testing.in_workers import run_in_workers

        return run_in_workers(flow, inputs, workers)
    from headgate.topology_runtime.testing.in_process import run_here

    return run_here(flow, inputs)
