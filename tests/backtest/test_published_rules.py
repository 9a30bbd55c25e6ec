"""The rules of other autoscalers on examples that their authors published, and on edges reckoned by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from headgate.controller.core.plan_choice import PlanQuestion, choose
from headgate.controller.models.task_models import Model, ModelSlot, Point
from headgate.controller.plan.planner import PlanRequest
from headgate.lab.rate_policies.conservative_tuning import Abilities, smaller_step
from headgate.lab.rate_policies.pod_thresholds import PodThreshold, desired_replicas
from headgate.lab.rate_policies.recovery_times import (
    DAEDALUS,
    PHOEBE,
    CapacityLine,
    CapacityTable,
    DaedalusView,
    PhoebeView,
    catch_up_s,
    daedalus_slots,
    phoebe_slots,
    recovery_s,
    straight_on,
)
from headgate.lab.rate_policies.true_rates import (
    Operator,
    optimal_instances,
    whole_instances,
    worth_a_change,
)
from headgate.lab.rate_policies.utilisation_bounds import (
    FLINK,
    DelayedLowering,
    Recommended,
    VertexLoad,
    VertexScaler,
    is_backlog,
    rate_bounds,
    scaled,
    target_capacity,
    true_rate,
)
from headgate.topology_runtime.api.cluster import Vm
from headgate.topology_runtime.api.topology import Edge, Static, Task, Topology

NO_CATCH_UP = FLINK._replace(catch_up_s=0.0)  # what Flink's own tests of scaling set


def whole(flow: tuple[Operator, ...], factor: float = 0.0) -> dict[str, int]:
    return {name: whole_instances(many) for name, many in optimal_instances(flow, factor).items()}


# ── DS2 ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("sources", "source_tps", "op1", "op2", "expected"),
    [
        (1, 100.0, (50.0, 400.0), (100.0, 200.0), (2, 8)),
        (1, 200.0, (40.0, 700.0), (99.0, 200.0), (5, 36)),
        (1, 200.0, (10.0, 700.0), (201.0, 200.0), (20, 70)),
        (2, 100.0, (50.0, 400.0), (100.0, 200.0), (4, 16)),
        (2, 200.0, (40.0, 700.0), (99.0, 200.0), (10, 71)),
    ],
)
def test_true_rates_give_what_ds2s_own_tests_give(
    sources: int,
    source_tps: float,
    op1: tuple[float, float],
    op2: tuple[float, float],
    expected: tuple[int, int],
) -> None:
    """strymon-system/ds2 at e3decca, controller/tests/scaling_policy_test.rs."""
    names = tuple(f"s{n}" for n in range(sources))
    flow = (
        *(Operator(name, (), 1, 0.0, source_tps) for name in names),
        Operator("op1", names, 1, *op1),
        Operator("op2", ("op1",), 1, *op2),
    )
    found = whole(flow)
    assert (found["op1"], found["op2"]) == expected
    assert {found[name] for name in names} == {1}, "sources keep their instances"


def test_an_operator_that_had_no_rows_keeps_its_instances_and_does_not_spoil_the_others() -> None:
    flow = (
        Operator("s", (), 1, 0.0, 100.0),
        Operator("idle", ("s",), 3, 0.0, 0.0),
        Operator("busy", ("s",), 2, 50.0, 50.0),
    )
    assert whole(flow) == {"s": 1, "idle": 3, "busy": 4}


def test_ds2_adds_its_factor_and_ignores_one_instance_less() -> None:
    flow = (Operator("s", (), 1, 0.0, 90.0), Operator("op", ("s",), 10, 100.0, 100.0))
    assert whole(flow)["op"] == 9 and whole(flow, 0.2)["op"] == 11
    assert [worth_a_change(10, after) for after in (11, 10, 9, 8)] == [True, False, False, True]


def test_83_actors_against_4_become_56_and_70_in_one_step_by_true_rates_and_by_our_planner() -> None:
    """ray#65540: a quick stage has 83 actors, its bottleneck 4; on 128 CPUs 56 and 70 balance, so that an actor of
    the first does 5 rows in the time in which one of the second does 4."""
    flow = (
        Operator("source", (), 1, 0.0, 280.0),
        Operator("quick", ("source",), 83, 83 * 5.0, 83 * 5.0),
        Operator("slow", ("quick",), 4, 4 * 4.0, 4 * 4.0),
    )
    assert whole(flow) == {"source": 1, "quick": 56, "slow": 70}

    topology = Topology(
        "ray",
        (Task("source", kind="source", static=Static(1, 0.01, 0.01)), Task("quick"), Task("slow")),
        (Edge("source", "quick"), Edge("quick", "slow")),
    )
    models = {
        task: Model(task, ModelSlot(), (Point(1, tps, 0.98, 0.1),))
        for task, tps in (("quick", 5.0), ("slow", 4.0))
    }
    request = PlanRequest(
        topology=topology, models=models, rate_tps=280.0, vms=(), may_add=tuple(Vm(f"vm{n}", 16) for n in range(1, 9))
    )  # fmt: skip
    plan = choose(PlanQuestion(request, (), None, False, frozenset(), 0)).plan
    assert plan is not None
    assert plan.placement.by_task() == {"source": 1, "quick": 56, "slow": 70}


# ── Flink's autoscaler ──────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("target", "parallelism", "rate_tps", "true_tps", "expected"),
    [
        (1.0, 10, 50, 100, 5),
        (0.8, 10, 80, 100, 10),
        (0.8, 10, 60, 100, 8),
        (0.8, 10, 59, 100, 8),
        (0.5, 2, 100, 40, 10),
        (0.6, 2, 100, 100, 4),
    ],
)
def test_parallelism_is_what_flinks_own_tests_have(
    target: float, parallelism: int, rate_tps: float, true_tps: float, expected: int
) -> None:
    """apache/flink-kubernetes-operator at 6e9caeb, JobVertexScalerTest.testParallelismScaling."""
    load = VertexLoad(rate_tps, 0.0, true_tps)
    assert scaled(parallelism, load, NO_CATCH_UP._replace(target=target)) == expected


@pytest.mark.parametrize(
    ("rate_tps", "true_tps", "option", "most", "expected"),
    [
        (10, 100, "most_down", 0.5, 5),
        (10, 100, "most_down", 0.6, 4),
        (200, 10, "most_up", 0.5, 15),
        (200, 10, "most_up", 0.6, 16),
    ],
)
def test_a_step_is_bounded_as_in_flinks_own_tests(
    rate_tps: float, true_tps: float, option: str, most: float, expected: int
) -> None:
    settings = NO_CATCH_UP._replace(target=1.0, **{option: most})
    assert scaled(10, VertexLoad(rate_tps, 0.0, true_tps), settings) == expected


@pytest.mark.parametrize(
    ("catch_up_s", "restart_s", "lag_tps", "backlog", "expected"),
    [
        (0.0, 1.0, 0, False, (778, 1000)),
        (2.0, 1.0, 350, False, (1128, 1700)),
        (2.0, 1.0, 0, False, (778, 1350)),
        (2.0, 1.0, 350, True, (1050, math.inf)),
        (2.0, 1.0, 0, True, (700, math.inf)),
        (60.0, 300.0, 350, False, (1128, 4850)),
    ],
)
def test_bounds_are_those_of_flinks_own_tests(
    catch_up_s: float, restart_s: float, lag_tps: float, backlog: bool, expected: tuple[float, float]
) -> None:
    """ScalingMetricEvaluatorTest.testUtilizationBoundaryComputation; rate 700, utilisation 0.7 to 0.9."""
    settings = FLINK._replace(target=0.8, upper=0.9, lower=0.7, restart_s=restart_s, catch_up_s=catch_up_s)
    load = VertexLoad(700.0, lag_tps * catch_up_s, 0.0)
    assert rate_bounds(load, settings, backlog) == expected


def test_a_lowering_waits_for_its_interval_and_is_for_the_most_asked_meanwhile() -> None:
    """JobVertexScalerTest.testScaleDownAfterInterval: 100 subtasks, 1,000 rows/s of true rate."""
    scaler = VertexScaler(NO_CATCH_UP._replace(target=1.0, bound=0.0, down_after_s=60.0))
    looks = ((0.0, 800.0), (10.0, 900.0), (40.0, 720.0), (59.0, 640.0), (60.0, 700.0))
    found = [scaler.parallelism(at_s, 100, VertexLoad(rate, 0.0, 1000.0)) for at_s, rate in looks]
    assert found == [None, None, None, None, 90]


def test_a_rise_is_at_once_and_ends_the_wait_for_a_lowering() -> None:
    """testImmediateScaleUpWithinScaleDownInterval, and what comes after it."""
    scaler = VertexScaler(NO_CATCH_UP._replace(target=1.0, bound=0.0, down_after_s=60.0))
    low, high = VertexLoad(800.0, 0.0, 1000.0), VertexLoad(1700.0, 0.0, 1000.0)
    assert scaler.parallelism(0.0, 100, low) is None
    assert scaler.parallelism(12.0, 100, high) == 170
    assert scaler.parallelism(61.0, 100, low) is None, "the minute began anew"
    assert scaler.parallelism(121.0, 100, low) == 80


def test_what_was_recommended_before_the_interval_no_longer_counts() -> None:
    lowering = DelayedLowering(60.0)
    assert lowering.ask(Recommended(0.0, 90, True)) is None
    assert lowering.ask(Recommended(30.0, 70, True)) is None
    found = lowering.ask(Recommended(61.0, 60, True))
    assert found is not None and found.parallelism == 70


def test_nothing_changes_within_the_bounds_of_utilisation() -> None:
    """By default 40 to 100 %: 45 % of the true rate is not lowered, though 0.82 of the size would reach 70 %."""
    scaler = VertexScaler(FLINK._replace(down_after_s=0.0))
    within, below = VertexLoad(450.0, 0.0, 1000.0), VertexLoad(300.0, 0.0, 1000.0)
    assert scaled(100, within, FLINK) == 72
    assert scaler.parallelism(0.0, 100, within) is None
    assert scaler.parallelism(0.0, 100, below) == 48, "300/0.7 and a sixth of 300 for the restart: 478.6"


def test_a_vertex_that_is_all_busy_is_scaled_down_where_what_comes_is_misjudged() -> None:
    """FLINK-38538. 1,000 rows/s come and keep ten subtasks all busy, so its true rate is 1,000; an output ratio
    upstream that reads 0.35 of it says that 350 come. The rule looks at the ratio of both, not at how busy it is."""
    busy, done_tps = 1.0, 1000.0
    load = VertexLoad(0.35 * 1000.0, 0.0, true_rate(busy, done_tps, None))
    assert VertexScaler(FLINK._replace(down_after_s=0.0)).parallelism(0.0, 10, load) == 6


def test_a_true_rate_is_by_busy_time_unless_much_less_was_observed() -> None:
    """testObservedTprEvaluation: 350 by busy time; observed 300 is used if that is more than the threshold off."""
    assert true_rate(0.1, 35.0, None) == pytest.approx(350.0)
    assert true_rate(0.1, 35.0, 300.0) == 300.0, "350 > 300 × 1.15"
    assert true_rate(0.1, 35.0, 310.0) == pytest.approx(350.0)
    assert true_rate(0.0, 100.0, None) == math.inf == true_rate(0.0, 0.0, None)


def test_lag_adds_what_catches_up_within_half_an_hour_and_more_than_five_minutes_of_it_is_a_backlog() -> None:
    load = VertexLoad(70.0, 18_000.0, 0.0)
    assert target_capacity(load, 0.7, FLINK, False) == 110.0, "70/0.7 + 18000/1800"
    assert target_capacity(load, 0.7, FLINK, True) == 122.0, "+ 70 × 300/1800, rounded"
    assert target_capacity(load, 0.0, FLINK, False) == math.inf
    assert is_backlog(250.0 * 300, 200.0, FLINK) and not is_backlog(180.0 * 300, 200.0, FLINK)
    assert not is_backlog(10.0, 0.0, FLINK)


@pytest.mark.parametrize("true_tps", [0.0, math.nan])
def test_a_vertex_without_a_true_rate_stays_as_it_is(true_tps: float) -> None:
    assert VertexScaler(FLINK).parallelism(0.0, 4, VertexLoad(100.0, 0.0, true_tps)) is None


# ── Kubernetes ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("replicas", "use", "expected"),
    [
        (10, 200.0, 20),
        (10, 50.0, 5),
        (10, 110.0, 10),
        (10, 111.0, 12),
        (10, 90.0, 10),
        (10, 89.0, 9),
        (3, 0.0, 1),
    ],
)
def test_replicas_are_those_of_kubernetes_documentation(replicas: int, use: float, expected: int) -> None:
    """`200m` for a wanted `100m` doubles, `50m` halves, and within a tenth nothing changes."""
    assert desired_replicas(replicas, use, 100.0) == expected


def test_pods_are_lowered_to_the_most_that_was_recommended_in_five_minutes() -> None:
    pods = PodThreshold(target=0.8)
    uses = {0.0: 0.8, 15.0: 0.4, 150.0: 0.6, 300.0: 0.4, 315.0: 0.4, 450.0: 0.4, 465.0: 0.4}
    found = {at_s: pods.replicas(at_s, 10, use) for at_s, use in uses.items()}
    assert found == {0.0: 10, 15.0: 10, 150.0: 10, 300.0: 10, 315.0: 8, 450.0: 8, 465.0: 5}


def test_pods_at_most_double_or_are_four_more() -> None:
    assert PodThreshold(target=0.1).replicas(0.0, 10, 1.0) == 20
    assert PodThreshold(target=0.1).replicas(0.0, 3, 1.0) == 7


# ── Daedalus ────────────────────────────────────────────────────────────────────────────────────


def table(*seen: tuple[int, float]) -> CapacityTable:
    found = CapacityTable()
    for slots, tps in seen:
        found.hear(slots, tps)
    return found


def view(slots: int, rate_tps: float, lag_rows: float = 0.0, last_s: float = 900.0) -> DaedalusView:
    return DaedalusView(slots, 20, rate_tps, 10 * rate_tps, lag_rows, np.full(600, rate_tps), last_s)


def test_recovery_ends_when_more_than_what_was_left_is_done_besides() -> None:
    flat = [100.0] * 900
    assert recovery_s(120.0, flat, 4000.0, 30) == 231.0, "30 s down, 201 s at 20 rows/s: 4,020"
    assert recovery_s(100.0, flat, 1.0, 30) == math.inf
    assert recovery_s(120.0, flat, 20_000.0, 30) == math.inf, "not within the forecast"


def test_capacity_is_the_line_through_rates_and_cpu_at_cpu_1() -> None:
    line = CapacityLine()
    for busy, tps in ((0.5, 60.0), (0.6, 70.0), (0.7, 80.0)):
        line.hear(busy, tps)
    assert line.at_full() == pytest.approx(110.0), "10 rows/s at CPU 0, 100 more for all of it"
    alike = CapacityLine()
    for _ in range(5):
        alike.hear(0.5, 60.0)
    assert alike.at_full() is None


def test_capacities_seen_are_averaged_and_others_are_in_proportion() -> None:
    found = table((10, 100.0), (10, 120.0), (5, 60.0))
    assert (found.of(10), found.of(5), found.of(20)) == (110.0, 60.0, 240.0)
    assert CapacityTable().of(3) == 0.0


@pytest.mark.parametrize(
    ("seen", "asked", "expected"),
    [
        ((12, 120.0), view(12, 100.0), 11),  # (1,000 + 15 × 100) / 10 rows/s: 266 s
        ((8, 80.0), view(8, 100.0), 11),  # (1,000 + 30 × 100) / 10 rows/s: 431 s
        ((8, 80.0), view(8, 100.0, lag_rows=3000.0), 12),  # 7,000 / 10: too long; / 20: 381 s
        ((12, 120.0), view(12, 108.0), 12),  # 11 slots would have 2 rows/s to spare
        ((12, 120.0), view(12, 100.0, lag_rows=130.0), 12),  # not down with more lag than capacity
        ((12, 120.0), view(12, 100.0, last_s=200.0), 12),  # nor within ten minutes
        ((8, 80.0), view(8, 100.0, last_s=200.0), 11),  # unless it must
        ((8, 80.0), view(8, 250.0), 20),  # nothing does
    ],
)
def test_daedalus_takes_the_fewest_slots_that_recover_in_time(
    seen: tuple[int, float], asked: DaedalusView, expected: int
) -> None:
    assert daedalus_slots(asked, table(seen), DAEDALUS) == expected


# ── Phoebe ──────────────────────────────────────────────────────────────────────────────────────


def test_catching_up_is_the_sum_of_what_came_meanwhile() -> None:
    """20 s of 100 rows/s at 200 take 10 s, in which as many come for 5, 2.5, 1.25, 0.625; and 10 s down."""
    assert catch_up_s(200.0, [100.0] * 60, np.full(600, 100.0), 10.0) == pytest.approx(29.375)
    assert catch_up_s(100.0, [100.0] * 60, np.full(600, 100.0), 10.0) > 600, "never"


def phoebe(slots: int, slope: float = 0.0) -> int:
    forecast = 100.0 + slope * np.arange(600)
    return phoebe_slots(PhoebeView(slots, 30, 10.0, [100.0] * 600, forecast, 10.0), PHOEBE)


def test_phoebe_takes_the_fewest_slots_that_catch_up_in_three_minutes() -> None:
    """11 slots need 20 s × (1/1.1 + 1/1.21 + …) = 200 s and 10, 12 need 100 and 10."""
    assert phoebe(8) == 12
    assert phoebe(15) == 12 and phoebe(14) == 14, "one or two fewer are not worth it"
    assert phoebe(20, slope=0.001) == 20, "what rises is not lowered"
    assert phoebe(8, slope=0.2) > phoebe(8), "the forecast counts"


def test_the_forecast_is_the_line_through_what_came() -> None:
    assert straight_on([10.0, 12.0, 14.0], 2) == pytest.approx([16.0, 18.0])
    assert straight_on([20.0, 10.0], 3) == pytest.approx([0.0, 0.0, 0.0])
    assert straight_on([7.0], 2) == pytest.approx([7.0, 7.0])


# ── ContTune ────────────────────────────────────────────────────────────────────────────────────

NEXMARK_Q1 = {
    1: 529573.17, 2: 966817.36, 4: 1829695.58, 6: 2535502.76, 7: 2936888.58, 8: 3118477.88, 10: 3721099.18,
    13: 4624714.17, 15: 4967828.26, 20: 6350677.05, 21: 6465249.81, 25: 7089387.31, 26: 7476391.84,
}  # fmt: skip


def nexmark() -> Abilities:
    found = Abilities()
    for parallelism, tps in NEXMARK_Q1.items():
        found.hear(parallelism, tps)
    return found


def test_eleven_are_recommended_for_the_example_of_conttunes_readme() -> None:
    """4 million rows/s: 10.64, so 11, one from the nearest that was seen (ljqcodelove/ContTune at 8cbcf89)."""
    abilities = nexmark()
    assert (abilities.least(4e6, 27), abilities.nearest(11)) == (11, 1)
    assert smaller_step(4e6, 4, NEXMARK_Q1[4], abilities, 27) == 11
    assert whole_instances(4e6 / (NEXMARK_Q1[4] / 4)) == 9, "what DS2 says of four: too few"


def test_what_is_far_from_all_that_was_seen_is_left_to_ds2() -> None:
    """For 5.6 million the process says 17, two from the nearest; by four that do 457,424 each it is 13."""
    abilities = nexmark()
    assert (abilities.least(5.6e6, 27), abilities.nearest(17)) == (17, 2)
    assert smaller_step(5.6e6, 4, NEXMARK_Q1[4], abilities, 27) == 13
    assert smaller_step(9e7, 4, NEXMARK_Q1[4], abilities, 27) == 27, "at most"


def test_abilities_seen_again_are_averaged() -> None:
    """The README's mean of five."""
    abilities = Abilities()
    for tps in (537531.4221, 526027.042, 536474.7595, 539867.5141, 507965.0999):
        abilities.hear(1, tps)
    assert abilities.means(1)[0] == pytest.approx(529573.17, rel=1e-3)
