"""Latency predicted before anything runs, against queues that are counted by hand."""

from __future__ import annotations

import math
import random
from itertools import accumulate

import pytest
from msgspec.structs import replace
from worlds import chain, model_of

from headgate.controller.models.plans import Bundle, Placement
from headgate.controller.models.task_models import Model
from headgate.controller.plan.predict import latency as latency_module
from headgate.controller.plan.predict.latency import PlanLatency, latency_of
from headgate.controller.plan.predict.prediction import predict
from headgate.topology_runtime.api.cluster import Vm
from headgate.topology_runtime.api.topology import Edge, Static, Task, Topology
from headgate.topology_runtime.platform.cgroups import PERIOD_US
from headgate.topology_runtime.worker.calls.router import first_turns
from headgate.topology_runtime.worker.sources.source_task import EARLIEST_NS

HOPS_MS = 1.0  # at most, of all hops of these small topologies


def latency(
    topology: Topology,
    models: dict[str, Model],
    rate_tps: float,
    *bundles: tuple[int, str, int],
    cores: float = 1.0,
    spread: float | None = 0.0,
) -> PlanLatency | None:
    """Of this placement in slots of one VM; source and sink are in slots of their own. All rows take the same."""
    vms = (Vm("vm1", 8, slot_cores=cores),)
    slots = list(vms[0].all_slots())
    every = [*bundles, *((7 - n, task.name, 1) for n, task in enumerate(topology.tasks) if task.static)]
    placement = Placement(tuple(Bundle(slots[slot], task, threads) for slot, task, threads in sorted(every)))
    found = predict(topology, models, placement, vms, rate_tps)
    return latency_of(topology, models, placement, vms, found, rate_tps, spread)


def ended(*names: str, arriving: bool = False) -> Topology:
    """A chain between a source and a sink that cost nothing."""
    tasks = [
        Task("source", kind="source", static=Static(1, 0, 0), arriving=arriving or None),
        *map(Task, names),
        Task("sink", static=Static(1, 0, 0)),
    ]
    edges = tuple(Edge(a.name, b.name) for a, b in zip(tasks, tasks[1:], strict=False))
    return Topology("ended", tuple(tasks), edges)


def known(**tasks: tuple[float, float]) -> dict[str, Model]:
    """Models of one thread: (rows/s, CPU of the slot at that)."""
    return {name: model_of(name, (1, rate, cpu, 0.0)) for name, (rate, cpu) in tasks.items()}


def test_rows_that_come_evenly_take_what_tasks_take() -> None:
    """10 ms of CPU and a wait of 20 ms, 30 rows/s: nobody waits for anybody."""
    models = known(work=(100, 1.0), call=(50, 0.0))
    found = latency(ended("work", "call"), models, 30, (0, "work", 1), (1, "call", 1))
    assert found is not None and found.rate_tps == 30
    for each in found.rows:
        assert 30 <= each <= 30 + HOPS_MS
    assert found.sinks == (("sink", found.rows),)


def test_rows_that_come_by_chance_wait_as_queueing_theory_says() -> None:
    """M/D/1, 10 ms a row, load 0.7: the percentiles of Lindley's recursion over 200,000 rows of other chances."""
    chance = random.Random(1)
    waits, wait = [], 0.0
    for _ in range(200_000):
        wait = max(0.0, wait + 10 - chance.expovariate(0.07))
        waits.append(wait + 10)
    waits.sort()
    found = latency(ended("work", arriving=True), known(work=(100, 1.0)), 70, (0, "work", 1))
    assert found is not None
    for each, share in zip(found.rows, (0.5, 0.95, 0.99), strict=True):
        assert each == pytest.approx(waits[int(share * len(waits))], rel=0.25)
    mean = sum(waits) / len(waits)
    assert mean == pytest.approx(10 + 0.7 * 10 / (2 * 0.3), rel=0.02), "Pollaczek and Khinchine agree"


