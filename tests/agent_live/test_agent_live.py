"""A real agent with real workers in real slots; this test is its controller."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from array import array
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import zmq
from agent_cluster import LINE, VM, Cluster, topology
from patience import PATIENCE_S, within

from headgate.topology_runtime.api.cluster import Slot
from headgate.topology_runtime.keys.curve import new_pair
from headgate.topology_runtime.keys.key_pairs import contact_at
from headgate.topology_runtime.platform import processes
from headgate.topology_runtime.wire import channels
from headgate.topology_runtime.wire import messages as m
from headgate.topology_runtime.wire.channels import ClientChannel

pytestmark = pytest.mark.live


@pytest.fixture(params=["agent", "own"])
def cluster(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    if request.param == "own" and os.geteuid() != 0:
        pytest.skip("only root can start workers as another user")
    cluster = Cluster(tmp_path, request.param)
    yield cluster
    cluster.close()
    assert cluster.groups() == []


def gone(pid: int) -> bool:
    stat = processes.stat(pid)
    return stat is None or stat.state == "Z"


def test_an_agent_runs_a_topology_measures_it_and_leaves_nothing_behind(cluster: Cluster) -> None:
    cluster.wait(lambda: bool(cluster.all(m.Hello)))
    hello = cluster.all(m.Hello)[0]
    assert (hello.vm, hello.slots, hello.slot_memory_bytes) == (VM, 2, 256 << 20)
    cluster.want(*LINE)
    cluster.wait(lambda: cluster.ready(0, 1))
    cluster.offer(1000.0)
    cluster.wait(lambda: len([b for b in cluster.all(m.SampleBlock) if b.finished]) >= 2)
    cluster.wait(lambda: bool(cluster.report.sources) and cluster.report.sources[0].emitted > 1000)
    cluster.want(*LINE, draining=True)
    cluster.wait(lambda: bool(cluster.report.sources) and cluster.report.sources[0].stopped)
    emitted = cluster.report.sources[0].emitted
    assert cluster.report.sources[0].acked == emitted
    cluster.channel.send(cluster.peer, m.Shutdown(m.Token(1, 1, cluster.counter), "the test is over"))
    cluster.wait(lambda: bool(cluster.all(m.Goodbye)))
    assert cluster.agent.wait(PATIENCE_S) == 0
    assert cluster.stored() == Counter(range(emitted))
    assert_measured(cluster, emitted)


def assert_measured(cluster: Cluster, emitted: int) -> None:
    """Every row is in the samples, the finished runs and the latency histogram, once."""
    blocks = cluster.all(m.SampleBlock)
    assert [b.sequence for b in blocks] == list(range(1, len(blocks) + 1))
    rows_in: Counter[str] = Counter()
    for block in blocks:
        for task, count in zip(block.tasks, array("q", block.threads["tuples_in"]), strict=True):
            rows_in[task] += count
    assert rows_in["work"] == rows_in["store"] == emitted
    assert sum(sum(buckets) for b in blocks for _, _, buckets in b.latency) == emitted
    runs = [array("q", f.runs) for b in blocks for f in b.finished]
    rows = Counter(run[k + 2] + i for run in runs for k in range(0, len(run), 5) for i in range(run[k + 3]))
    assert rows == Counter(range(emitted))
    assert sum(sum(array("q", b.slots["cpu_ns"])) for b in blocks) > 0


@within(0.5)
def test_a_killed_worker_comes_back_and_no_row_is_lost(cluster: Cluster, within_s: float) -> None:
    cluster.wait(lambda: bool(cluster.all(m.Hello)))
    cluster.want(*LINE)
    cluster.wait(lambda: cluster.ready(0, 1))
    cluster.offer(500.0)
    cluster.wait(lambda: cluster.report.sources[0].acked > 50)
    first = cluster.worker(1)
    assert first is not None
    victim = next(
        pid for pid in cluster.pids() if b"--slot\0001\0" in (processes.read(f"/proc/{pid}/cmdline") or b"")
    )
    begin = time.monotonic()
    os.kill(victim, signal.SIGKILL)
    cluster.wait(lambda: (w := cluster.worker(1)) is not None and w.crashes == 1)
    assert time.monotonic() - begin < within_s
    again = cluster.worker(1)
    assert again is not None and again.incarnation > first.incarnation and "SIGKILL" in again.last_exit
    cluster.wait(lambda: cluster.ready(0, 1))
    acked = cluster.report.sources[0].acked
    cluster.wait(lambda: cluster.report.sources[0].acked > acked + 200)
    cluster.want(*LINE, draining=True)
    cluster.wait(lambda: cluster.report.sources[0].stopped)
    assert set(cluster.stored()) == set(range(cluster.report.sources[0].emitted))


def test_a_worker_that_hangs_in_a_call_tells_its_stacks_and_is_replaced(cluster: Cluster) -> None:
    cluster.topology = topology(cluster.rows, max_call_s=1.0)
    cluster.wait(lambda: bool(cluster.all(m.Hello)))
    cluster.want(*LINE)
    cluster.wait(lambda: cluster.ready(0, 1))
    cluster.offer(200.0)
    cluster.wait(lambda: cluster.report.sources[0].acked > 10)
    hang = cluster.rows / "hang"
    hang.touch()
    cluster.wait(lambda: (w := cluster.worker(1)) is not None and w.crashes == 1)
    hang.unlink()
    worker = cluster.worker(1)
    assert worker is not None and worker.last_exit.startswith("hung, a call has taken")
    log = (cluster.folder / "vm1" / "logs" / "worker-1.log").read_text()
    assert "in __call__" in log and "agent_tasks.py" in log


@within(1.0)
def test_killing_the_agent_kills_its_workers_and_the_next_one_removes_what_it_left(
    cluster: Cluster, within_s: float
) -> None:
    cluster.wait(lambda: bool(cluster.all(m.Hello)))
    cluster.want(*LINE)
    cluster.wait(lambda: cluster.ready(0, 1))
    workers = cluster.pids()
    assert len(workers) == 2
    killed_s = time.monotonic()
    cluster.agent.kill()
    cluster.agent.wait()
    cluster.wait(lambda: all(gone(pid) for pid in workers))
    assert time.monotonic() - killed_s < within_s
    boots = {hello.boot for hello in cluster.all(m.Hello)}
    cluster.start_agent()
    cluster.wait(lambda: any(hello.boot > max(boots) for hello in cluster.all(m.Hello)))


def test_ctrl_c_and_hostile_bytes(cluster: Cluster) -> None:
    cluster.wait(lambda: bool(cluster.all(m.Hello)))
    cluster.want(*LINE)
    cluster.wait(lambda: cluster.ready(0, 1))
    for junk in (b"", b"\xc1" * 1000, b"\x91" * 100_000, channels.encode(m.Goodbye(VM, 1))):
        cluster.channel.send(cluster.peer, junk)
    workers = cluster.pids()
    words = (processes.read(f"/proc/{workers[0]}/cmdline") or b"").decode().split("\0")
    stranger: ClientChannel[bytes, m.FromAgentToWorker] = ClientChannel(
        channels.from_agent_to_worker, contact_at(words[words.index("--agent") + 1], new_pair())
    )
    report = m.WorkerReport(Slot(VM, 9), 1, m.Token(), True)
    with suppress(zmq.Again):  # once it is refused it has nobody to write to
        for _ in range(2000):
            stranger.send(b"\xc1 flood")
            stranger.send(channels.encode(report))
    cluster.wait(lambda: stranger.refused)  # the key of its agent is no secret; a worker's own is
    stranger.close()
    cluster.tell_new()
    cluster.wait(lambda: cluster.report.token.counter == cluster.counter)
    cluster.agent.send_signal(signal.SIGINT)
    assert cluster.agent.wait(PATIENCE_S) == 0
    cluster.wait(lambda: bool(cluster.all(m.Goodbye)))
    assert all(gone(pid) for pid in workers)


def test_an_agent_that_is_refused_says_why_and_ends(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    try:
        cluster.waiter.wait(PATIENCE_S)
        came = cluster.channel.receive()
        assert came is not None
        cluster.channel.send(came[0], m.Welcome(1, "run", 0, refused="it speaks protocol 1"))
        assert cluster.agent.wait(PATIENCE_S) == 6
        assert "it speaks protocol 1" in (tmp_path / "agent.log").read_text()
    finally:
        cluster.close()


def test_an_agent_whose_owner_dies_ends_its_workers_too(cluster: Cluster) -> None:
    cluster.wait(lambda: bool(cluster.all(m.Hello)))
    cluster.agent.terminate()
    assert cluster.agent.wait(PATIENCE_S) == 0
    cluster.pump()
    cluster.heard.clear()
    code = "import os, subprocess, sys, time\n"
    code += "subprocess.Popen([*sys.argv[1:], '--owner', str(os.getpid())], stdin=subprocess.DEVNULL)\n"
    code += "time.sleep(60)"
    with (cluster.folder / "agent.log").open("ab") as log:
        owner = subprocess.Popen([sys.executable, "-c", code, *cluster.command()], stderr=log)
    try:
        cluster.wait(lambda: bool(cluster.all(m.Hello)))
        agent = cluster.all(m.Hello)[0].pid
        cluster.want(*LINE)
        cluster.wait(lambda: cluster.ready(0, 1))
    finally:
        owner.kill()
        owner.wait()
    cluster.wait(lambda: gone(agent))
    assert cluster.all(m.Goodbye) and cluster.report.workers[0].last_exit == "exit code 0"
