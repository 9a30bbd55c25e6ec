"""How a run ends: by itself, when it is stopped, by a time limit; what is left then, what is lost, what goes on."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from enactment_world import TOPOLOGY, World, vm
from msgspec.structs import replace

from headgate.controller.core.loop import Loop
from headgate.controller.knowledge import loop_events as t
from headgate.dashboards.up.up_run import check_left, lines_of
from headgate.topology_runtime.errors import CheckFailed

S = 1_000_000_000


def running(**settings: Any) -> World:
    return World(**settings).start().until("committed").run(10)


def stuck(**settings: Any) -> World:
    """It was stopped, and no row gets done."""
    world = running(**settings)
    world.hold_acks = world.hold_steps = True
    world.run(2)
    world.ask("stop")
    return world.run(3)


def tuples_of(world: World) -> dict[str, Any]:
    assert world.finish is not None and world.finish.summary is not None
    found: dict[str, Any] = world.finish.summary["tuples"]
    return found


def seconds_until_it_ends(world: World, most: float) -> float:
    began_ns = world.mono_ns
    world.run(most)
    assert world.finish is not None
    return (world.mono_ns - began_ns) / S


def test_a_second_stop_ends_at_once_and_rows_in_ledgers_are_left_not_lost() -> None:
    world = stuck()
    assert world.finish is None, "its ledger is not empty"
    world.do(t.Stopping("again"))
    world.run(1)
    tuples = tuples_of(world)
    assert tuples["left"] == tuples["emitted"] - tuples["acked"] > 0 == tuples["lost"]


def test_rows_in_no_ledger_are_lost_not_left() -> None:
    world = stuck()
    world.forgotten = 7
    world.run(1)
    world.do(t.Stopping("again"))
    world.run(1)
    tuples = tuples_of(world)
    assert (tuples["lost"], tuples["left"]) == (7, tuples["emitted"] - tuples["acked"] - 7)


def test_what_a_leaver_had_open_is_left_and_never_lost_where_it_is_not_heard_just_then() -> None:
    """Its worker begins anew as the time to drain is over; without any fault this was told to be thousands lost."""
    world = stuck()
    source, counts = world.source_thread(), world.loop.knowledge.counts
    known = counts.source("source", 0)
    before = known.emitted
    assert known.emitted > known.done
    known.part(99)  # another thread has them, and says nothing now
    world.vms[source.slot.vm].sources[source.thread].acked = before
    world.run(1)
    world.do(t.Stopping("again"))
    world.run(1)
    tuples = tuples_of(world)
    assert tuples["lost"] == 0 < tuples["left"] == tuples["emitted"] - tuples["acked"]


def test_a_run_that_stands_still_ends_after_half_a_minute_and_says_what_is_left() -> None:
    world = stuck()
    assert 25 < seconds_until_it_ends(world, 60) < 40
    told = [event["text"] for event in world.loop.knowledge.events if event["kind"] == "left"]
    assert len(told) == 1 and f"{tuples_of(world)['left']} rows left" in told[0]


@pytest.mark.parametrize("rows_s", [20, 3])
def test_a_run_that_is_stopped_waits_as_long_as_rows_get_done(rows_s: int) -> None:
    world = stuck()
    behind = world.loop.knowledge.counts.emitted - world.loop.knowledge.counts.done
    world.hold_acks, world.acks_at_once = False, 0
    for _ in range(behind // rows_s + 1):
        world.acks_at_once = rows_s
        world.run(0.05)
        world.acks_at_once = 0
        world.run(0.95)
        if world.finish is not None:
            break
    world.run(10)
    tuples = tuples_of(world)
    assert (tuples["left"], tuples["lost"]) == (0, 0)
    assert behind / rows_s > 10


@pytest.mark.parametrize("given", ["controller", "submitted", "stop", "second stop"])
def test_a_time_limit_ends_it_whoever_set_it(given: str) -> None:
    """Also in the controller's next life."""
    world = running(**({"drain_timeout_s": 9.0} if given == "controller" else {}))
    if given == "submitted":
        world = World()
        world.submitted = msgspec.structs.replace(world.submitted, drain_timeout_s=9.0)
        world.loop = Loop(world.settings, world.submitted)
        world.start().until("committed").run(10)
    world.hold_acks = world.hold_steps = True
    world.run(2)
    world.ask("stop", **({"drain_timeout_s": 9.0} if given == "stop" else {}))
    if given == "second stop":
        world.run(2)
        world.ask("stop", drain_timeout_s=9.0)
    world.run(2)
    world.restart_controller()
    assert 6 < seconds_until_it_ends(world, 25) < 22
    tuples = tuples_of(world)
    assert tuples["left"] > 0 == tuples["lost"]


@pytest.mark.parametrize("limit", [-1, "soon", True, float("inf"), 1e9])
def test_a_limit_that_is_none_is_refused(limit: object) -> None:
    world = running()
    error = world.ask("stop", drain_timeout_s=limit).error
    assert error is not None and error[1] == 3 and "invalid time limit" in error[2]
    assert world.ask("status").data["stage"] == "committed"


