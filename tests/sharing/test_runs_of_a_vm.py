"""Which runs shall have an agent on a VM, as a shared controller says: names of folders, from outside."""

from __future__ import annotations

import pytest

from headgate.agent.process.shared_agents import RunHere, runs_told
from headgate.topology_runtime.errors import BadMessage

ONE = {"topology": "a", "run": "01a2-b", "controller": "tcp://10.0.0.1:4000"}


def test_runs_that_are_named_soundly() -> None:
    assert runs_told([ONE]) == [RunHere("a", "01a2-b", "tcp://10.0.0.1:4000")] and runs_told([]) == []


@pytest.mark.parametrize("run", ["..", ".", "a/b", "", "x" * 65, 7, None])
def test_a_run_that_is_no_name_is_refused(run: object) -> None:
    with pytest.raises(BadMessage):
        runs_told([ONE, {**ONE, "run": run}])


@pytest.mark.parametrize("data", [None, "a", {}, [1], [{"run": "a"}]])
def test_an_answer_that_is_none_is_refused(data: object) -> None:
    with pytest.raises(BadMessage):
        runs_told(data)
