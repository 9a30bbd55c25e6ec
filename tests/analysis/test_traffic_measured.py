"""Traffic as it is measured: what of it leaves slots and VMs, how large its rows are, what CPU it takes; smoothed."""

from __future__ import annotations

import pytest
from analysis_made import NS, START_NS, block, line_topology
from msgspec.structs import replace

from headgate.controller.analyze.traffic import smoothed, traffic_now
from headgate.controller.knowledge.traffic import MeasuredTraffic, TaskFlow, sized
from headgate.controller.knowledge.windows import Window
from headgate.controller.monitor.intake import Intake
from headgate.controller.monitor.windows import window_of
from headgate.topology_runtime.cluster import Vm

VM1, VM2 = Vm("vm1", 2, 0.2), Vm("vm2", 2, 0.2, speed=0.5)
RATE = 100


def told(seconds: int = 20, sizes: tuple[int, int] = (50, 50)) -> Window:
    """Source 1 and score 2 in vm1/0, score 3 in vm1/1, score 4 and sink 5 on vm2: each score takes its part of the rows
    and says twice as many to the sink."""
    made = Intake(line_topology())
    made.expect((VM1, VM2))
    inside, wire = sizes
    for k in range(seconds):
        end = START_NS + k * NS
        made.add_progress(end, RATE * k, RATE * k, RATE * k)
        links1 = [link(1, 2, 40, 0), link(1, 3, 30, 30 * inside)]
        links2 = [link(1, 4, 30, 30 * wire), link(2, 5, 80, 8000), link(3, 5, 60, 6000), link(4, 5, 60, 0)]
        threads1 = [("source", row(1, 0)), ("score", row(2, 0, 40)), ("score", row(3, 1, 30))]
        threads2 = [("score", row(4, 0, 60)), ("sink", row(5, 0))]
        made.add_block(block("vm1", k, end, threads1, links=links1), end, 1)
        made.add_block(block("vm2", k, end, threads2, links=links2), end, 1)
    made.add_progress(START_NS + seconds * NS, RATE * seconds, RATE * seconds, RATE * seconds)
    return window_of(made, START_NS + seconds * NS, 10.0)


def row(thread: int, slot: int, cpu_ms: int = 0) -> dict[str, int]:
    return {"thread": thread, "slot": slot, "cpu_ns": cpu_ms * 1_000_000}


def link(of: int, to: int, tuples: int, size: int) -> dict[str, int]:
    return {"from_thread": of, "to_thread": to, "tuples": tuples, "bytes": size, "frames": 1}


def test_rows_between_slots_and_between_vms_are_told_apart():
    edges = told().edges
    first, second = edges["source", "score"], edges["score", "sink"]
    assert (first.rate_tps, first.between_slots_tps, first.between_vms_tps) == pytest.approx((100, 60, 30))
    assert (second.rate_tps, second.between_slots_tps, second.between_vms_tps) == pytest.approx(
        (200, 140, 140)
    )
    assert (first.between_vms_bytes_per_s, second.between_vms_bytes_per_s) == pytest.approx((1500, 14_000))


def test_a_row_has_the_size_it_has_between_slots():
    """Rows that stay within a slot are not made bytes of, so they do not count for the size."""
    found = traffic_now(told())
    assert found is not None
    assert found.row_bytes == pytest.approx({("source", "score"): 50, ("score", "sink"): 100})
    assert found.rows == pytest.approx({("source", "score"): 1, ("score", "sink"): 2})


def test_cpu_counts_by_the_speed_of_its_vm():
    """score: 0.07 cores on vm1, 0.06 on vm2, which has half the speed."""
    found = traffic_now(told())
    assert found is not None
    assert found.work["score"] * RATE == pytest.approx(0.07 + 0.06 / 2)


def test_a_window_without_samples_rows_or_links_says_nothing():
    window = told()
    assert traffic_now(replace(window, complete=0.9)) is None
    assert traffic_now(replace(window, emitted_tps=5.0)) is None
    silent = {ends: replace(edge, rate_tps=0.0) for ends, edge in window.edges.items()}
    assert traffic_now(replace(window, edges=silent)) is None


def test_what_was_measured_moves_slowly_and_a_size_stays_known():
    """A step is nearly two thirds in after the time of smoothing; rows that leave no slot keep their size."""
    found = smoothed(None, told(), 10.0)
    assert found is not None
    for _ in range(50):
        found = smoothed(found, told(), 1.0)
    inside = told()
    edge = replace(inside.edges["score", "sink"], rate_tps=100.0, between_slots_tps=0.0, bytes_per_s=0.0)
    inside = replace(inside, edges={**inside.edges, ("score", "sink"): edge})
    for _ in range(30):
        found = smoothed(found, inside, 1.0)
    assert found.rows["score", "sink"] == pytest.approx(1 + 0.37, abs=0.02)
    assert found.row_bytes["score", "sink"] == pytest.approx(100)


def test_what_plans_are_made_from_is_rounded_so_that_noise_is_no_other_plan():
    one = MeasuredTraffic(60, {("a", "b"): 1.0001}, {("a", "b"): 99.98}, {"a": 0.00100004})
    other = MeasuredTraffic(60, {("a", "b"): 0.9999}, {("a", "b"): 100.03}, {"a": 0.00099996})
    assert one.flows(120.0) == other.flows(120.0) == (TaskFlow("a", "b", 120.0, 100.0),)
    assert one.works(120.0) == other.works(120.0)


def test_rows_of_unknown_size_count_as_the_geometric_mean_of_the_others():
    flows = (TaskFlow("a", "b", 1.0, 10.0), TaskFlow("b", "c", 1.0), TaskFlow("c", "d", 1.0, 1000.0))
    assert [flow.row_bytes for flow in sized(flows)] == [10.0, 100.0, 1000.0]
    assert [flow.row_bytes for flow in sized(flows[1:2])] == [None]
