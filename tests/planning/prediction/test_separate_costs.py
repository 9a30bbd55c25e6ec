"""What a row, a frame and a crossing cost, kept apart: the rate and the CPU of a plan follow from the frames that it
will have (decision 114). Costs are planted; what is expected is worked out here, frame by frame."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.controller.models.model_data import model_data, model_of
from headgate.controller.models.plans import Bundle, Placement
from headgate.controller.models.prediction_ledger import corrected
from headgate.controller.models.task_models import Model, ModelSlot, Point
from headgate.controller.plan.predict.prediction import predict
from headgate.controller.plan.predict.vm_speeds import at_speed
from headgate.topology_runtime.api.cluster import Slot, Vm
from headgate.topology_runtime.api.topology import Edge, Static, Task, Topology

HERE, BESIDE = Slot("vm1", 0), Slot("vm2", 0)
ROWS = 1000  # in a frame when the models were measured
LONGEST_S, USUAL_S = (
    0.1,
    0.001,
)  # between frames of one sender: to a thread that is busy, and to one that is not


def model(task: str, cores: float, row_s: float, frame_s: float, crossing_s: float) -> Model:
    """Of a task measured alone: rows that come from a slot and go to one, in frames of `ROWS`."""
    each = (row_s + crossing_s + frame_s / ROWS) / cores
    costs = {"frame_cpu": frame_s / cores, "crossing_cpu": crossing_s / cores, "frame_rows": ROWS}
    return Model(task, ModelSlot(cores), (Point(1, 1 / each, 1.0, 0.1),), costs)


def flow(senders: int) -> Topology:
    tasks = Task("in", "source", static=Static(senders)), Task("a"), Task("b"), Task("out", static=Static())
    return Topology("flow", tasks, (Edge("in", "a"), Edge("a", "b"), Edge("b", "out")))


def placed(senders: int, apart: bool) -> Placement:
    at = {
        "in": (BESIDE, senders),
        "a": (HERE, 1),
        "b": (Slot("vm3", 0) if apart else HERE, 1),
        "out": (BESIDE, 1),
    }
    return Placement(tuple(Bundle(slot, task, threads) for task, (slot, threads) in at.items()))


def vms(cores: float) -> tuple[Vm, ...]:
    return Vm("vm1", 1, slot_cores=cores), Vm("vm2", 1), Vm("vm3", 1, slot_cores=cores)


def used_cores(
    tps: float, senders: int, row_s: float, frame_s: float, crossing_s: float, gap_s: float
) -> float:
    """Of the slot with both tasks, by its frames: a sender sends one with its first row, and the rest of a gap's rows
    with it, up to 2,048; within the slot there is one thread that sends."""
    frames = sum(tps / min(2048, 1 + gap_s * tps / pairs) for pairs in (senders, 1))
    return 2 * row_s * tps + crossing_s * tps + frame_s * frames


COSTS = {
    "cores": st.sampled_from([0.12, 0.25, 0.5, 1.0]),
    "senders": st.sampled_from([1, 2, 4, 8]),
    "row_s": st.floats(1e-6, 2e-4),
    "frame_s": st.floats(3e-5, 3e-4),
    "crossing_s": st.floats(0.0, 1e-6),
}


@given(**COSTS)
def test_the_peak_is_where_rows_frames_and_crossings_fill_the_slot(
    cores: float, senders: int, row_s: float, frame_s: float, crossing_s: float
) -> None:
    models = {task: model(task, cores, row_s, frame_s, crossing_s) for task in ("a", "b")}
    found = predict(flow(senders), models, placed(senders, apart=False), vms(cores))
    used = used_cores(found.rate_tps, senders, row_s, frame_s, crossing_s, LONGEST_S)
    assert used == pytest.approx(cores, rel=1e-3)


@given(**COSTS, part=st.floats(0.02, 0.98))
def test_cpu_below_the_peak_is_that_of_the_frames_that_come_then(
    cores: float, senders: int, row_s: float, frame_s: float, crossing_s: float, part: float
) -> None:
    """Of single rows it may be the whole slot, and then it is that: those that wait come together."""
    models = {task: model(task, cores, row_s, frame_s, crossing_s) for task in ("a", "b")}
    placement, topology = placed(senders, apart=False), flow(senders)
    tps = part * predict(topology, models, placement, vms(cores)).rate_tps
    slot = predict(topology, models, placement, vms(cores), tps).slots[0]
    expected = used_cores(tps, senders, row_s, frame_s, crossing_s, USUAL_S) / cores
    assert slot.cpu == pytest.approx(min(1.0, expected), rel=1e-3)


def test_one_truth_in_slots_of_all_sizes_with_few_and_many_senders() -> None:
    """A core's worth of slots carries about the same, whatever the slots: 1 µs a row, 150 µs a frame."""
    carried = [
        predict(flow(n), {t: model(t, cores, 1e-6, 150e-6, 5e-7) for t in "ab"}, placed(n, False), vms(cores)).rate_tps
        / cores
        for cores in (0.12, 0.25, 0.5, 1.0)
        for n in (1, 8)
    ]  # fmt: skip
    assert min(carried) > 0.85 * max(carried)


def test_tasks_in_slots_of_their_own_pay_for_each_crossing() -> None:
    """Together: rows of both and one crossing. Apart each has a slot, and a crossing of its own."""
    models = {task: model(task, 1.0, 2e-6, 0.0 + 1e-9, 1e-6) for task in ("a", "b")}
    together, apart = (predict(flow(1), models, placed(1, way), vms(1.0)).rate_tps for way in (False, True))
    assert (together, apart) == (pytest.approx(1 / 5e-6, rel=1e-3), pytest.approx(1 / 3e-6, rel=1e-3))


def test_without_costs_of_frames_a_plan_is_predicted_as_ever() -> None:
    plain = {task: model(task, 0.5, 1e-5, 1e-4, 1e-6) for task in ("a", "b")}
    plain = {task: Model(task, one.slot, one.points) for task, one in plain.items()}
    expected = 1 / sum(one.points[0].cpu / one.points[0].rate_tps for one in plain.values())
    for senders in (1, 8):
        found = predict(flow(senders), plain, placed(senders, apart=False), vms(0.5))
        assert found.rate_tps == pytest.approx(expected, rel=1e-9)


def test_costs_are_kept_scaled_with_the_model_and_read_again() -> None:
    known = model("a", 0.5, 1e-5, 1e-4, 1e-6)
    again, faults = model_of(model_data(known))
    assert (again, faults) == (known, [])
    slow, dear = at_speed(known, 0.5), corrected(known, 2.0, 2.0, {})
    for other in (slow, dear):
        assert other.wake.frame == pytest.approx(2 * known.wake.frame)
        assert other.wake.crossing == pytest.approx(2 * known.wake.crossing)
        assert other.wake.rows == known.wake.rows
    _, faults = model_of({**model_data(known), "frame_cpu": -1})
    assert any("frame_cpu" in fault for fault in faults)
