"""The controller's settings: one frozen type, filled by the command line. No I/O."""

from __future__ import annotations

from typing import Literal

import msgspec

from headgate.controller.models.plans import Plan
from headgate.controller.models.prediction_ledger import LedgerEntry
from headgate.topology_runtime.api.cluster import Vm
from headgate.topology_runtime.rates.learned_season import LearnedSeason
from headgate.topology_runtime.wire.messages import DataPlaneSettings as DataPlane
from headgate.topology_runtime.wire.run_options import FRAME_ROWS

Mode = Literal["auto", "advise", "approve"]


class TrafficTriggers(msgspec.Struct, frozen=True):
    """When a mapper that is online (paper 1) plans again though rate and VMs are as they were: where a VM uses more
    than its bound of the CPU of its slots for `load_s` (`vm_bounds`, else `load_bound`); and every `every_s`, where
    that saves more than `saves` of what is said between VMs. first: the mapper of the first plan, where that shall not
    be the online one already (in
    paper 1 it is Storm's own, in turn)."""

    load_bound: float = 0.9
    vm_bounds: dict[str, float] = {}
    load_s: float = 10.0
    every_s: float = 60.0
    saves: float = 0.2
    first: str = ""

    def bound_of(self, vm: str) -> float:
        return self.vm_bounds.get(vm, self.load_bound)


class ControllerSettings(msgspec.Struct, frozen=True):
    """How this controller decides and for whom.

    initial: the VMs that shall be there from the start, in order of preference; none: whoever joins.
    spare: what a VM from the provider looks like; at most `max_vms` VMs in all (0: no more than there are),
    which cost `max_usd_per_hour` at most (None: whatever they cost). machines_wait_s: how long a plan waits for one;
    machine_life_s: one is not given back before, for rented by the hour it costs nothing to keep.
    seconds: the run ends by itself so long after the first tuple was due (0: it does not).
    plan: run as it is, from the start to the end; nothing is planned again.
    season: learned from what was offered before. ledger: of the prediction ledger, entries of earlier runs that speak
    of the models at hand, without their slots; ledger_trouble: what of it could not be read. sure:
    with this probability plans shall carry what they are for (0: as models say).
    margin: plans are for so many times the rate (None: as their allocator has it). p95_ms: 95 of 100 rows shall be done
    so soon (None: whenever).
    profile_spare_min: minutes of each hour for profiles in spare slots. stale: model → why it may no longer
    hold; looked for only where there are such profiles. state_to: where snapshots of keyed state are kept (empty: on
    the VMs' disks)."""

    run: str
    version: str = ""  # of headgate
    trace: str | None = None  # where the trace of the run is written
    mode: Mode = "auto"
    allocator: str = "mba"
    mapper: str = "sam"
    routing: str = "weighted"
    interference: str = "cpu"
    headroom: float = 1.15  # a plan is for at least the rate × this
    headroom_measured: bool = True  # once errors of this run are known: × what they ask for
    initial: tuple[Vm, ...] = ()
    spare: Vm | None = None
    max_vms: int = 0
    max_usd_per_hour: float | None = None
    machines_wait_s: float = 120.0  # a local VM is up in a second, a rented one in one or two minutes
    machine_life_s: float = 0.0
    seconds: float = 0.0
    drain_timeout_s: float = 0.0  # the end waits no longer, if it is set
    plan: Plan | None = None
    profile_spare_min: float = 0.0
    stale: dict[str, str] = {}
    window_s: float = 10.0  # the window that decisions are based on
    probation_window_s: float = 4.0  # a verdict needs seven seconds of a plan in force
    data_plane: DataPlane = DataPlane(frame_rows=FRAME_ROWS)
    chaining: bool = False
    hide_keys: bool = False
    state_to: str = ""
    state_in_memory: int = 0  # bytes of each slot for keyed state; 0: half of the slot's memory
    exactly_once: bool = False  # of keyed state
    season: LearnedSeason | None = None
    ledger: tuple[LedgerEntry, ...] = ()
    ledger_trouble: str = ""
    sure: float = 0.0
    margin: float | None = None
    p95_ms: float | None = None
    triggers: TrafficTriggers = TrafficTriggers()
    topology_spread: tuple[float, float] = (0.0, 0.5)  # α and β of paper 1's mappers
    as_printed: bool = False  # mappers do what their paper prints; the bounds of VMs hold for plans, too
