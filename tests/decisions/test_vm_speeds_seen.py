"""VMs whose rows cost more than those of others: seen, planned with, and forgotten."""

from __future__ import annotations

import io

import pytest
from msgspec.structs import replace
from rich.console import Console

from headgate.controller.analyze.loop_speeds import Looped, loop_speeds
from headgate.controller.analyze.model_bias import slow_vms, vm_costs
from headgate.controller.core import vm_speeds_seen
from headgate.controller.core.loop import Loop
from headgate.controller.core.vm_speeds_seen import SpeedEvidence, seen_speeds
from headgate.controller.knowledge.controller_config import ControllerSettings
from headgate.controller.knowledge.journal_records import Durable, Submitted, VmSpeedSeen
from headgate.controller.knowledge.loop_events import Now
from headgate.controller.models.prediction_ledger import LedgerEntry, RateKept, TaskKept
from headgate.controller.replay.ideal_machines import IdealVm
from headgate.controller.views import run_documents
from headgate.controller.views.controller_metrics import families
from headgate.controller.views.run_snapshots import vms_now
from headgate.dashboards.runs.live_view import picture
from headgate.topology_runtime.wire.messages import Hello, LoopSeen, Report
from scenarios import virtual_scenario as virtual
from scenarios.scenario_shapes import RateAt, Scenario, steps

NS = 1_000_000_000


def entry(speeds: dict[str, float] | None = None, **costs: float) -> LedgerEntry:
    """One window: half a slot is predicted on each VM, and so many times as much is used."""
    uses = {vm: (0.5 * times, 0.5) for vm, times in costs.items()}
    task = TaskKept("work", "work", "", 20.0, 1.0, 1.0, 0.5, 0.5, False, uses, 1.0, 1.0)
    rate = RateKept(20.0, 20.0, 30.0, None, "no")
    return LedgerEntry("", "t", "", "run", 1, "plan", "0", 10.0, rate, {}, (), (task,), speeds or {})


def seen(made: LedgerEntry, **before: float) -> dict[str, float]:
    return seen_speeds(vm_costs([made]), before)


def test_a_vm_whose_rows_cost_twice_as_much_is_half_as_fast() -> None:
    assert seen(entry(vm1=1.0, vm2=2.0, vm3=1.0))["vm2"] == pytest.approx(0.5, abs=0.03)
    assert list(seen(entry(vm1=1.0, vm2=2.0, vm3=1.0))) == ["vm2"]
    assert seen(entry(vm1=1.0, vm2=1.3, vm3=0.9)) == {}, "that may be chance"


def test_a_model_that_is_off_everywhere_makes_no_vm_slow() -> None:
    assert seen(entry(vm1=3.0, vm2=3.0)) == {}
    assert seen(entry(vm1=0.4, vm2=0.9)) == {}, "no row costs more than its model says"
    assert seen(entry(vm1=2.0)) == {}, "there is nothing to compare it with"


def test_what_was_planned_with_counts_as_found_before() -> None:
    half = {"vm1": 1.0, "vm2": 0.5}
    assert seen(entry(half, vm1=1.0, vm2=1.0), vm2=0.5) == {}
    assert list(slow_vms([entry(half, vm1=1.0, vm2=1.0)])) == ["vm2"]


def test_a_neighbour_that_goes_leaves_no_trace_and_makes_nobody_else_slow() -> None:
    half = {"vm1": 1.0, "vm2": 0.5}
    assert seen(entry(half, vm1=1.0, vm2=0.5), vm2=0.5) == {"vm2": 1.0}
    assert seen(entry(half, vm1=1.6, vm2=0.8), vm2=0.5) == {"vm2": 1.0}


def test_a_vm_that_is_slower_than_thought_is_planned_with_anew() -> None:
    two_thirds = {"vm1": 1.0, "vm2": 0.67}
    found = seen(entry(two_thirds, vm1=1.0, vm2=1.34), vm2=0.67)
    assert found["vm2"] == pytest.approx(0.5, abs=0.02)


def test_no_vm_is_planned_with_at_next_to_nothing() -> None:
    assert seen(entry(vm1=1.0, vm2=80.0)) == {"vm2": pytest.approx(0.2)}, "a factor is bounded"


def test_how_often_a_vm_turned_slow_is_known_after_a_restart() -> None:
    durable = Durable()
    for speed in (0.5, 0.4, 1.0, 0.5):
        durable = VmSpeedSeen("vm2", speed, 7).after(durable)
    assert durable.speeds["vm2"].times == 3 and durable.speeds["vm2"].speed == 0.5


