"""Runs whose sources end, with faults and re-plans of their own: every pane and every `finish` gives its rows once."""

from __future__ import annotations

import pytest
from source_stories import knowledge, sources, until

from headgate.lab.simulation.simulated_world import ENDS_S, Options, SimWorld
from headgate.lab.simulation.virtual_time import MS, S

FEW = range(6)
FOUND = {
    140: "a journal that failed when the run began to drain",
    252: "a link that broke after panes had fired",
    100018: "a source that was started again, by a controller that knew of half its rows",
    100044: "the thread that had said the end to keyed tasks left before that was done",
    200116: "panes that were to fire when nothing had moved for long",
}


@pytest.mark.parametrize("seed", FEW)
def test_all_is_at_the_sink_once_and_the_run_ends_by_itself(seed: int) -> None:
    SimWorld(seed, Options(shape="ends")).run()


@pytest.mark.parametrize("seed", FOUND, ids=str)
def test_what_seeds_found_is_as_it_must_be(seed: int) -> None:
    SimWorld(seed, Options(shape="ends")).run()


@pytest.mark.parametrize("step", ["hold", "fire"])
def test_a_worker_that_is_lost_when_nothing_is_to_be_sent_is_told_and_its_rows_go_again(step: str) -> None:
    world = SimWorld(0, Options(shape="ends", faults=0))
    world.begin()

    def still() -> bool:
        end = knowledge(world).durable.end
        return (
            end is not None and end.step == step and any(s.source.rests == end.number for s in sources(world))
        )

    until(world, still, ENDS_S, 2 * MS)
    reading = {source.worker.slot for source in sources(world)}
    next(worker for worker in world.workers() if worker.slot not in reading).kill("the story says so")
    world.wait("the run ends", lambda: "" if world.controller.finish else "no end", ENDS_S)
    finish = world.controller.finish
    assert finish is not None and finish.summary is not None and finish.summary["tuples"]["lost"] == 0
    world.account.whole_once(2)


@pytest.mark.parametrize("seed", FEW)
def test_a_run_that_is_stopped_fires_no_pane_and_finishes_no_key_and_loses_no_row(seed: int) -> None:
    world = SimWorld(seed, Options(shape="ends", faults=0))
    world.begin()
    world.clock.run_until(3 * S)
    world.controller.ask("stop")
    world.wait("the run ends", lambda: "" if world.controller.finish else "no end", ENDS_S)
    finish = world.controller.finish
    assert finish is not None and finish.error is None and finish.summary is not None
    tuples = finish.summary["tuples"]
    assert not world.account.ended, "nothing has come to the sink"
    assert tuples["emitted"] > 0 and (tuples["left"], tuples["lost"]) == (tuples["emitted"], 0)


@pytest.mark.parametrize("seed", [960000, 960001])
def test_a_partition_that_waits_for_one_far_behind_loses_nothing_under_faults_and_re_plans(seed: int) -> None:
    """Each window is given once with all its rows, none is late, and the run ends by itself."""
    world = SimWorld(seed, Options(shape="drifts"))
    world.run()
    assert world.met["sources held"] > 0