def test_what_rows_take_is_spread_about_what_models_say() -> None:
    """Evenly coming rows that never meet: log-normal percentiles. By chance at load 0.7: an M/G/1 queue whose rows
    differ, by Lindley's recursion; more than of rows that are alike."""
    alone = latency(ended("work"), known(work=(100, 1.0)), 5, (0, "work", 1), spread=0.3)
    assert alone is not None
    for each, z in zip(alone.rows, (0.0, 1.645, 2.326), strict=True):
        assert each == pytest.approx(10 * math.exp(0.3 * z - 0.045), rel=0.05)
    chance = random.Random(2)
    waits, wait, took = [], 0.0, 0.0
    for _ in range(200_000):
        wait = max(0.0, wait + took - chance.expovariate(0.07))
        took = 10 * chance.lognormvariate(-0.32, 0.8)
        waits.append(wait + took)
    waits.sort()
    there = ended("work", arriving=True), known(work=(100, 1.0)), 70, (0, "work", 1)
    spread, alike = latency(*there, spread=0.8), latency(*there)
    assert spread is not None and alike is not None
    assert spread.rows.p95_ms == pytest.approx(waits[190_000], rel=0.25)
    assert spread.rows.p95_ms > 1.2 * alike.rows.p95_ms


def test_what_models_say_of_the_spread_counts() -> None:
    """A service that takes 20 ms on average: the percentiles of its own log-normal distribution, and no others."""
    (call,) = known(call=(50, 0.0)).values()
    for spread in (0.1, 0.9):
        models = {"call": replace(call, more={"wait_spread": spread})}
        found = latency(ended("call"), models, 2, (0, "call", 1), spread=None)
        assert found is not None
        for each, z in zip(found.rows, (0.0, 1.645, 2.326), strict=True):
            assert each == pytest.approx(20 * math.exp(spread * z - spread**2 / 2), rel=0.1, abs=HOPS_MS)
    (work,) = known(work=(100, 1.0)).values()
    varied = latency(
        ended("work"), {"work": replace(work, more={"cpu_spread": 0.7})}, 2, (0, "work", 1), spread=None
    )
    usual = latency(ended("work"), {"work": work}, 2, (0, "work", 1), spread=None)
    assert varied is not None and usual is not None
    assert varied.rows.p99_ms / varied.rows.p50_ms == pytest.approx(math.exp(0.7 * 2.326), rel=0.15)
    assert usual.rows.p99_ms / usual.rows.p50_ms == pytest.approx(
        math.exp(latency_module.SPREAD * 2.326), rel=0.1
    )


def test_rows_that_come_together_differ_less() -> None:
    """A source of 20,000 rows/s gives ten at a time: what ten rows take differs less than what one takes."""
    models = {"call": replace(model_of("call", (1, 100_000, 0.0, 0.0)), more={"wait_spread": 1.0})}
    found = latency(ended("call"), models, 20_000, (0, "call", 1), spread=None)
    assert found is not None
    assert found.rows.p99_ms / found.rows.p50_ms < math.exp(2.326) / 2


def test_rows_go_to_threads_as_the_router_has_it() -> None:
    chance = random.Random(3)
    for _ in range(50):
        weights = [chance.choice((0.0, chance.random())) for _ in range(chance.randrange(1, 40))]
        sender = chance.randrange(100)
        dues = latency_module.first_dues(sender, weights)
        there = sorted((due, place) for place, due in enumerate(dues) if due < math.inf)
        assert there == sorted(first_turns(sender, weights))


def test_a_quota_lets_a_long_row_wait_for_the_next_periods() -> None:
    """12 ms of CPU in a slot of a quarter of a core: 5 ms in each 20 ms, so one to three waits of 15 ms."""
    models = known(work=(250 / 12, 1.0))
    found = latency(ended("work"), models, 3, (0, "work", 1), cores=0.25)
    assert found is not None
    for each in found.rows:
        assert 12 + 15 <= each <= 12 + 3 * 15 + HOPS_MS


def test_threads_that_wait_do_not_hold_each_other_up() -> None:
    """40 threads of a service of 400 ms, 80 rows/s."""
    model = model_of("call", (1, 2.5, 0.0, 0.0), (40, 100, 0.0, 0.0))
    found = latency(ended("call"), {"call": model}, 80, (0, "call", 40))
    assert found is not None
    assert all(400 <= each <= 400 + HOPS_MS for each in found.rows)


def test_threads_of_a_slot_share_one_core() -> None:
    """Two tasks of 4 ms of CPU each, 60 rows/s by chance: each for itself is at 24 %, in one slot they are one queue at
    48 %, in which a row is twice."""
    models = known(a=(250, 1.0), b=(250, 1.0))
    topology = ended("a", "b", arriving=True)
    apart = latency(topology, models, 60, (0, "a", 1), (1, "b", 1))
    together = latency(topology, models, 60, (0, "a", 1), (0, "b", 1))
    assert apart is not None and together is not None
    assert 8 <= apart.rows.p50_ms < together.rows.p95_ms
    assert apart.rows.p95_ms * 1.2 < together.rows.p95_ms < 60


