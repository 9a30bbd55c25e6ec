"""W1 to W4 on headgate's own workers, acks and meters on: W1 and W4 in one, W2 and W3 in two.

Called with the work, how many rows, and "chained" for tasks that follow each other in a worker as one thread."""

from __future__ import annotations

import itertools
import sys
import tempfile
from pathlib import Path

import msgspec

from headgate.topology_runtime import messages as m
from headgate.topology_runtime.data_plane import FRAME_ROWS
from headgate.topology_runtime.topology import Edge, Static, Task, Topology
from headgate.topology_runtime.wire_version import VERSION
from headgate.topology_runtime.worker.rig import Rig
from peers import work

SCRIPTS = str(Path(__file__).resolve().parents[1])
MODELLED_TPS = {"W1": 16384.0, "W2": 16384.0, "W4": 65536.0}  # twice as many rows in flight at most
MOST_S = 100.0


def topology(name: str, total: int, path: str) -> Topology:
    tasks = [
        Task("source", kind="source", run="peers.headgate_tasks:Rows", params={"name": name, "total": total},
             static=Static()),
        Task("sink", run="peers.headgate_tasks:Sink", params={"name": name, "total": total, "path": path}),
    ]  # fmt: skip
    if name == "W4":
        tasks[1:1] = [Task(n, run=f"peers.headgate_tasks:{n.title()}") for n in ("parse", "count")]
    else:
        tasks[1:1] = [Task(n, run=f"peers.work:{n}") for n in ("f1", "f2", "f3")]
    keys = {"count": {"grouping": "fields", "key": "peers.work:user"}}
    edges = [Edge(a.name, b.name, **keys.get(b.name, {})) for a, b in itertools.pairwise(tasks)]
    return Topology("peer", tuple(tasks), tuple(edges))


def main(name: str, total: int, chained: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "sink.json"
        made = topology(name, total, str(path))
        names = [task.name for task in made.tasks]
        second = names[2:] if name in ("W2", "W3") else []
        rig = Rig(
            made,
            {n: [1 if n in second else 0] for n in names},
            folder,
            (SCRIPTS,),
            m.DataPlaneSettings() if name == "W3" else m.DataPlaneSettings(frame_rows=FRAME_ROWS),
            dict.fromkeys(names, MODELLED_TPS[name]) if name in MODELLED_TPS else {},
            chained=tuple(names) if chained else (),
        )
        try:
            rig.start()
            rig.offer([(0.0, 1e9 / work.GAP_NS if name == "W3" else 20_000_000.0)])
            rig.wait(path.exists, MOST_S, "the last row at the sink")
            offered_ns = rig.desired.schedule.start_ns
        finally:
            rig.stop()
        found = msgspec.json.decode(path.read_bytes())
    sink = work.SINKS[name](total)
    vars(sink).update(found)
    if name == "W3":
        sink.came = [(offered_ns + number * work.GAP_NS, came) for number, came in sink.came]
    work.tell(name, sink, VERSION, "at least once: each frame is acked to its source; samples on")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3] == "chained")
