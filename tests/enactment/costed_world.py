"""A world whose tasks cost what they really cost, whatever the controller's models say of them: workers take what
their slots can, use CPU for it, and tell of both in their samples."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from typing import Any

from enactment_world import MODELS, S, World, ints
from msgspec.structs import replace

from headgate.controller.core.loop import Loop
from headgate.controller.knowledge import turns as t
from headgate.controller.knowledge.models import Model, Point, cpu, peak_rate
from headgate.controller.knowledge.prediction_ledger import LedgerEntry
from headgate.topology_runtime import messages as m
from headgate.topology_runtime.cluster import Slot

TASK = "work"
BY_CPU = replace(
    MODELS[0], points=tuple(Point(n, 100.0, 0.9, 0.1 * n) for n in (1, 2))
)  # one thread fills a slot
BASE_CPU = 0.01  # of a slot, that a worker needs by itself
THREADS_PART = 0.8  # of a task's CPU is its threads' own
SOURCE_CPU = 0.02


def times(model: Model, rate: float = 1.0, cpu_of_peak: float = 1.0) -> Model:
    """Another model: its rates × `rate`, its CPU × `cpu_of_peak`."""
    points = (
        replace(point, rate_tps=point.rate_tps * rate, cpu=point.cpu * cpu_of_peak) for point in model.points
    )
    return replace(model, points=tuple(points))


class CostedWorld(World):
    """`true`: what a thread of the task really does. slow: VM → its rows cost so many times as much CPU."""

    def __init__(
        self, true: Model, said: Model, slow: Mapping[str, float] | None = None, **given: Any
    ) -> None:
        super().__init__(**given)
        self.true, self.slow = true, dict(slow or {})
        self.submitted = replace(self.submitted, models=(said,))
        self.loop = Loop(self.settings, self.submitted)
        self.entries: list[LedgerEntry] = []
        self.kept: list[dict[str, Any]] = []
        self._acked: tuple[int, int] = (0, 0)  # the second before, this one

    # ── what tasks really do ────────────────────────────────────────────────────────────────────

    def groups(self) -> dict[Slot, int]:
        """Slot → threads of the task that work there."""
        found: dict[Slot, int] = {}
        for one in self.vms.values():
            for slot, worker in one.workers.items():
                n = (
                    sum(thread.task == TASK for thread in worker.threads.values())
                    if worker.state == "running"
                    else 0
                )
                if n:
                    found[slot] = n
        return found

    def share(self, slot: Slot, groups: Mapping[Slot, int]) -> float:
        """Of the rows, as routes give them."""
        shares = {s.slot: s.share for s in self.rollout.plan.prediction.shares if s.task == TASK}
        return shares.get(slot, 0.0) if set(groups) == set(shares) else groups[slot] / sum(groups.values())

    def most(self, slot: Slot, threads: int) -> float:
        """Rows a second that they really take there."""
        by_cpu = (
            peak_rate(self.true, threads)
            * (1 - SOURCE_CPU - BASE_CPU)
            / max(1e-9, cpu(self.true, threads) * self.slow.get(slot.vm, 1.0))
        )
        return min(peak_rate(self.true, threads), by_cpu)

    def run(self, seconds: float) -> CostedWorld:
        """As the slowest slot lets through."""
        for _ in range(round(seconds * 20)):
            groups = self.groups() if self.durable.rollout is not None else {}
            if groups:
                rate = min(
                    self.most(slot, n) / max(1e-9, self.share(slot, groups)) for slot, n in groups.items()
                )
                carried = rate * 0.05 + getattr(self, "_rest", 0.0)
                self.acks_at_once = int(carried)
                self._rest = carried - int(carried)
            super().run(0.05)
        return self

    def flow(self) -> None:
        super().flow()
        if self.mono_ns % S == 0:
            acked = sum(source.acked for one in self.vms.values() for source in one.sources.values())
            self._acked = (self._acked[1], max(acked, self._acked[1]))

    def block_of(self, name: str, block: m.SampleBlock) -> m.SampleBlock:
        """The block with what this second's rows took."""
        rows, groups = self._acked[1] - self._acked[0], self.groups()
        one = self.vms[name]
        threads = {column: [0] * len(block.tasks) for column in m.SAMPLE_COLUMNS}
        threads["thread"] = array("q", block.threads["thread"]).tolist()
        used = {slot: BASE_CPU for slot in one.workers}
        at = 0
        for slot, worker in one.workers.items():
            for thread in worker.threads.values():
                taken = cost = busy = 0.0
                if thread.task == TASK and slot in groups:
                    n = groups[slot]
                    taken = rows * self.share(slot, groups) / n
                    cost = taken * cpu(self.true, n) / peak_rate(self.true, n) * self.slow.get(name, 1.0)
                    busy = min(1.0, taken * n / peak_rate(self.true, n))
                elif thread.task in ("source", "sink"):
                    taken, cost = float(rows), SOURCE_CPU
                used[slot] += cost
                threads["tuples_in"][at] = threads["tuples_out"][at] = round(taken)
                threads["cpu_ns"][at] = int(THREADS_PART * cost * S)
                threads["busy_ns"][at] = int(busy * S)
                at += 1
        slots = {column: ints([0] * len(used)) for column in m.SLOT_COLUMNS}
        slots["slot"] = ints(slot.number for slot in sorted(used))
        slots["cpu_ns"] = ints(int(min(1.0, used[slot]) * S) for slot in sorted(used))
        return replace(
            block, threads={column: ints(values) for column, values in threads.items()}, slots=slots
        )

    def do(self, event: t.Event) -> list[t.Instruction]:
        if isinstance(event, t.FromVm) and isinstance(event.message, m.SampleBlock):
            event = t.FromVm(self.block_of(event.message.vm, event.message))
        return super().do(event)

    def perform(self, instruction: t.Instruction) -> None:
        match instruction:
            case t.Trace("prediction", data):
                self.entries.append(data["entry"])
            case t.KeepModel(model):
                self.kept.append(model)
        super().perform(instruction)
