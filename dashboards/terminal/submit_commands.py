"""`headgate submit`: give a controller that waits for one its topology."""

from __future__ import annotations

import getpass
import json
import re
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec

from headgate.dashboards.runs.connection import CommandRefused, asked, contact_of, controller_option
from headgate.dashboards.runs.up_settings import parse_rate_scale
from headgate.dashboards.terminal.operate_commands import wait_option
from headgate.dashboards.terminal.package_commands import packed_of, packing_options, read
from headgate.dashboards.terminal.status_commands import SHARED
from headgate.dashboards.up.up_preparation import say_learning, say_side_effects
from headgate.topology_runtime.api.event_time_rules import time_warnings
from headgate.topology_runtime.api.loading import Loaded, check_runs, load
from headgate.topology_runtime.api.references import module_of_file
from headgate.topology_runtime.api.topology import Topology
from headgate.topology_runtime.commands.number_options import Number
from headgate.topology_runtime.commands.output import FILE, Bars, Format, answer, bar, format_options
from headgate.topology_runtime.commands.rare_settings import SettingsCommand, setting
from headgate.topology_runtime.errors import CheckFailed, HeadgateError, InvalidInput, Unreachable, UsageError
from headgate.topology_runtime.keys.key_pairs import Contact
from headgate.topology_runtime.measuring import model_store as store
from headgate.topology_runtime.measuring.calibrate import unsampled_models
from headgate.topology_runtime.packages import package_building as building
from headgate.topology_runtime.packages.package_files import topology_in, travelling
from headgate.topology_runtime.packages.package_manifest import SHORT, BadPackage, placed
from headgate.topology_runtime.packages.package_store import PackageStore
from headgate.topology_runtime.platform.addresses import is_loopback, parted
from headgate.topology_runtime.rates import offered_rates as rates
from headgate.topology_runtime.wire.messages import BROUGHT_BYTES
from headgate.topology_runtime.wording import counted

# ── `headgate submit` of tasks that have no model: measured on the hosts first, and it is told how far that
# is

KIND = re.compile(r"[a-z0-9][a-z0-9.-]{0,99}")  # as `store.machine` names one
MEASURE_POLL_S = 0.25
FIRST_PLAN_S = 5.0
SILENT_S = 30.0  # a controller that is started again answers by then

Ask = Callable[[str, dict[str, Any]], Any]
Say = Callable[[str], None]


def whoever() -> str:
    """Who submits, for whoever comes second."""
    try:
        return f"{getpass.getuser()}@{socket.gethostname()}"
    except (OSError, KeyError):  # no name for this user id
        return socket.gethostname()


