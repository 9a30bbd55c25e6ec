"""`headgate cluster` from bare hosts to a run and back: namespaces with an sshd each, and nothing installed on them."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from watched_runs.host_bed import PYTHON, Cluster, arrived, bed, leftovers, missing, wait_for

pytestmark = [pytest.mark.live, pytest.mark.skipif(missing() is not None, reason=str(missing()))]
full = pytest.mark.full  # the gate installs one cluster, drains a VM of it and takes it down

ROOT = Path(__file__).resolve().parents[2]
SYSTEM_PYTHON = (
    Path("/usr/bin/python3").resolve().name == f"python3.{sys.version_info.minor}"
)  # root's own is his alone
CGROUPS = Path("/sys/fs/cgroup")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, wheels: Path) -> Iterator[Cluster]:
    """Five hosts, all bare; its file names three VMs."""
    folder = tmp_path_factory.mktemp("cluster")
    with bed(folder) as made:
        for name in ("control", "vm1", "vm2", "vm3", "vm4"):
            made.add(name)
        found = Cluster(made, wheels)
        found.write("vm1", "vm2", "vm3")
        yield found
    assert leftovers() == []
    for path in control_groups(found.name):  # of hosts that were cut off; namespaces share this machine's
        path.rmdir()


def control_groups(name: str) -> list[Path]:
    """Of slots of this cluster, the deepest first."""
    found = [path for path in CGROUPS.rglob("*") if name in str(path) and path.is_dir()]
    return sorted(found, key=lambda path: -len(path.parts))


def test_a_dry_run_shows_what_would_be_done_and_does_nothing(cluster: Cluster) -> None:
    said = cluster.up("--dry-run")
    assert said.count("+ service agent.vm") == 3 and said.count("+ service controller: start it") == 1
    assert said.count("into a virtual environment of its own") == 4
    assert cluster.bed.hosts[1].inside("ls", "/var/lib") == ""
    assert not (cluster.bed.home / ".config").exists()


@pytest.fixture(scope="module")
def running(cluster: Cluster) -> Cluster:
    """Up on three hosts, from bare ones."""
    cluster.said = cluster.up()
    return cluster


def test_up_brings_bare_hosts_to_agents_that_are_registered(running: Cluster) -> None:
    assert "registered: vm1, vm2, vm3 (3 of 3)" in running.said
    services = running.services()
    assert {name: row["heard"] for name, row in services.items()} == {
        "controller": None, "agent.vm1": "joined", "agent.vm2": "joined", "agent.vm3": "joined",
    }  # fmt: skip
    assert len({row["version"] for row in services.values()}) == 1


def test_each_host_has_its_own_key_and_no_other(running: Cluster) -> None:
    home = f"/var/lib/headgate/{running.name}"
    for vm in ("vm1", "vm2"):
        listed = running.host(vm).inside("find", home, "-name", "*.key", "-printf", "%f %m\n")
        assert listed == f"agent.{vm}.key 600\n"
    listed = running.host("control").inside("find", f"{home}/keys", "-type", "f", "-printf", "%f %m\n")
    assert sorted(listed.split("\n")) == ["", "controller.key 600", "trust.json 600"]


def test_a_second_up_changes_nothing_and_says_so(running: Cluster) -> None:
    before = running.services()
    said = running.up()
    assert said.startswith("no change") and "3 of 3" in said
    assert running.cluster("up").startswith("no change")  # nor does it need the wheels again
    assert running.services() == before


def test_two_people_at_once_are_told_of_each_other(running: Cluster) -> None:
    control = running.bed.hosts[0]
    home = f"/var/lib/headgate/{running.name}"
    program = (
        "import fcntl, os, sys, time\n"
        f"f = os.open('{home}/lock', os.O_RDWR)\nfcntl.flock(f, fcntl.LOCK_EX)\n"
        "os.ftruncate(f, 0); os.pwrite(f, b'ann@desk since today: cluster upgrade', 0)\ntime.sleep(600)\n"
    )
    holder = subprocess.Popen(
        [
            "setpriv",
            "--pdeathsig",
            "KILL",
            "nsenter",
            "-t",
            str(control.pid),
            "-m",
            os.path.realpath(sys.executable),  # not below a folder that a host has of its own
            "-c",
            program,
        ]
    )
    try:
        wait_for(lambda: "ann@desk" in control.inside("cat", f"{home}/lock"), "the lock")
        said = running.up(code=101)
    finally:
        holder.kill()
        holder.wait()
    assert "locked: ann@desk since today: cluster upgrade" in said


@full
@pytest.mark.alone  # what the models have learned since the start decides whether there is something to spare
def test_where_nothing_is_to_spare_rows_flow_exactly_once_and_what_would_stop_them_is_refused(
    running: Cluster,
) -> None:
    words = ("--set", f"wheelhouse={running.wheels}", "--set", f"wheel={running.other_build()}")
    before, rows = running.services(), running.submit("full", rows_before=50)
    assert "could not be drained" in running.cluster("upgrade", *words, code=6)
    assert used(running) == {"vm1", "vm2", "vm3"}
    assert "threads run on vm1" in running.cluster("remove", "vm1", code=6)
    assert "a topology runs" in running.cluster("down", code=6)
    said = running.cluster("upgrade", "--dry-run", *words)
    assert said.count("service agent.vm") == 3 and "wheels" not in said
    assert "doubles runs, and services would be started again all at once" in running.up(*words, code=6)
    assert running.services() == before
    found = running.stopped(rows)
    assert found == Counter(2 * number for number in range(len(found)))


def test_a_drained_vm_may_be_killed_and_each_row_comes_exactly_once(running: Cluster) -> None:
    rows = running.submit("drained", rate_tps=50)
    assert "a topology runs" in running.cluster("down", code=6)
    vm = min(used(running))
    assert f"{vm}: drained" in running.cluster("drain", vm)
    agent = running.services()[f"agent.{vm}"]
    running.host(vm).inside("kill", "-9", str(agent["pid"]))
    flow_on(rows)
    running.run("uncordon", vm)
    wait_for(lambda: state_of(running, vm) == "joined", vm)
    assert running.services()[f"agent.{vm}"]["restarts"] == agent["restarts"] + 1
    found = running.stopped(rows)
    assert found == Counter(2 * number for number in range(len(found)))


@full
def test_an_upgrade_goes_from_host_to_host_while_rows_flow_each_exactly_once(running: Cluster) -> None:
    rows, before = running.submit("upgraded", rate_tps=50), running.services()
    words = ("--set", f"wheelhouse={running.wheels}", "--set", f"wheel={running.other_build()}")
    assert "the controller and 3 agents" in running.cluster("upgrade", *words)
    after = running.services()
    assert {row["version"] for row in after.values()}.isdisjoint({row["version"] for row in before.values()})
    assert all(after[name]["pid"] != row["pid"] for name, row in before.items())
    flow_on(rows)
    found = running.stopped(rows)
    assert found == Counter(2 * number for number in range(len(found)))
    running.up()  # back to the build before


def used(cluster: Cluster) -> set[str]:
    """VMs with threads of the plan."""
    return {vm["vm"] for vm in cluster.status()["vms"] if any(slot["threads"] for slot in vm["slots"])}


def flow_on(rows: Path) -> None:
    there = arrived(rows)
    wait_for(lambda: arrived(rows) > there + 100, "more rows")


def state_of(cluster: Cluster, vm: str) -> str:
    """As the controller has it."""
    return next(str(one["state"]) for one in cluster.status()["vms"] if one["vm"] == vm)


@full
@pytest.mark.parametrize("ways", ["both ways", "from the others"])
def test_a_vm_that_is_cut_off_comes_back_and_no_row_is_lost(running: Cluster, ways: str) -> None:
    rows = running.submit(f"cut {ways}".replace(" ", "_"))
    vm2, others = running.host("vm2"), [host for host in running.bed.hosts if host.name != "vm2"]
    for other in others:
        vm2.drop_from(other)
        if ways == "both ways":
            other.drop_from(vm2)
    try:
        wait_for(lambda: state_of(running, "vm2") in ("lost", "held_dead"), "the loss of vm2")
        flow_on(rows)
    finally:
        for host in running.bed.hosts:
            host.heal()
    wait_for(lambda: state_of(running, "vm2") == "joined", "vm2")
    flow_on(rows)
    found = running.stopped(rows)
    assert found.keys() == {2 * number for number in range(len(found))}


@full
def test_a_killed_controller_takes_over_and_a_vm_is_taken_away_while_rows_flow(running: Cluster) -> None:
    rows = running.submit("taken")
    control, before = running.host("control"), running.services()["controller"]
    control.inside("kill", "-9", str(before["pid"]))
    wait_for(lambda: running.services()["controller"]["pid"] not in (None, before["pid"]), "a controller")
    assert running.status()["topology"] == "doubles"
    running.cluster("remove", "vm1", "--force")
    flow_on(rows)
    assert running.services()["agent.vm1"]["heard"] != "joined"
    running.cluster("add", "vm1", "--set", f"wheelhouse={running.wheels}")
    flow_on(rows)
    found = running.stopped(rows)
    assert found.keys() == {2 * number for number in range(len(found))}


@full
def test_a_vm_is_added_and_another_removed_while_the_rest_goes_on(running: Cluster) -> None:
    before = running.services()
    running.write("vm1", "vm2", "vm3", "vm4")
    assert "registered: vm4" in running.cluster("add", "vm4", "--set", f"wheelhouse={running.wheels}")
    running.cluster("remove", "vm3")
    running.write("vm1", "vm2", "vm4")
    after = running.services()
    assert {name: after[name]["pid"] for name in ("controller", "agent.vm1", "agent.vm2")} == {
        name: before[name]["pid"] for name in ("controller", "agent.vm1", "agent.vm2")
    }
    assert running.host("vm3").inside("find", "/var/lib", "-mindepth", "1") == ""


@full
def test_a_host_that_is_gone_fails_alone(running: Cluster) -> None:
    running.host("vm4").kill()
    said = running.up(code=101)
    assert "registered: vm1, vm2 (2 of 3)" in said and f"{running.host('vm4').address}: " in said
    running.write("vm1", "vm2")


def test_logs_and_commands_reach_every_host_and_down_leaves_nothing(running: Cluster) -> None:
    assert "vm1 | " in running.cluster("logs", "vm1")
    said = running.cluster("exec", "--", "hostname")
    hosts = sorted(line.split(" | ")[1] for line in said.splitlines())
    assert hosts[:3] == ["control", "vm1", "vm2"]
    running.cluster("down", "--with-traces")
    for name in hosts:
        assert running.host(name).inside("find", "/var/lib", "-mindepth", "1") == ""
        assert running.host(name).processes("headgate") == []
    assert "no running controller" in running.run("status", code=5)


def blocks(text: str, kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```$", text, re.M | re.S)


@full
def test_the_tutorial_works_word_for_word(cluster: Cluster) -> None:
    """On the hosts that are bare again; only addresses are others, and the wheels are there already."""
    text = (ROOT / "docs" / "how-to" / "run-on-a-cluster.md").read_text().partition("## Change it")[0]
    folder = cluster.bed.folder / "tutorial"
    for path, kind in (("hosts.toml", "toml"), ("flow/words.py", "python")):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(blocks(text, kind)[0])
    hosts = (folder / "hosts.toml").read_text().replace("[defaults]", f'[defaults]\npython = "{PYTHON}"')
    for name, address in (("vm1", "10.0.0.11"), ("vm2", "10.0.0.12"), ("control", "10.0.0.1")):
        hosts = hosts.replace(f'"{address}"', f'"{cluster.host(name).address}"')
    (folder / "hosts.toml").write_text(hosts)
    (folder / "wheels").symlink_to(cluster.wheels)
    said = {}
    for line in "".join(blocks(text, "sh")).splitlines():
        if line.startswith("headgate "):
            said[line] = cluster.run(*shlex.split(line)[1:], within=folder)
    assert said["headgate cluster up hosts.toml --set wheelhouse=wheels"].startswith("no change")
    assert "doubles" in said["headgate status"]
    assert len(said) == 8
    for name in ("control", "vm1", "vm2"):
        assert cluster.host(name).processes("headgate") == []


@full
@pytest.mark.skipif(not SYSTEM_PYTHON, reason="/usr/bin/python3 is of another version than the wheels")
def test_a_user_without_root_has_a_cluster_in_a_folder_of_his_own(cluster: Cluster) -> None:
    cluster.write("vm1", "vm2")
    text = cluster.file.read_text().replace('user = "root"', 'user = "ops"\ndirectory = "/run/ops/headgate"')
    cluster.file.write_text(text.replace(str(PYTHON), "/usr/bin/python3"))
    said = cluster.up()
    assert "registered: vm1, vm2 (2 of 2)" in said
    assert cluster.host("vm1").inside("ps", "-u", "ops", "-o", "args=").count("agent run") == 1
    cluster.cluster("down", "--with-traces")
    assert cluster.host("vm1").inside("find", "/run/ops", "-mindepth", "1") == ""
