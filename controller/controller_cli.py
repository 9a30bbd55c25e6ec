"""`headgate controller run`: one controller, until its run is over.

The topology is given as the JSON that the loader makes of it (user code is never imported here), or later
by `headgate submit`.
"""

from __future__ import annotations

import importlib
import json
import re
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
import msgspec

from headgate.topology_runtime.api.cluster import SLOT_CORES, SLOT_MEMORY_BYTES, Vm, refuse_small_slots
from headgate.topology_runtime.commands.number_options import Number
from headgate.topology_runtime.commands.rare_settings import WORDS, SettingsCommand, setting, without
from headgate.topology_runtime.commands.run_settings import run_settings
from headgate.topology_runtime.errors import InvalidInput, UsageError
from headgate.topology_runtime.keys.keyring import TRUST, Keyring
from headgate.topology_runtime.platform.addresses import Listening, listening
from headgate.topology_runtime.platform.http_options import metrics_at, metrics_options
from headgate.topology_runtime.platform.processes import die_with
from headgate.topology_runtime.wire.run_options import parse_keep, parse_spread, parse_triggers
from headgate.topology_runtime.wire.wire_version import VERSION

if TYPE_CHECKING:
    from headgate.controller.files.machine_providers import Machines
    from headgate.controller.knowledge.controller_config import ControllerSettings, TrafficTriggers
    from headgate.controller.knowledge.journal_records import Submitted
    from headgate.topology_runtime.api.cluster import Vm
    from headgate.topology_runtime.api.topology import Topology


# ── Options of `headgate controller run` that say where more VMs come from, what they are and what they may
# cost

F = TypeVar("F", bound=Callable[..., Any])
WAIT_S, CALL_S = 120.0, 120.0
MACHINES = "machines"  # in the state directory


def machine_options(command: F) -> F:
    """The options that the functions below take."""
    seconds = Number(0, 7 * 86400)
    for option in reversed((
        setting("--machines-command", metavar="COMMAND", help="Has VMs beyond the first, and gives them back."),
        setting("--machines", metavar="NAME", help="The same by a plug-in (entry point headgate.machines)."),
        setting("--machines-timeout", type=Number(1, 3600), default=CALL_S, show_default=True,
                     metavar="S", help="Of each call of it."),
        setting("--machines-wait", type=seconds, default=WAIT_S, show_default=True, metavar="S",
                     help="How long a plan waits for a VM."),
        setting("--machine-life", type=seconds, default=0.0, show_default=True, metavar="S",
                     help="A VM is not given back before."),
        setting("--prices", type=click.Path(path_type=Path), metavar="FILE", help="Price list of VMs."),
        setting("--machine-size", metavar="NAME", help="Which of its sizes [the only one]."),
        setting("--max-usd-per-hour", type=Number(0), metavar="X", help="All VMs cost no more."),
    )):  # fmt: skip
        command = option(command)
    return command


def check_machines(options: dict[str, Any], grows: bool) -> None:
    """Raises UsageError for options that do not go together."""
    faults = []
    if not grows:
        given = [
            name
            for name in ("machines", "machines_command", "prices", "max_usd_per_hour")
            if options[name] is not None
        ]
        faults += [
            f"--set {name.replace('_', '-')} goes with --max-vms above the number of VMs" for name in given
        ]
    if options["machine_size"] is not None and options["prices"] is None:
        faults.append("--set machine-size goes with --set prices")
    if options["max_usd_per_hour"] is not None and options["prices"] is None:
        faults.append("--set max-usd-per-hour goes with --set prices: what a VM costs is not known without")
    if options["machines"] is not None and options["machines_command"] is not None:
        faults.append("--set machines and --set machines-command both have VMs: give one")
    if options["machines_command"] is not None and not words_of(options["machines_command"]):
        faults.append("--set machines-command names no command")
    if faults:
        raise UsageError("these options do not go together", faults=faults)


def words_of(command: str) -> tuple[str, ...]:
    """As a shell parts them. Raises UsageError."""
    try:
        return tuple(shlex.split(command))
    except ValueError as error:
        raise UsageError(f"invalid machines-command {command!r}", cause=str(error)) from error


