"""Snapshots made by hand, for tests of whoever reads them; `example_snapshot.json` is `example()`."""

from __future__ import annotations

import math
from typing import Any

import msgspec

from headgate.topology_runtime.wire import run_snapshot as s
from headgate.topology_runtime.wording import utc_iso

BEGAN_S = 1_790_000_000
NOW_S = BEGAN_S + 240
RATES = {"source": 212.0, "parse": 212.0, "score": 212.0, "lookup": 106.0, "sink": 318.0}
SELECTIVITIES = {("source", "parse"): 1.0, ("parse", "score"): 1.0, ("parse", "lookup"): 0.5,
                 ("score", "sink"): 1.0, ("lookup", "sink"): 1.0}  # fmt: skip
PLACED = {
    "vm1/0": {"source": 1, "sink": 1},
    "vm1/1": {"parse": 4},
    "vm1/2": {"parse": 4},
    "vm1/3": {"parse": 2, "score": 1},
    "vm2/0": {"lookup": 8},
    "vm2/1": {"score": 2, "lookup": 1},
}
BUSY = {"parse": 0.82, "score": 0.6, "lookup": 0.35, "sink": 0.7}
FULL = {"vm1/1", "vm1/2", "vm2/0"}


def iso(seconds: float) -> str:
    return utc_iso(int(seconds * 1e9))


def example(at_s: float = NOW_S, number: int = 481) -> s.Snapshot:
    """A run of five tasks on two VMs, with two re-plans behind it; values differ with the time."""
    threads = {task: sum(slot.get(task, 0) for slot in PLACED.values()) for task in RATES}
    return s.Snapshot(
        number=number,
        boot=1,
        now=iso(at_s),
        origin="controller",
        run="20260921-151320-4711",
        header="stable, slope +0.2 ms/s, plan #3, 6 of 8 slots, 212 rows/s in, headroom 31 rows/s, "
        "next bottleneck parse on vm1/3",
        stage="committed",
        seconds=at_s - BEGAN_S,
        mode="auto",
        topology=topology(at_s, threads),
        plan=plan(),
        slots=slots(at_s),
        vms={
            vm: s.VmNow(
                state="joined", slots=4, slots_used=used, slot_cores=0.12, slot_memory_bytes=512 * 1024**2,
                threads=count, usd_per_hour=0.1, cpu=0.55, memory=0.2, provided=True if vm == "vm2" else None,
            )
            for vm, used, count in (("vm1", 4, 12), ("vm2", 2, 11))
        },
        rates=s.RatesNow(offered_tps=212.0, emitted_tps=211.4, acked_tps=211.1, planned_tps=240.0,
                         predicted_tps=243.0, headroom_tps=31.0),
        latency_ms=s.LatencyNow(p50=12.4, p95=41.0, p99=88.5),
        stable=s.StableNow(verdict="stable", slope=0.0002,
                           slope_low=-0.004, slope_high=0.005, queue_growth=0.001, out_in=0.998, confidence=0.97),
        slope=0.0002,
        next_bottleneck=s.Bottleneck(task="parse", slot="vm1/3", at_tps=243.0),
        tuples=s.TuplesNow(offered=48_310, emitted=48_300, acked=48_262, in_flight=38, lost=0, dead_lettered=0,
                           replayed=12, duplicates=2),
        models=models(),
        events=events(),
        decisions=decisions(),
        history=history(at_s),
    )  # fmt: skip


def topology(at_s: float, threads: dict[str, int]) -> s.TopologyNow:
    sway = math.sin(at_s)
    tasks = {
        task: s.TaskNow(
            kind="source" if task == "source" else "map",
            static=task in ("source", "sink"),
            threads=threads[task],
            rate_tps=round(rate * (1 + 0.01 * sway), 1),
            rate_out_tps=rate,
            predicted_tps=rate,
            busy=round(BUSY[task] + 0.01 * sway, 3) if task in BUSY else None,
            load=round(BUSY.get(task, 0.64) + 0.01 * sway, 3),
            queue=round({"parse": 14.0}.get(task, 1.0) + sway, 1),
            p50_ms=2.1,
            p95_ms=7.4,
            p99_ms=round(9.0 + sway, 2),
        )
        for task, rate in RATES.items()
    }
    edges = {
        f"{a}>{b}": s.EdgeNow(
            source=a, target=b, grouping="shuffle", selectivity=sigma, rate_tps=RATES[a] * sigma, queue=2.0
        )
        for (a, b), sigma in SELECTIVITIES.items()
    }
    return s.TopologyNow(name="example", order=tuple(RATES), tasks=tasks, edges=edges)


def plan() -> s.PlanNow:
    return s.PlanNow(
        id="a1b2c3d4e5f60718", epoch=3, phase="committed", reason="rate_changed",
        text="212 rows/s offered, 170 planned for; 6 slots for 240.0 rows/s (5 threads start, 2 leave)",
        since=iso(BEGAN_S + 180), rate_tps=240.0, predicted_tps=243.0, allocator="mba", mapper="sam",
        routing="weighted", threads=23, slots=s.SlotsOfPlan(estimated=6, extra=0, total=8, used=6),
        usd_per_hour=0.2, limited_by="parse", limited_by_slot="vm1/3",
    )  # fmt: skip


