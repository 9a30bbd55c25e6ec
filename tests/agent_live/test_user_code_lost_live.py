"""Rows that take their worker with them: real agents, real workers, real ways to hang and to die."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from agent_cluster import LINE, Cluster
from agent_wild_tasks import BAD

from headgate.topology_runtime.api.topology import Edge, Static, Task, Topology
from headgate.topology_runtime.wire import messages as m

pytestmark = pytest.mark.live
FOREVER = ("loops", "sleeps", "waits_for_bytes", "holds_the_interpreter")
DEADLY = ("breaks_memory", "exits")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path)
    yield cluster
    cluster.close()


def wild(cluster: Cluster, how: str, max_call_s: float) -> None:
    work = Task("work", run="agent_wild_tasks:Wild", params={"how": how}, max_call_s=max_call_s)
    go(cluster, Task("source", kind="source", run="agent_tasks:Numbers", static=Static()), work)


def go(cluster: Cluster, source: Task, work: Task, threads: tuple[tuple[int, str, int], ...] = LINE) -> None:
    store = Task("store", run="agent_tasks:Store", params={"folder": str(cluster.rows)})
    cluster.topology = Topology(
        "line", (source, work, store), (Edge("source", "work"), Edge("work", "store"))
    )
    cluster.wait(lambda: bool(cluster.all(m.Hello)))
    cluster.want(*threads)
    cluster.wait(lambda: cluster.ready(0, 1))
    cluster.offer(400.0)


def letters(cluster: Cluster) -> list[m.DeadLetter]:
    return [letter for message in cluster.all(m.DeadLetters) for letter in message.letters]


def goes_on(cluster: Cluster) -> None:
    """Workers that come back are made known to each other until a row far behind the bad one is acked."""

    def done() -> bool:
        cluster.ready(0, 1)
        return any(source.acked > BAD + 200 for source in cluster.report.sources)

    cluster.wait(done)


@pytest.mark.parametrize("how", [*FOREVER, *DEADLY])
def test_a_row_that_nobody_survives_is_a_dead_letter_after_three_tries(cluster: Cluster, how: str) -> None:
    wild(cluster, how, max_call_s=1.0)
    goes_on(cluster)
    cluster.wait(lambda: bool(letters(cluster)))
    (letter,) = letters(cluster)
    assert (letter.task, letter.source, letter.partition, letter.position) == ("work", "source", 0, BAD)
    assert letter.row == str(BAD) and "(3 tries)" in letter.error
    if how in FOREVER:
        assert letter.error.startswith("hung: no answer within max_call_s=1 ")
    if how != "exits":
        assert "agent_wild_tasks.py" in letter.error and f"in {how}" in letter.traceback
    worker = cluster.worker(1)
    assert worker is not None and worker.state != "quarantined", (
        "what is a row's doing is not held against its slot"
    )
    emitted = cluster.report.sources[0].acked
    assert set(range(emitted)) - set(cluster.stored()) <= {BAD}


@pytest.mark.parametrize("how", ["loops", "sleeps", "exits"])
def test_so_is_one_whose_thread_is_run_by_the_source(cluster: Cluster, how: str) -> None:
    """The letter names the task and where its code was, though another thread than the task's was in it."""
    by_source = "source-1"
    given, chained = (
        {"how": how, "folder": str(cluster.rows.parent)},
        ((1, "source", 0), (2, "work", 0), (3, "store", 1)),
    )
    work = Task("work", run="agent_wild_tasks:WildAnywhere", params=given, max_call_s=1.0)
    cluster.chained = ("work",)
    go(cluster, Task("source", kind="source", run="agent_tasks:Numbers", static=Static()), work, chained)
    goes_on(cluster)
    cluster.wait(lambda: bool(letters(cluster)))
    (letter,) = letters(cluster)
    assert (letter.task, letter.source, letter.position) == (
        "work",
        "source",
        BAD,
    ) and "(3 tries)" in letter.error
    tries = (cluster.rows.parent / "callers").read_text().split()
    assert len(tries) >= 3 and by_source in tries, "its own thread takes what comes while others wait"
    if how in FOREVER:
        assert "agent_wild_tasks.py" in letter.error and f"in {how}" in letter.traceback
        assert ("run_for" in letter.traceback) == (tries[-1] == by_source)
    emitted = cluster.report.sources[0].acked
    assert set(range(emitted)) - set(cluster.stored()) <= {BAD}


@pytest.mark.parametrize("how", ["sleeps", "exits"])
def test_of_a_call_with_many_rows_the_one_that_nobody_survives_is_found(cluster: Cluster, how: str) -> None:
    work = Task(
        "work", run="agent_wild_tasks:WildTogether", params={"how": how}, max_call_s=1.0, batched=True
    )
    go(cluster, Task("source", kind="source", run="agent_tasks:Numbers", static=Static()), work)
    goes_on(cluster)
    cluster.wait(lambda: bool(letters(cluster)))
    (letter,) = letters(cluster)
    assert (letter.task, letter.position, letter.row) == (
        "work",
        BAD,
        str(BAD),
    ) and "(3 tries)" in letter.error
    emitted = cluster.report.sources[0].acked
    assert set(range(emitted)) - set(cluster.stored()) <= {BAD}


def test_a_call_that_is_long_and_legal_is_let_be(cluster: Cluster) -> None:
    wild(cluster, "takes_its_time", max_call_s=3.0)
    goes_on(cluster)
    worker = cluster.worker(1)
    assert worker is not None and worker.crashes == 0 and not letters(cluster)


def test_a_source_that_does_not_come_back_is_named_and_read_again(cluster: Cluster) -> None:
    given = {"folder": str(cluster.rows)}
    source = Task(
        "source", kind="source", run="agent_wild_tasks:Stuck", params=given, static=Static(), max_call_s=1.0
    )
    go(cluster, source, Task("work", run="agent_tasks:Work", params=given))

    def struck(times: int) -> bool:
        cluster.ready(0, 1)
        return f"({times} tries)" in (cluster.folder / "agent.log").read_text()

    cluster.wait(lambda: struck(3))
    log = (cluster.folder / "agent.log").read_text()
    assert f"source source at source[0] position {BAD}: hung: no answer within max_call_s=1 (3 tries)" in log
    (cluster.rows / "mended").touch()
    goes_on(cluster)
    assert not letters(cluster)


@pytest.mark.parametrize(("seconds", "closed"), [(1.0, True), (1000.0, False)])
def test_a_worker_that_leaves_lets_its_objects_close_and_tells_of_those_that_do_not(
    cluster: Cluster, seconds: float, closed: bool
) -> None:
    given = {"folder": str(cluster.rows), "seconds": seconds}
    source = Task("source", kind="source", run="agent_tasks:Numbers", static=Static())
    go(cluster, source, Task("work", run="agent_wild_tasks:ClosesSlowly", params=given))
    cluster.wait(lambda: cluster.report.sources[0].acked > 10)
    cluster.want((1, "source", 0), (3, "store", 0))
    cluster.wait(lambda: (w := cluster.worker(1)) is not None and w.state == "exited")
    worker = cluster.worker(1)
    assert worker is not None and worker.crashes == 0
    assert (cluster.rows / "closed").exists() == closed
    told = (
        "close() of thread 2 of work has not returned for"
        in (cluster.folder / "vm1" / "logs" / "worker-1.log").read_text()
    )
    assert told != closed
