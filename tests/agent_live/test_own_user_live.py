"""Workers of an agent that is root, as a user of their own: what a task tries, and that all else works as ever."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from agent_cluster import KEYS, LINE, Cluster
from patience import PATIENCE_S
from prying_steps import crashed, flows, found, gone, prying

from headgate.agent.process.worker_user import RANGES, TAKEN, processes_of, slot_group
from headgate.topology_runtime.api.topology import Edge, Static, Task, Topology
from headgate.topology_runtime.platform import processes
from headgate.topology_runtime.platform.containment import WorkerUser
from headgate.topology_runtime.platform.slot_size import PROCESSES_MOST
from headgate.topology_runtime.wire import messages as m

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can start workers as another user"),
]
MOST = 2 * PROCESSES_MOST


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path, "own")
    yield cluster
    cluster.close()
    assert cluster.groups() == []


def users(pids: list[int]) -> set[int]:
    return {int(words.split()[1]) for pid in pids for words in status(pid) if words.startswith("Uid:")}


def status(pid: int) -> list[str]:
    return (processes.read(f"/proc/{pid}/status") or b"").decode().splitlines()


def number_of(cluster: Cluster, slot: int) -> int:
    word = f"--slot\0{slot}\0".encode()
    return next(pid for pid in cluster.pids() if word in (processes.read(f"/proc/{pid}/cmdline") or b""))


def test_a_task_is_a_user_of_its_own_without_groups_capabilities_and_new_privileges(cluster: Cluster) -> None:
    prying(cluster, "looks")
    seen = found(cluster)
    now, limits = seen["status"], seen["limits"]
    (uid,) = set(now["Uid"].split())
    group = str(slot_group(WorkerUser(int(uid), int(uid), ""), 1))  # of slot 1's files
    assert any(int(uid) in numbers for numbers in RANGES) and set(now["Gid"].split()) == {group}
    assert now["Groups"].split() == [uid] and now["NoNewPrivs"] == "1"
    assert {int(now[name], 16) for name in ("CapInh", "CapPrm", "CapEff", "CapAmb")} == {0}
    assert limits["Max processes"] == [str(MOST), str(MOST)] and limits["Max core file size"] == ["0", "0"]
    assert users(cluster.pids()) == {int(uid)}
    flows(cluster)


def test_a_task_has_the_variables_that_its_topology_names_and_what_any_process_needs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("NAMED_PASSWORD", "named-secret")
    monkeypatch.setenv("OTHERS_PASSWORD", "others-secret")
    cluster = Cluster(tmp_path, "own")
    try:
        prying(cluster, "variables", password="<${ENV:NAMED_PASSWORD}>")
        seen = found(cluster)
        assert b"named-secret" not in Path(f"/proc/{cluster.agent.pid}/environ").read_bytes()
        assert b"others-secret" in Path(f"/proc/{cluster.agent.pid}/environ").read_bytes()
    finally:
        cluster.close()
    assert seen["told"] == {"password": "<named-secret>"}
    assert "OTHERS_PASSWORD" not in seen["has"] and seen["has"]["PATH"] == os.environ["PATH"]


def test_what_a_task_tries_is_refused(cluster: Cluster, tmp_path: Path) -> None:
    others, program = tmp_path / "another-run", cluster.rows / "id"
    (others / "controller").mkdir(parents=True, mode=0o700)
    journal = others / "controller" / "journal"
    journal.write_text("journal")
    shutil.copy(shutil.which("id") or "", program)
    program.chmod(0o4755)
    own, agent = tmp_path / "vm1", cluster.agent.pid
    cluster.wait(lambda: bool(cluster.all(m.Hello)))
    read = [tmp_path / "vm1.key", journal, "/etc/shadow", f"/proc/{agent}/environ", f"/proc/{agent}/mem"]
    seen = [own, own / "logs", others, TAKEN, f"/proc/{agent}/fd"]
    write = [
        own,
        own / "agent.lock",
        own / "logs",
        Path(__file__).parent,
        "/etc",
        "/proc/sys/kernel/core_pattern",
    ]
    told = {"read": read, "list": seen, "write": write}
    paths = {kind: [str(path) for path in some] for kind, some in told.items()}
    prying(cluster, "tries", agent=agent, program=str(program), **paths)
    outcomes = found(cluster)
    assert len(outcomes) > 30
    done = {name: outcome for name, outcome in outcomes.items() if not outcome.startswith("refused")}
    assert done == {}
    assert cluster.agent.poll() is None
    flows(cluster)


def test_a_worker_does_not_trace_another_of_its_own_run(cluster: Cluster, tmp_path: Path) -> None:
    cluster.wait(lambda: bool(cluster.all(m.Hello)))
    told = {
        "agent": cluster.agent.pid,
        "other": 1,
        "read": [],
        "list": [],
        "write": [],
        "program": "/bin/true",
    }
    prying(cluster, "traces", **told)
    assert found(cluster).startswith("refused")


def test_who_has_no_key_is_not_heard_from_a_task_either(cluster: Cluster) -> None:
    prying(cluster, "knocks", controller=cluster.channel.endpoint, public=KEYS.own.public)
    assert found(cluster) == "knocked"
    flows(cluster)
    assert cluster.all(m.Goodbye) == []


def test_files_that_a_task_forges_do_not_keep_its_agent_from_work(cluster: Cluster) -> None:
    prying(cluster, "forges")
    assert found(cluster) == "forged"
    os.kill(number_of(cluster, 1), 9)
    flows(cluster, 200)
    assert cluster.agent.poll() is None
    cluster.agent.kill()
    cluster.agent.wait()
    cluster.start_agent()
    cluster.wait(lambda: len({hello.boot for hello in cluster.all(m.Hello)}) == 2)
    flows(cluster, 200)
    assert cluster.agent.poll() is None
    log = (cluster.folder / "agent.log").read_text()
    assert "Traceback" not in log, log


def test_nothing_of_its_user_is_left_when_the_run_is_over(cluster: Cluster) -> None:
    prying(cluster, "leaves_a_daemon")
    daemon = found(cluster)
    (uid,) = users(cluster.pids())
    assert (TAKEN / str(uid)).exists() and daemon in processes_of(uid)
    cluster.channel.send(cluster.peer, m.Shutdown(m.Token(1, 1, cluster.counter), "the test is over"))
    assert cluster.agent.wait(PATIENCE_S) == 0
    assert gone(daemon) and processes_of(uid) == [] and not (TAKEN / str(uid)).exists()


def test_after_its_agent_was_killed_it_is_the_same_user_and_finds_its_files(cluster: Cluster) -> None:
    prying(cluster, "leaves_a_daemon")
    daemon = found(cluster)
    before = users(cluster.pids())
    cluster.agent.kill()
    cluster.agent.wait()
    cluster.start_agent()
    cluster.wait(lambda: len({hello.boot for hello in cluster.all(m.Hello)}) == 2)
    assert gone(daemon)
    flows(cluster)
    assert users(cluster.pids()) == before


def test_another_user_may_be_named(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, "nobody")
    try:
        prying(cluster, "looks")
        assert set(found(cluster)["status"]["Uid"].split()) == {"65534"}
    finally:
        cluster.close()


def test_processes_of_all_its_workers_together_are_bounded_too(cluster: Cluster) -> None:
    prying(cluster, "forks", most=PROCESSES_MOST + 100)
    cluster.wait(lambda: bool(list(cluster.rows.glob("found-*.json"))) or crashed(cluster))
    assert crashed(cluster) or found(cluster) < PROCESSES_MOST


@pytest.mark.parametrize(
    ("how", "most", "said"),
    [
        ("forks_on", 5000, "too many processes, its slot may have 80"),
        ("fills", 5000, "too much on disk, its slot has"),
    ],
)
def test_a_task_that_forks_or_fills_its_folder_without_end_is_named_and_its_slot_alone_ends(
    how: str, most: int, said: str, tmp_path: Path
) -> None:
    """Each worker does so with its first row: whichever it is, it is a dead letter in the end, and the rest flows."""
    cluster = Cluster(tmp_path, "own", ("slot-processes=80", "slot-disk=32M"))
    try:
        if (
            how == "forks_on"
            and cluster.groups()
            and not any("/pids/" in one for one in map(str, cluster.groups()))
        ):
            pytest.skip("nothing counts processes here")
        cluster.wait(lambda: bool(cluster.all(m.Hello)))
        prying(cluster, how, most=most)
        cluster.wait(lambda: crashed(cluster))
        worker, other = cluster.worker(1), cluster.worker(0)
        assert worker is not None and said in worker.last_exit, worker
        assert other is not None and other.crashes == 0, other
        assert cluster.agent.poll() is None
        log = (tmp_path / "agent.log").read_text()
        assert f"the worker of slot 1 is ended: {said}" in log

        def buried() -> bool:  # each worker in turn, three times with the same row
            cluster.ready(0, 1)
            return "it becomes a dead letter" in (tmp_path / "agent.log").read_text()

        cluster.wait(buried)
        told = [
            line
            for line in (tmp_path / "agent.log").read_text().splitlines()
            if "becomes a dead letter" in line
        ]
        assert "task work, row of source[0]" in told[0] and said in told[0]
        assert "agent_prying_tasks.py:" in told[0] and other.crashes == 0
    finally:
        cluster.close()
    assert cluster.groups() == []


def test_what_cannot_be_contained_is_not_started_and_says_why(tmp_path: Path) -> None:
    """A user who may not read the code."""
    cluster = Cluster(tmp_path, "own")
    try:
        secret = cluster.rows / "stored"
        cluster.wait(lambda: bool(cluster.all(m.Hello)))
        prying(cluster, "looks")
        cluster.wait(lambda: cluster.ready(0, 1))
        assert stat.S_IMODE(secret.stat().st_mode) == 0o777
        cluster.rows.chmod(0o700)
        os.kill(number_of(cluster, 1), 9)
        cluster.wait(lambda: (w := cluster.worker(1)) is not None and "may not read" in w.last_exit)
        worker = cluster.worker(1)
        assert worker is not None and str(cluster.rows) in worker.last_exit
    finally:
        cluster.rows.chmod(0o777)
        cluster.close()


def test_two_agents_never_have_one_user(tmp_path: Path) -> None:
    made = [Cluster(tmp_path / name, "own") for name in ("a", "b") if (tmp_path / name).mkdir() is None]
    try:
        for one in made:
            prying(one, "looks")
        uids = [found(one)["status"]["Uid"].split()[0] for one in made]
        assert len(set(uids)) == 2
    finally:
        for one in made:
            one.close()


def test_a_root_that_may_not_change_users_says_so_and_does_not_begin(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, "agent")
    cluster.close()
    weak = ["setpriv", "--bounding-set", "-setuid", "--inh-caps", "-setuid"]
    command = [*weak, *cluster.command(), "--workers-as", "own"]
    said = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert said.returncode != 0 and "CAP_SETUID" in said.stderr and "--workers-as agent" in said.stderr


def test_a_sink_that_may_not_write_where_it_is_told_says_as_whom_it_tried(cluster: Cluster) -> None:
    store = Task(
        "store",
        run="headgate.topology_runtime.tasks.sinks:CollectToFile",
        params={"path": "/etc/rows"},
    )
    source = Task("source", kind="source", run="agent_tasks:Numbers", static=Static())
    work = Task("work", run="agent_prying_tasks:Prying", params={"how": "looks", "folder": str(cluster.rows)})
    cluster.topology = Topology(
        "line", (source, work, store), (Edge("source", "work"), Edge("work", "store"))
    )
    cluster.wait(lambda: bool(cluster.all(m.Hello)))
    cluster.want(*LINE)

    def failed() -> str:
        cluster.ready(0, 1)
        first = cluster.worker(0)
        return next((t.failed for t in first.threads if t.failed), "") if first is not None else ""

    cluster.wait(lambda: bool(failed()))
    assert "Permission denied" in failed() and "tasks are user 204" in failed() and "--workers-as" in failed()
    assert not Path("/etc/rows").exists()
