"""What dead letters cost a controller: its core and its disk, with many letters known already.

`--letters` letters come in (half of them next to each other, half with a gap between them), then for
`--seconds` of virtual time the loop ticks as it does live, with `--new` letters a second, and what it wants on
disk is written there. Prints CPU per letter while they come and CPU per second with all of them there, in the
core and on the disk, the bytes written per second, and the controller's memory for them.
"""
# bench: deadletters – CPU a second with 300,000 dead letters known

from __future__ import annotations

import resource
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from headgate.controller.core.loop import Loop
from headgate.controller.files.run_state_files import DeadLetterFile, TallyFile
from headgate.controller.knowledge import loop_events as t
from headgate.controller.knowledge.controller_config import ControllerSettings
from headgate.controller.knowledge.journal_records import Submitted
from headgate.controller.models.task_models import Model, ModelSlot, Point
from headgate.topology_runtime.api.topology import Edge, Static, Task, Topology
from headgate.topology_runtime.wire.messages import DeadLetter, DeadLetters

NS = 1_000_000_000
A_MESSAGE = 100
MEMORY = 1 << 29
TRACEBACK = (
    'Traceback (most recent call last):\n  File "work.py", line 12, in work\n    return parse(row)\n' * 4
)


class Bench:
    """A controller's core with a disk of its own, in virtual time."""

    def __init__(self, folder: Path) -> None:
        topology = Topology(
            "line",
            (Task("source", kind="source", static=Static(1, 0.1, 0.1)), Task("work")),
            (Edge("source", "work"),),
        )
        models = (Model("work", ModelSlot(1.0, MEMORY), (Point(1, 50.0, 0.2, 0.1),)),)
        self.loop = Loop(ControllerSettings("bench"), Submitted(topology, models, ((0.0, 1.0),), 0.0, (), NS))
        self._store, self._file, self._folder = (
            TallyFile(folder / "tallies"),
            DeadLetterFile(folder / "letters"),
            folder,
        )
        self.now_ns, self.said = NS, 0
        self.core_s = self.disk_s = 0.0
        self.do(t.Started(pid=1))

    def do(self, event: t.Event) -> None:
        begin = time.process_time()
        instructions = self.loop.step(event, t.Now(self.now_ns, self.now_ns))
        middle = time.process_time()
        for instruction in instructions:
            if isinstance(instruction, t.KeepTallies):
                self._store.keep(instruction.tallies)
            elif isinstance(instruction, t.KeepDeadLetters):
                self._file.append(instruction.records)
        self.core_s += middle - begin
        self.disk_s += time.process_time() - middle

    def say(self, positions: Iterator[int], count: int) -> None:
        for _ in range(0, count, A_MESSAGE):
            letters = tuple(
                DeadLetter("work", 1, "source", 0, next(positions), "a row", "ValueError: no", TRACEBACK)
                for _ in range(min(A_MESSAGE, count))
            )
            self.do(t.FromVm(DeadLetters("vm1", letters, 1, self.said, self.said)))
            self.said += len(letters)

    def tick(self) -> None:
        self.now_ns += NS // 4
        self.do(t.Tick())

    def bytes_on_disk(self) -> int:
        return sum(path.stat().st_size for path in self._folder.iterdir())


def positions(letters: int) -> Iterator[int]:
    yield from range(letters // 2)
    yield from range(letters, 1 << 62, 2)


def measure(letters: int = 300_000, seconds: int = 60, new: int = 10) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder))
        before_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        numbers = positions(letters)
        for _ in range(-(-letters // 10_000)):
            bench.say(numbers, min(letters, 10_000))
            for _ in range(4):
                bench.tick()
        coming_s, bench.core_s, bench.disk_s = bench.core_s + bench.disk_s, 0.0, 0.0
        size = bench.bytes_on_disk()
        for _ in range(seconds):
            bench.say(numbers, new)
            for _ in range(4):
                bench.tick()
        return {
            "letters": bench.loop.knowledge.counts.letters.count,
            "new_per_s": new,
            "us_per_letter": round(coming_s / letters * 1e6, 2),
            "core_s_per_s": round(bench.core_s / seconds, 5),
            "disk_s_per_s": round(bench.disk_s / seconds, 5),
            "grown_bytes_per_s": round((bench.bytes_on_disk() - size) / seconds),
            "memory_mb": round((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kb) / 1024, 1),
        }


BENCHMARKS = {"deadletters": measure}