def slots(at_s: float) -> dict[str, s.SlotNow]:
    found = {}
    for vm in ("vm1", "vm2"):
        for number in range(4):
            name = f"{vm}/{number}"
            placed = PLACED.get(name, {})
            if not placed:
                state = "quarantined" if name == "vm2/3" else "empty"
                found[name] = s.SlotNow(
                    vm=vm, slot=number, state=state, threads={}, crashes=5 if state != "empty" else None
                )
                continue
            cpu = 0.4 + 0.06 * sum(placed.values())
            found[name] = s.SlotNow(
                vm=vm, slot=number, state="running", threads=placed, full=name in FULL,
                shares={task: round(count / sum(p.get(task, 0) for p in PLACED.values()), 4)
                        for task, count in placed.items()},
                cpu=round(cpu + 0.02 * math.sin(at_s + number), 3), memory=0.21,
                predicted_cpu=round(cpu, 3), predicted_memory=0.2,
            )  # fmt: skip
    return found


def models() -> dict[str, s.ModelNow]:
    points = {
        "parse": ((1, 31.0, 0.2, 0.03), (2, 58.0, 0.4, 0.04), (4, 98.0, 0.8, 0.06), (8, 101.0, 1.0, 0.1)),
        "score": ((1, 110.0, 0.5, 0.02), (2, 180.0, 0.95, 0.03), (3, 176.0, 1.0, 0.04)),
        "lookup": ((1, 12.0, 0.05, 0.03), (4, 47.0, 0.2, 0.05), (8, 92.0, 0.4, 0.09), (16, 140.0, 0.8, 0.2)),
    }
    return {task: s.ModelNow(points=known) for task, known in points.items()}


def events() -> dict[str, s.EventNow]:
    told = (
        ("submitted", "topology example is to be run", 0, 0.0),
        ("plan", "plan 1: 4 slots for 110.0 rows/s (14 threads start, 0 leave)", 1, 1.0),
        ("committed", "plan 1 is committed", 1, 9.0),
        ("plan", "plan 2: 5 slots for 170.0 rows/s (4 threads start, 0 leave)", 2, 95.0),
        ("joined", "vm2 is there: 4 slots", 2, 97.2),
        ("plan", "plan 3: 6 slots for 240.0 rows/s (5 threads start, 2 leave)", 3, 178.4),
        ("committed", "plan 3 is committed", 3, 188.0),
    )
    return {
        str(n): s.EventNow(time=iso(BEGAN_S + at_s), kind=kind, text=text, epoch=epoch)
        for n, (kind, text, epoch, at_s) in enumerate(told, 1)
    }


def decisions() -> dict[str, s.DecisionNow]:
    rejected = ("scale down rejected: 212.0 rows/s × 1.25 = 265.0 ≥ 0.6 × 170.0",)
    return {
        "1": s.DecisionNow(
            time=iso(BEGAN_S + 1.0), epoch=1, trigger="start", rule="the first plan of the run", action="plan",
            text="88 rows/s are offered; 4 slots for 110.0 rows/s (14 threads start, 0 leave)",
            plan="0011223344556677", rate_tps=110.0, predicted_tps=112.5, slots=4, moves=14,
            diff=("+ vm1/0 source×1, sink×1", "+ vm1/1 parse×4", "+ vm1/2 score×2, parse×1", "+ vm1/3 lookup×6"),
            pause_ms=0.0, time_to_stable_s=8.0, lost=0,
        ),
        "2": s.DecisionNow(
            time=iso(BEGAN_S + 60.0), epoch=1, trigger="drift",
            rule="measured is far from predicted: reported only", action="none",
            text="cpu of vm1/3 is 0.71, predicted 0.52", numbers={"cpu vm1/3": 1.37},
        ),
        "3": s.DecisionNow(
            time=iso(BEGAN_S + 178.4), epoch=3, trigger="rate_changed",
            rule="the offered rate is not the one planned for", action="plan",
            text="212 rows/s offered, 170 planned for; 6 slots for 240.0 rows/s (5 threads start, 2 leave)",
            numbers={"offered_tps": 212.0, "planned_tps": 170.0, "headroom": 1.25, "since_up_s": 83.4},
            alternatives=rejected, plan="a1b2c3d4e5f60718", rate_tps=240.0, predicted_tps=243.0, slots=6, moves=7,
            diff=("+ vm1/2 parse×3", "- vm1/2 score×2", "+ vm2/1 score×2"), pause_ms=84.0,
            time_to_stable_s=6.6, lost=0,
        ),
    }  # fmt: skip


def history(at_s: float) -> s.History:
    times = [at_s - 240 + 2 * n for n in range(121)]
    offered = [88.0 if t < BEGAN_S + 95 else 136.0 if t < BEGAN_S + 178 else 212.0 for t in times]
    planned = [110.0 if t < BEGAN_S + 95 else 170.0 if t < BEGAN_S + 178 else 240.0 for t in times]
    p50 = [None if n < 3 else round(12 + 2 * math.sin(n / 5), 2) for n in range(121)]
    return s.History(
        time=tuple(times),
        offered_tps=tuple(offered),
        emitted_tps=tuple(round(v * 0.998, 1) for v in offered),
        acked_tps=tuple(round(v * 0.995, 1) for v in offered),
        planned_tps=tuple(planned),
        predicted_tps=tuple(v + 3 for v in planned),
        p50_ms=tuple(p50),
        p95_ms=tuple(None if v is None else v * 3 for v in p50),
        p99_ms=tuple(None if v is None else v * 6 for v in p50),
        slope=tuple(round(0.001 * math.sin(n / 7), 5) for n in range(121)),
        slots_used=tuple(4 if v == 110 else 5 if v == 170 else 6 for v in planned),
        epoch=tuple(1 if v == 110 else 2 if v == 170 else 3 for v in planned),
    )


def plain(snapshot: s.Snapshot) -> dict[str, Any]:
    """The document as JSON has it."""
    return msgspec.json.decode(msgspec.json.encode(snapshot))
