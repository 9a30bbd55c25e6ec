"""The controller follows what comes at a source, not what it was told: offered, plans, lag, the end of the run."""

from __future__ import annotations

from arriving_world import ArrivingWorld, S
from msgspec.structs import replace

from headgate.controller.knowledge import turns as t


def running(comes_tps: float, told_tps: float, uncapped: bool = True) -> ArrivingWorld:
    world = ArrivingWorld(comes_tps, told_tps, uncapped)
    world.start()
    world.run(20)
    return world


def test_what_comes_is_offered_whatever_was_told() -> None:
    for told_tps in (20.0, 400.0):
        world = running(100.0, told_tps)
        assert abs(float(str(world.rates["offered_now_tps"])) - 100) < 2
        assert 100 <= world.planned_tps <= 135 or told_tps > 100, "up at once"
        world.run(60)
        assert 100 <= world.planned_tps <= 210, "and down in time"


def test_a_step_of_what_comes_is_planned_for_within_three_seconds() -> None:
    world = running(20.0, 20.0)
    world.comes_tps = 100.0
    assert world.seconds_until(lambda: world.planned_tps > 110, 5.0) <= 3.5
    world.run(5)
    assert world.planned_tps < 140 and world.rates["source_kind"] == "arriving"


def test_a_step_of_few_rows_is_one_plan() -> None:
    world = running(20.0, 20.0)
    plans = world.durable.next_epoch
    world.comes_tps = 60.0
    world.run(12)
    assert world.durable.next_epoch == plans + 1
    assert 66 <= world.planned_tps < 80


def test_what_comes_above_the_plan_for_long_is_no_chance_and_planned_for_without_an_alarm() -> None:
    """A third more than planned for: of so few rows chance brings as much in five seconds, in twenty it does not."""
    world = ArrivingWorld(30.0, 20.0)
    world.start()
    world.run(5)
    assert world.seconds_until(lambda: world.planned_tps > 30, 60.0) <= 20
    assert "alarm" not in [event["kind"] for event in world.loop.knowledge.events]


def test_rows_that_wait_are_shown_planned_for_and_an_alarm_once() -> None:
    world = running(100.0, 100.0)
    assert (world.rates["lag_rows"], world.rates["lag_s"]) == (0, 0.0)
    world.carries_tps = 40.0
    world.run(30)
    assert int(str(world.rates["lag_rows"])) > 1000 and float(str(world.rates["lag_s"])) > 10
    alarms = [e for e in world.loop.knowledge.events if e["text"].startswith("lag growing")]
    assert len(alarms) == 1 and "lag" in world.loop.knowledge.alarms
    result = world.loop.view(world.now).result
    need = result.demand if result else None
    assert need is not None and need.target_tps > 125 + 15, "what waits is to be done within a minute"
    world.carries_tps = 1e6
    world.run(5)
    assert "lag" not in world.loop.knowledge.alarms
    assert [e["kind"] for e in world.loop.knowledge.events].count("alarm_over") == 1


def test_missing_reports_are_no_other_rate() -> None:
    world = running(100.0, 100.0)
    before = world.planned_tps
    for one in world.vms.values():
        one.cut = True
    world.run(1.5)
    for one in world.vms.values():
        one.cut = False
    world.run(10)
    assert world.planned_tps == before
    assert abs(float(str(world.rates["offered_now_tps"])) - 100) < 2


def test_a_cap_is_told_and_can_be_set() -> None:
    world = running(100.0, 400.0, uncapped=False)
    assert world.rates["cap_tps"] == 400.0
    assert world.ask("rate_set", rate_tps=50).error is None
    world.run(1)
    assert world.rates["cap_tps"] == 50.0


def test_an_agent_cannot_claim_more_than_came_nor_more_than_a_spool_holds() -> None:
    world = running(100.0, 100.0)
    thread = world.source_thread()
    report = world.vms[thread.slot.vm].report()
    (now,) = report.sources
    for wrong in ({"emitted": now.arrived + 10}, {"arrived": now.emitted + (1 << 40)}):
        world.vms[thread.slot.vm].reports += 1
        given = replace(report, sequence=world.vms[thread.slot.vm].reports, sources=(replace(now, **wrong),))
        assert [one for one in world.do(t.FromVm(given)) if isinstance(one, t.Distrust)], wrong


def test_the_trace_says_what_kind_of_source_it_is_and_how_far_behind() -> None:
    world = running(100.0, 100.0)
    rows = list[dict[str, object]]()
    for _ in range(30):
        world.mono_ns += S // 20
        out = world.do(t.Tick())
        rows += [one.data for one in out if isinstance(one, t.Trace) and one.kind == "rates"]
    assert rows and {(row["source_kind"], row["lag_rows"]) for row in rows} == {("arriving", 0)}


def test_the_run_ends_when_what_was_taken_is_read() -> None:
    world = running(100.0, 100.0)
    world.ask("stop")
    world.run(15)
    assert world.finish is not None and world.finish.summary is not None
    tuples = world.finish.summary["tuples"]
    assert tuples["offered"] == tuples["emitted"] == tuples["acked"] > 1000 and tuples["lost"] == 0


def test_no_more_is_planned_for_than_a_cap_lets_through() -> None:
    world = ArrivingWorld(100.0, 20.0, uncapped=False)
    world.carries_tps = 20.0
    world.start()
    world.run(60)
    assert world.planned_tps <= 20.0 * 1.25 + 1e-6, world.loop.knowledge.last_decision
    assert "lag" in world.loop.knowledge.alarms, "but it is told"
    assert abs(float(str(world.rates["offered_now_tps"])) - 100) < 2
