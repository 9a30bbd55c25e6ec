"""Options that the planning commands share, and what they come to: topology, models and VMs to plan with."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.shell_completion import CompletionItem

from headgate.controller.offline.from_trace import trace_option, with_traffic
from headgate.controller.offline.rate_list import rate_fault
from headgate.controller.offline.request import PlanWanted
from headgate.controller.offline.vm_options import SLOTS_MOST, slot_cores_of, vms_asked
from headgate.controller.plan.acquire import MIXES
from headgate.topology_runtime.errors import InvalidInput, UsageError
from headgate.topology_runtime.faults.words import did_you_mean

if TYPE_CHECKING:
    from headgate.controller.knowledge.certainty import Sure
    from headgate.controller.knowledge.models import Model
    from headgate.controller.plan.room import TopologySpread, Weights
    from headgate.topology_runtime.topology import Topology

F = TypeVar("F", bound=Callable[..., Any])

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


def _all(command: F, *options: Callable[[Any], Any]) -> F:
    for option in reversed(options):
        command = option(command)
    return command


def topology_options(command: F) -> F:
    """TOPOLOGY, `--models`, `--path`."""
    return _all(
        command,
        click.argument("topology", metavar="TOPOLOGY"),
        click.option("--models", metavar="DIR", help="A folder of models (default: those of an example)."),
        click.option("--path", "paths", multiple=True, help="A folder to import user code from first."),
    )


def rate_option(command: F) -> F:
    """`--rate`: the input rate Ω."""
    return click.option("--rate", type=float, metavar="R", help="Input rate in tuples/s.")(command)


def pair_options(command: F) -> F:
    """`--allocator`, `--mapper`, `--planner`, `--rsm-weights`."""
    return _all(
        command,
        click.option("--allocator", default="mba", type=SchedulerName("ALLOCATORS"), show_default=True),
        click.option("--mapper", type=SchedulerName("MAPPERS"), help="[default: sam; rsm with lsa]"),
        click.option(
            "--planner",
            type=click.Choice(["optimal"]),
            help="Allocator and mapper optimal: the fewest slots.",
        ),
        search_option,
        margin_option,
        weights_option,
    )


def margin_option(command: F) -> F:
    """`--margin`."""
    text = "Plan for so much more than the rate: 0.05 (default: none; optimal: by the models' spread)."
    return click.option("--margin", type=click.FloatRange(0, 9), metavar="PART", help=text)(command)


def search_option(command: F) -> F:
    """`--search-seconds`."""
    return click.option(
        "--search-seconds",
        type=click.FloatRange(min=0),
        metavar="S",
        help="optimal: the best found in so long, with its gap (default: 1.2; of over 40 tasks 3).",
    )(command)


def weights_option(command: F) -> F:
    """`--rsm-weights`, `--topology-spread`: parameters of two mappers."""
    text = "What counts how much in RSM's distance: memory, CPU, network (default: 1,1,1)."
    spread = (
        "α, β of the topology mapper: how many threads a slot may hold, from 0 (even) to 1; from which part of "
        "the tasks on empty slots come first (default: 0,0.5)."
    )
    return _all(
        command,
        click.option("--rsm-weights", metavar="M,C,N", help=text),
        click.option("--topology-spread", metavar="A,B", help=spread),
    )


def sure_options(command: F) -> F:
    """`--sure`, `--ledger`."""
    return _all(
        command,
        click.option(
            "--sure", type=float, metavar="P", help="The rate shall hold with this probability: 0.95."
        ),
        click.option(
            "--ledger",
            metavar="FILE|DIR",
            help="… by what this prediction ledger, or folder of traces, says of the models (default: ./traces).",
        ),
    )


def routing_options(command: F) -> F:
    """`--routing`, `--interference`."""
    return _all(
        command,
        click.option("--routing", default="weighted", metavar="weighted|shuffle", show_default=True),
        click.option("--interference", default="cpu", metavar="cpu|none", show_default=True),
    )


def cluster_options(command: F) -> F:
    """The VMs: acquired (`--vm-sizes`, `--prices`) or fixed (`--vms`, `--slots`); what they may cost."""
    return _all(
        command,
        click.option("--vm-sizes", metavar="4,2,1", help="Acquire VMs of these slots (default: 4,2,1)."),
        click.option("--prices", metavar="FILE|azure-d", help="Acquire VMs of a price list."),
        click.option(
            "--mix", type=click.Choice(list(MIXES)), help="How to acquire (exact; of a list: cheapest)."
        ),
        click.option(
            "--vms", metavar="4,4@r2:1000", help="Fixed VMs: slots of each, @ its rack, : Mbit/s of its link."
        ),
        click.option("--slots", type=click.IntRange(1, SLOTS_MOST), help="So many fixed slots."),
        click.option("--max-usd-per-hour", type=float, metavar="X", help="Exit 4 if it costs more."),
    )


def planner_options(command: F) -> F:
    """All of them but `--rate`."""
    return _all(command, topology_options, trace_option, pair_options, routing_options, cluster_options)


# ── what they come to ───────────────────────────────────────────────────────────────────────────


def asked(options: Mapping[str, Any]) -> PlanWanted:
    """The question behind the options of `planner_options` (and `rate`; a command may leave some out).

    Without a rate the request is for 1 tuple/s. Raises UsageError and InvalidInput."""
    from headgate.controller.plan.latency_floor import refuse_below_floor
    from headgate.controller.plan.planner import PlanRequest
    from headgate.controller.plan.room import TopologySpread, Weights
    from headgate.controller.plan.schedulers import mapper_for

    if options.get("planner"):
        if options.get("mapper") or options.get("allocator") not in (None, "mba", options["planner"]):
            raise UsageError("--planner is allocator and mapper in one: give it, or these")
        options = {**options, "allocator": options["planner"], "mapper": options["planner"]}
    refuse_unknown_choices(options)
    rate_tps = rate_of(options.get("rate"), 1.0)
    cap = options.get("max_usd_per_hour")
    if cap is not None and not (math.isfinite(cap) and cap >= 0):
        raise InvalidInput(f"--max-usd-per-hour: expected a finite price of at least 0, got {cap:g}")
    weights = weights_of(options["rsm_weights"]) if options.get("rsm_weights") else Weights()
    vms_asked(options)  # what is wrong with it is told before anything is read
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
        spread=spread_of(options["topology_spread"]) if options.get("topology_spread") else TopologySpread(),
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
        raise UsageError("--sure finds its margin by itself: give it, or --margin")
    if probability is None:
        if options.get("ledger") is not None:
            raise UsageError("--ledger is for --sure", hint="--sure 0.95")
        return None, models
    if not PROBABILITIES[0] <= probability <= PROBABILITIES[1]:
        low, high = PROBABILITIES
        raise UsageError(f"--sure: expected a probability from {low:g} to {high:g}, got {probability:g}")
    from headgate.controller.knowledge.certainty import Sure
    from headgate.controller.offline.certainty_known import learned_for

    models, spread, told = learned_for(topology, models, options.get("ledger"))
    for line in told:
        click.echo(line, err=True)
    return Sure(probability, spread), models


def rate_of(given: float | None, otherwise: float, option: str = "--rate") -> float:
    """A rate in tuples/s, `otherwise` when none is given. Raises InvalidInput as `rates_of`."""
    if given is None:
        return otherwise
    fault = rate_fault(given)
    if fault is not None:
        raise InvalidInput(f"{option}: {fault}")
    return given


def refuse_unknown_choices(options: Mapping[str, Any]) -> None:
    """`--allocator`, `--mapper`, `--routing`, `--interference`, `--usage`, as far as the command has them.
    Raises InvalidInput with every fault."""
    from headgate.controller.plan.predict import INTERFERENCES, ROUTINGS, USAGES
    from headgate.controller.plan.schedulers import ALLOCATORS, MAPPERS

    known: dict[str, Iterable[str]] = {
        "allocator": ALLOCATORS,
        "mapper": MAPPERS,
        "routing": ROUTINGS,
        "interference": INTERFERENCES,
        "usage": USAGES,
    }
    faults = [
        f"--{name}: no {options[name]!r}, there are {', '.join(words)}{did_you_mean(options[name], words)}"
        for name, words in known.items()
        if options.get(name) is not None and options[name] not in words
    ]
    if faults:
        raise InvalidInput("there is no such choice", faults=faults)


def topology_and_models(options: Mapping[str, Any]) -> tuple[Topology, dict[str, Model]]:
    """TOPOLOGY and `--models`; a shipped example (named by a bare word) has models of its own."""
    from headgate.controller.files.model_files import read_models
    from headgate.topology_runtime.examples import DEMO, MODELS, example
    from headgate.topology_runtime.loading import load

    topology = load(options["topology"], options.get("paths") or ()).topology
    folder = options.get("models")
    if folder is None and options["topology"] == DEMO:
        folder = measured_of(topology)
        click.echo(f"models: those measured on this machine, {folder}", err=True)
    if folder is None:
        if example(options["topology"]) is None:
            hint = "--models DIR; only the shipped examples have models of their own"
            raise UsageError("which folder has the models of its tasks?", hint=hint)
        folder = str(MODELS)
        click.echo(f"models: the published ones, {folder}", err=True)
    return topology, read_models(folder)


def measured_of(topology: Topology) -> str:
    """The models that `headgate up` measured of the demo, for slots of its own size. Raises UsageError."""
    from headgate.topology_runtime.calibration import store
    from headgate.topology_runtime.tasks.demo import SLOT_CORES, SLOT_MEMORY_BYTES

    folder = store.folder(topology, (), SLOT_CORES, SLOT_MEMORY_BYTES)
    if store.missing(topology, folder):
        hint = "`headgate up` once measures them; or --models DIR"
        raise UsageError("the demo's tasks were not measured on this machine yet", hint=hint)
    return str(folder)


def weights_of(text: str) -> Weights:
    """`M,C,N` → RSM's weights. Raises UsageError."""
    from headgate.controller.plan.room import Weights

    try:
        memory, cpu, network = (float(part) for part in text.split(","))
    except ValueError as error:
        raise UsageError(
            f"--rsm-weights: {text!r} is not three numbers", hint="--rsm-weights 1,1,1"
        ) from error
    if not all(math.isfinite(weight) and weight >= 0 for weight in (memory, cpu, network)):
        raise UsageError(f"--rsm-weights: {text!r} has a weight that is not finite and at least 0")
    return Weights(memory, cpu, network)


def spread_of(text: str) -> TopologySpread:
    """`α,β` → the topology mapper's. Raises UsageError."""
    from headgate.controller.plan.room import TopologySpread

    try:
        alpha, beta = (float(part) for part in text.split(","))
    except ValueError as error:
        raise UsageError(
            f"--topology-spread: {text!r} is not two numbers", hint="--topology-spread 0,0.5"
        ) from error
    if not (0 <= alpha <= 1 and 0 <= beta <= 1):
        raise UsageError(f"--topology-spread: {text!r} has a number that is not from 0 to 1")
    return TopologySpread(alpha, beta)
