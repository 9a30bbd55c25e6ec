"""The page of connectors and scenarios says what the tests are."""

from __future__ import annotations

from headgate.testing import SinkUnderTest, scenarios
from headgate.topology_runtime.testing.conformance.needs import lacking, needs, own
from makers import write_scenarios_page as maker


def test_the_page_is_of_the_tests_of_today() -> None:
    made = list(maker.classes())
    assert maker.page(made) == maker.PAGE.read_text("utf-8"), (
        "write it: scripts/makers/write_scenarios_page.py"
    )


def test_every_connector_is_on_it() -> None:
    """But those that clients push to, whose rows no scenario can put anywhere before they listen."""
    from headgate import connectors

    pushed = {"HttpSource", "TcpLinesSource", "WebSocketSource"}
    on_page = maker.PAGE.read_text("utf-8")
    lacks = {name for name in connectors.__all__ if f"|{name}" not in on_page.replace("*", "")} - pushed
    assert lacks == {"FilesSource", "PrometheusSink"}, "say on the page, or here, why not"


def test_a_scenario_applies_where_the_class_has_what_it_needs() -> None:
    class Plain(SinkUnderTest):
        connector = "headgate.connectors:SqliteSink"

    class Killed(Plain):
        def kill(self) -> None: ...

    @needs(own("kill"))
    def scenario() -> None: ...

    assert lacking(Plain, scenario) == "Plain has no `kill`"
    assert lacking(Killed, scenario) == ""
    text = maker.page([scenarios(Plain)])
    row = "|a service that is away is waited for|"
    assert f"{row}–|" in text and f"{row}✓|" in maker.page([scenarios(Killed)])
