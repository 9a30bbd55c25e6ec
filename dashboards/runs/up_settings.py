"""What `headgate up` is told on its command line: one frozen value, checked as a whole."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from headgate.topology_runtime.api.cluster import SLOT_CORES, SLOT_MEMORY_BYTES, Vm
from headgate.topology_runtime.errors import UsageError
from headgate.topology_runtime.wire import run_options as trigger_options
from headgate.topology_runtime.wire.run_options import DEFAULT_KEEP

DEMO_SLOTS = (4,)  # the demo begins on one VM …
DEMO_VMS = 2  # … and may have a second
DEMO_SECONDS = 75.0  # as long as its rates
SLOTS_MOST, VMS_MOST = 256, 256
METRICS_MOST = 65535 - VMS_MOST  # each VM has a port after this one


@dataclass(frozen=True)
class UpSettings:
    """Everything `up` needs to know. `rate_scale`: None means 1, or the demo's own."""

    topology: str | None = None
    input: Path | None = None
    rates: str | None = None
    rate_scale: float | Literal["auto"] | None = None
    time_scale: float | None = None
    peak_tps: float | None = None
    seconds: float | None = None
    slots: tuple[int, ...] = DEMO_SLOTS
    max_vms: int | None = None
    slot_cores: float = SLOT_CORES
    slot_memory_bytes: int = SLOT_MEMORY_BYTES
    workers_as: str = "agent"  # whoever runs `up`
    models: Path | None = None
    kill: bool = True  # the demo kills one of its own workers once
    measure: Literal["first"] | None = None  # tasks without a model, before the run; None: on its own rows
    measure_side_effects: bool = False  # run tasks with side effects on sample rows, too
    allocator: str = "mba"
    mapper: str = "sam"
    traffic_triggers: str = trigger_options.DEFAULT_TRIGGERS  # of an online mapper
    topology_spread: str = trigger_options.DEFAULT_SPREAD  # of paper 1's mappers
    as_printed: bool = False  # mappers of papers 1 and 2
    routing: str = "weighted"
    plan: Path | None = None  # run as it is
    season: Path | None = None  # what is offered comes back
    sure: float | None = None  # so probably plans shall hold
    margin: float | None = None  # a plan is for so much more than the rate
    p95: float | None = None  # ms, in which 95 of 100 rows shall be done
    quiet_tasks: bool = False  # what tasks print is not shown
    max_dead: float = 1.0  # share of the rows: so many dead letters are a failed check
    mode: str = "auto"
    profile_spare: float = 0.0  # minutes of each hour
    chaining: str = "off"
    hide_keys: bool = False
    gap: float = 1.0  # ms
    drain_timeout: float = 0.0  # s; 0: as long as rows get done
    state_dir: Path | None = None
    trace_dir: Path = Path("traces")
    alarms_to: str | None = None  # where they are posted
    otlp_to: str | None = None  # where metrics are sent
    exactly_once: bool = False  # keyed state counts no row twice
    state_to: str | None = None  # where snapshots of keyed state are kept; None: on the VMs' disks
    state_in_memory_mb: float | None = None  # of each slot; None: half of its memory
    from_checkpoint: str | None = None  # begin with its state, at its positions
    trace_keep: str = DEFAULT_KEEP
    port: int = 0
    dashboard: bool = False
    dashboard_port: int = 0  # 0: any
    metrics_port: int | None = None  # port of the controller's; agents have the ones after it

    @property
    def vms(self) -> tuple[Vm, ...]:
        """The VMs that are there from the start: vm1, vm2, …"""
        return tuple(self.vm(f"vm{n}", slots) for n, slots in enumerate(self.slots, 1))

    @property
    def ends_after_s(self) -> float | None:
        """How long the run lasts; None: until Ctrl-C. The demo lasts as long as its rates, unless told otherwise."""
        demo = self.topology is None and self.rates is None
        seconds = DEMO_SECONDS if demo and self.seconds is None else self.seconds
        return None if seconds is None or math.isinf(seconds) else seconds

    @property
    def most_vms(self) -> int:
        """At most so many VMs, those from the start among them."""
        most = self.max_vms or (DEMO_VMS if self.topology is None else 0)
        return max(len(self.slots), most)

    @property
    def all_vms(self) -> tuple[Vm, ...]:
        """Those from the start, and those that may be added (of the first one's size)."""
        more = range(len(self.slots) + 1, self.most_vms + 1)
        return (*self.vms, *(self.vm(f"vm{n}", self.slots[0]) for n in more))

    def vm(self, name: str, slots: int) -> Vm:
        return Vm(name, slots, self.slot_cores, self.slot_memory_bytes)


def parse_slots(text: str) -> tuple[int, ...]:
    """`4,4` → slots of each VM. Raises UsageError."""
    try:
        slots = tuple(int(part) for part in text.split(","))
    except ValueError as error:
        raise UsageError(
            f"--vms: invalid list of slots {text!r}", hint="write for example --vms 4,4"
        ) from error
    if not all(1 <= n <= SLOTS_MOST for n in slots) or len(slots) > VMS_MOST:
        raise UsageError(f"--vms: {text!r}: from 1 to {SLOTS_MOST} slots each, at most {VMS_MOST} VMs")
    return slots


def parse_rate_scale(text: str | None) -> float | Literal["auto"] | None:
    """A number above 0, or `auto`. Raises UsageError."""
    if text is None or text == "auto":
        return "auto" if text else None
    try:
        scale = float(text)
    except ValueError:
        scale = math.nan
    if not (math.isfinite(scale) and scale > 0):
        raise UsageError(f"rate scale {text!r} is neither a number above 0 nor auto")
    return scale


def check(settings: UpSettings) -> UpSettings:
    """The same settings; raises UsageError with everything that does not go together."""
    faults = []
    if settings.peak_tps is not None and settings.rate_scale is not None:
        faults.append("peak and rate scale both scale the rates: give one")
    if not 0 < settings.slot_cores <= 1:
        faults.append(f"--slot-cores: {settings.slot_cores:g} is not above 0 and at most 1")
    if settings.dashboard_port and not settings.dashboard:
        faults.append("--set dashboard-port: there is no page without --dashboard")
    if settings.measure_side_effects and settings.measure is None:
        faults.append("--set measure-side-effects: only with --measure first are tasks run on sample rows")
    if settings.max_vms is not None and settings.max_vms < len(settings.slots):
        faults.append(f"--max-vms: {settings.max_vms} is less than the {len(settings.slots)} of --vms")
    if faults:
        raise UsageError("these options do not go together", faults=faults)
    return settings
