"""Workers as their agent keeps them, with a shell in the place of each: how they end, what goes with them, and whose
word counts."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from patience import PATIENCE_S, until

from headgate.agent.process.agent_config import AgentConfig
from headgate.agent.slots.worker_supervisor import Supervisor, WorkerEnd, WorkerProcess
from headgate.topology_runtime.api.cluster import Slot
from headgate.topology_runtime.keys.key_pairs import Who
from headgate.topology_runtime.keys.worker_keys import WorkerKeys
from headgate.topology_runtime.platform import processes
from headgate.topology_runtime.platform.slot_binding import Unbound
from headgate.topology_runtime.platform.slot_size import SlotSize
from headgate.topology_runtime.wire.messages import WorkerHello
from headgate.topology_runtime.worker.meters import meter as mt

ENDPOINT = "tcp://127.0.0.1:1"
STAYS = "sleep 100"


class ShellSlots(Unbound):
    """Slots in which a shell does as it is told. It leaves the key that it was handed, and its meter is at hand."""

    def __init__(self, folder: Path) -> None:
        super().__init__(SlotSize(f"test-{os.getpid()}", "vm1", 2, 0.2, 1 << 28))
        self.folder, self.words, self.fault = folder, STAYS, False
        self.public = ""

    def command(self, slot: int, command: list[str]) -> list[str]:
        given = dict(zip(command[4::2], command[5::2], strict=True))
        self.public = os.read(int(given["--key-fd"]), 40).decode()
        self.meter = mt.Meter(int(given["--meter-fd"]))
        if self.fault:
            raise OSError("no such slot")
        return super().command(slot, ["/bin/sh", "-c", self.words])


class Agent:
    def __init__(self, folder: Path) -> None:
        self.slots, self.keys = ShellSlots(folder), WorkerKeys()
        config = AgentConfig(ENDPOINT, "vm1", 2, 0.2, 1 << 28, str(folder))
        self.supervisor = Supervisor(config, self.slots, ENDPOINT, self.keys)

    def start(self, words: str = STAYS, slot: int = 0, incarnation: int = 1) -> WorkerProcess:
        self.slots.words = words
        return self.supervisor.spawn(slot, incarnation)

    def end_of(self, worker: WorkerProcess) -> WorkerEnd:
        worker.process.wait(PATIENCE_S)
        end = self.supervisor.reap(worker)
        assert end is not None
        return end


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    made = Agent(tmp_path)
    yield made
    made.supervisor.end_all(PATIENCE_S)
    assert made.slots.cleanup() == []


# ── how it ended ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("words", "ending", "end"),
    [
        ("exit 3", False, WorkerEnd("exit code 3", False, True)),
        ("exit 3", True, WorkerEnd("exit code 3", False, False)),
        ("exit 0", True, WorkerEnd("exit code 0", True, False)),
        ("exit 0", False, WorkerEnd("exit code 0", False, True)),
        ("kill -SEGV $$", False, WorkerEnd("signal 11 (SIGSEGV)", False, True)),
        ("kill -TERM $$", False, WorkerEnd("signal 15 (SIGTERM)", False, False)),
    ],
)
def test_how_a_worker_ended_and_whether_by_itself(
    words: str, ending: bool, end: WorkerEnd, agent: Agent
) -> None:
    worker = agent.start(words)
    agent.slots.meter.words[mt.H_ENDING] = int(ending)
    assert agent.end_of(worker) == end and agent.supervisor.workers == {}


def test_what_a_worker_was_killed_for_first_is_the_reason(agent: Agent) -> None:
    worker = agent.start()
    assert agent.supervisor.reap(worker) is None
    agent.supervisor.kill(worker, "hung")
    agent.supervisor.kill(worker, "the agent ends")
    assert worker.why == "hung"
    assert agent.end_of(worker) == WorkerEnd("signal 9 (SIGKILL) by its agent", False, False)


def test_all_are_ended_with_their_agent(agent: Agent) -> None:
    workers = [agent.start(slot=slot) for slot in range(2)]
    assert agent.supervisor.end_all(PATIENCE_S) == workers
    assert agent.supervisor.workers == {} and all(w.process.returncode == -signal.SIGKILL for w in workers)


# ── what goes with it ───────────────────────────────────────────────────────────────────────────────


def test_what_a_worker_started_and_its_descriptors_go_with_it(agent: Agent, tmp_path: Path) -> None:
    before = os.listdir("/proc/self/fd")
    worker = agent.start(f"sleep 1000 & echo $! > {tmp_path}/left")
    agent.end_of(worker)
    worker.reader.close()
    agent.slots.meter.close()
    assert os.listdir("/proc/self/fd") == before
    left = int((tmp_path / "left").read_text())
    until(lambda: (stat := processes.stat(left)) is None or stat.state == "Z")


def test_a_key_counts_as_long_as_its_worker_is_there(agent: Agent) -> None:
    whose = agent.keys.guard.admits
    worker = agent.start()
    public = agent.slots.public
    assert whose(public) == Who("worker", "vm1/0#1")
    agent.slots.fault = True
    with pytest.raises(OSError, match="no such slot"):
        agent.start(slot=1)
    assert agent.slots.public != public and whose(agent.slots.public) is None
    assert whose(public) is not None and list(agent.supervisor.workers) == [0]
    agent.supervisor.kill(worker, "over")
    agent.end_of(worker)
    assert whose(public) is None


# ── its words ───────────────────────────────────────────────────────────────────────────────────────


def test_a_workers_words_begin_where_those_of_the_one_before_end(agent: Agent) -> None:
    for words in ("first", "second"):
        worker = agent.start(f"echo {words}")
        agent.end_of(worker)
        assert agent.supervisor.words(worker) == f"{words}\n"
    Path(agent.supervisor.log_path(0)).write_text("cut\n")
    assert agent.supervisor.words(worker) == "cut\n", "its log was trimmed meanwhile"


def test_libraries_are_kept_to_one_thread_unless_they_were_told_otherwise(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    worker = agent.start("echo $OMP_NUM_THREADS $OPENBLAS_NUM_THREADS")
    agent.end_of(worker)
    assert agent.supervisor.words(worker) == "4 1\n"


def test_only_the_worker_that_is_there_speaks_and_for_itself(agent: Agent) -> None:
    worker = agent.start(incarnation=5)

    def speaks(name: str, slot: Slot, incarnation: int) -> bool:
        hello = WorkerHello(slot, incarnation, worker.pid, ENDPOINT)
        return agent.supervisor.speaking(Who("worker", name), hello) is worker

    here = Slot("vm1", 0)
    assert speaks("vm1/0#5", here, 5)
    assert not speaks("vm1/0#4", here, 4), "it was replaced"
    assert not speaks("vm1/1#5", here, 5), "another's key"
    assert not speaks("vm1/1#5", Slot("vm1", 1), 5), "there is none"
