"""Which hosts `submit` waits for: a host that is busy, and silent for a moment, is one of them."""

from __future__ import annotations

from typing import Any

import pytest

from headgate.dashboards.terminal.submit_commands import PackageHosts, Shipment
from headgate.topology_runtime.packages.package_manifest import BadPackage


def host(name: str, **now: Any) -> dict[str, Any]:
    return {"vm": name, "taken": 0, "whole": False, "busy": False, "refused": "", **now}


def test_a_host_that_is_silent_counts_as_it_stood_last_until_it_is_heard_again() -> None:
    hosts = PackageHosts()
    assert hosts.now([host("vm1", busy=True), host("vm2", whole=True)])
    silent = {vm["vm"]: vm for vm in hosts.now([])}
    assert silent["vm2"]["whole"] and not silent["vm1"]["whole"]
    assert not silent["vm1"]["busy"], "only who says so is busy: it is not waited for without end"
    assert hosts.now([host("vm1", refused="no")])[0]["refused"] == "no"


def test_submit_waits_for_a_host_that_is_silent_and_hears_that_it_refuses() -> None:
    answers = iter([[host("vm1", busy=True)], [], [], [host("vm1", refused="it cannot be installed")]])
    asked = []

    def ask(command: str, arguments: dict[str, Any]) -> Any:
        asked.append(command)
        if command == "package_put":
            return {"whole": True}
        return {"vms": next(answers)}

    with Shipment() as shipment:
        shipment.file.write_bytes(b"package")
        with pytest.raises(BadPackage, match="nothing was submitted"):
            shipment.send(ask)
    assert asked == ["package_put", *["package_at"] * 4]


def test_submit_waits_for_the_first_host() -> None:
    answers = iter([[], [], [host("vm1", refused="it cannot be installed")]])

    def ask(command: str, arguments: dict[str, Any]) -> Any:
        return {"whole": True} if command == "package_put" else {"vms": next(answers)}

    with Shipment() as shipment:
        shipment.file.write_bytes(b"package")
        with pytest.raises(BadPackage, match="nothing was submitted"):
            shipment.send(ask)