class Kept:
    """Models of this topology on this disk, where `up` keeps them too: by kind of machine and size of slot."""

    def __init__(self, topology: Topology, user_paths: Sequence[str]) -> None:
        self._topology, self._user_paths = topology, user_paths

    def models(self, vms: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Those of the kinds of these VMs (of `status`)."""
        sizes = {(vm["machine"] or "", vm["slot_cores"], vm["slot_memory_bytes"]) for vm in vms}
        sizes = {size for size in sizes if KIND.fullmatch(size[0])}
        return [model for size in sorted(sizes) for model in self._shelf(*size).kept().values()]

    def keep(self, models: Sequence[Mapping[str, Any]]) -> None:
        """Under names that are sound, whatever hosts and controller call themselves."""
        for model in models:
            slot = model["slot"]
            if KIND.fullmatch(slot["machine"]) and model["task"] in store.modelled(self._topology):
                self._shelf(slot["machine"], slot["cores"], slot["memory_bytes"]).keep(dict(model))

    def _shelf(self, machine: str, cores: float, memory_bytes: int) -> store.Shelf:
        return store.Shelf(self._topology, self._user_paths, cores, memory_bytes, machine)


def lacking(topology: Topology, models: Sequence[Mapping[str, Any]]) -> list[str]:
    """Models that are not among these."""
    there = {model.get("task") for model in models}
    return [name for name in store.modelled(topology) if name not in there]


def stand_ins(
    topology: Topology, names: Sequence[str], measure_side_effects: bool, say: Say
) -> list[dict[str, Any]]:
    """For those of these models of which no task may be run on sample rows, as `up` has them; it is said."""
    say_side_effects(measure_side_effects, topology, say, names)
    spared = () if measure_side_effects else unsampled_models(topology)
    return [store.stand_in(name, {}) for name in names if name in spared]


def measured(ask: Ask, number: int, say: Say) -> list[dict[str, Any]]:
    """Wait until the submission is run; what was measured for it. Ctrl-C withdraws it. Raises HeadgateError when it is
    not run."""
    try:
        with Bars() as bars:
            states: dict[tuple[str, str], str] = {}
            while (found := _look(ask, number))["state"] == "measuring":
                states = _show(found["measuring"], states, bars, say)
                time.sleep(MEASURE_POLL_S)
    except KeyboardInterrupt:
        ask("withdraw", {"number": number})
        say("the submission is withdrawn; what was being measured has ended")
        raise
    if found["state"] == "accepted":
        models: list[dict[str, Any]] = found["models"]
        return models
    if found["state"] == "dropped":
        error = found["error"]
        raise HeadgateError(error["what"], cause=error["cause"], hint=error["hint"])
    raise HeadgateError(
        "the controller knows nothing of the submission any more",
        cause="it was stopped, or started again in another folder",
        hint="submit again; what was measured on a host is known there still",
    )


def say_first_plan(ask: Ask, say: Say) -> None:
    """Whether one is made: by what was measured it may not fit, and then the controller waits for more VMs."""
    end_s = time.monotonic() + FIRST_PLAN_S
    while time.monotonic() < end_s:
        now = ask("status", {})
        if now["plan"] is not None or now["stage"] not in ("gathering", "measuring"):
            return
        for alarm in now["alarms"]:
            if alarm["what"] == "plan":
                say(f"{alarm['text']}. It waits for more VMs; `headgate stop` ends it")
                return
        time.sleep(MEASURE_POLL_S)


def _look(ask: Ask, number: int) -> Any:
    """A controller that is being started again is waited for. Raises Unreachable."""
    end_s = time.monotonic() + SILENT_S
    while True:
        try:
            return ask("submission", {"number": number})
        except Unreachable:
            if time.monotonic() >= end_s:
                raise
            time.sleep(MEASURE_POLL_S)


def _show(
    now: Mapping[str, Any], before: dict[tuple[str, str], str], bars: Bars, say: Say
) -> dict[tuple[str, str], str]:
    """How far it is: a bar on a terminal, elsewhere a line for each task that begins or is done. Gives its states."""
    if not before:
        say(_first_words(now))
    shares = [_share(task) for task in now["tasks"]]
    bars.show("submission", _at_work(now), sum(shares), len(shares), _left(now))
    states = {(task["task"], task["machine"] or ""): task["state"] for task in now["tasks"]}
    for task, (key, state) in zip(now["tasks"], states.items(), strict=True):
        if not bars.there and state != before.get(key, "waiting"):
            say(_line(task, now))
    return states


def _first_words(now: Mapping[str, Any]) -> str:
    hosts = sorted({task["machine"] or "" for task in now["tasks"]})
    kinds = f" on {counted(len(hosts), 'kind')} of machine" if len(hosts) > 1 else ""
    tasks = counted(len({task["model"] for task in now["tasks"]}), "task")
    return (
        f"{tasks} without a model: measured{kinds} in free slots of the hosts first{_left(now, ', ')} (they really run "
        "there, with sample rows). Ctrl-C withdraws the submission"
    )


def _line(task: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    if task["state"] == "measuring":
        return f"measuring {task['task']} in {task['slot']}"
    done = f", {now['done']} of {now['of']}{_left(now, ', ')}" if task["state"] == "measured" else ""
    return f"{task['task']} is {task['state']}{done}"


def _at_work(now: Mapping[str, Any]) -> str:
    at = [f"{task['task']} in {task['slot']}" for task in now["tasks"] if task["state"] == "measuring"]
    return f"measuring {', '.join(at)}" if at else "waiting for a host with a free slot"


def _share(task: Mapping[str, Any]) -> float:
    if task["state"] == "measured":
        return 1.0
    return float(task["points"]) / task["points_of"] if task["points_of"] else 0.0


def _left(now: Mapping[str, Any], before: str = "") -> str:
    return f"{before}about {now['left_s']:.0f} s" if now["left_s"] else ""


# ── `headgate submit` with a package: the code goes to the controller, from there to every host, and then
# it is run

STANDING_S = 30.0  # a host that has taken nothing for so long is not waited for
SHIP_POLL_S = 0.1
FIRST_HOST_S = 5.0  # a busy host may be silent for a moment

F = TypeVar("F", bound=Callable[..., Any])


def code_options(command: F) -> F:
    """Where the code of a topology comes from, and how it gets to the hosts: for `Shipment.loaded`."""
    command = click.option(
        "--package", type=FILE, metavar="FILE", help="Send this one, with the topology in it."
    )(packing_options(command))
    return click.option(
        "--ship", is_flag=True, help="Pack the code and send it to every host, not only its folder's name."
    )(command)


class PackageHosts:
    """How a package stands on the hosts. One that is not heard for a moment counts as it stood last.

    >>> hosts = PackageHosts()
    >>> _ = hosts.now([{"vm": "vm1", "whole": False, "busy": True}])
    >>> hosts.now([{"vm": "vm2", "whole": True, "busy": False}])[1]
    {'vm': 'vm1', 'whole': False, 'busy': False}
    """

    def __init__(self) -> None:
        self._last: dict[str, dict[str, Any]] = {}

    def now(self, heard: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """All of them. heard: those that are connected now."""
        found = {vm["vm"]: vm for vm in heard}
        silent = {name: {**vm, "busy": False} for name, vm in self._last.items() if name not in found}
        self._last = found | silent
        return list(self._last.values())


class Shipment:
    """A topology and the package with its code, on this machine's disk until it is closed."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="headgate-package-")
        self.file = Path(self._folder.name) / "made.package"
        self.digest = ""  # none: nothing is shipped
        self.code = ""  # where it is unpacked on this machine
        self._hosts = PackageHosts()

    def __enter__(self) -> Shipment:
        return self

    def __exit__(self, *_: object) -> None:
        self._folder.cleanup()

    def loaded(self, topology: str | None, contact: Contact, options: Mapping[str, Any]) -> Loaded:
        """The topology with its code, in a package where it has to travel. Raises InvalidInput, BadPackage."""
        if options["package"] is not None:
            return Loaded(self.take(options["package"]), ())
        assert topology is not None
        found = load(topology, runs=True)
        for text in time_warnings(found.topology):
            say(f"warning: {text}")
        near = is_loopback(parted(contact.endpoint)[0]) and not contact.forwarded
        if options["ship"] or not near:  # else its agents are here too, and so are their folders
            found = Loaded(self.pack(topology, found.topology, options), ())
        return found

    def pack(self, reference: str, topology: Topology, options: Mapping[str, Any]) -> Topology:
        """The folder that `reference` is imported from, and the topology. Raises InvalidInput, BadPackage."""
        root = root_of(reference)
        contents = (
            building.contents_of(root) if root is not None else building.PackageContents("topology", {})
        )
        sent = travelling(topology, root or Path.cwd(), contents.files, options["on_every_host"])
        whole = building.with_topology(contents, sent)
        packed = packed_of(whole, options["signing_key"], self.file, options["expires"])
        what = f"{counted(len(packed.manifest.files), 'file')}, {packed.manifest.size:,} bytes"
        print(f"packed {root or reference}: {what}, package {packed.digest[:SHORT]}", file=sys.stderr)
        for left in packed.left_out:
            print(f"left out: {left}", file=sys.stderr)
        return self.take(self.file)

    def take(self, file: Path) -> Topology:
        """A package; the topology in it, whose code can be imported from it alone. Raises InvalidInput, BadPackage."""
        self.file = file
        code = self._unpacked()
        self.code = str(code)
        topology = topology_in(code)
        check_runs(placed(topology, str(code)), [str(code)])
        return topology

    def _unpacked(self) -> Path:
        reading = read(self.file)
        assert reading.digest is not None and reading.manifest is not None
        store = PackageStore(Path(self._folder.name) / "store", unpacks=True)
        if store.manifest(reading.digest) is None:
            store.add(reading.digest, 0, self.file.read_bytes())
        store.close()
        self.digest = reading.digest
        return store.code(reading.digest)

    def send(self, ask: Ask) -> None:
        """To the controller, and wait until every host has it. Raises BadPackage that names hosts, Unreachable."""
        self._upload(ask)
        self._spread(ask)

    def _upload(self, ask: Ask) -> None:
        """From where the controller has it on; nothing of what it has is sent again."""
        size = self.file.stat().st_size
        at = ask("package_put", {"digest": self.digest})
        with bar("bytes to the controller", size) as step, self.file.open("rb") as file:
            while not at["whole"]:
                file.seek(at["taken"])
                data = file.read(BROUGHT_BYTES)
                at = ask("package_put", {"digest": self.digest, "offset": at["taken"], "data": data})
                step(at["taken"], len(data))

    def _spread(self, ask: Ask) -> None:
        """Wait for all hosts, also those that install what it needs: an agent limits how long that takes."""
        moved_s, before, size = time.monotonic(), -1, self.file.stat().st_size
        vms, lacking = self._stands(ask)
        while not vms and time.monotonic() - moved_s < FIRST_HOST_S:
            time.sleep(SHIP_POLL_S)
            vms, lacking = self._stands(ask)
        if not vms:
            print("no host is connected: each gets the package when it comes", file=sys.stderr)
        with bar("hosts with the package", len(vms)) as step:
            ready = 0
            while lacking:
                now = len(vms) - len(lacking)
                step(now, max(0, now - ready))
                taken, ready = sum(vm["taken"] for vm in vms), now
                if taken != before or any(vm["busy"] for vm in lacking):
                    moved_s, before = time.monotonic(), taken
                if time.monotonic() - moved_s > STANDING_S:
                    names = ", ".join(f"{vm['vm']} has {vm['taken']:,} of {size:,} bytes" for vm in lacking)
                    raise Unreachable(f"package {self.digest[:SHORT]} does not get on", cause=names)
                time.sleep(SHIP_POLL_S)
                vms, lacking = self._stands(ask)
            step(len(vms), len(vms) - ready)

    def _stands(self, ask: Ask) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """All hosts, and those that have not said how it ended. Raises BadPackage when all have and some refuse it."""
        vms = self._hosts.now(ask("package_at", {"digest": self.digest})["vms"])
        lacking = [vm for vm in vms if not vm["whole"] and not vm["refused"]]
        refused = [vm["refused"] for vm in vms if vm["refused"]]
        if refused and not lacking:
            what = f"package {self.digest[:SHORT]} is not taken by every host; nothing was submitted"
            raise BadPackage(what, faults=refused)
        return vms, lacking


def root_of(reference: str) -> Path | None:
    """The folder that is packed for `FILE.py:attribute` or a topology's file; none for an example of headgate. Raises
    BadPackage."""
    path, _, _ = reference.rpartition(":")
    if path.endswith(".py"):
        return module_of_file(Path(path))[1]
    if Path(reference).is_file():
        return Path(reference).resolve().parent
    if ":" not in reference:
        return None
    raise BadPackage(
        f"no folder is known for {reference!r}",
        cause="FILE.py:attribute or a topology's file says what is to be packed",
        hint=f"`headgate package build DIR --topology {reference}`, then `headgate submit --package FILE`",
    )


# ── ────────────────────────────────────────────────────────────────────────────────────────────────────


@click.command(cls=SettingsCommand)
@click.argument("topology", required=False)
@click.option("--models", type=FILE, help="A folder of models [what it lacks is learned from rows].")
@click.option("--measure", type=click.Choice(["first"]),
              help="Measure tasks without a model in free slots of the hosts before the run.")  # fmt: skip
@click.option(
    "--rates",
    "offered",
    metavar="FILE|R",
    help="The input rate: rows/s, or a file; of rows that come by themselves, the most that are read.",
)
@setting("--rate-scale", metavar="X", help="Multiplies rates.")
@setting("--time-scale", type=Number(0, min_open=True), default=1.0, help="Divides times.")
@setting("--drain-timeout", type=Number(0, 7 * 86400), default=0.0, metavar="S",
         help="Once it ends, wait so long at most; rows not done are left [as long as rows get done].")  # fmt: skip
@code_options
@setting("--save-models", type=FILE, metavar="DIR", help="What was measured, too.")
@setting(
    "--measure-side-effects", is_flag=True, help="Run tasks with side effects on samples, where models lack."
)
@setting(
    "--priority", type=click.IntRange(0, 1000), help="On a shared controller: higher is served first [0]."
)
@setting("--weight", type=click.IntRange(1, 1000), help="… its part among those of one priority [1].")
@setting("--quota", type=click.IntRange(1, 1024), help="… it gets no more slots [all].")
@controller_option
@format_options
def submit(
    topology: str | None, models: Path | None, offered: str | None, output: Format, **options: Any
) -> None:
    """Run TOPOLOGY on a controller that has none yet (`headgate controller run` without --topology).

    One controller runs one topology: a second submit ends 6. A shared one (`controller run --set shared=yes`) runs
    many: each has slots by its need, priority, weight and quota, and is named by --controller WHERE/TOPOLOGY. Workers
    on this machine import its code from your folders. With --ship, and always when the controller is on another
    machine, the folder of TOPOLOGY is packed, signed (`headgate package key init`) and sent to every host; it runs
    where agents trust the signer.

    It starts at once: tasks without a model have one thread each until their own rows say what they need. With
    --measure first they are measured before that, in free slots of the hosts, on each kind of machine: Ctrl-C meanwhile
    withdraws the submission, and what was measured is kept for the next time.
    """
    if (topology is None) == (options["package"] is None):
        raise UsageError("no topology named", hint="give either TOPOLOGY or --package FILE")
    near = contact_of(options["controller"])
    with Shipment() as shipment:
        found = shipment.loaded(topology, near, options)
        contact = admitted(near, found.topology.name, options)
        offer = offer_of(found.topology, offered, options["rate_scale"], options["time_scale"])
        documents = read_documents(models) if models is not None else []
        kept = Kept(found.topology, (shipment.code,) if shipment.code else found.user_paths)
        first = options["measure"] == "first"
        names = lacking(found.topology, documents)
        known = kept.models(asked(contact, "status")["vms"]) if names else []
        if first and names:
            documents += stand_ins(found.topology, names, options["measure_side_effects"], say)
        elif names:
            documents += with_known(names, known, say)
        arguments = {
            "topology": msgspec.to_builtins(found.topology),
            "models": documents,
            "measure": first,
            "known": known if first else [],
            "by": whoever(),
            "steps": offer.steps,
            "period_s": offer.period_s,
            "user_paths": found.user_paths,
            "uncapped": offer.uncapped,
            "package": shipment.digest,
            "drain_timeout_s": options["drain_timeout"],
        }
        if shipment.digest:
            shipment.send(partial(asked, contact))
        done = submitted(contact, arguments, contact is not near)
        if "submission" in done:
            ask = asking(options["controller"], contact, near is not contact)
            fresh = measured(ask, done["submission"], say)
            kept.keep(fresh)
            if options["save_models"] is not None:
                save(options["save_models"], fresh)
            say_first_plan(ask, say)
        if shipment.digest:
            done["package"] = shipment.digest
    words = f"{done['topology']} is given to run {done['run']}; `headgate status --watch` shows it"
    answer(output, "headgate/submit/v1", done, words)


def submitted(contact: Contact, arguments: dict[str, Any], its_own: bool) -> Any:
    """The controller's answer. its_own: it was started for this topology alone, and ends where that is refused."""
    try:
        return asked(contact, "submit", arguments)
    except CommandRefused:
        if its_own and asked(contact, "share")["topology"] is None:
            asked(contact, "stop")
        raise


SHARES = ("priority", "weight", "quota")
ADMITTED_S = 30.0  # a controller has begun by then


def admitted(contact: Contact, name: str, options: Mapping[str, Any]) -> Contact:
    """Of a shared controller, the one that it starts for this topology; else the one that it is. Raises UsageError."""
    told = {one: options[one] for one in SHARES if options[one] is not None}
    if asked(contact, "status")["schema"] != SHARED:
        if told:
            raise UsageError(
                "this controller runs one topology, which has all slots",
                faults=[f"--set {one} says nothing" for one in told],
                hint="`headgate controller run --set shared=yes`",
            )
        return contact
    found = asked(contact, "admit", {"topology": name, "by": whoever(), **told})
    until_s = time.monotonic() + ADMITTED_S
    while found["commands"] is None:
        if time.monotonic() > until_s:
            raise Unreachable(f"the controller of {name} does not answer", cause=found["text"] or None)
        time.sleep(SHIP_POLL_S)
        found = asked(contact, "topology", {"topology": name})
    return contact.to(found["commands"])


def asking(where: str | None, contact: Contact, stays: bool) -> Callable[[str, dict[str, Any]], Any]:
    """One that finds the controller again when it does not answer: it may have been started anew, at other ports,
    unless it stays where it is."""
    at = [contact]

    def ask(command: str, arguments: dict[str, Any]) -> Any:
        try:
            return asked(at[0], command, arguments)
        except Unreachable:
            at[0] = contact if stays else contact_of(where)
            raise

    return ask


def with_known(names: Sequence[str], known: Sequence[dict[str, Any]], say: Say) -> list[dict[str, Any]]:
    """Models of these names: those that are known, and stand-ins, which is said."""
    found = slowest(known)
    if unknown := [name for name in names if name not in found]:
        say_learning(unknown, say)
    return [found.get(name) or store.stand_in(name, {}) for name in names]


def save(folder: Path, models: list[dict[str, Any]]) -> None:
    for model in slowest(models).values():
        store.save(folder, model)


def slowest(models: Sequence[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """One of each task: of several kinds of machine that of the slowest, which it is planned with."""
    found: dict[str, dict[str, Any]] = {}
    for model in models:
        found[model["task"]] = min(found.get(model["task"], model), model, key=peak_tps)
    return found


def peak_tps(model: dict[str, Any]) -> float:
    return max(float(point["rate_tps"]) for point in model["points"])


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def offer_of(
    topology: Topology, offered: str | None, rate_scale: str | None, time_scale: float
) -> rates.Rates:
    """The input rate. Raises InvalidInput, UsageError."""
    if offered is None:
        return rates.without_rates(topology)
    return rates.read(offered, parse_rate_scale(rate_scale) or 1.0, time_scale)


def read_documents(folder: Path) -> list[Any]:
    """The models as they stand in the folder; the controller judges them. Raises InvalidInput."""
    try:
        files = sorted(file for file in folder.iterdir() if file.suffix == ".json" and file.name[0] != ".")
        return [json.loads(file.read_bytes()) for file in files]
    except (OSError, ValueError) as error:
        raise InvalidInput(f"the models in {folder} cannot be read", cause=str(error)) from error


# ── `headgate replace`: other code for a running topology, slot by slot, while rows flow; `--back`: the
# code before

LOOK_S = 0.3
DEADLINE_S = 300.0


@click.command(cls=SettingsCommand)
@click.argument("topology", required=False)
@click.option("--back", is_flag=True, help="Bring the code before back.")
@click.option("--models", type=FILE, help="A folder of models, where they are others now.")
@code_options
@wait_option(DEADLINE_S, "all slots have it")
@controller_option
@format_options
def replace(topology: str | None, back: bool, output: Format, deadline: float, **options: Any) -> None:
    """Give a running topology other code: that of TOPOLOGY, which has the same tasks and edges.

    Code, and params of tasks that are no sources, may change; models may come with it. Threads of the new code begin in
    free slots and take over, what they left is free for the next ones: no row and no state is lost, and in between rows
    go from tasks of the one code to tasks of the other. Without a free slot it is refused (exit code 6). When its tasks
    cannot be built, or it does not prove itself, the code before comes back by itself (exit code 8).
    """
    if sum((topology is not None, options["package"] is not None, back)) != 1:
        raise UsageError("give TOPOLOGY, --package FILE or --back")
    contact = contact_of(options["controller"])
    done = asked(contact, "replace", {"back": True}) if back else _given(contact, topology, options)
    if deadline > 0:
        until_replaced(contact, done, deadline)
    words = f"{counted(done['slots'], 'slot')} of run {done['run']} to change, one after the other"
    if deadline > 0:
        words = f"all slots of run {done['run']} have {'the code before' if back else 'the new code'}"
    answer(output, "headgate/replace/v1", done, words)


def _given(contact: Contact, topology: str | None, options: dict[str, Any]) -> Any:
    """Shipped where it has to be, and asked for."""
    with Shipment() as shipment:
        found = shipment.loaded(topology, contact, options)
        if shipment.digest:
            shipment.send(partial(asked, contact))
        arguments = {
            "topology": msgspec.to_builtins(found.topology),
            "models": read_documents(options["models"]) if options["models"] is not None else [],
            "user_paths": found.user_paths,
            "package": shipment.digest,
        }
        return asked(contact, "replace", arguments)


def until_replaced(contact: Contact, done: dict[str, Any], deadline_s: float) -> None:
    """Wait until every slot has it. Raises CheckFailed at the deadline, and when the code before came back."""
    until, total = time.monotonic() + deadline_s, done["slots"]
    with bar("slots with the other code", total) as step:
        ready = 0
        while True:
            status = asked(contact, "status")
            if status["code"]["number"] != done["code"]:
                events = asked(contact, "events", {"since": 0})["events"]
                why = (str(one["text"]) for one in reversed(events) if one.get("reason") == "rolled_back")
                raise CheckFailed(
                    "the other code did not prove itself, and the code before came back",
                    cause=next(why, None),
                    hint="`headgate events` and the logs of workers say more",
                )
            left = status["code"]["slots_before"]
            step(total - left, max(0, total - left - ready))
            ready = max(ready, total - left)
            if not left and status["stage"] == "committed":
                return
            if time.monotonic() > until:
                raise CheckFailed(
                    f"{counted(left, 'slot')} left to change after {deadline_s:g} s",
                    faults=[alarm["text"] for alarm in status["alarms"]],
                    hint="it goes on: `headgate status` shows how far it is, `headgate replace --back` ends it",
                )
            time.sleep(LOOK_S)