def test_a_run_that_left_rows_goes_on_where_it_stopped() -> None:
    world = stuck(drain_timeout_s=5.0)
    world.run(20)
    left, acked, offered = (tuples_of(world)[name] for name in ("left", "acked", "offered"))
    assert left > 0
    world.hold_acks = world.hold_steps = False
    world.run_again(after_s=3600.0)
    world.until("committed").run(15)
    status = world.ask("status").data["tuples"]
    assert status["acked"] >= acked + left and status["lost"] == 0
    assert offered < status["offered"] < offered + 60 * 100, "nothing is offered for the hour in between"
    world.ask("stop")
    world.run(10)
    assert tuples_of(world)["left"] == tuples_of(world)["lost"] == 0


def test_machines_that_were_given_back_are_asked_for_again() -> None:
    world = World((vm("vm1"),), 900.0, spare=vm("spare"), max_vms=3).start().until("committed", 60)
    asked = {one.vm for one in world.durable.machines}
    assert asked
    world.hold_acks = world.hold_steps = True
    world.run(2)
    world.ask("stop", drain_timeout_s=3.0)
    world.run(20)
    assert tuples_of(world)["left"] > 0
    for name in asked:
        del world.vms[name]
    world.hold_acks = world.hold_steps = False
    world.run_again(after_s=60.0)
    world.run(1)
    assert asked <= world.vms.keys() and world.ask("status").data["tuples"]["lost"] == 0


def test_a_run_that_left_nothing_does_not_go_on() -> None:
    world = running()
    world.ask("stop")
    world.run(10)
    assert tuples_of(world)["left"] == 0
    world.run_again(after_s=5.0)
    assert world.finish is not None and world.finish.error is not None
    assert "has ended" in world.finish.error.what


def test_a_source_that_has_ended_ends_the_run_and_offers_what_it_had() -> None:
    """The verdict, the demand and the summary go by that, not by the schedule."""
    world = World(rate_tps=1000.0).start()
    world.rows = 300
    world.acks_at_once, world.hold_steps = 1, True  # 20 rows/s
    world.run(20)
    assert world.finish is None
    world.hold_steps = False
    world.run(10)
    tuples, summary = tuples_of(world), world.finish.summary if world.finish else None
    assert summary is not None and summary["ended"] == "every source has ended"
    assert tuples["offered"] == tuples["emitted"] == tuples["acked"] == 300
    assert [plan["reason"] for plan in summary["plans"]] == ["start"], "it buys nothing"
    assert summary["seconds"] > 14 and summary["achieved_tps"] == pytest.approx(
        300 / summary["seconds"], rel=0.01
    )


def test_what_gets_done_long_after_the_offer_is_no_higher_rate() -> None:
    """100 rows/s are offered for 10 s, 20 a second get done: what was achieved is 20, however long it is drained."""
    world = World().start()
    world.acks_at_once, world.hold_steps = 1, True  # 20 rows/s
    world.run(10)
    world.ask("stop")
    world.run(60)
    summary = world.finish.summary if world.finish else None
    assert summary is not None
    tuples = summary["tuples"]
    assert tuples["acked"] > 900 and summary["offered_tps"] == pytest.approx(100, rel=0.05)
    assert summary["achieved_tps"] == pytest.approx(20, rel=0.1)


def test_rows_that_a_source_read_past_the_end_of_the_offer_were_offered() -> None:
    """It heard late that the offer has ended."""
    world = World().start()
    world.run(5)
    world.ask("stop")
    sources = [source for vm in world.vms.values() for source in vm.sources.values()]
    due = sources[0].emitted
    sources[0].emitted += 80
    world.run(10)
    tuples = tuples_of(world)
    assert tuples["emitted"] == due + 80 <= tuples["offered"]


def test_a_bounded_input_that_is_not_done_fails_the_check_and_a_run_that_is_stopped_does_not() -> None:
    world = World(drain_timeout_s=5.0).start()
    world.rows, world.hold_acks, world.hold_steps = 300, True, True
    world.run(60)
    summary = world.finish.summary if world.finish else None
    assert summary is not None and summary["tuples"]["left"] == 300
    with pytest.raises(CheckFailed, match="300 rows left") as failed:
        check_left(summary)
    assert failed.value.exit_code == 8
    assert "left      300: not done, `headgate up --resume` reads them again" in lines_of(summary)
    check_left({**summary, "ended": "stop was asked for"})


def test_a_run_whose_end_did_not_come_to_a_task_with_state_is_not_over() -> None:
    """All rows were done, and what its `finish` gives was missing without a word: exit code 0."""
    world = World(drain_timeout_s=5.0)
    tasks = tuple(
        replace(task, kind="keyed", state="keyed") if task.name == "work" else task for task in TOPOLOGY.tasks
    )
    world.submitted = replace(world.submitted, topology=replace(TOPOLOGY, tasks=tasks))
    world.loop = Loop(world.settings, world.submitted)
    world.start()
    world.rows, world.hold_steps = 300, True
    world.run(60)
    summary = world.finish.summary if world.finish else None
    assert summary is not None and (summary["tuples"]["left"], summary["unfinished"]) == (0, ["work"])
    with pytest.raises(CheckFailed, match="the end of the input did not come to work"):
        check_left(summary)
    assert "no end    of the input came to work" in lines_of(summary)
    assert "the end of the input did not come to work" in world.events("left")[-1]["text"]
    world.hold_steps = False
    world.run_again(1.0)
    world.run(30)
    summary = world.finish.summary if world.finish else None
    assert summary is not None and summary["unfinished"] == []
    check_left(summary)
