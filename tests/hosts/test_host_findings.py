"""What a host says of itself is judged: what stands in the way, and what to do about it."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from test_hosts_file import SMALL, hosts_of

from headgate.dashboards.cluster.host_facts import HostFacts, HostFinding, findings
from headgate.dashboards.cluster.host_failures import HostFailed, HostsFailed
from headgate.dashboards.cluster.port_matrix import (
    HERE,
    PortReach,
    Target,
    matrix,
    targets_from,
    unreached,
    wanted_ports,
)

HOSTS = hosts_of(SMALL)
WELL = HostFacts(
    python="3.11.2", executable="/usr/bin/python3", machine="x86_64", system="Linux", identity="a", cores=8,
    memory_bytes=8 << 30, uid=0, venv=True, ensurepip=True, cgroups="v2", systemd=True, free_bytes=50 * 10**9,
    writable="", versions=(), current="", wheels=(), files={}, services={}, others=(), cluster=False,
)  # fmt: skip


def found(**differs: Any) -> list[HostFinding]:
    facts = {on.host: replace(WELL, identity=on.host) for on in HOSTS.hosts()} | {
        "10.0.0.11": replace(WELL, **differs)
    }
    return list(findings(HOSTS, facts))


def test_nothing_is_said_of_good_hosts():
    assert found() == []


@pytest.mark.parametrize(
    ("differs", "level", "said"),
    [
        (
            {"writable": "Read-only file system"},
            "fault",
            "/srv/headgate cannot be written: Read-only file system",
        ),
        ({"free_bytes": 10**9}, "fault", "1.0 GB are free for /srv/headgate, 2 GB are needed"),
        ({"venv": False}, "fault", "no venv module"),
        ({"machine": "riscv64"}, "fault", "Linux on riscv64 is not supported"),
        ({"machine": "aarch64"}, "warning", "it is aarch64, most others x86_64"),
        (
            {"clock_offset_s": 3600.0, "clock_error_s": 0.002},
            "fault",
            "its clock is 3,600.000 s ahead (± 0.002 s)",
        ),
        ({"clock_offset_s": -0.5, "clock_error_s": 0.01}, "warning", "its clock is 0.500 s behind"),
        ({"cgroups": "none"}, "warning", "no control groups"),
        ({"uid": 1000}, "warning", "no root"),
        ({"identity": "10.0.0.1"}, "fault", "it is the same host as 10.0.0.1"),
        ({"cores": 1}, "warning", "its slots want 2 cores, it has 1"),
    ],
)
def test_what_is_wrong_is_told_with_a_remedy(differs: dict[str, Any], level: str, said: str):
    told = [one for one in found(**differs) if said in one.what]
    assert [(one.host, one.level) for one in told] == [("10.0.0.11", level)] and told[0].hint


def test_a_clock_that_cannot_be_told_well_is_not_blamed():
    assert found(clock_offset_s=0.9, clock_error_s=0.88) == []


def test_a_full_disk_does_not_stop_what_is_installed_already():
    assert found(free_bytes=10**9, versions=("0.1.0-abc",)) == []


def test_each_host_listens_where_it_is_reached_and_reaches_what_it_needs():
    assert wanted_ports(HOSTS, "10.0.0.1") == (7311, 7312, 7313) and wanted_ports(HOSTS, "10.0.0.11") == (0,)
    listening = {
        host: tuple(Target(host, host, port or 4000, "w", port) for port in wanted_ports(HOSTS, host))
        for host in ("10.0.0.1", "10.0.0.11", "10.0.0.12")
    }
    assert [t.name for t in targets_from(HOSTS, "10.0.0.11", listening)] == ["10.0.0.1:7311", "10.0.0.12:any"]
    assert [t.name for t in targets_from(HOSTS, HERE, listening)] == ["10.0.0.1:7312", "10.0.0.1:7313"]
    assert targets_from(HOSTS, "10.0.0.1", listening) == []


def test_what_is_not_reached_is_a_fault_of_where_it_is_reached_from():
    target = Target("10.0.0.12", "10.0.0.12", 4000, "w", 0)
    reached = [PortReach("10.0.0.11", target, "no answer"), PortReach("10.0.0.13", target, None)]
    (one,) = unreached(reached, HOSTS)
    assert one.host == "10.0.0.11" and "10.0.0.12:any" in one.what and "no answer" in one.what
    assert matrix(reached) == [
        {"from": "10.0.0.11", "10.0.0.12:any": "no answer"},
        {"from": "10.0.0.13", "10.0.0.12:any": "ok"},
    ]


def test_a_failure_is_one_line_and_the_exit_code_counts():
    failure = HostFailed("no answer", hint="is it up?", see="ssh ops@10.0.0.11")
    assert failure.line() == "no answer · try: is it up? · see: ssh ops@10.0.0.11"
    assert [HostsFailed("x", (), n).exit_code for n in (1, 3, 400)] == [101, 103, 125]