def test_more_load_never_takes_less_and_other_placements_are_told_apart() -> None:
    models = known(work=(100, 1.0))
    found = [
        latency(ended("work", arriving=True), models, rate, (0, "work", 1)) for rate in (20, 40, 60, 80, 90)
    ]
    p95 = [one.rows.p95_ms for one in found if one is not None]
    assert len(p95) == 5 and p95 == sorted(p95)
    halves = latency(ended("work", arriving=True), models, 90, (0, "work", 1), (1, "work", 1))
    assert halves is not None and halves.rows.p95_ms < p95[-1] / 2


@pytest.mark.parametrize("selectivity", [0.25, 0.5, 2.0, 3.5])
def test_as_many_rows_are_worked_on_as_selectivities_say(selectivity: float) -> None:
    """A task of 5 ms behind an edge that makes `selectivity` of each row: its load at 40 rows/s is that times 0.2."""
    tasks = ended("one", "many").tasks
    edges = (Edge("source", "one"), Edge("one", "many", selectivity), Edge("many", "sink"))
    topology = Topology("more", tasks, edges)
    found = latency(topology, known(one=(1e6, 0.0), many=(200, 1.0)), 40, (0, "one", 1), (1, "many", 1))
    assert found is not None
    most = 5 * max(1, math.ceil(selectivity))
    assert 5 <= found.rows.p50_ms <= found.rows.p99_ms <= most + HOPS_MS
    if selectivity > 1:
        assert found.rows.p99_ms >= 5 * selectivity - 5


def test_each_sink_has_its_own() -> None:
    tasks = (
        Task("source", kind="source", static=Static(1, 0, 0)),
        Task("slow"),
        Task("early", static=Static(1, 0, 0)),
        Task("late", static=Static(1, 0, 0)),
    )
    edges = (Edge("source", "early"), Edge("source", "slow"), Edge("slow", "late"))
    found = latency(Topology("two", tasks, edges), known(slow=(50, 0.0)), 20, (0, "slow", 1))
    assert found is not None
    (early, quick), (late, slow) = found.sinks
    assert (early, late) == ("early", "late") and quick.p99_ms <= HOPS_MS < 20 <= slow.p50_ms
    assert quick.p50_ms <= found.rows.p50_ms <= slow.p50_ms


@pytest.mark.parametrize("grouping", ["shuffle", "fields", "local", "global", "all"])
def test_every_grouping_sends_all_rows_on(grouping: str) -> None:
    topology = chain("a", "b", ends=True, grouping=grouping)
    models = known(a=(500, 0.5), b=(500, 0.5))
    found = latency(topology, models, 50, (0, "a", 2), (1, "b", 1), (2, "b", 2))
    assert found is not None and 2 <= found.rows.p50_ms <= 40


def test_of_many_rows_by_key_none_is_added() -> None:
    """97 rows a frame to 20 threads at 97 %: a few more in each, and rows would wait for ever."""
    edges = (Edge("source", "quick", grouping="fields", key=0), Edge("quick", "sink"))
    topology = Topology("keys", ended("quick").tasks, edges)
    bundles = [(slot, "quick", 4) for slot in range(5)]
    quick = {"quick": model_of("quick", (1, 40_000, 1.0, 0.0))}
    found = latency(topology, quick, 194_000, *bundles)
    assert found is not None and found.rows.p99_ms < 40


def test_it_goes_by_what_workers_do() -> None:
    assert pytest.approx(PERIOD_US / 1e6) == latency_module.PERIOD_S
    assert pytest.approx(EARLIEST_NS / 1e9) == latency_module.EVERY_S


def test_large_rates_are_simulated_by_the_frame() -> None:
    models = known(quick=(200_000, 1.0))
    found = latency(ended("quick"), models, 100_000, (0, "quick", 1))
    assert found is not None and found.rows.p99_ms < 5


def test_what_is_more_than_it_carries_or_unknown_has_no_latency() -> None:
    models = known(work=(100, 1.0))
    assert latency(ended("work"), models, 101, (0, "work", 1)) is None
    unmeasured = {"work": Model("work", models["work"].slot, models["work"].points, {"unmeasured": True})}
    assert latency(ended("work"), unmeasured, 10, (0, "work", 1)) is None


def test_the_same_plan_has_the_same_latency() -> None:
    models = known(work=(100, 1.0))
    first, again = (latency(ended("work", arriving=True), models, 80, (0, "work", 1)) for _ in range(2))
    assert first == again and list(accumulate(first.rows if first else (), max)) == list(
        first.rows if first else ()
    )
