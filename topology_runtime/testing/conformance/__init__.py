"""What every source and sink is to hold, as tests: for connectors of this project and of other packages.

    from headgate.testing import SourceUnderTest, scenarios

    class Clicks(SourceUnderTest):
        connector = "clicks:ClickSource"
        …

    TestClicks = scenarios(Clicks)

pytest runs each scenario as a test of its own; one that needs what the class does not offer (to kill the service, say)
is skipped and says so.
"""

from __future__ import annotations

from typing import Any

from headgate.topology_runtime.testing.conformance.sink_scenarios import SinkScenarios
from headgate.topology_runtime.testing.conformance.source_scenarios import SourceScenarios
from headgate.topology_runtime.testing.conformance.under_test import SinkUnderTest, SourceUnderTest

__all__ = ["SinkUnderTest", "SourceUnderTest", "scenarios"]


def scenarios(of: type[SourceUnderTest] | type[SinkUnderTest]) -> type[Any]:
    """The scenarios of a source or a sink, as a class of tests: `TestClicks = scenarios(Clicks)`."""
    base: type[Any] = SourceScenarios if issubclass(of, SourceUnderTest) else SinkScenarios
    return type(f"Scenarios{of.__name__}", (base,), {"of": of, "__doc__": f"Of {of.__name__}."})
