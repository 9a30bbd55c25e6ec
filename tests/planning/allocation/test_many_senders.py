"""Tasks whose rows come in small frames, since many threads send to them: MBA counts them as predictions do."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from worlds import chain

from headgate.controller.models.task_models import Model, ModelSlot, Point, peak
from headgate.controller.plan.allocators.many_senders import among, senders_of
from headgate.controller.plan.allocators.mba import mba
from headgate.controller.plan.plan_reasons import threads_reasons
from headgate.controller.plan.planner import PlanRequest, make_plan
from headgate.controller.plan.verifier import faults_of
from headgate.topology_runtime.api.cluster import Vm
from headgate.topology_runtime.measuring.wake_cost import LONGEST_GAP_S

FRAME = 0.001  # of a slot's CPU for one frame/s
ROWS = 300.0  # in a frame, when the peak was measured


def quick(task: str, frame: float = FRAME) -> Model:
    """4,000 rows/s fill a slot in large frames; two threads do no more."""
    points = (Point(1, 4000.0, 1.0, 0.01), Point(2, 4000.0, 1.0, 0.02))
    more = {"frame_cpu": frame, "frame_rows": ROWS} if frame else {}
    return Model(task, ModelSlot(), points, more)


def waiting(task: str) -> Model:
    """Fifty rows/s a thread, and no CPU to speak of: many threads."""
    points = tuple(Point(n, 50.0 * n, 0.002 * n, 0.001 * n) for n in (1, 10, 40))
    return Model(task, ModelSlot(), points, {"waiting": True})


def by_hand(senders: int) -> float:
    """Rows/s of one thread: x (c + F / (1 + gap x / senders)) = 1, by the quadratic formula."""
    c, k = 1 / 4000.0 - FRAME / ROWS, LONGEST_GAP_S / senders
    b = c + FRAME - k
    return float((-b + (b * b + 4 * c * k) ** 0.5) / (2 * c * k))


@pytest.mark.parametrize("senders", [8, 40, 200])
def test_a_slot_carries_what_frames_of_so_many_senders_leave(senders: int) -> None:
    one, two = among(quick("score"), senders).points
    assert one.rate_tps == pytest.approx(by_hand(senders)) and one.cpu == 1.0
    assert two.rate_tps == pytest.approx(by_hand(2 * senders)) and two.rate_tps < one.rate_tps < 4000


def test_with_one_sender_or_without_frames_it_is_as_measured() -> None:
    assert among(quick("score"), 1).points[0] == quick("score").points[0]
    assert among(quick("score", frame=0.0), 500) == quick("score", frame=0.0)
    assert among(quick("score"), 0) == quick("score")


SPEEDS = [(1.0,) * 8, (1.0, 0.5) * 4, (2.0, 0.5) * 4]


@pytest.mark.parametrize("speeds", SPEEDS)
@pytest.mark.parametrize("rate_tps", [500.0, 3000.0, 7900.0])
def test_a_plan_is_predicted_to_carry_what_it_is_for(rate_tps: float, speeds: tuple[float, ...]) -> None:
    """Bundles were counted with frames of one sender: such plans carried half, and were refused as unsound."""
    topology = chain("look", "score", ends=True)
    models = {"look": waiting("look"), "score": quick("score")}
    vms = tuple(Vm(f"vm{n}", 4, speed=speed) for n, speed in enumerate(speeds, 1))
    plan = make_plan(PlanRequest(topology, models, rate_tps, vms))
    assert plan.prediction.rate_tps >= rate_tps * (1 - 1e-6)
    assert faults_of(plan, topology, models) == []


def test_reasons_say_what_a_slot_carries_among_those_that_send() -> None:
    topology = chain("look", "score", ends=True)
    models = {"look": waiting("look"), "score": quick("score")}
    allocation = mba(topology, models, 7900.0)
    threads = {task.task: task.threads for task in allocation.tasks}
    assert senders_of(topology, "score", threads) == threads["look"] == 160
    reason = next(one for one in threads_reasons(allocation, topology, models) if one.task == "score")
    assert reason.peak_tps == pytest.approx(by_hand(160)) == peak(among(models["score"], 160))[0]
    assert reason.full_bundles == int(7900 / by_hand(160))
    usual = mba(topology, {**models, "score": replace(models["score"], more={})}, 7900.0)
    assert usual.slots < allocation.slots
