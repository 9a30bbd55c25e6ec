"""What Prometheus reads of an agent: a frozen view, made with each sample block, read by scrapes.

`headgate_agent_…`, each with the VM's name. What the rows do is in the controller's metrics.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import msgspec

from headgate.agent.core.slot_state import SlotState

if TYPE_CHECKING:
    from prometheus_client.core import Metric

    from headgate.topology_runtime.platform.http_options import MetricsAt

NS = 1e9
WORKER_STATES = ("starting", "running", "exited", "quarantined")


class AgentView(msgspec.Struct, frozen=True):
    """One moment of an agent. bad: messages that could not be read, by who sent them."""

    slots: int = 0
    workers: Mapping[str, int] = {}
    threads: int = 0
    crashes: int = 0
    sampling_s: float = 0.0
    blocks: int = 0
    bad: Mapping[str, int] = {}


class AgentMetricsPort:
    """Metrics of the agent of `vm`, served on a port. Raises Unreachable when it cannot be had."""

    def __init__(self, vm: str, at: MetricsAt) -> None:
        from headgate.topology_runtime.metrics.metrics_port import MetricsPort

        self.view = AgentView()
        self._port = MetricsPort(at, lambda: families(vm, self.view))
        self.address = self._port.address

    def look(self, slots: Iterable[SlotState], bad: tuple[int, int], cost_ns: int) -> None:
        """Take a new view; `cost_ns`: CPU of the block just made (0: none was), `bad`: unreadable
        messages of the controller and of workers."""
        self.view = view_of(list(slots), bad, self.view, cost_ns)

    def close(self) -> None:
        self._port.close()


def view_of(slots: list[SlotState], bad: tuple[int, int], before: AgentView, cost_ns: int) -> AgentView:
    """The view after `before`."""
    states = Counter[str](state.said for state in slots)
    return AgentView(
        slots=len(slots),
        workers={state: states[state] for state in WORKER_STATES},
        threads=sum(len(state.threads) for state in slots if state.live),
        crashes=max(before.crashes, sum(state.crashes for state in slots)),
        sampling_s=before.sampling_s + cost_ns / NS,
        blocks=before.blocks + (cost_ns > 0),
        bad={"controller": bad[0], "workers": bad[1]},
    )


def families(vm: str, view: AgentView) -> Iterable[Metric]:
    """A view as Prometheus's families."""
    from prometheus_client.core import CounterMetricFamily

    from headgate.topology_runtime.metrics.metric_families import gauges

    def counter(name: str, about: str, value: float) -> Metric:
        family = CounterMetricFamily(name, about, labels=["vm"])
        family.add_metric([vm], value)
        return family

    yield from gauges("headgate_agent_slots", "Slots of the VM.", ["vm"], {(vm,): view.slots})
    yield from gauges("headgate_agent_threads", "Task threads running.", ["vm"], {(vm,): view.threads})
    yield from gauges(
        "headgate_agent_workers",
        "Slots by the state of their worker.",
        ["vm", "state"],
        {(vm, state): count for state, count in view.workers.items()},
    )
    yield counter("headgate_agent_worker_crashes", "Workers that died unasked.", view.crashes)
    yield counter("headgate_agent_sampling_seconds", "CPU spent on sample blocks.", view.sampling_s)
    yield counter("headgate_agent_blocks", "Sample blocks sent.", view.blocks)
    bad = CounterMetricFamily(
        "headgate_agent_bad_messages", "Messages that could not be read.", labels=["vm", "sender"]
    )
    for sender, count in view.bad.items():
        bad.add_metric([vm, sender], count)
    yield bad
