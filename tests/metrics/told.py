"""A controller in a small world of virtual time, and what Prometheus would read of it."""

from __future__ import annotations

import shutil
from array import array
from collections.abc import Iterable
from pathlib import Path

import pytest
from enactment_world import World, vm
from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from agent import metrics as of_agent
from controller.views import metrics as of_controller
from topology_runtime.messages import SampleBlock

__all__ = ["World", "vm"]  # told further

ROOT = Path(__file__).resolve().parents[2]
CONTRACT = {
    "headgate_input_rate_tps": set(),
    "headgate_task_rate_tps": {"task"},
    "headgate_task_load_ratio": {"task"},
    "headgate_task_latency_seconds": {"task"},
    "headgate_latency_slope": set(),
    "headgate_stable": set(),
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

FULL = of_controller.ControllerView(
    input_tps=120.0,
    headroom_tps=30.0,
    stable=True,
    slope=-0.002,
    tasks_tps={"source": 120.0, "work": 119.0},
    errors={"work": -0.01},
    loads={"source": 0.6, "work": 0.7},
    slots={"vm1/0": {"cpu": 0.6, "memory": 0.05, "predicted_cpu": 0.5, "predicted_memory": 0.06}},
    states={"used": 1, "free": 3, "quarantined": 0},
    replans=dict.fromkeys(of_controller.REASONS, 1),
    replan_s=0.7,
    dead={"work": 3, "source": 0},
    disks={"controller": False, "vm1": True},
    alarms={"short": 1, "disk": 2},
    end_to_end={"store": [0] * 60 + [5] + [0] * 99},
    in_task={"work": [0] * 40 + [7] + [0] * 119},
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
    return text_of(of_controller.families(FULL)) + text_of(of_agent.families("vm1", FULL_AGENT))


def names() -> set[str]:
    """Every series name that there is."""
    return {name for name, _ in samples_of(everything())}


def scraped(world: World, metrics: of_controller.Metrics | None = None) -> Samples:
    found = metrics or of_controller.Metrics()
    found.look(world.loop, world.now)
    return samples_of(text_of(of_controller.families(found.view)))


def block(*rows: tuple[int, int, int]) -> SampleBlock:
    """A block whose tasks did these (task, bucket, rows)."""
    columns = list(zip(*rows, strict=True)) or [(), (), ()]
    in_task = {
        name: array("q", column).tobytes()
        for name, column in zip(("task", "bucket", "rows"), columns, strict=True)
    }
    return SampleBlock("vm1", 1, 1, 1, 1, 1, (), {}, {}, {}, task_latency=in_task)
