"""Which environment variables reach workers, and which values /proc shows."""

from __future__ import annotations

import os
import subprocess
import sys

from headgate.agent.process.worker_user import worker_environment
from headgate.topology_runtime.api.topology import Task, Topology
from headgate.topology_runtime.platform.containment import WorkerUser

HIDES = """
import os, subprocess, sys
from pathlib import Path
from headgate.topology_runtime.platform.processes import hide_variables
os.environ["LATER"] = "set-later"
hide_variables(["DB_PASSWORD", "LATER", "EMPTY", "NOT_THERE"])
hide_variables(["DB_PASSWORD"])
shown = Path("/proc/self/environ").read_bytes().split(b"\\0")
child = subprocess.run(["/usr/bin/env"], stdout=subprocess.PIPE).stdout.split(b"\\n")
for word in (b"DB_PASSWORD=********", b"DB_PASSWORD_TOO=kept-too", b"EMPTY=", b"OTHER=stays"):
    assert word in shown, (word, shown)
for word in (b"DB_PASSWORD=hunter22", b"LATER=set-later", b"OTHER=stays"):
    assert word in child, (word, child)
assert os.environ["DB_PASSWORD"] == "hunter22" and os.environ["EMPTY"] == ""
assert not any(b"hunter22" in word for word in shown)
"""


def test_what_proc_shows_of_a_variable_is_stars_and_the_process_and_its_children_keep_it() -> None:
    env = {
        **os.environ,
        "DB_PASSWORD": "hunter22",
        "EMPTY": "",
        "DB_PASSWORD_TOO": "kept-too",
        "OTHER": "stays",
    }
    done = subprocess.run([sys.executable, "-P", "-c", HIDES], env=env, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_topology_names_its_variables() -> None:
    params = {"a": "${ENV:ONE}-${ENV:TWO}", "b": {"c": ["${ENV:ONE}", "$${ENV:NOT}", "${FILE:/x}"]}}
    topology = Topology("t", (Task("a", params=params), Task("b", params={"d": "${ENV:THREE}"})))
    assert topology.variables == ("ONE", "TWO", "THREE")


def test_workers_of_another_user_get_what_the_topology_names_and_any_process_needs() -> None:
    own = {
        "PATH": "/bin",
        "LC_ALL": "C",
        "HEADGATE_SERVICES": "here",
        "PG_PASSWORD": "named",
        "AWS_SECRET_ACCESS_KEY": "not-named",
        "OMP_NUM_THREADS": "4",
    }
    user = WorkerUser(uid=1, gid=1, home="/")
    found = worker_environment(own, user, ("PG_PASSWORD", "NOT_SET"))
    assert found.pop("MALLOC_ARENA_MAX") == "1" and found["OMP_NUM_THREADS"] == "4"
    assert "AWS_SECRET_ACCESS_KEY" not in found and "NOT_SET" not in found
    assert {name: found[name] for name in own if name in found} == {
        name: value for name, value in own.items() if name != "AWS_SECRET_ACCESS_KEY"
    }
    assert own.items() <= worker_environment(own, None, ()).items()
