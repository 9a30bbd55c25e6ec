"""What differs on a host is changed, in an order in which nothing is switched to that is not there; nothing else is."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from msgspec.structs import replace
from test_host_findings import WELL
from test_hosts_file import SMALL, hosts_of

from headgate.dashboards.cluster.host_changes import HostWanted, changes, digest_of
from headgate.dashboards.cluster.host_facts import HostFacts, ServiceFacts
from headgate.dashboards.cluster.on_host.controller_runs import number_of_run
from headgate.dashboards.cluster.services import agent_service, controller_service

HOSTS = hosts_of(SMALL)
HOME = "/srv/headgate/plant"
VM = HOSTS.vms[0]
AGENT = agent_service(HOSTS, VM, HOME, "0.1.0-b", "k1", False)
WANTED = HostWanted(
    HOME, "0.1.0-b", {"a.whl": 2_000_000, "b.whl": 1_000_000}, {"agent.vm1.key": b"secret"}, (AGENT,)
)


def there(**differs: object) -> HostFacts:
    """A host on which all is as it should be, but for what is told."""
    well = replace(
        WELL, versions=("0.1.0-a", "0.1.0-b"), current="0.1.0-b", wheels=("a.whl", "b.whl"),
        files={"agent.vm1.key": digest_of(b"secret")},
        services={"agent.vm1": ServiceFacts(True, 7, 6, 0, AGENT.digest)},
    )  # fmt: skip
    return replace(well, **differs)


def lines(facts: HostFacts) -> list[str]:
    return [step.line() for step in changes(WANTED, facts)]


def test_a_bare_host_gets_all_of_it_in_order():
    assert lines(WELL) == [
        "+ wheels: 2, 3 MB",
        "+ version 0.1.0-b: into a virtual environment of its own",
        "+ file agent.vm1.key: for its owner alone",
        "+ current: none → 0.1.0-b",
        "+ service agent.vm1: start it",
    ]


def test_a_host_that_is_as_it_should_be_is_left_alone():
    assert lines(there()) == []


@pytest.mark.parametrize(
    ("differs", "said"),
    [
        ({"versions": ("0.1.0-a",)}, ["+ version 0.1.0-b: into a virtual environment of its own"]),
        ({"current": "0.1.0-a"}, ["~ current: 0.1.0-a → 0.1.0-b"]),
        ({"files": {}}, ["+ file agent.vm1.key: for its owner alone"]),
        ({"files": {"agent.vm1.key": digest_of(b"old")}}, ["~ file agent.vm1.key: for its owner alone"]),
        (
            {"files": {"agent.vm1.key": digest_of(b"secret").replace("600", "644")}},
            ["~ file agent.vm1.key: for its owner alone"],
        ),
        ({"services": {"agent.vm1": ServiceFacts(False)}}, ["+ service agent.vm1: start it"]),
        (
            {"services": {"agent.vm1": ServiceFacts(True, 7, 6, 0, "other")}},
            ["~ service agent.vm1: start it again, with other settings"],
        ),
        ({"wheels": (), "free_bytes": 1}, []),
    ],
)
def test_what_differs_is_changed_and_nothing_else(differs: dict[str, object], said: list[str]):
    assert lines(there(**differs)) == said


def test_wheels_are_brought_only_where_something_is_installed_from_them():
    assert lines(there(versions=(), wheels=("a.whl",)))[0] == "+ wheels: 1, 1 MB"


def test_another_version_key_or_size_means_another_digest():
    others = [
        agent_service(HOSTS, VM, HOME, "0.1.0-c", "k1", False),
        agent_service(HOSTS, VM, HOME, "0.1.0-b", "k2", False),
        agent_service(HOSTS, replace(VM, slots=9), HOME, "0.1.0-b", "k1", False),
        agent_service(HOSTS, VM, HOME, "0.1.0-b", "k1", True),
    ]
    assert len({AGENT.digest, *(one.digest for one in others)}) == 5


def test_a_keeper_ends_with_its_service_and_a_controller_is_not_told_to_end_its_run():
    agent = json.loads(AGENT.settings)
    controller = json.loads(controller_service(HOSTS, HOME, "v", "k", False).settings)
    assert agent["command"][-2:] == controller["command"][-2:] == ["--owner", "{keeper}"]
    assert (agent["signal"], controller["signal"]) == ("SIGTERM", "SIGKILL")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not there")
def test_units_are_units_for_systemd(tmp_path: Path):
    home = str(tmp_path)
    python = tmp_path / "current" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text("#!/bin/sh\n")
    python.chmod(0o755)
    for wanted in (
        controller_service(HOSTS, home, "v", "k", True),
        agent_service(HOSTS, VM, home, "v", "k", True),
    ):
        unit = tmp_path / f"headgate-plant-{wanted.name}.service"
        unit.write_text(wanted.unit)
        ran = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True)
        assert unit.name not in ran.stderr, ran.stderr


def test_a_controller_takes_over_a_run_that_goes_on_and_begins_anew_after_one_that_has_ended(tmp_path: Path):
    assert number_of_run(tmp_path / "none") == 1
    for number in (1, 2, 9, 10):
        (tmp_path / str(number)).mkdir()
    assert number_of_run(tmp_path) == 10
    (tmp_path / "10" / "summary.json").touch()
    assert number_of_run(tmp_path) == 11
