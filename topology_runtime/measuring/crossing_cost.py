"""What a row costs because it comes from another slot and goes to another: encoded, sent, received, decoded.

Measured once on a machine and kept in the user's cache: CPU of one task in a slot that hands rows on, and of two of
them one after the other. Between the two nothing is encoded, so

    one = task + crossing     two = 2 task + crossing     crossing = 2 one - two

with the largest frames, so that what a frame costs is next to nothing, and the smallest rows, so that no more is taken
for saved within a slot than is (decision 114).
"""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from headgate.topology_runtime.api.topology import Edge, Task, Topology
from headgate.topology_runtime.errors import HeadgateError
from headgate.topology_runtime.measuring import model_store as store
from headgate.topology_runtime.measuring.bench import HERE, Bench, BenchPlace
from headgate.topology_runtime.measuring.bench_trials import probe
from headgate.topology_runtime.measuring.measuring_slots import Quotas
from headgate.topology_runtime.platform.disk import write_whole
from headgate.topology_runtime.wire.run_options import FRAME_ROWS
from headgate.topology_runtime.worker.meters import sample_rows

SCHEMA = "headgate/machine/v1"
CORES, SECONDS, SILENCE_S, TIMES = 0.5, 1.0, 20.0, 3
MOST_S = 1e-3  # of CPU for a small row: more is no crossing
ROWS = [(n, n % 17) for n in range(1000)]
FIRST, SECOND = "first", "second"


def crossing_of(one_s: float, two_s: float) -> float:
    """CPU seconds of a row's crossings, in and out, by those of one task and of two.

    >>> crossing_of(one_s=3e-6, two_s=4e-6)
    2e-06
    """
    return max(0.0, 2 * one_s - two_s)


@dataclass
class CrossingCost:
    """Of this machine. `why`: it is not known, or not kept for next time, since."""

    place: BenchPlace
    quotas: Quotas
    stop: threading.Event
    folder: Path | None = None
    why: str = ""
    _found: float | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def seconds(self) -> float | None:
        """CPU of a row; None where it cannot be measured, which is tried once. Raises Stopped."""
        with self._lock:
            if self._found is None and not self.why:
                file = (
                    (self.folder or store.cache_home()) / "headgate" / "machine" / f"{store.machine()}.json"
                )
                self._found = read_crossing(file)
                if self._found is None:
                    self._measure(file)
            return self._found

    def _measure(self, file: Path) -> None:
        try:
            one_s, two_s = (median(self._cpu_s(tasks) for _ in range(TIMES)) for tasks in (1, 2))
        except HeadgateError as error:
            self.why = f"what a row costs between slots is not known: {error.what}"
            return
        self._found = crossing_of(one_s, two_s)
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            write_whole(file, json.dumps({"schema": SCHEMA, "crossing_s": self._found}).encode())
        except OSError as error:
            self.why = f"what a row costs between slots is measured each time: {file}: {error.strerror}"

    def _cpu_s(self, tasks: int) -> float:
        """Of a row through so many."""
        file = Path(self.place.directory) / "crossing.rows"
        sample_rows.write(file, [("rows", row) for row in ROWS])
        here = (FIRST, SECOND)[:tasks]
        names = ("rows", *here, "end")
        topology = Topology(
            "crossing",
            (
                Task("rows", "source", f"{HERE}:Replay", {"path": str(file)}),
                *(Task(name, run=f"{HERE}:hand_on") for name in here),
                Task("end", "flat_map", f"{HERE}:swallow"),
            ),
            tuple(map(Edge, names, names[1:])),
        )
        bench = Bench(topology, FIRST, 1, FRAME_ROWS, self.place, self.stop, here)
        try:
            bench.begin(self.quotas, "crossing", 0)
            found = probe(bench, 1, FRAME_ROWS, SECONDS, self.place.slot_cores, SILENCE_S)
        finally:
            bench.end()
        return found.cpu * self.place.slot_cores / found.rate_tps


def read_crossing(file: Path) -> float | None:
    """What an earlier profile kept; None where that is nothing that can be used, so that it is measured again."""
    try:
        told = json.loads(file.read_bytes())
        found = float(told["crossing_s"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return found if told.get("schema") == SCHEMA and 0 <= found < MOST_S else None
