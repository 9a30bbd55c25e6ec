"""What user code can do to its host, whoever it runs as: a task tries it, in real workers of a real agent."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from agent_cluster import Cluster
from patience import PATIENCE_S, within
from prying_steps import crashed, flows, found, gone, prying

from headgate.topology_runtime.platform import cgroups, processes
from headgate.topology_runtime.platform.containment import FILES_MOST
from headgate.topology_runtime.platform.slot_size import PROCESSES_MOST
from headgate.topology_runtime.wire import messages as m

pytestmark = pytest.mark.live


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path)
    yield cluster
    cluster.close()
    assert cluster.groups() == []


def test_a_worker_gets_no_new_privileges_no_core_dump_and_bounded_files(cluster: Cluster) -> None:
    prying(cluster, "looks")
    seen = found(cluster)
    assert seen["status"]["NoNewPrivs"] == "1"
    assert seen["limits"]["Max core file size"] == ["0", "0"]
    files = seen["limits"]["Max open files"]
    assert files[0] == files[1] and int(files[0]) <= FILES_MOST


@within(2.0)
def test_a_daemon_ends_when_its_slot_is_replaced(cluster: Cluster, within_s: float) -> None:
    prying(cluster, "leaves_a_daemon")
    daemon = found(cluster)
    assert not gone(daemon) and os.getsid(daemon) != os.getsid(cluster.pids()[0])
    victim = next(
        pid for pid in cluster.pids() if b"--slot\0001\0" in (processes.read(f"/proc/{pid}/cmdline") or b"")
    )
    killed_s = time.monotonic()
    os.kill(victim, 9)
    cluster.wait(lambda: gone(daemon))
    assert time.monotonic() - killed_s < within_s
    flows(cluster)


def test_a_daemon_ends_with_the_run(cluster: Cluster) -> None:
    prying(cluster, "leaves_a_daemon")
    daemon = found(cluster)
    cluster.channel.send(cluster.peer, m.Shutdown(m.Token(1, 1, cluster.counter), "the test is over"))
    cluster.wait(lambda: gone(daemon))
    assert cluster.agent.wait(PATIENCE_S) == 0


def test_what_was_left_when_the_agent_was_killed_ends_when_the_next_begins(cluster: Cluster) -> None:
    prying(cluster, "leaves_a_daemon")
    daemon, workers = found(cluster), cluster.pids()
    cluster.agent.kill()
    cluster.agent.wait()
    cluster.wait(lambda: all(gone(pid) for pid in workers))
    cluster.start_agent()
    cluster.wait(lambda: gone(daemon))


def test_a_slot_has_so_many_processes_and_no_more(cluster: Cluster) -> None:
    cluster.wait(lambda: bool(cluster.all(m.Hello)))
    v1 = any("pids" in options for _, options in cgroups.mounted("cgroup"))
    if not v1 and cluster.all(m.Hello)[0].binding != "cgroup2":
        pytest.skip("nothing counts processes here")
    prying(cluster, "forks", most=PROCESSES_MOST + 100)
    cluster.wait(lambda: bool(list(cluster.rows.glob("found-*.json"))) or crashed(cluster))
    assert crashed(cluster) or found(cluster) < PROCESSES_MOST


def test_too_much_memory_ends_its_own_worker_with_the_reason_and_no_other(cluster: Cluster) -> None:
    cluster.wait(lambda: bool(cluster.all(m.Hello)))
    if "cgroup" not in cluster.all(m.Hello)[0].binding:
        pytest.skip("nothing bounds memory here")
    prying(cluster, "hogs", size_bytes=1 << 30)
    cluster.wait(lambda: crashed(cluster))
    mine, other = cluster.worker(1), cluster.worker(0)
    assert mine is not None and other is not None and "out of memory" in mine.last_exit
    assert other.crashes == 0 and other.state == "running"


@pytest.mark.parametrize("kept", [False, True])
def test_files_end_in_their_own_worker_and_rows_go_on(cluster: Cluster, kept: bool) -> None:
    prying(cluster, "opens", kept=kept)
    assert "Too many open files" in found(cluster)
    flows(cluster)
    assert not crashed(cluster)
