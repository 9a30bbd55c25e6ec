"""The VMs that planning commands are told of: fixed ones, or sizes and prices to acquire by."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import UNSET, UnsetType

from headgate.controller.plan.acquire import MIXES, Acquire
from headgate.topology_runtime.cluster import Vm, bandwidth_fault
from headgate.topology_runtime.errors import InvalidInput, UsageError
from headgate.topology_runtime.faults.words import NAME, did_you_mean

if TYPE_CHECKING:
    from headgate.controller.knowledge.models import Model
    from headgate.topology_runtime.topology import Topology

PRICES = Path(__file__).with_name("prices")  # shipped price lists, named by a bare word
DEFAULT_PRICES, DEFAULT_SIZES = "azure-d", "4,2,1"
VM_SLOTS_MOST, SLOTS_MOST = 1024, 100_000


def slot_cores_of(topology: Topology, models: Mapping[str, Model]) -> float:
    """Cores of the slots that the topology's models were measured in, of the largest of them; 1 without any."""
    used = (models.get(task.model_name) for task in topology.tasks if task.static is None)
    return max((model.slot.cores for model in used if model is not None), default=1.0)


def vms_asked(
    options: Mapping[str, Any], slot_cores: float = 1.0
) -> tuple[tuple[Vm, ...], tuple[Vm, ...], Acquire | None]:
    """(fixed VMs, templates to acquire from, how to acquire or None when the VMs are fixed). VMs that are not of
    a price list have slots of `slot_cores`."""
    given = [name for name in ("vm_sizes", "prices", "vms", "slots") if options.get(name) is not None]
    for one, other in (("vms", "slots"), ("vms", "vm_sizes"), ("vms", "prices"), ("vm_sizes", "prices")):
        if one in given and other in given:
            raise UsageError(f"--{one.replace('_', '-')} and --{other.replace('_', '-')} exclude each other")
    if options.get("vms") is not None:
        if options.get("mix"):
            raise UsageError("--mix says how to acquire VMs, but --vms are fixed")
        return fixed_vms(options["vms"], slot_cores), (), None
    if options.get("prices") is not None:
        sizes, mix = priced(options["prices"]), options.get("mix") or "cheapest"
    else:
        sizes, mix = (
            sizes_of(options.get("vm_sizes") or DEFAULT_SIZES, slot_cores),
            options.get("mix") or "exact",
        )
    how = MIXES[mix]
    if options.get("slots") is not None:
        return how(options["slots"], sizes), (), None
    return (), sizes, how


def fixed_vms(text: str, slot_cores: float = 1.0) -> tuple[Vm, ...]:
    """`4,4@r2,2:1000` → vm1 with 4 slots, vm2 with 4 slots in rack r2, vm3 with 2 slots and a link of 1,000 Mbit/s.
    Raises UsageError."""
    price, vms, faults = slot_price(slot_cores), [], []
    for number, part in enumerate(text.split(","), 1):
        shape, colon, link = part.strip().partition(":")
        slots, at, rack = shape.partition("@")
        mbps, wrong = _bandwidth(link) if colon else (UNSET, None)
        if not _is_count(slots) or (at and not NAME.fullmatch(rack)):
            faults.append(
                f"{part!r} is not SLOTS or SLOTS@RACK, with or without :MBIT/S, with 1 to {VM_SLOTS_MOST} slots"
            )
        elif wrong is not None:
            faults.append(f"{part!r}: {wrong}")
        else:
            count = int(slots)
            cost = round(count * price, 9)
            vms.append(
                Vm(
                    f"vm{number}",
                    count,
                    slot_cores,
                    usd_per_hour=cost,
                    rack=rack or "r1",
                    bandwidth_mbps=mbps,
                )
            )
    if faults:
        raise UsageError("--vms is no list of VMs", faults=faults, hint="--vms 4,4,2@r2")
    if sum(vm.slots for vm in vms) > SLOTS_MOST:
        raise UsageError(f"--vms has more than {SLOTS_MOST:,} slots")
    return tuple(vms)


def sizes_of(text: str, slot_cores: float = 1.0) -> tuple[Vm, ...]:
    """`4,2,1` → a template of each size, priced per core of its slots as the cheapest of the shipped list."""
    price = slot_price(slot_cores)
    parts = [part.strip() for part in text.split(",")]
    faults = [
        f"{part!r} is no number of slots from 1 to {VM_SLOTS_MOST}" for part in parts if not _is_count(part)
    ]
    if faults:
        raise UsageError("--vm-sizes is no list of sizes", faults=faults, hint="--vm-sizes 4,2,1")
    counts = dict.fromkeys(int(part) for part in parts)
    return tuple(
        Vm(f"size{count}", count, slot_cores, usd_per_hour=round(count * price, 9)) for count in counts
    )


def priced(named: str) -> tuple[Vm, ...]:
    """The VMs of a price list: a file, or a shipped list by its bare word."""
    from headgate.controller.files.price_files import read_prices

    path = Path(named)
    if not path.suffix and len(path.parts) == 1 and not path.exists():
        shipped = sorted(file.stem for file in PRICES.glob("*.toml"))
        if named not in shipped:
            near = did_you_mean(named, shipped)
            raise InvalidInput(f"--prices: no price list {named!r}, shipped are {', '.join(shipped)}{near}")
        path = PRICES / f"{named}.toml"
    return read_prices(path)


def slot_price(slot_cores: float) -> float:
    """USD per hour of a slot of so many cores, of VMs given by their size alone: by the cores, the least of the
    shipped list."""
    return slot_cores * min(vm.usd_per_hour / (vm.slots * vm.slot_cores) for vm in priced(DEFAULT_PRICES))


def _bandwidth(text: str) -> tuple[float | UnsetType, str | None]:
    """(Mbit/s, what is wrong with them)."""
    try:
        value = float(text)
    except ValueError:
        return UNSET, f"{text!r} is no number of Mbit/s"
    fault = bandwidth_fault(value)
    return (UNSET, f"{fault}, got {text}") if fault is not None else (value, None)


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 6 and 1 <= int(text) <= VM_SLOTS_MOST
