"""What a scenario needs of a connector, said beside the scenario: where it is missing, nothing is started."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeVar

from headgate.topology_runtime.api.logic import LiveSource, OffsetSource
from headgate.topology_runtime.testing.conformance.under_test import SinkUnderTest, SourceUnderTest, UnderTest

F = TypeVar("F", bound=Callable[..., Any])
PREFIX = "test_"


class Need(NamedTuple):
    """met: by this class; otherwise: why it is skipped, of a class."""

    met: Callable[[type[UnderTest]], bool]
    otherwise: Callable[[type[UnderTest]], str]


def needs(*these: Need) -> Callable[[F], F]:
    """Decorates a scenario."""

    def noted(scenario: F) -> F:
        scenario.needs = these  # type: ignore[attr-defined]
        return scenario

    return noted


def own(name: str) -> Need:
    """The class defines this method."""
    return Need(lambda of: not _is_of_base(of, name), lambda of: f"{of.__name__} has no `{name}`")


def _is_of_base(of: type[UnderTest], name: str) -> bool:
    base = SourceUnderTest if issubclass(of, SourceUnderTest) else SinkUnderTest
    return getattr(of, name) is getattr(base, name)


def _is_live(of: type[UnderTest]) -> bool:
    return issubclass(of.connector_class(), LiveSource)


def _tells_lag(of: type[UnderTest]) -> bool:
    connector = of.connector_class()
    return issubclass(connector, OffsetSource) and connector.lag is not OffsetSource.lag


READ_AGAIN = Need(lambda of: not _is_live(of), lambda of: "its rows cannot be read again")
CONFIRMED = Need(_is_live, lambda of: "its rows are read again by their offsets")
OFFSETS = Need(lambda of: issubclass(of.connector_class(), OffsetSource), lambda of: "it has no offsets")
LAG = Need(_tells_lag, lambda of: "it does not tell how many rows wait")
NO_SPOOL = Need(lambda of: not _is_live(of), lambda of: "what it spools is on that disk")


def lacking(of: type[UnderTest], scenario: Callable[..., Any]) -> str:
    """Why a scenario does not apply to this connector; empty when it does."""
    found: tuple[Need, ...] = getattr(scenario, "needs", ())
    return next((need.otherwise(of) for need in found if not need.met(of)), "")


def scenarios_of(tests: type[Any]) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Name and function of each scenario of a class of tests, in the order in which they are written."""
    for base in reversed(tests.__mro__):
        for name, function in vars(base).items():
            if name.startswith(PREFIX):
                yield name, function
