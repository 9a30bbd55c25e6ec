"""What is left in a VM's spools when a worker ends: a controller must know before it has somebody else read on."""

from __future__ import annotations

from pathlib import Path

from agent_world import Mind, slot, thread

from headgate.agent import events as e
from headgate.agent.spools import left_over
from headgate.topology_runtime import messages as m
from headgate.topology_runtime.worker.spool import Owner, Spool, folder_of

LEFT = (m.SpoolLeft("source", 0, 40, 42, "run", 1),)


def test_a_report_tells_of_them_from_the_moment_a_worker_ended() -> None:
    mind = Mind()
    mind.want(thread(1, 0))
    mind.up()
    assert mind.told().spools == ()
    mind.tell(e.WorkerExited(slot(0), mind.incarnation(), "signal 9", spools=LEFT))
    assert mind.told().spools == LEFT
    mind.tell(e.WorkerExited(slot(0), mind.incarnation(), "it cannot be started: no memory"))
    assert mind.told().spools == LEFT, "nobody has read it since"


def test_they_are_read_from_the_disk(tmp_path: Path) -> None:
    assert left_over(str(tmp_path)) == ()
    Spool(folder_of(str(tmp_path), Owner("source", 0, "run", 1)), 40).append([1, 2])
    (tmp_path / "spools" / "source~0~run~1" / "acked").write_text("40")
    assert left_over(str(tmp_path)) == LEFT


def test_a_spool_that_cannot_be_read_ends_no_agent(tmp_path: Path) -> None:
    (tmp_path / "spools" / "source~0~run~1" / "acked").mkdir(parents=True)
    assert left_over(str(tmp_path)) == ()
