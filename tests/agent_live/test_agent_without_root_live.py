"""An agent that is not root: its workers are of its own user, and held to their slots as far as that goes."""

from __future__ import annotations

import os
import pwd
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from agent_cluster import HERE, Cluster
from patience import PATIENCE_S
from prying_steps import flows, found, gone, prying

from headgate.topology_runtime.platform import processes
from headgate.topology_runtime.wire import messages as m

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(os.geteuid() != 0, reason="it becomes another user"),
]
NOBODY = pwd.getpwnam("nobody")
BECOMES = """
import os, sys
from headgate.topology_runtime.platform import containment as own_view
uid, gid, folder = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
own_view.show((sys.prefix, sys.base_prefix, sys.executable, *filter(os.path.exists, sys.path), folder), uid, gid)
os.setgroups([]), os.setresgid(gid, gid, gid), os.setresuid(uid, uid, uid)
os.execv(sys.argv[4], sys.argv[4:])
"""


class NobodysCluster(Cluster):
    """All that its agent has is nobody's."""

    def command(self) -> list[str]:
        words = super().command()
        for path in (self.folder, *self.folder.iterdir(), self.rows):
            os.chown(path, NOBODY.pw_uid, NOBODY.pw_gid)
        who = [str(NOBODY.pw_uid), str(NOBODY.pw_gid), str(self.folder)]
        return [sys.executable, "-P", "-c", BECOMES, *who, *words]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    if not os.access(HERE, os.R_OK):
        pytest.skip("these tests are where nobody else may read them")
    cluster = NobodysCluster(tmp_path, "")
    yield cluster
    cluster.close()


def test_rows_flow_and_its_workers_are_its_own_with_what_anybody_may_give_up(cluster: Cluster) -> None:
    prying(cluster, "looks")
    seen = found(cluster)
    assert set(seen["status"]["Uid"].split()) == {str(NOBODY.pw_uid)}
    assert seen["status"]["NoNewPrivs"] == "1" and seen["limits"]["Max core file size"] == ["0", "0"]
    assert cluster.all(m.Hello)[0].binding in ("affinity", "none")
    flows(cluster)
    cluster.channel.send(cluster.peer, m.Shutdown(m.Token(1, 1, cluster.counter), "the test is over"))
    assert cluster.agent.wait(PATIENCE_S) == 0


def test_a_daemon_ends_when_its_slot_is_replaced_and_when_the_agent_was_killed(cluster: Cluster) -> None:
    prying(cluster, "leaves_a_daemon")
    daemon = found(cluster)
    word = b"--slot\0001\0"
    os.kill(next(pid for pid in cluster.pids() if word in (processes.read(f"/proc/{pid}/cmdline") or b"")), 9)
    cluster.wait(lambda: gone(daemon))
    (cluster.rows / "daemon").unlink()
    cluster.wait(lambda: len(list(cluster.rows.glob("found-*.json"))) == 2 if cluster.ready(0, 1) else False)
    second = int((cluster.rows / "daemon").read_text())
    assert not gone(second)
    cluster.agent.kill()
    cluster.agent.wait()
    cluster.start_agent()
    cluster.wait(lambda: gone(second))


def test_it_is_told_that_it_cannot_have_others(cluster: Cluster) -> None:
    cluster.agent.terminate()
    cluster.agent.wait(PATIENCE_S)
    cluster.workers_as = "own"
    cluster.start_agent()
    assert cluster.agent.wait(PATIENCE_S) == 2
    assert "only root can start workers as another user" in (cluster.folder / "agent.log").read_text()
