"""What the controller's monitoring costs: blocks of many agents decoded, taken in and judged once a second.

One virtual second = every agent's block decoded from msgpack and added to `Intake`, then one window with its
verdict, demand and diagnosis. Prints CPU seconds per virtual second (the share of a core), with their spread.
"""
# bench: controller – intake of 1,000 agents × 100 threads at 1 Hz: the share of a core

from __future__ import annotations

import statistics
import time
from typing import Any

import msgspec
import numpy as np

from headgate.controller.analyze.demand import demand, offer_of
from headgate.controller.analyze.diagnosis import DiagnosisInput, diagnose
from headgate.controller.analyze.stability import stability
from headgate.controller.core.rate_following import RateFollower
from headgate.controller.knowledge.diagnoses import Past
from headgate.controller.monitor.sample_intake import Intake
from headgate.controller.monitor.sample_windows import window_of
from headgate.topology_runtime.api.cluster import Vm
from headgate.topology_runtime.api.topology import Edge, Task, Topology
from headgate.topology_runtime.latency.latency_buckets import BUCKETS, PER_DOUBLING
from headgate.topology_runtime.rates.schedule import NS
from headgate.topology_runtime.wire.channels import encode
from headgate.topology_runtime.wire.messages import LINK_COLUMNS, SAMPLE_COLUMNS, SLOT_COLUMNS, SampleBlock

TASKS, SLOTS, LINKS_PER_THREAD = 12, 8, 3
WINDOW_S = 10.0
WARM_S = 20  # virtual seconds before measuring: windows are full then
GOAL = 0.25  # of a core


def topology() -> Topology:
    names = [f"task{n}" for n in range(TASKS)]
    edges = tuple(Edge(a, b) for a, b in zip(names, names[1:], strict=False))
    return Topology(
        "bench", tuple(Task(name, "map" if n else "source") for n, name in enumerate(names)), edges
    )


def packed(names: tuple[str, ...], rows: int, chance: np.random.Generator, **given: Any) -> dict[str, bytes]:
    drawn = {name: given.get(name, chance.integers(0, 10**6, rows)) for name in names}
    return {name: np.asarray(values, "<i8").tobytes() for name, values in drawn.items()}


def block_of(agent: int, threads: int, tasks: tuple[str, ...], chance: np.random.Generator) -> SampleBlock:
    """An agent's block; sequence and time are set when it is sent."""
    numbers = agent * threads + np.arange(threads)
    links = threads * LINKS_PER_THREAD
    return SampleBlock(
        vm=f"vm{agent}",
        boot=1,
        sequence=0,
        wall_ns=0,
        window_ns=NS,
        epoch=1,
        tasks=tuple(tasks[n % TASKS] for n in range(threads)),
        threads=packed(SAMPLE_COLUMNS, threads, chance, thread=numbers, slot=np.arange(threads) % SLOTS),
        slots=packed(SLOT_COLUMNS, SLOTS, chance, slot=np.arange(SLOTS)),
        links=packed(
            LINK_COLUMNS,
            links,
            chance,
            from_thread=np.repeat(numbers, LINKS_PER_THREAD),
            to_thread=np.repeat(numbers + 1, LINKS_PER_THREAD),
        ),
        latency=((tasks[-1], tasks[0], tuple(chance.integers(0, 20, BUCKETS).tolist())),),
        per_doubling=PER_DOUBLING,
    )


class Second:
    """One virtual second after another of a cluster's blocks."""

    def __init__(self, agents: int, threads: int) -> None:
        chance, made = np.random.default_rng(1), topology()
        self.vms = tuple(Vm(f"vm{n}", SLOTS) for n in range(agents))
        self.intake = Intake(made)
        self.intake.expect(self.vms)
        names = tuple(task.name for task in made.tasks)
        self._blocks = [block_of(agent, threads, names, chance) for agent in range(agents)]
        self._decoder = msgspec.msgpack.Decoder(SampleBlock)
        self._at = 0
        self._following = RateFollower(made)

    def go(self) -> dict[str, float]:
        """CPU seconds of decoding, of taking in, and of a turn of monitor and analysis."""
        self._at += 1
        now_ns = self._at * NS
        data = [encode(msgspec.structs.replace(b, sequence=self._at, wall_ns=now_ns)) for b in self._blocks]
        begin = time.process_time()
        blocks = [self._decoder.decode(each) for each in data]
        decoded = time.process_time()
        for block in blocks:
            self.intake.add_block(block, now_ns, 1)
        for quarter in range(4):
            self.intake.add_progress(
                now_ns + quarter * NS // 4, 1000.0 * self._at, 1000 * self._at, 1000 * self._at
            )
        taken = time.process_time()
        self._turn(now_ns + NS)
        judged = time.process_time()
        return {"decode": decoded - begin, "intake": taken - decoded, "turn": judged - taken}

    def _turn(self, now_ns: int) -> None:
        window = window_of(self.intake, now_ns, WINDOW_S)
        verdict = stability(window, 60.0)
        offer = offer_of(window)
        self._following.hear(offer, now_ns)
        need = demand(offer, self._following.forecast, 1250.0, Past(60.0))
        diagnose(DiagnosisInput(window, verdict, need, 1250.0, 60.0))


def bench(agents: int = 1000, threads: int = 100, seconds: int = 20) -> dict[str, Any]:
    """The share of a core that `agents` × `threads` at 1 Hz cost, over `seconds` virtual seconds."""
    second = Second(agents, threads)
    for _ in range(WARM_S):
        second.go()
    runs = [second.go() for _ in range(seconds)]
    totals = [sum(run.values()) for run in runs]
    median = statistics.median(totals)
    values = agents * threads * len(SAMPLE_COLUMNS)
    return {
        "agents": agents,
        "threads": threads,
        "n": seconds,
        "core_share": {"median": median, "min": min(totals), "max": max(totals), "goal": GOAL},
        "parts_s": {name: statistics.median(run[name] for run in runs) for name in runs[0]},
        "ns_per_sample": 1e9 * median / values,
        "samples_per_s": values,
        "met": median <= GOAL,
    }


BENCHMARKS = {"controller": bench}
