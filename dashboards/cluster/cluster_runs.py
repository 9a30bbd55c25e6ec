"""What runs on a cluster: one topology, or of a shared controller several, each with a controller of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from headgate.dashboards.runs.connection import asked, topology_at
from headgate.topology_runtime.errors import Conflict, HeadgateError
from headgate.topology_runtime.keys.key_pairs import Contact


class ClusterRun(NamedTuple):
    """A topology that runs: where its controller is asked, and its status."""

    contact: Contact
    status: Mapping[str, Any]

    @property
    def topology(self) -> str:
        return str(self.status["topology"])

    def threads_on(self) -> set[str]:
        """VMs on which it has threads."""
        return {vm["vm"] for vm in self.status["vms"] if any(slot["threads"] for slot in vm["slots"])}


def running_of(status: Mapping[str, Any]) -> list[str]:
    """Topologies that run, by a controller's status, shared or not."""
    if (several := status.get("topologies")) is not None:
        return [one["topology"] for one in several if one["stage"] != "over"]
    return [status["topology"]] if status["topology"] is not None else []


def runs_of(contact: Contact) -> list[ClusterRun]:
    """All of them. Raises Unreachable; Conflict when the controller of one does not answer."""
    status = asked(contact, "status")
    if "topologies" not in status:
        return [ClusterRun(contact, status)] if running_of(status) else []
    found = []
    for name in running_of(status):
        try:
            own = topology_at(contact, name)
            run = ClusterRun(own, asked(own, "status"))
        except HeadgateError as error:
            raise Conflict(
                f"the controller of {name} does not answer, so it is not known what runs where",
                cause=error.what,
                hint="`headgate status` says why; try again in a few seconds",
            ) from error
        if run.status["topology"] is not None:
            found.append(run)
    return found


def drain_all(contact: Contact, vms: list[str], force: bool = False) -> list[ClusterRun]:
    """Have all topologies drain these VMs; those that do. Each is asked before any is told, so that one which cannot
    leaves the others as they are. Raises CommandRefused."""
    runs = runs_of(contact)
    if len(runs) > 1 and not force:
        for run in runs:
            for vm in vms:
                asked(run.contact, "drain", {"vms": [vm], "check": True})
    for run in runs:
        asked(run.contact, "drain", {"vms": vms, "force": force})
    return runs
