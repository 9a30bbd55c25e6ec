"""A view is of its moment: nothing that happens later changes what is made of it."""

from __future__ import annotations

import json

from enactment_world import World

from headgate.controller.knowledge.run_view import RunView
from headgate.controller.views.explanation import explain
from headgate.controller.views.rate_rows import RateRows
from headgate.controller.views.snapshots import SnapshotMaker
from headgate.controller.views.status import status
from headgate.controller.views.summary import summary


def shown(view: RunView) -> list[str]:
    page = SnapshotMaker()
    page.advance(view)
    made = status(view), summary(view), explain(view, 50), list(RateRows().of(view)), page.snapshot()
    return [json.dumps(document) for document in made]


def test_a_view_that_was_taken_stays_as_it_was() -> None:
    world = World().start().run(20.0)
    view = world.loop.view(world.now)
    before = shown(view)
    world.ask("rate_set", rate_tps=310.0)
    world.vms["vm2"].down = True
    world.run(20.0)
    assert shown(view) == before != shown(world.loop.view(world.now))
