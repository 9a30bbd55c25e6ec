"""VMs whose rows cost more than those of others: seen, planned with, and forgotten."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from headgate.controller.analyze.model_bias import slow_vms, vm_costs
from headgate.controller.core import vm_speeds_seen
from headgate.controller.core.loop import Loop
from headgate.controller.core.vm_speeds_seen import seen_speeds
from headgate.controller.knowledge.controller_config import ControllerSettings
from headgate.controller.knowledge.journal_records import Durable, Submitted, VmSpeedSeen
from headgate.controller.knowledge.loop_events import Now
from headgate.controller.models.prediction_ledger import LedgerEntry, RateKept, TaskKept
from headgate.controller.views import run_documents
from headgate.controller.views.run_snapshots import vms_now
from headgate.dashboards.runs.live_view import picture
from scenarios import virtual_scenario as virtual
from scenarios.scenario_shapes import Scenario, steps

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
    machines: str, tps: float, seconds: int, monkeypatch: pytest.MonkeyPatch
) -> tuple[Loop, list[str]]:
    """(the controller after so long in virtual time, what it said of speeds)."""
    loops: list[Loop] = []

    def made(settings: ControllerSettings, submitted: Submitted) -> Loop:
        loops.append(Loop(settings, submitted))
        return loops[-1]

    monkeypatch.setattr(virtual, "Loop", made)
    for _ in virtual.tried(Scenario("watched", "", steps((0, tps)), machines=machines), seconds):
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
    shown = {vm["vm"]: vm["speed"] for vm in run_documents.status(view)["vms"]}
    assert shown.pop("vm2") == pytest.approx(k.durable.speeds["vm2"].speed, abs=1e-4)
    assert set(shown.values()) == {1.0}
    on_page = {name: vm.speed for name, vm in vms_now(view).items()}
    assert on_page.pop("vm2") is not None and set(on_page.values()) == {None}
    text = Console(width=120, file=io.StringIO(), record=True)
    text.print(picture(run_documents.status(view), [], None))
    assert "vm2 (speed 0.5" in text.export_text()
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