def priced(options: dict[str, Any], spare: Vm) -> Vm:
    """What a VM of the provider is: of the price list if there is one. Raises InvalidInput, UsageError."""
    if options["prices"] is None:
        return spare
    from headgate.controller.files.planning_inputs import read_prices

    sizes = {size.vm: size for size in read_prices(options["prices"])}
    name = options["machine_size"]
    if name is None and len(sizes) > 1:
        raise UsageError(
            f"{options['prices']} has {len(sizes)} sizes",
            hint=f"choose one: --set machine-size={'|'.join(sizes)}",
        )
    if name is not None and name not in sizes:
        raise InvalidInput(f"{options['prices']} has no size {name!r}", hint=", ".join(sizes))
    return sizes[name] if name is not None else next(iter(sizes.values()))


def installed_machines(name: str, directory: Path) -> Machines:
    """The provider that a package registers in `headgate.machines`: called with a folder for its notes. Raises
    InvalidInput, UsageError."""
    from headgate.topology_runtime.api.plugins import plugin

    provider = plugin("machines", name)
    if provider is None:
        raise UsageError(
            f"--set machines={name}: no such plug-in",
            hint="install a package with an entry point in headgate.machines",
        )
    machines: Machines = provider(directory)
    return machines


def machines_of(options: dict[str, Any], state: Path, ring: Keyring, grows: bool) -> Machines:
    """The provider."""
    from headgate.controller.files.machine_providers import (
        CommandMachines,
        FileMachines,
        Machines,
        MachinesCall,
    )

    if not grows:
        return Machines()
    if options["machines"] is not None:
        return installed_machines(options["machines"], state / MACHINES)
    if options["machines_command"] is None:
        return FileMachines(state / MACHINES)

    def facts() -> dict[str, Any]:
        told = json.loads((state / "controller" / "endpoint").read_bytes())
        return {"run": options["run_name"], "controller": told["control"]}

    def revoke(vm: str) -> None:
        if ring.trust().of("agent", vm) is not None:
            ring.revoke("agent", vm)

    call = MachinesCall(
        words_of(options["machines_command"]),
        options["machines_timeout"],
        facts,
        lambda vm: ring.ensure("agent", vm).absolute(),
        revoke,
    )
    return CommandMachines(state / MACHINES, call)


NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
VMS_MOST, SLOTS_MOST = 1024, 1024
FILE_MOST_BYTES = 1024 * 1024
FAULTS_TOLD = 3  # of the prediction ledger
PLANNED = ("allocator", "mapper", "routing", "interference")  # a plan that is given says how it was made


class ScheduleFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The file of `--schedule`: steps of (seconds after the start, rows/s), repeating after `period_s`. uncapped:
    all sources take rows as they come, all of them, and the first step is what the first plan is made for."""

    steps: tuple[tuple[float, float], ...]
    period_s: float = 0.0
    uncapped: bool = False


@click.command(cls=SettingsCommand)
@click.option("--topology", type=click.Path(path_type=Path), help="The topology, as JSON; none: `submit`.")
@click.option("--models", type=click.Path(path_type=Path), help="Folder of its models.")
@setting("--schedule", type=click.Path(path_type=Path), help='Offered load: {"steps": [[0, 100]]}.')
@click.option("--rate", type=Number(0, 1e9), help="Offered load: one rate in rows/s.")
@click.option(
    "--vms", "initial_vms", default="", help="VMs that shall be there and their slots: vm1=4,vm2=4."
)
@click.option("--slot-cores", default=SLOT_CORES, type=Number(0, 1, min_open=True), show_default=True)
@setting("--slot-memory", default=SLOT_MEMORY_BYTES, type=click.IntRange(1), show_default=True)
@click.option("--max-vms", default=0, type=click.IntRange(0, VMS_MOST), help="VMs at most, by the provider.")
@machine_options
@run_settings()
@setting("--interference", default="cpu", show_default=True)
@click.option("--state-dir", type=click.Path(path_type=Path), help="Default: .headgate/RUN")
@click.option("--trace-dir", type=click.Path(path_type=Path), help="Where the trace goes; none: no trace.")
@click.option(
    "--run",
    "run_name",
    default="local",
    show_default=True,
    help="Names the state directory; the run itself has an id.",
)
@setting("--seconds", default=0.0, type=Number(0), help="End so long after the first row.")
@click.option("--path", "user_paths", multiple=True, help="A folder to import user code from first.")
@setting("--round-trip", "strict", is_flag=True, help="Round-trip rows on hops inside a worker too.")
@click.option(
    "--keys", type=click.Path(path_type=Path), help="Folder of keys, made if not there [STATE/keys]."
)
@click.option(
    "--listen", metavar="HOST", help="Address for agents, commands, stream [loopback]; off it with --keys."
)
@click.option("--advertise", metavar="HOST", help="Under which others reach it [as --listen].")
@click.option("--port", default=0, type=click.IntRange(0, 65535), help="For agents; 0: any.")
@click.option("--command-port", default=0, type=click.IntRange(0, 65535), help="For commands; 0: any.")
@click.option("--stream-port", default=0, type=click.IntRange(0, 65535), help="Of the picture's changes.")
@metrics_options
@click.option("--owner", default=0, type=click.IntRange(0), help="Die with this parent process.")
@setting("--begin-ahead", is_flag=True, hidden=True)
@setting(
    "--shared", is_flag=True, help="Run several topologies side by side, each by a controller of its own."
)
@setting(
    "--topology-port",
    default=0,
    type=click.IntRange(0, 65535 - 3 * 64),
    help="With shared: controllers of topologies take ports from here on, three each; 0: any.",
)
@click.pass_context
def run(
    context: click.Context, /, begin_ahead: bool, shared: bool, topology_port: int, **options: Any
) -> None:
    """Run one controller: it waits for agents, plans, watches, re-plans, and ends when its run is over."""
    if begin_ahead:
        words = rest_of_the_words(options["owner"])
        options = run.make_context(context.info_name, words, context.parent).params
        for name in ("begin_ahead", "shared", "topology_port"):
            del options[name]
    if shared:
        return start_shared(options, context.meta[WORDS], topology_port)
    if topology_port:
        raise UsageError("--set topology-port goes with --set shared=yes")
    start(options)


OF_ONE = (  # options that say what one topology is, or where its VMs come from
    "topology", "models", "schedule", "rate", "initial_vms", "max_vms", "seconds", "user_paths", "plan", "season",
    "from_checkpoint", "metrics_port",
)  # fmt: skip
OWN_OPTIONS = (
    "--state-dir", "--trace-dir", "--run", "--keys", "--port", "--command-port", "--stream-port", "--owner",
)  # fmt: skip


def start_shared(options: dict[str, Any], words: Sequence[str], topology_port: int) -> None:
    """One controller for several topologies. Raises HeadgateError."""
    from headgate.controller.sharing.sharing_process import SharedController, SharedPlace
    from headgate.topology_runtime.keys.keyring import KEYS, Keyring
    from headgate.topology_runtime.platform.process_logs import hold_out

    hold_out()
    if options["owner"]:
        die_with(options["owner"])
    given = [f"--{name.replace('_', '-')}" for name in OF_ONE if options[name]]
    if given:
        hint = "`headgate submit` gives each topology what it needs"
        raise UsageError("with --set shared=yes these say nothing", faults=given, hint=hint)
    at = address_of(options)
    state = options["state_dir"] or Path(".headgate") / options["run_name"]
    ring = Keyring.at(options["keys"] or state / KEYS)
    ports = options["port"], options["command_port"]
    own = tuple(without(words, OWN_OPTIONS, ("shared", "topology-port")))
    SharedController(SharedPlace(state, options["trace_dir"], *ports, ring, at, own, topology_port)).run()


def start(options: dict[str, Any]) -> None:
    """Build the controller from its options and run it. Raises HeadgateError."""
    from headgate.controller.controller_process import Controller, ControllerPlace
    from headgate.controller.core.loop import Loop
    from headgate.controller.files.installed_schedulers import add_installed
    from headgate.controller.files.run_checkpoints import begin
    from headgate.topology_runtime.keys.keyring import KEYS, Keyring
    from headgate.topology_runtime.platform.process_logs import hold_out
    from headgate.topology_runtime.platform.processes import die_with, hide_variables
    from headgate.topology_runtime.platform.run_ids import run_of
    from headgate.topology_runtime.worker.keyed_state.far_snapshots import note_run

    hold_out()
    if options["owner"]:
        die_with(options["owner"])
    refuse_small_slots(options["slot_memory"])
    name, initial, keep = options["run_name"], vms_of(options), parse_keep(options["trace_keep"])
    if not NAME.fullmatch(name):
        raise UsageError(f"invalid --run {name!r}: not a name of 1 to 64 letters, digits, '.', '_' and '-'")
    at = address_of(options)  # before there are any keys
    state = options["state_dir"] or Path(".headgate") / name
    grows = options["max_vms"] > len(initial)
    check_machines(options, grows)
    add_installed(allocator=options["allocator"], mapper=options["mapper"])
    submitted = submitted_of(options)
    if submitted is not None:
        hide_variables(submitted.topology.variables)
    checkpoint = checkpoint_of(options, state, submitted)
    settings = settings_of(options, submitted, initial, grows)
    metrics = metrics_at(options)
    run = run_of(state, name)
    if settings.state_to:
        note_run(settings.state_to, run)
    if checkpoint is not None:
        begin(state, run, settings.state_to, checkpoint, submitted.topology)
    ring = Keyring.at(options["keys"] or state / KEYS)
    ports = options["port"], options["command_port"]
    place = ControllerPlace(
        state,
        options["trace_dir"],
        *ports,
        options["owner"],
        keep,
        metrics,
        options["stream_port"],
        ring,
        at,
        options["alarms_to"],
        options["otlp_to"],
    )
    machines = machines_of({**options, "run_name": run}, state, ring, grows)
    Controller(Loop(msgspec.structs.replace(settings, run=run), submitted).step, place, machines).run()


def checkpoint_of(options: dict[str, Any], state: Path, submitted: Any) -> Any:
    """What the run begins with; None where nothing is given, or it has begun already. Its snapshots go where the
    checkpoint is, unless it is said where. Raises InvalidInput, UsageError."""
    url = options["from_checkpoint"]
    if not url:
        return None
    from headgate.controller.files.run_checkpoints import has_begun
    from headgate.controller.files.state_migration import migrated
    from headgate.topology_runtime.worker.keyed_state import checkpoints

    options["state_to"] = options["state_to"] or checkpoints.parts_of(url)[0]
    if has_begun(state):
        return None
    if submitted is None:
        raise UsageError("from-checkpoint needs --topology: the two must fit")
    found = checkpoints.begin_with(url)
    checkpoints.check_fits(found, submitted.topology, options["exactly_once"])
    return migrated(found, submitted.topology, submitted.user_paths)


def settings_of(
    options: dict[str, Any], submitted: Submitted | None, initial: tuple[Vm, ...], grows: bool
) -> ControllerSettings:
    """What the run is to be like. Raises HeadgateError."""
    from headgate.controller.files.planning_inputs import read_plan
    from headgate.controller.knowledge.controller_config import ControllerSettings
    from headgate.topology_runtime.connectors.object_folder import absolute
    from headgate.topology_runtime.wire.messages import DataPlaneSettings as DataPlane
    from headgate.topology_runtime.wire.run_options import FRAME_ROWS

    plan = read_plan(options["plan"]) if options["plan"] else None
    of = {name: getattr(plan, name, options[name]) for name in PLANNED}
    return ControllerSettings(
        run=options["run_name"],
        version=VERSION,
        trace=str(options["trace_dir"]) if options["trace_dir"] else None,
        mode=options["mode"],
        **of,
        initial=initial,
        spare=priced(options, spare_of(options, initial)) if grows else None,
        max_vms=max(options["max_vms"], len(initial)),
        max_usd_per_hour=options["max_usd_per_hour"],
        machines_wait_s=options["machines_wait"],
        machine_life_s=options["machine_life"],
        seconds=options["seconds"],
        drain_timeout_s=options["drain_timeout"],
        plan=plan,
        profile_spare_min=options["profile_spare"],
        stale=stale_of(submitted) if submitted is not None and options["profile_spare"] else {},
        data_plane=DataPlane(frame_rows=FRAME_ROWS, gap_s=options["gap"] / 1000, strict=options["strict"]),
        hide_keys=options["hide_keys"],
        exactly_once=options["exactly_once"],
        state_to=absolute(options["state_to"] or ""),
        state_in_memory=int((options["state_in_memory_mb"] or 0) * 1e6),
        chaining=options["chaining"] == "auto",
        sure=options["sure"] or 0.0,
        margin=None if options["margin"] is None else 1 + options["margin"],
        p95_ms=options["p95"],
        triggers=triggers_of(options),
        topology_spread=parse_spread(options["topology_spread"]),
        as_printed=options["as_printed"],
        **ledger_of(options["trace_dir"], submitted),
        season=season_of(options["season"], submitted.topology.name if submitted is not None else ""),
    )


def triggers_of(options: dict[str, Any]) -> TrafficTriggers:
    """When an online mapper plans again. Raises UsageError, also for a first mapper that there is not."""
    from headgate.controller.knowledge.controller_config import TrafficTriggers
    from headgate.controller.plan.schedulers import pair_faults

    triggers = TrafficTriggers(**parse_triggers(options["traffic_triggers"]))
    if triggers.first and (faults := pair_faults(options["allocator"], triggers.first)):
        raise UsageError(
            "--set traffic-triggers: no such first plan", faults=[*faults.values()], hint="first=dsm"
        )
    return triggers


def address_of(options: dict[str, Any]) -> Listening:
    """Off loopback only with keys that somebody made for that. Raises UsageError."""
    at, keys = listening(options["listen"], options["advertise"]), options["keys"]
    if at.off_loopback and (keys is None or not (keys / TRUST).exists()):
        folder = keys or "DIR"
        raise UsageError(
            f"--listen {at.listen}: other machines could reach this controller, and no keys say who may",
            hint=f"`headgate keys init {folder}`, then --keys {folder}",
        )
    return at


def vms_of(options: dict[str, Any]) -> tuple[Vm, ...]:
    """`vm1=4,vm2=4` → VMs. Raises UsageError with every fault."""
    vms, faults = [], []
    for part in filter(None, options["initial_vms"].split(",")):
        name, _, slots = part.partition("=")
        if not NAME.fullmatch(name) or not slots.isdigit() or not 1 <= int(slots) <= SLOTS_MOST:
            faults.append(f"{part!r} is not NAME=SLOTS")
        else:
            vms.append(Vm(name, int(slots), options["slot_cores"], options["slot_memory"]))
    faults += [
        f"{name!r} is there twice"
        for name in sorted({v.vm for v in vms if [w.vm for w in vms].count(v.vm) > 1})
    ]
    if faults:
        raise UsageError("invalid VMs in --vms", faults=faults, hint="vm1=4,vm2=4")
    return tuple(vms)


def spare_of(options: dict[str, Any], initial: tuple[Vm, ...]) -> Vm:
    """What a VM from the provider looks like: as the first one."""
    slots = initial[0].slots if initial else 1
    return Vm("spare", slots, options["slot_cores"], options["slot_memory"])


def submitted_of(options: dict[str, Any]) -> Any:
    """What is run from the start; None when it is submitted later. Raises InvalidInput, UsageError."""
    if options["topology"] is None:
        return None
    if options["models"] is None:
        raise UsageError("--topology needs --models")
    from headgate.controller.files.planning_inputs import read_models
    from headgate.controller.knowledge.journal_records import Submitted
    from headgate.controller.plan.predict.slot_fit import fitted
    from headgate.topology_runtime.platform.clock import wall_ns

    topology = read_topology(options["topology"])
    offer = offer_of(options)
    measured = read_models(options["models"]).values()
    models = fitted(measured, topology, options["slot_cores"], options["slot_memory"])
    paths = tuple(options["user_paths"])
    return Submitted(topology, models, offer.steps, offer.period_s, paths, wall_ns(), offer.uncapped)


def season_of(path: Path | None, topology: str) -> Any:
    """The season that is handed over, if one is. Raises InvalidInput."""
    from headgate.controller.files.season_files import read_season

    return read_season(path, topology) if path is not None else None


def ledger_of(trace: Path | None, submitted: Any) -> dict[str, Any]:
    """Settings: what earlier runs of the topology found of these models."""
    if trace is None or submitted is None:
        return {}
    from headgate.controller.recording.prediction_ledger_file import read_ledger, speaking_of
    from headgate.topology_runtime.traces.trace_tables import LEDGER

    read = read_ledger(trace.parent / LEDGER)
    return {
        "ledger": speaking_of(read.entries, submitted.topology.name, submitted.models),
        "ledger_trouble": "; ".join(read.faults[:FAULTS_TOLD]) + (" …" if read.faults[FAULTS_TOLD:] else ""),
    }


def stale_of(submitted: Any) -> dict[str, str]:
    """Model → why it may no longer hold on this machine."""
    from headgate.controller.files.planning_inputs import stale

    found = {model.task: stale(model, submitted.user_paths) for model in submitted.models}
    return {name: "; ".join(reasons) for name, reasons in found.items() if reasons}


def offer_of(options: dict[str, Any]) -> ScheduleFile:
    """The offered load. Raises InvalidInput, UsageError."""
    if (options["schedule"] is None) == (options["rate"] is None):
        raise UsageError("missing offered load", hint="give either --rate R or --set schedule=FILE")
    if options["rate"] is not None:
        return ScheduleFile(((0.0, options["rate"]),))
    offer: ScheduleFile = read_json(options["schedule"], ScheduleFile, "schedule")
    times = [at_s for at_s, _ in offer.steps]
    if not times or times[0] != 0 or times != sorted(set(times)):
        raise InvalidInput("the schedule's steps do not ascend from 0 s", cause=str(options["schedule"]))
    if not all(0 <= tps < float("inf") for _, tps in offer.steps) or not 0 <= offer.period_s < float("inf"):
        raise InvalidInput("invalid rate or period in the schedule", cause=str(options["schedule"]))
    return offer


def read_topology(path: Path) -> Topology:
    """What the loader made of a topology, as `up` wrote it. Raises InvalidInput."""
    from headgate.topology_runtime.api.topology import topology_of_document

    try:
        return topology_of_document(read_json(path, dict, "topology"))
    except msgspec.ValidationError as error:
        raise InvalidInput(f"invalid topology {path}", cause=str(error)) from error


def read_json(path: Path, kind: type[Any], what: str) -> Any:
    """A small JSON file as this type. Raises InvalidInput."""
    try:
        data = path.read_bytes()
        if len(data) > FILE_MOST_BYTES:
            raise InvalidInput(f"{what} too large: {path}", cause=f"more than {FILE_MOST_BYTES} bytes")
        return msgspec.json.decode(data, type=kind)
    except OSError as error:
        raise InvalidInput(f"unreadable {what} {path}", cause=error.strerror) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidInput(f"invalid {what} {path}", cause=str(error)) from error


# ── A controller that is started before it is known what it is to run: `up` begins it first, and reads the
# user's topology while it imports. The rest of its command line comes by standard input, as a JSON list
# of words.

SOON = (  # what takes a while to import, up to the first plan
    "headgate.controller.controller_process",
    "headgate.controller.core.loop",
    "headgate.controller.files.planning_inputs",
    "headgate.controller.plan.schedulers",
    "headgate.controller.plan.predict.slot_fit",
    "headgate.controller.recording.prediction_ledger_file",
)


def rest_of_the_words(owner: int) -> list[str]:
    """Blocks until they are all there; ends this process when nothing is given, or when `owner` dies meanwhile.

    Raises UsageError."""
    if owner:
        die_with(owner)
    for name in SOON:
        importlib.import_module(name)
    told = sys.stdin.buffer.read()
    if not told:
        sys.exit(0)
    try:
        return msgspec.json.decode(told, type=list[str])
    except msgspec.DecodeError as error:
        raise UsageError("--set begin-ahead: no words came by standard input", cause=str(error)) from error
