"""`--traffic-triggers`, and the names of schedulers that `up` knows."""

from __future__ import annotations

import pytest

from headgate.controller.knowledge.config import TrafficTriggers
from headgate.controller.plan.schedulers import ALLOCATORS, MAPPERS
from headgate.dashboards.up import settings
from headgate.topology_runtime.errors import UsageError
from headgate.topology_runtime.trigger_options import DEFAULT, parse_triggers


def test_the_default_is_the_default_of_the_controller():
    assert TrafficTriggers(**parse_triggers(DEFAULT)) == TrafficTriggers()


def test_any_of_the_four_may_be_given():
    assert parse_triggers("saves=0.1, every=20,first=dsm") == {"saves": 0.1, "every_s": 20.0, "first": "dsm"}


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("every=0", "'every=0': not a number of seconds from 1 on"),
        ("for=nan", "'for=nan': not a number of seconds"),
        ("saves=20", "'saves=20': not a part from 0 to 1"),
        ("load=-1", "'load=-1': not a part from 0 to 1"),
        ("load=0.5,load=0.6", "load is there twice"),
        ("often", "'often': not one of every=S"),
    ],
)
def test_what_is_no_trigger_is_refused_with_its_reason(text: str, fault: str):
    with pytest.raises(UsageError) as found:
        parse_triggers(text)
    assert fault in "; ".join(found.value.faults)


def test_up_names_every_scheduler_of_the_registry():
    assert tuple(ALLOCATORS) == settings.ALLOCATORS
    assert tuple(MAPPERS) == settings.MAPPERS
