"""A cluster whose work task tries something, and what came of that."""

from __future__ import annotations

import json
from typing import Any

from agent_cluster import LINE, Cluster

from headgate.topology_runtime.api.topology import Edge, Static, Task, Topology
from headgate.topology_runtime.platform import processes
from headgate.topology_runtime.wire import messages as m


def prying(cluster: Cluster, how: str, **told: Any) -> None:
    params = {"how": how, "folder": str(cluster.rows), "told": told}
    work = Task("work", run="agent_prying_tasks:Prying", params=params)
    source = Task("source", kind="source", run="agent_tasks:Numbers", static=Static())
    store = Task("store", run="agent_tasks:Store", params={"folder": str(cluster.rows / "stored")})
    (cluster.rows / "stored").mkdir()
    (cluster.rows / "stored").chmod(0o777)
    edges = Edge("source", "work"), Edge("work", "store")
    cluster.topology = Topology("line", (source, work, store), edges)
    cluster.wait(lambda: bool(cluster.all(m.Hello)))
    cluster.want(*LINE)
    cluster.wait(lambda: cluster.ready(0, 1))
    cluster.offer(100.0)


def found(cluster: Cluster) -> Any:
    cluster.wait(lambda: bool(list(cluster.rows.glob("found-*.json"))))
    return json.loads(next(cluster.rows.glob("found-*.json")).read_text())


def flows(cluster: Cluster, rows: int = 50) -> None:
    """So many more rows are through."""
    cluster.wait(
        lambda: bool(cluster.report.sources)
    )  # an agent that has only now begun says nothing of them
    acked = cluster.report.sources[0].acked

    def through() -> bool:
        cluster.ready(0, 1)
        return any(source.acked > acked + rows for source in cluster.report.sources)

    cluster.wait(through)


def gone(pid: int) -> bool:
    stat = processes.stat(pid)
    return stat is None or stat.state == "Z"


def crashed(cluster: Cluster) -> bool:
    worker = cluster.worker(1)
    return worker is not None and worker.crashes > 0
