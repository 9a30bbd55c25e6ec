"""Options that the planning commands share, and what they come to: topology, models and VMs to plan with."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.shell_completion import CompletionItem
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from headgate.controller.plan.acquire import MIXES, Acquire
from headgate.controller.planning_commands.past_runs import with_traffic
from headgate.controller.planning_commands.plan_request import PlanWanted
from headgate.topology_runtime.api.cluster import (
    MOST_SPEED,
    SLOT_CORES,
    SLOT_MEMORY_BYTES,
    Vm,
    bandwidth_fault,
)
from headgate.topology_runtime.errors import InvalidInput, UsageError
from headgate.topology_runtime.wire.run_options import DEFAULT_SPREAD, parse_spread
from headgate.topology_runtime.wording import NAME, did_you_mean, significant

if TYPE_CHECKING:
    from rich.progress import Progress

    from headgate.controller.models.plans import Sure
    from headgate.controller.models.task_models import Model
    from headgate.controller.plan.mappers.free_slots import GreedyBounds, Weights
    from headgate.topology_runtime.api.loading import Loaded
    from headgate.topology_runtime.api.topology import Topology


# ── The VMs to plan with: fixed ones, or sizes and prices to acquire by ───────────

PRICES = Path(__file__).parent  # shipped price lists, named by a bare word
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
            raise UsageError("--mix and --vms exclude each other", hint="leave out --mix: --vms are fixed")
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
    """`4,4x0.5@r2,2:1000` → vm1 with 4 slots, vm2 with 4 slots of half the speed in rack r2, vm3 with 2 slots and a
    link of 1,000 Mbit/s. Raises UsageError."""
    price, vms, faults = slot_price(slot_cores), [], []
    for number, part in enumerate(text.split(","), 1):
        shape, colon, link = part.strip().partition(":")
        size, at, rack = shape.partition("@")
        slots, times, fast = size.partition("x")
        mbps, wrong = _bandwidth(link) if colon else (UNSET, None)
        speed, unfit = _speed(fast) if times else (1.0, None)
        if not _is_count(slots) or (at and not NAME.fullmatch(rack)):
            faults.append(
                f"{part!r} is not SLOTS or SLOTS@RACK, with or without xSPEED and :MBIT/S, with 1 to "
                f"{VM_SLOTS_MOST} slots"
            )
        elif wrong is not None or unfit is not None:
            faults += [f"{part!r}: {fault}" for fault in (unfit, wrong) if fault is not None]
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
                    speed=speed,
                    bandwidth_mbps=mbps,
                )
            )
    if faults:
        raise UsageError("invalid --vms", faults=faults, hint="name slots: --vms 4,4,2@r2")
    if sum(vm.slots for vm in vms) > SLOTS_MOST:
        raise UsageError(f"--vms has more than {SLOTS_MOST:,} slots")
    return tuple(vms)


def sizes_of(text: str, slot_cores: float = 1.0) -> tuple[Vm, ...]:
    """`4,2,1` → a template of each size, priced per core of its slots as the cheapest of the shipped list."""
    price = slot_price(slot_cores)
    parts = [part.strip() for part in text.split(",")]
    faults = [
        f"{part!r} is not a number of slots from 1 to {VM_SLOTS_MOST}"
        for part in parts
        if not _is_count(part)
    ]
    if faults:
        raise UsageError("invalid --vm-sizes", faults=faults, hint="name slots: --vm-sizes 4,2,1")
    counts = dict.fromkeys(int(part) for part in parts)
    return tuple(
        Vm(f"size{count}", count, slot_cores, usd_per_hour=round(count * price, 9)) for count in counts
    )


def priced(named: str) -> tuple[Vm, ...]:
    """The VMs of a price list: a file, or a shipped list by its bare word."""
    from headgate.controller.files.planning_inputs import read_prices

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
        return UNSET, f"{text!r} is not a number of Mbit/s"
    fault = bandwidth_fault(value)
    return (UNSET, f"{fault}, got {text}") if fault is not None else (value, None)


def _speed(text: str) -> tuple[float, str | None]:
    """(times the speed that models were measured at, what is wrong with it)."""
    try:
        value = float(text)
    except ValueError:
        return 1.0, f"{text!r} is not a speed, such as 0.5"
    if math.isfinite(value) and 0 < value <= MOST_SPEED:
        return value, None
    return 1.0, f"expected a speed above 0 and at most {MOST_SPEED:g}, got {text}"


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 6 and 1 <= int(text) <= VM_SLOTS_MOST


# ── Rates on the command line: `100,150,200`, `100:600:50` (from, to, step), or both mixed ──────────────

MOST = 1000  # rates of one command
HINT = "give --rates 50,100,200 or --rates 100:600:50"


def rates_of(text: str) -> tuple[float, ...]:
    """Rates in rows/s in the order given, each once. Raises UsageError for what is no list of rates,
    InvalidInput for rates and steps out of bounds."""
    wrong, outside = [], []
    rates: dict[float, None] = {}
    for part in text.split(","):
        try:
            numbers = [float(number) for number in part.split(":")]
        except ValueError:
            numbers = []
        if len(numbers) not in (1, 3):
            wrong.append(f"{part!r} is neither a number nor FROM:TO:STEP")
        elif fault := next(filter(None, map(rate_fault, numbers)), None):
            outside.append(f"{part!r}: {fault}")
        elif len(numbers) == 3 and not 0 <= numbers[1] - numbers[0] <= MOST * numbers[2]:
            outside.append(f"{part!r}: TO must be at least FROM, and at most {MOST} steps above it")
        else:
            rates.update(dict.fromkeys(_stepped(*numbers)))
    if wrong:
        raise UsageError("invalid --rates", faults=[*wrong, *outside], hint=HINT)
    if outside or len(rates) > MOST:
        faults = outside or [f"{len(rates)} rates; at most {MOST}"]
        raise InvalidInput("--rates out of bounds", faults=faults, hint=HINT)
    return tuple(rates)


def rate_fault(rate_tps: float) -> str | None:
    """What is wrong with a rate or step that somebody named."""
    from headgate.controller.plan.scaling import LEAST_TPS, MOST_TPS

    if LEAST_TPS <= rate_tps <= MOST_TPS:
        return None
    return f"expected {LEAST_TPS:g} to {MOST_TPS:g} rows/s, got {significant(rate_tps, 6)}"


def _stepped(first: float, last: float | None = None, step: float = 1.0) -> list[float]:
    """first, first + step … up to `last`, which belongs to them; free of the noise of adding floats."""
    if last is None:
        return [first]
    return [round(first + n * step, 9) for n in range(int((last - first) / step + 1e-9) + 1)]


STEP_TPS = 10.0  # of --max-rate, as in paper 0
PROBABILITIES = 0.5, 0.9999


class SchedulerName(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.4
    """A name out of a table of the registry, which is read for help and completion only; what is no such name is
    refused with everything else that is wrong."""

    name = "scheduler"

    def __init__(self, table: str) -> None:
        self._table = table

    def _names(self) -> list[str]:
        from headgate.controller.plan import schedulers

        return list(getattr(schedulers, self._table))

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        return "|".join(self._names())

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        return [CompletionItem(name) for name in self._names() if name.startswith(incomplete)]


# ── what they come to ───────────────────────────────────────────────────────────────────────────


def asked(options: Mapping[str, Any]) -> PlanWanted:
    """The question behind the options of `headgate plan`, of which a caller may leave some out.

    Without a rate the request is for 1 row/s. Raises UsageError and InvalidInput."""
    from headgate.controller.plan.mappers.free_slots import GreedyBounds, TopologySpread, Weights
    from headgate.controller.plan.planner import PlanRequest
    from headgate.controller.plan.predict.prediction import refuse_below_floor
    from headgate.controller.plan.schedulers import mapper_for

    if options.get("planner"):
        if options.get("mapper") or options.get("allocator") not in (None, "mba", options["planner"]):
            raise UsageError("--planner excludes --allocator and --mapper", hint="leave out one or the other")
        options = {**options, "allocator": options["planner"], "mapper": options["planner"]}
    refuse_unknown_choices(options)
    rate_tps = rate_of(options.get("rate"), 1.0)
    cap = options.get("max_usd_per_hour")
    weights = weights_of(options["rsm_weights"]) if options.get("rsm_weights") else Weights()
    vms_asked(options)  # faults in it come before anything is read
    topology, models = topology_and_models(options)
    refuse_below_floor(topology, models)
    vms, sizes, acquire = vms_asked(options, slot_cores_of(topology, models))
    sure, models = certainty_asked(options, topology, models)
    traffic = None
    if options.get("from_trace") is not None:
        topology, traffic = with_traffic(topology, options["from_trace"])
    request = PlanRequest(
        topology=topology,
        models=models,
        rate_tps=rate_tps,
        vms=vms,
        allocator=options.get("allocator") or "mba",
        mapper=options.get("mapper") or mapper_for(options.get("allocator") or "mba"),
        routing=options.get("routing") or "weighted",
        interference=options.get("interference") or "cpu",
        weights=weights,
        spread=TopologySpread(*parse_spread(options.get("topology_spread") or DEFAULT_SPREAD)),
        as_printed=bool(options.get("as_printed")),
        bounds=bounds_of(options["load_bound"]) if options.get("load_bound") else {},
        greedy=greedy_of(options["greedy_bounds"]) if options.get("greedy_bounds") else GreedyBounds(),
        fixed=acquire is None,
        sure=sure,
        traffic=traffic,
        margin=None if options.get("margin") is None else 1 + options["margin"],
    )
    return PlanWanted(request, sizes, acquire, cap, search_s=options.get("search_seconds"))


def certainty_asked(
    options: Mapping[str, Any], topology: Topology, models: dict[str, Model]
) -> tuple[Sure | None, dict[str, Model]]:
    """(how sure the plan is to be, the models as the prediction ledger corrects them); without `--sure` no ledger is
    looked at. Raises UsageError."""
    probability = options.get("sure")
    if probability is not None and options.get("margin") is not None:
        raise UsageError("--sure and --margin exclude each other", hint="leave one of them out")
    if probability is None:
        if options.get("ledger") is not None:
            raise UsageError("--ledger needs --sure", hint="add --sure 0.95")
        return None, models
    from headgate.controller.models.plans import Sure
    from headgate.controller.planning_commands.past_runs import learned_for

    models, spread, notes = learned_for(topology, models, options.get("ledger"))
    for line in notes:
        click.echo(line, err=True)
    return Sure(probability, spread), models


def rate_of(given: float | None, otherwise: float, option: str = "--rate") -> float:
    """A rate in rows/s, `otherwise` when none is given. Raises InvalidInput as `rates_of`."""
    if given is None:
        return otherwise
    fault = rate_fault(given)
    if fault is not None:
        raise InvalidInput(f"{option}: {fault}")
    return given


def refuse_unknown_choices(options: Mapping[str, Any]) -> None:
    """`--allocator`, `--mapper`, `--routing`, `--interference`, `--usage`, as far as the command has them.
    Raises InvalidInput with every fault."""
    from headgate.controller.files.installed_schedulers import add_installed
    from headgate.controller.plan.predict.prediction import INTERFERENCES, ROUTINGS, USAGES
    from headgate.controller.plan.schedulers import ALLOCATORS, MAPPERS
    from headgate.topology_runtime.api.plugins import registered

    add_installed(allocator=options.get("allocator"), mapper=options.get("mapper"))
    known: dict[str, Iterable[str]] = {
        "allocator": ALLOCATORS,
        "mapper": MAPPERS,
        "routing": ROUTINGS,
        "interference": INTERFERENCES,
        "usage": USAGES,
    }
    faults = []
    for name, words in known.items():
        if (chosen := options.get(name)) is not None and chosen not in words:
            there = [*words, *(registered(f"{name}s") if name in ("allocator", "mapper") else ())]
            faults.append(
                f"--{name}: no {chosen!r}, there are {', '.join(there)}{did_you_mean(chosen, there)}"
            )
    if faults:
        raise InvalidInput("unknown choice", faults=faults)


def topology_and_models(options: Mapping[str, Any]) -> tuple[Topology, dict[str, Model]]:
    """TOPOLOGY and `--models`; a shipped example (named by a bare word) has models of its own."""
    from headgate.controller.files.planning_inputs import read_models
    from headgate.topology_runtime.api.loading import load
    from headgate.topology_runtime.api.shipped_examples import DEMO, MODELS, example

    loaded = load(options["topology"], options.get("paths") or ())
    topology, folder = loaded.topology, options.get("models")
    if folder is not None:
        return topology, with_stand_ins(topology, read_models(folder))
    if options["topology"] != DEMO and example(options["topology"]) is not None:
        click.echo(f"models: the published ones, {MODELS}", err=True)
        return topology, read_models(MODELS)
    return topology, kept_models(loaded, options["topology"] == DEMO)


def kept_models(loaded: Loaded, demo: bool) -> dict[str, Model]:
    """What runs of this topology learned on this machine; of the demo else what came with headgate. Raises
    UsageError."""
    from headgate.controller.files.planning_inputs import read_models
    from headgate.controller.models.model_data import model_of
    from headgate.topology_runtime.measuring.model_store import Shelf
    from headgate.topology_runtime.tasks.demo import MODELS as SHIPPED

    shelf = Shelf(loaded.topology, loaded.user_paths, SLOT_CORES, SLOT_MEMORY_BYTES)
    found = {name: model for name, data in shelf.kept().items() if (model := model_of(data)[0]) is not None}
    if demo and shelf.lacking():
        click.echo(f"models: {SHIPPED}", err=True)
        return read_models(SHIPPED)
    if not found and shelf.lacking():
        raise UsageError(
            "no models are known of this topology",
            cause=f"none of its tasks has run here in slots of {SLOT_CORES:g} cores, as it is now",
            hint="`headgate up` learns them from rows; --models DIR gives them",
        )
    click.echo(f"models: learned by runs on this machine, {shelf.folder}", err=True)
    return with_stand_ins(loaded.topology, found, shelf.lacking())


def with_stand_ins(
    topology: Topology, models: dict[str, Model], names: Iterable[str] | None = None
) -> dict[str, Model]:
    """With models that stand in for these (left out: for those of sinks and tasks with side effects) where none is
    there, as `up` has them."""
    from headgate.controller.models.model_data import model_of
    from headgate.topology_runtime.measuring.calibrate import unsampled_models
    from headgate.topology_runtime.measuring.model_store import stand_in

    spared = [name for name in (unsampled_models(topology) if names is None else names) if name not in models]
    slot = next(iter(models.values())).slot if models else None
    made = {name: model_of(stand_in(name, {}))[0] for name in spared}
    return models | {
        name: replace(model, slot=slot or model.slot) for name, model in made.items() if model is not None
    }


def weights_of(text: str) -> Weights:
    """`M,C,N` → RSM's weights. Raises UsageError."""
    from headgate.controller.plan.mappers.free_slots import Weights

    try:
        memory, cpu, network = (float(part) for part in text.split(","))
    except ValueError as error:
        raise UsageError(
            f"invalid --rsm-weights: {text!r} is not three numbers", hint="give --rsm-weights 1,1,1"
        ) from error
    if not all(math.isfinite(weight) and weight >= 0 for weight in (memory, cpu, network)):
        raise UsageError(f"invalid --rsm-weights: {text!r} has a weight that is not finite and at least 0")
    return Weights(memory, cpu, network)