def watched(
    machines: str, tps: float, seconds: int, monkeypatch: pytest.MonkeyPatch, rate: RateAt | None = None
) -> tuple[Loop, list[str]]:
    """(the controller after so long in virtual time, what it said of speeds)."""
    loops: list[Loop] = []

    def made(settings: ControllerSettings, submitted: Submitted) -> Loop:
        loops.append(Loop(settings, submitted))
        return loops[-1]

    monkeypatch.setattr(virtual, "Loop", made)
    for _ in virtual.tried(Scenario("watched", "", rate or steps((0, tps)), machines=machines), seconds):
        pass
    events = loops[0].knowledge.events
    return loops[0], [event["text"] for event in events if event["kind"] == "speed"]


def test_a_slow_vm_is_planned_around_within_a_minute_of_the_first_plan(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loop, said = watched("slow", 45.0, 70, monkeypatch)
    k = loop.knowledge
    assert k.durable.speeds["vm2"].speed == pytest.approx(0.5, abs=0.03)
    assert len(said) == 1 and "vm2" in said[0]
    assert (k.durable.speeds["vm2"].at_ns - virtual.WALL_NS) / NS < 60
    assert k.plan is not None
    view = loop.view(Now(70 * NS, virtual.WALL_NS + 70 * NS))
    vms = run_documents.status(view)["vms"]
    shown = {vm["vm"]: vm["speed"] for vm in vms}
    assert (shown_speed := shown.pop("vm2")) == pytest.approx(k.durable.speeds["vm2"].speed, abs=1e-4)
    assert set(shown.values()) == {1.0}
    by = {vm["vm"]: (vm["speed_by"], vm["speed_age_s"]) for vm in vms}
    age_s = (virtual.WALL_NS + 70 * NS - k.durable.speeds["vm2"].at_ns) / NS
    assert by.pop("vm2") == ("rows", age_s) and set(by.values()) == {(None, None)}
    samples = [sample for family in families(view) for sample in family.samples]
    measured = [sample for sample in samples if sample.name == "headgate_vm_speed_ratio"]
    assert [(one.labels, one.value) for one in measured] == [
        ({"vm": "vm2", "source": "rows"}, k.durable.speeds["vm2"].speed)
    ]
    on_page = {name: (vm.speed, vm.speed_by, vm.speed_since) for name, vm in vms_now(view).items()}
    assert on_page.pop("vm2")[1] == "rows" and set(on_page.values()) == {(None, None, None)}
    text = Console(width=120, file=io.StringIO(), record=True)
    text.print(picture(run_documents.status(view), [], None))
    assert f"vm2 (speed {shown_speed:.2g} by rows for {age_s:.0f} s)" in text.export_text()
    work = [bundle for bundle in k.plan.placement.bundles if bundle.task == "work"]
    carried = sum(one.threads * virtual.THREAD_TPS * (0.5 if one.slot.vm == "vm2" else 1) for one in work)
    assert carried >= 45


def test_a_neighbour_is_planned_around_and_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vm_speeds_seen, "FORGOTTEN_S", 20.0)
    loop, said = watched("neighbour", 20.0, 112, monkeypatch)
    seen_now = loop.knowledge.durable.speeds["vm2"]
    assert seen_now.speed == 1.0 and len(said) == 2 and said[0].startswith("rows on VM vm2 cost ")
    assert (seen_now.at_ns - virtual.WALL_NS) / NS < virtual.NEIGHBOUR_S[0] + 25 + 20, "seen, and forgotten"


def test_where_all_vms_are_alike_nothing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    loop, said = watched("", 20.0, 60, monkeypatch)
    assert said == [] and loop.knowledge.durable.speeds == {}


def test_a_slow_vm_is_seen_in_twenty_seconds_though_plans_change_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rates = [(8.0 * turn, 6.0 * 1.25**turn) for turn in range(12)]
    loop, said = watched("neighbour", 20.0, 82, monkeypatch, steps(*rates))
    seen_now = loop.knowledge.durable.speeds["vm2"]
    assert said and seen_now.speed < 1 and seen_now.by == "rows"
    assert (seen_now.at_ns - virtual.WALL_NS) / NS < virtual.NEIGHBOUR_S[0] + 20


def test_two_spans_show_a_speed_whatever_plans_they_are_of() -> None:
    evidence, whole, half = SpeedEvidence(), {"vm1": 1.0, "vm2": 1.0}, {"vm1": 1.0, "vm2": 0.5}
    slow = vm_costs([entry(whole, vm1=1.0, vm2=2.0)])
    assert evidence.add(slow, {}, 0) == {}
    assert evidence.add(vm_costs([entry(whole, vm1=1.0)]), {}, 5 * NS) == {}, "it had no rows"
    assert evidence.add(vm_costs([entry(half, vm1=1.0, vm2=1.0)]), {}, 10 * NS) == {
        "vm2": pytest.approx(0.5, abs=0.03)
    }, "as a plan that takes it for half as fast predicts"


