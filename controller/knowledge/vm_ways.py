"""Does the way between two VMs carry, and as fast as usual? By what their workers heard of each other. Pure.

Workers ask their peers on other VMs every second (worker_state.py), over the sockets that rows take. A worker that
stands still hears nothing either, and is not heard: so a pair is cut only when both sides say so, in words that are
fresh, while both agents answer.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from typing import NamedTuple

from headgate.topology_runtime.wire.messages import WorkerStatus

SILENT_MS = 5000  # an enactment, a full disk and a busy core hold up an answer for less


class VmWay(NamedTuple):
    """From a VM to another one. delay_ms: there and back, of the quickest pair of workers; None: not known. usual_ms:
    where that is far more than usual, what is usual. rows_tps: what it carries, and what the plan has it carry at the
    present rate, where that is known."""

    vm: str
    to: str
    silent_ms: int
    delay_ms: int | None
    carries: bool
    usual_ms: int | None = None
    rows_tps: tuple[float, float] | None = None

    @property
    def slow(self) -> bool:
        return self.carries and self.usual_ms is not None

    @property
    def needed_tps(self) -> float:
        return self.rows_tps[1] if self.rows_tps is not None else 0.0

    @property
    def words(self) -> str:
        if self.slow and self.delay_ms is not None:
            of = ", carries {:,.0f} rows/s of {:,.0f}".format(*self.rows_tps) if self.rows_tps else ""
            return (
                f"{self.vm} → {self.to} is slow: {self.delay_ms / 1000:.1f} s there and back, "
                f"usually {self.usual_ms} ms{of}"
            )
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
        found.append(VmWay(vm, to, silent_ms, min(delays[vm, to], default=None), carries))
    return tuple(found)


def cut_pairs(found: Iterable[VmWay]) -> tuple[VmWay, ...]:
    """One way of each pair that does not carry."""
    return tuple(way for way in found if not way.carries and way.vm < way.to)


def slow_pairs(found: Iterable[VmWay]) -> tuple[VmWay, ...]:
    """Of each pair that is slow the way by which more rows are to go; both ends measure there and back."""
    most: dict[tuple[str, str], VmWay] = {}
    for way in found:
        pair = min(way.vm, way.to), max(way.vm, way.to)
        if way.slow and (pair not in most or way.needed_tps > most[pair].needed_tps):
            most[pair] = way
    return tuple(most.values())


COVERS_MOST = 6  # pairs of which each end is thought of


def covers(cut: Iterable[VmWay]) -> list[frozenset[str]]:
    """Sets of VMs without which no pair that is cut is left, the smallest first."""
    pairs = [(way.vm, way.to) for way in cut]
    ends = [pair if n < COVERS_MOST else pair[:1] for n, pair in enumerate(pairs)]
    found = {frozenset(chosen) for chosen in product(*ends)}
    least = [one for one in found if not any(other < one for other in found)]
    return sorted(least, key=lambda one: (len(one), sorted(one)))
