"""Does the way between two VMs carry? By what their workers heard of each other. Pure.

Workers ask their peers on other VMs every second (worker_state.py), over the sockets that rows take. A worker that
stands still hears nothing either, and is not heard: so a pair is cut only when both sides say so, in words that are
fresh, while both agents answer.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from headgate.topology_runtime.wire.messages import WorkerStatus

SILENT_MS = 5000  # an enactment, a full disk and a busy core hold up an answer for less


class VmWay(NamedTuple):
    """From a VM to another one. delay_ms: there and back, of the slowest pair of workers; None: not known."""

    vm: str
    to: str
    silent_ms: int
    delay_ms: int | None
    carries: bool

    @property
    def words(self) -> str:
        return (
            f"{self.vm} → {self.to} does not carry: their workers have not heard each other for "
            f"{self.silent_ms / 1000:.0f} s, though both agents answer"
        )


def ways(told: Iterable[tuple[str, Iterable[WorkerStatus]]]) -> tuple[VmWay, ...]:
    """Between VMs that are up, each with its workers, where these are peers; by name."""
    up = dict(told)
    silent: dict[tuple[str, str], int] = {}
    delays: dict[tuple[str, str], list[int]] = {}
    for vm, workers in up.items():
        for worker in workers:
            for heard in worker.heard if worker.state == "running" else ():
                if heard.vm in up:
                    pair = vm, heard.vm
                    silent[pair] = min(heard.silent_ms, silent.get(pair, heard.silent_ms))
                    delays.setdefault(pair, []).extend([] if heard.delay_ms is None else [heard.delay_ms])
    found = []
    for (vm, to), silent_ms in sorted(silent.items()):
        carries = min(silent_ms, silent.get((to, vm), 0)) < SILENT_MS
        found.append(VmWay(vm, to, silent_ms, max(delays[vm, to], default=None), carries))
    return tuple(found)


def cut_pairs(found: Iterable[VmWay]) -> tuple[VmWay, ...]:
    """One way of each pair that does not carry."""
    return tuple(way for way in found if not way.carries and way.vm < way.to)
