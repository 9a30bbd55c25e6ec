"""What `up` is told, checked before anything starts."""

from __future__ import annotations

import os

import pytest

from headgate.dashboards.up.preparation import check_input, demo_scaled, rates_of, with_input
from headgate.dashboards.up.settings import UpSettings, check, parse_rate_scale, parse_slots
from headgate.topology_runtime.errors import InvalidInput, UsageError
from headgate.topology_runtime.rates import FIRST_ARRIVALS_TPS, words_of
from headgate.topology_runtime.tasks import demo
from headgate.topology_runtime.topology import Edge, Task, Topology


def reader(*sources: str, **params: str) -> Topology:
    tasks = tuple(Task(name, "source", "x:y", dict(params)) for name in sources)
    return Topology("t", (*tasks, Task("sink")), tuple(Edge(name, "sink") for name in sources))


@pytest.mark.parametrize(("text", "slots"), [("4", (4,)), ("4,2,1", (4, 2, 1)), ("256", (256,))])
def test_vms(text, slots):
    assert parse_slots(text) == slots


@pytest.mark.parametrize("text", ["", "4,", "x", "0", "-1", "257", "4.5", ",".join(["1"] * 257)])
def test_vms_that_are_none(text):
    with pytest.raises(UsageError):
        parse_slots(text)


@pytest.mark.parametrize("text", ["0", "-1", "nan", "inf", "x"])
def test_rate_scales_that_are_none(text):
    with pytest.raises(UsageError):
        parse_rate_scale(text)
    assert parse_rate_scale("auto") == "auto" and parse_rate_scale(None) is None
    assert parse_rate_scale("0.5") == 0.5


def test_everything_that_does_not_go_together_is_listed_at_once():
    wrong = UpSettings(topology="t.json", slots=(4, 4), max_vms=1, slot_cores=2.0, peak_tps=5, rate_scale=1)
    with pytest.raises(UsageError) as refused:
        check(wrong)
    assert len(refused.value.faults) == 3


def test_only_the_demo_may_grow_by_itself():
    assert [vm.vm for vm in UpSettings().all_vms] == ["vm1", "vm2"]
    assert [vm.vm for vm in UpSettings(topology="t.json", rates="5").all_vms] == ["vm1"]
    assert [vm.slots for vm in UpSettings(slots=(4, 2), max_vms=4).all_vms] == [4, 2, 4, 4]


def nothing_known() -> float:
    raise AssertionError("the capacity is asked for by `auto` only")


def test_the_demo_runs_a_day_of_taxis_in_two_minutes():
    found = rates_of(UpSettings(), lambda: 300.0)
    assert found.period_s == pytest.approx(120.0)
    assert found.max_tps == pytest.approx(25_838 * demo.RATE_SCALE)
    assert demo_scaled(UpSettings(), found) == ""


def test_on_a_slow_machine_the_demo_has_what_its_slots_carry():
    found = rates_of(UpSettings(), lambda: 100.0)
    assert found.max_tps == pytest.approx(80.0)
    assert "at most 80 tuples/s here, 80% of what these slots carry (elsewhere up to 155" in demo_scaled(
        UpSettings(), found
    )
    for asked in (UpSettings(peak_tps=50.0), UpSettings(rate_scale=0.001), UpSettings(rates="25")):
        assert demo_scaled(asked, rates_of(asked, nothing_known)) == "", "as asked for"


def test_peak_scales_the_highest_rate():
    assert rates_of(UpSettings(peak_tps=50.0), nothing_known).max_tps == pytest.approx(50.0)


def test_auto_leaves_a_fifth_of_the_capacity():
    assert rates_of(UpSettings(rate_scale="auto"), lambda: 200.0).max_tps == pytest.approx(160.0)


def test_a_rate_is_a_rate():
    assert rates_of(UpSettings(rates="25"), nothing_known).steps == ((0.0, 25.0),)


def test_input_goes_to_the_one_source_that_reads_a_file(tmp_path):
    found = with_input(reader("a", path="old"), tmp_path / "new")
    assert found.by_name["a"].params == {"path": str(tmp_path / "new")}
    for other in (reader("a"), reader("a", "b", path="old")):
        with pytest.raises(InvalidInput, match="exactly one source"):
            with_input(other, tmp_path / "new")


def test_input_that_cannot_be_read_is_refused_at_once(tmp_path):
    (tmp_path / "empty").touch()
    os.mkfifo(tmp_path / "pipe")  # nobody writes: opening it must not wait
    for name in ("absent", "empty", "pipe", "."):
        with pytest.raises(InvalidInput, match="cannot read the events"):
            check_input(tmp_path / name)
    (tmp_path / "events").write_text("one\n")
    check_input(tmp_path / "events")


def flow_of(*arriving: bool) -> Topology:
    tasks = tuple(Task(f"in{n}", "source", arriving=how or None) for n, how in enumerate(arriving))
    return Topology("flow", tasks)


def test_without_rates_all_that_comes_is_taken_and_up_says_so():
    flow = flow_of(True, True)
    found = rates_of(UpSettings(topology="t.json"), nothing_known, flow)
    assert found.uncapped and found.steps == ((0.0, FIRST_ARRIVALS_TPS),)
    assert "the first plan is for 20 tuples/s, those after it for what comes" in words_of(found, flow)


def test_rates_are_a_cap_on_what_comes_and_up_says_so():
    flow = flow_of(True, False)
    found = rates_of(UpSettings(topology="t.json", rates="400"), nothing_known, flow)
    assert not found.uncapped
    assert words_of(found, flow) == (
        "rows of in0 are taken as they come: --rates is a cap, at most 400 tuples/s are read"
    )
    assert words_of(found, flow_of(False)) == ""


def test_a_source_that_is_read_at_a_rate_needs_one():
    with pytest.raises(UsageError, match="the input rate of flow is missing") as refused:
        rates_of(UpSettings(topology="t.json"), nothing_known, flow_of(True, False))
    assert refused.value.cause and refused.value.cause.startswith("in1:")