def bounds_of(text: str) -> dict[str, float]:
    """`0.9,vm2=0.7` → VM → the part of its CPU that may be in use, "" for the others. Raises UsageError."""
    found: dict[str, float] = {}
    for word in text.split(","):
        vm, _, part = word.strip().rpartition("=")
        try:
            found[vm] = float(part)
        except ValueError:
            found[vm] = math.nan
        if not 0 < found[vm] <= 1:
            raise UsageError(
                f"invalid load-bound: {word.strip()!r} is no part above 0 and at most 1",
                hint="give --set load-bound=0.9, or 0.9,vm2=0.7",
            )
    return found


def greedy_of(text: str) -> GreedyBounds:
    """`D_CPU,D_BW,objective,t_max` (or the first of them) → greedy matching's. Raises UsageError."""
    from headgate.controller.plan.mappers.free_slots import OBJECTIVES, GreedyBounds

    usual = GreedyBounds()
    parts = [part.strip() for part in text.split(",")]
    found = dict(zip(("cpu", "bandwidth", "objective", "seconds"), parts, strict=False))
    objective = found.pop("objective", usual.objective)
    try:
        numbers = {name: float(part) for name, part in found.items()}
    except ValueError:
        numbers = {"cpu": math.nan}
    bounds = GreedyBounds(**numbers, objective=objective)
    faults = bounds.faults()
    if len(parts) > 4 or faults:
        raise UsageError(
            f"invalid greedy-bounds: {text!r} is not CPU,BANDWIDTH,{'|'.join(OBJECTIVES)},SECONDS",
            faults=faults,
            hint="give --set greedy-bounds=0.9,1,deviation",
        )
    return bounds


# ── A progress bar for planning commands that take over a second; on stderr, and only on a terminal ─────

PATIENCE_S = 1.0

Item = TypeVar("Item")


def with_progress_bar(items: Sequence[Item], text: str, patience_s: float = PATIENCE_S) -> Iterator[Item]:
    """The items one by one, with a bar once they have taken longer than `patience_s`."""
    started_s, bar = time.monotonic(), None
    try:
        for done, item in enumerate(items, 1):
            yield item
            if bar is None and sys.stderr.isatty() and time.monotonic() - started_s > patience_s:
                bar = _bar(text, len(items))
            if bar is not None:
                bar.update(bar.task_ids[0], completed=done)
    finally:
        if bar is not None:
            bar.stop()


def _bar(text: str, total: int) -> Progress:
    from rich.progress import Progress

    from headgate.topology_runtime.commands.output import console

    bar = Progress(console=console(sys.stderr), transient=True)
    bar.add_task(text, total=total)
    bar.start()
    return bar
