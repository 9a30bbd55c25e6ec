"""A controller in a small world of virtual time, and what Prometheus would read of it."""

from __future__ import annotations

import shutil
from array import array
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from enactment_world import World, vm
from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from headgate.agent.reports import agent_metrics as of_agent
from headgate.controller.knowledge.run_view import RunView
from headgate.controller.knowledge.vm_ways import VmWay
from headgate.controller.models.plans import PlanLatency, RowLatency
from headgate.controller.views import controller_metrics as of_controller
from headgate.topology_runtime.latency.latency_buckets import BUCKETS, PER_DOUBLING
from headgate.topology_runtime.wire.messages import SampleBlock

__all__ = ["World", "vm"]  # told further

ROOT = Path(__file__).resolve().parents[2]
CONTRACT = {
    "headgate_input_rate_tps": set(),
    "headgate_task_rate_tps": {"task"},
    "headgate_task_load_ratio": {"task"},
    "headgate_task_latency_seconds": {"task"},
    "headgate_latency_slope": set(),
    "headgate_stable": set(),
    "headgate_verdict": {"state"},
    "headgate_backlog_rows": set(),
    "headgate_backlog_seconds": set(),
    "headgate_link_delay_seconds": {"vm", "to"},
    "headgate_slot_cpu_ratio": {"vm", "slot", "source"},
    "headgate_slot_memory_ratio": {"vm", "slot", "source"},
    "headgate_model_error_ratio": {"task"},
    "headgate_replans_total": {"reason"},
    "headgate_replan_seconds": set(),
    "headgate_slots": {"state"},
    "headgate_headroom_tps": set(),
    "headgate_tuples_lost_total": set(),
    "headgate_tuples_replayed_total": set(),
}
Labels = tuple[tuple[str, str], ...]
Samples = dict[tuple[str, Labels], float]
needs_promtool = pytest.mark.skipif(not shutil.which("promtool"), reason="Debian's package prometheus has it")


@cache
def full() -> RunView:
    """Of a run that was planned again, with rows in every histogram."""
    world = World().start().run(20.0)
    world.ask("rate_set", rate_tps=180.0)
    view = world.run(20.0).loop.view(world.now)
    latency = {("sink", "source"): tuple([0] * 60 + [5] + [0] * (BUCKETS - 61))}
    ways = (VmWay("vm1", "vm2", 400, 7, True),)
    return replace(
        view,
        ways=ways,
        latency=latency,
        in_task={"work": tuple([0] * 40 + [7] + [0] * (BUCKETS - 41))},
        predicted_latency=PlanLatency(100.0, RowLatency(10.0, 20.0, 30.0), ()),
    )


FULL_AGENT = of_agent.AgentView(
    slots=4, workers={"running": 1}, threads=5, sampling_s=0.1, blocks=9, bad={"workers": 0}
)


def text_of(families: Iterable[Metric]) -> str:
    """As a scrape gets it."""

    class Reading(Collector):
        def collect(self) -> Iterable[Metric]:
            return families

    registry = CollectorRegistry(auto_describe=False)
    registry.register(Reading())
    return generate_latest(registry).decode()


def samples_of(text: str) -> Samples:
    """(name, labels) → value."""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def everything() -> str:
    """One exposition with every metric that there is."""
    return text_of(of_controller.families(full())) + text_of(of_agent.families("vm1", FULL_AGENT))


def names() -> set[str]:
    """Every series name that there is."""
    return {name for name, _ in samples_of(everything())}


def scraped(world: World) -> Samples:
    return samples_of(text_of(of_controller.families(world.loop.view(world.now))))


def in_tasks(world: World, block: SampleBlock) -> None:
    """The controller hears what its tasks' rows took."""
    assert world.loop.intake is not None
    world.loop.intake.in_task.add(block, world.mono_ns)


def block(*rows: tuple[int, int, int]) -> SampleBlock:
    """A block whose tasks did these (task, bucket, rows)."""
    columns = list(zip(*rows, strict=True)) or [(), (), ()]
    in_task = {
        name: array("q", column).tobytes()
        for name, column in zip(("task", "bucket", "rows"), columns, strict=True)
    }
    return SampleBlock("vm1", 1, 1, 1, 1, 1, (), {}, {}, {}, task_latency=in_task, per_doubling=PER_DOUBLING)