def test_a_span_in_which_a_vm_is_as_fast_as_thought_or_long_ago_shows_nothing() -> None:
    slow, quick = vm_costs([entry(vm1=1.0, vm2=2.0)]), vm_costs([entry(vm1=1.0, vm2=1.0)])
    evidence = SpeedEvidence()
    assert [evidence.add(costs, {}, n * NS) for n, costs in enumerate((slow, quick, slow))] == [{}, {}, {}]
    assert evidence.add(slow, {}, 60 * NS) == {}
    assert evidence.add(slow, {}, 64 * NS) != {}


def looped(round_ns: float, seconds: int = 60, host: str = "", speed: float = 1.0) -> Looped:
    return Looped(LoopSeen(round_ns, seconds, host), speed)


def test_a_vm_whose_loop_takes_twice_as_long_is_half_as_fast() -> None:
    assert loop_speeds({"vm1": looped(100.0), "vm2": looped(200.0)}) == {"vm1": 1.0, "vm2": 0.5}
    assert loop_speeds({"vm1": looped(100.0), "vm2": looped(120.0)})["vm2"] == 1.0, "that may be chance"
    assert loop_speeds({"vm1": looped(100.0), "vm2": looped(9e3)})["vm2"] == 0.2, "it is bounded"
    assert loop_speeds({"vm1": looped(100.0), "vm2": Looped(LoopSeen())}) == {"vm1": 1.0}, "of an older agent"


@pytest.mark.parametrize("lie", [1e-6, 1.0, 20.0])
def test_a_host_that_says_what_it_likes_makes_no_other_slow(lie: float) -> None:
    told = {"vm1": lie, "vm2": 100.0, "vm3": 104.0, "vm4": 200.0}
    found = loop_speeds({vm: Looped(LoopSeen(ns, 60, vm)) for vm, ns in told.items()})
    assert found == {"vm1": 1.0, "vm2": 1.0, "vm3": 1.0, "vm4": 0.5}


def test_at_first_only_a_large_difference_counts() -> None:
    first = loop_speeds({f"vm{n}": looped(ns, 0) for n, ns in enumerate((100.0, 100.0, 160.0, 190.0), 1)})
    assert first == {"vm1": 1.0, "vm2": 1.0, "vm3": 1.0, "vm4": 0.53}


def test_vms_on_one_machine_are_alike_and_a_speed_that_is_said_counts_as_found() -> None:
    one = {"vm1": looped(100.0, 60, "a"), "vm2": looped(300.0, 60, "a"), "vm3": looped(200.0, 60, "b")}
    assert loop_speeds(one) == {"vm1": 1.0, "vm2": 1.0, "vm3": 0.5}
    assert set(loop_speeds({"vm1": looped(100.0), "vm2": looped(200.0, speed=0.5)}).values()) == {1.0}


class LoopedVm(IdealVm):
    """Its agent's loop takes twice as long on vm2."""

    @property
    def loop(self) -> LoopSeen:
        return LoopSeen(200.0 if self.name == virtual.SLOW_VM else 100.0, 0, self.name)

    def hello(self) -> Hello:
        return replace(super().hello(), loop=self.loop)

    def report(self) -> Report:
        return replace(super().report(), loop=self.loop)


@pytest.fixture
def looped_vms(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Two VMs, of which one's loop is slow."""
    monkeypatch.setattr(virtual.IdealWorld, "vm_kind", LoopedVm)
    monkeypatch.setattr(virtual, "VMS", 2)
    return monkeypatch


def test_a_vm_that_is_slow_by_its_loop_is_planned_with_as_such_from_the_first_plan(
    looped_vms: pytest.MonkeyPatch,
) -> None:
    loop, said = watched("slow", 14.0, 30, looped_vms)
    seen_now = loop.knowledge.durable.speeds["vm2"]
    assert (seen_now.speed, seen_now.by) == (0.5, "loop") and len(said) == 1 and "vm2" in said[0]
    (rollout,) = loop.knowledge.durable.rollouts
    assert rollout.reason == "start", "no other plan was needed"
    plan = loop.knowledge.plan
    assert plan is not None and {vm.vm: vm.speed for vm in plan.vms} == {"vm1": 1.0, "vm2": 0.5}
    work = [bundle for bundle in plan.placement.bundles if bundle.task == "work"]
    assert sum(one.threads * virtual.THREAD_TPS * (0.5 if one.slot.vm == "vm2" else 1) for one in work) >= 14


def test_rows_count_more_than_a_loop_and_a_loop_never_asks_for_a_plan(
    looped_vms: pytest.MonkeyPatch,
) -> None:
    loop, said = watched("", 14.0, 60, looped_vms)
    seen_now = loop.knowledge.durable.speeds["vm2"]
    assert (seen_now.speed, seen_now.by) == (1.0, "rows") and len(said) == 2
    assert (seen_now.at_ns - virtual.WALL_NS) / NS < 25
