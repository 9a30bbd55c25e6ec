"""A cluster of hosts that nobody reaches but by ssh through a bastion: forwarded ports alone join them."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from watched_runs.host_bed import (
    PYTHON,
    BedHost,
    Cluster,
    answers,
    arrived,
    bed,
    leftovers,
    missing,
    wait_for,
)

pytestmark = [pytest.mark.live, pytest.mark.skipif(missing() is not None, reason=str(missing()))]

CONFIG = """\
Include more_*
Host bastion
  HostName {bastion}   # the only one that lets anybody in
Host control vm1 vm2
  IdentityFile ~/.ssh/not_there
  ProxyJump bastion
Match host control
  HostName {control}
Host vm?
  User root
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, wheels: Path) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("through")
    with bed(folder) as made:
        bastion, *others = [made.add(name) for name in ("bastion", "control", "vm1", "vm2")]
        for host in others:
            only_ssh_from(host, "-s", bastion.address)
        only_ssh_from(bastion)
        own = made.home / ".ssh"
        (own / "config").write_text(CONFIG.format(bastion=bastion.address, control=others[0].address))
        for host in others[1:]:
            (own / f"more_{host.name}").write_text(f"Host {host.name}\n  HostName {host.address}\n")
        (own / "bed_config").write_text(
            (own / "bed_config").read_text().replace("Include", f"Include {own}/more_*\nInclude")
        )
        found = Cluster(made, wheels)
        lines = ['schema = "headgate/hosts/v1"', f'name = "{found.name}"', "only_ssh = true", "[defaults]"]
        lines += [
            'user = "root"',
            "slots = 2",
            "slot_cores = 0.2",
            'slot_memory = "256M"',
            f'python = "{PYTHON}"',
        ]
        lines += ["[controller]", 'host = "control"']
        for vm in ("vm1", "vm2"):
            lines += ["[[vm]]", f'name = "{vm}"', f'host = "{vm}"']
        found.file.write_text("\n".join(lines) + "\n")
        try:
            yield found
        finally:
            found.cluster("down", "--force", code=None)
    assert leftovers() == []


def only_ssh_from(host: BedHost, *whom: str) -> None:
    """Nothing comes in but ssh, from these alone; it reaches out as before."""
    host.inside(
        "iptables", "-A", "INPUT", "-i", "eth0", "-p", "tcp", "--syn", "--dport", "22", *whom, "-j", "ACCEPT"
    )
    host.inside("iptables", "-A", "INPUT", "-i", "eth0", "-p", "tcp", "--syn", "-j", "DROP")


def forwards(cluster: Cluster) -> dict[str, int]:
    """The process that holds each host's, on this machine."""
    state = (
        cluster.bed.home / ".config" / "headgate" / "clusters" / cluster.name / "services" / "forward.state"
    )
    pid = json.loads(state.read_text())["pid"]
    found = {}
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        words = Path(f"/proc/{child}/cmdline").read_bytes().decode().split("\0")
        if "--" in words and "-L" in words:
            found[words[words.index("--") + 1]] = int(child)
    return found


def test_hosts_that_nobody_reaches_make_a_cluster_through_ssh(cluster: Cluster) -> None:
    assert not answers(cluster.host("vm1").address), "not from here"
    found = json.loads(cluster.cluster("check", "-o", "json"))
    reached = {row["from"]: {k: v for k, v in row.items() if k != "from"} for row in found["ports"]}
    assert reached == {
        "vm1": {"control:7311": "ok", "vm2:7402": "ok"},
        "vm2": {"control:7311": "ok", "vm1:7400": "ok"},
        "here": {"control:7312": "ok", "control:7313": "ok"},
    }
    assert "registered: vm1, vm2 (2 of 2)" in cluster.up()
    assert cluster.up().startswith("no change")
    assert set(forwards(cluster)) == {"control", "vm1", "vm2"}


def test_rows_flow_between_them_and_a_forward_that_breaks_costs_none(cluster: Cluster) -> None:
    rows = cluster.submit("through", rate_tps=50)
    used = {vm["vm"] for vm in cluster.status()["vms"] if any(slot["threads"] for slot in vm["slots"])}
    assert used == {"vm1", "vm2"}, "rows go from one to the other"
    before = forwards(cluster)
    os.kill(before["vm1"], signal.SIGKILL)
    wait_for(lambda: forwards(cluster).get("vm1", before["vm1"]) != before["vm1"], "another forward")
    there = arrived(rows)
    wait_for(lambda: arrived(rows) > there + 300, "more rows")
    assert {name: row["heard"] for name, row in cluster.services().items()} == {
        "controller": None, "agent.vm1": "joined", "agent.vm2": "joined",
    }  # fmt: skip
    found = cluster.stopped(rows)
    assert set(found) == {2 * number for number in range(len(found))}, (
        "a link that breaks may repeat rows, never lose any"
    )


@pytest.mark.full
def test_a_link_that_is_cut_in_silence_is_made_again_though_the_far_end_held_its_ports(
    cluster: Cluster,
) -> None:
    """Nothing says goodbye: sshd there would listen on for the old link, for hours."""
    vm1, before = cluster.host("vm1"), forwards(cluster)["vm1"]
    cut = ("-s", cluster.host("bastion").address, "-j", "DROP")
    vm1.inside("iptables", "-I", "INPUT", "1", *cut)
    wait_for(lambda: forwards(cluster).get("vm1") != before, "the end of the old link")
    vm1.inside("iptables", "-D", "INPUT", *cut)
    wait_for(lambda: state_of(cluster, "vm1") == "joined", "vm1")


def state_of(cluster: Cluster, vm: str) -> str:
    return next(str(one["state"]) for one in cluster.status()["vms"] if one["vm"] == vm)


def test_a_host_that_lets_no_port_through_is_named_with_the_reason(cluster: Cluster) -> None:
    vm2 = cluster.host("vm2")
    cluster.cluster("down", "--force")
    vm2.inside("sed", "-i", "1i AllowTcpForwarding no", "/run/bed/sshd_config")
    vm2.inside("kill", "-HUP", "1")

    def shut() -> bool:
        told = vm2.inside("/usr/sbin/sshd", "-T", "-f", "/run/bed/sshd_config")
        return "allowtcpforwarding no" in told

    wait_for(shut, "its sshd's new settings")
    said = cluster.cluster("check", code=101)
    assert "vm2: its ports are not forwarded: port 7311 cannot be forwarded to it" in said
    assert "AllowTcpForwarding" in said
