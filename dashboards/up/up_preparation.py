"""What `up` needs before anything starts: a valid topology, its models, its rates, its services.

Everything ends up as files in the run's state directory, which the controller reads.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import stat
import sys
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from headgate.dashboards.runs.open_windows import open_tasks
from headgate.dashboards.runs.run_places import HOST, RUNS, Places, fault_of, free_ports
from headgate.dashboards.runs.up_settings import UpSettings
from headgate.topology_runtime.api.cluster import SLOT_CORES, refuse_small_slots
from headgate.topology_runtime.api.topology import Task, Topology, document_of
from headgate.topology_runtime.commands.output import Bars
from headgate.topology_runtime.commands.rare_settings import setting_words
from headgate.topology_runtime.errors import Conflict, InvalidInput, UsageError
from headgate.topology_runtime.platform.child_processes import Child, owner_option
from headgate.topology_runtime.platform.processes import hide_variables
from headgate.topology_runtime.rates import offered_rates as rates
from headgate.topology_runtime.rates.offered_rates import Rates
from headgate.topology_runtime.tasks import demo
from headgate.topology_runtime.wording import counted, significant

if TYPE_CHECKING:
    from headgate.topology_runtime.measuring.model_store import Shelf

DEMO_LESS = 0.97  # of its usual rates: below that it is said that they are lower here

Say = Callable[[str], None]
Capacity = Callable[[], float]


@dataclass(frozen=True)
class Work:
    """What is to be run: the topology, where its code is found, and processes that it needs beside it."""

    topology: Topology
    user_paths: tuple[str, ...]
    services: tuple[Child, ...] = ()


def work_of(settings: UpSettings, places: Places) -> Work:
    """The demo, or what the user named. Raises InvalidInput with every fault."""
    if settings.input is not None:
        check_input(settings.input)
    if settings.topology is None:
        return demo_work(settings, places)
    from headgate.topology_runtime.api.loading import load

    loaded = load(settings.topology, runs=True)
    topology = loaded.topology
    hide_variables(topology.variables)
    if settings.input is not None:
        topology = with_input(topology, settings.input)
    return Work(topology, loaded.user_paths)


def demo_work(settings: UpSettings, places: Places) -> Work:
    source = str(settings.input) if settings.input else None
    archive = str(places.trace("demo") / "archive")
    topology = demo.topology(f"{HOST}:{places.service_port}", source, archive, settings.slot_cores)
    return Work(topology, (), (demo_service(places),))


def demo_service(places: Places) -> Child:
    """The demo's look-up service, not started."""
    words = [
        sys.executable,
        "-P",
        "-m",
        "headgate.topology_runtime.tasks.lookup_service",
        "--port",
        str(places.service_port),
        "--latency-ms",
        str(demo.LOOKUP_MS),
    ]
    return Child("the look-up service", [*words, *owner_option()], places.log("service"))


def check_input(file: Path) -> None:
    """Can events be read from it? Raises InvalidInput."""
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK)  # a FIFO must not wait for its writer
        try:
            regular = stat.S_ISREG(os.fstat(descriptor).st_mode)
            empty = regular and not os.read(descriptor, 1)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise InvalidInput(f"cannot read the events {file}", cause=error.strerror) from error
    if not regular or empty:
        cause = "it is empty" if empty else "it is no plain file"
        raise InvalidInput(f"cannot read the events {file}", cause=cause, hint="one event per line")


def with_input(topology: Topology, file: Path) -> Topology:
    """The topology with `file` as the path of its file source. Raises InvalidInput when it has none, or
    more than one."""
    sources = [task for task in topology.sources if isinstance(task.params.get("path"), str)]
    if len(sources) != 1:
        found = ", ".join(task.name for task in sources) or "none"
        raise InvalidInput(
            f"--input cannot be used: {topology.name} has not exactly one source that reads a file",
            cause=f"sources with a parameter `path`: {found}",
            hint="use headgate.topology_runtime.tasks.row_sources:FileLines as the source, or leave --input out",
        )
    return _replaced(topology, sources[0], str(file.resolve()))


def _replaced(topology: Topology, source: Task, path: str) -> Topology:
    new = msgspec.structs.replace(source, params={**source.params, "path": path})
    tasks = tuple(new if task is source else task for task in topology.tasks)
    return msgspec.structs.replace(topology, tasks=tasks)


def check_settings(settings: UpSettings) -> None:
    """Whatever is wrong with what was named, before anything starts. Raises InvalidInput, UsageError, Infeasible."""
    refuse_small_slots(settings.slot_memory_bytes)
    if settings.rates is not None:
        rates.read(settings.rates, 1.0, settings.time_scale or 1.0)
    for option, file in {"--plan": settings.plan, "--set season": settings.season}.items():
        if file is not None and not os.access(file, os.R_OK):
            raise InvalidInput(f"{option}: {file} cannot be read", hint="name a file that is there")
    if settings.models is not None and not settings.models.is_dir():
        raise InvalidInput(
            f"--models: {settings.models} is no folder", hint="a folder with a TASK.json for each task"
        )


def rates_of(settings: UpSettings, capacity_tps: Capacity, topology: Topology | None = None) -> Rates:
    """The offered load: what was asked for, or what comes, or the demo's rates. Raises InvalidInput with every fault,
    UsageError when it has to be given."""
    scale, time_scale = settings.rate_scale, settings.time_scale
    what = settings.rates
    if what is None and topology is not None and settings.topology is not None:
        return rates.without_rates(topology)
    if what is None:
        what = demo.RATES_FILE
        if scale is None and settings.peak_tps is None:
            scale = min(1.0, rates.AUTO_SHARE * capacity_tps() / rates.read(what).max_tps)
    if settings.peak_tps is not None:
        scale = settings.peak_tps / rates.read(what).max_tps
    found = rates.read(what, scale or 1.0, time_scale or 1.0, capacity_tps)
    return found.steps_for(settings.ends_after_s)


def demo_scaled(settings: UpSettings, found: Rates) -> str:
    """That the demo's rates were made to fit what was measured here; empty when they were not."""
    ours = settings.topology is None and settings.rates is None
    if not ours or settings.rate_scale is not None or settings.peak_tps is not None:
        return ""
    usual = rates.read(demo.RATES_FILE).max_tps
    if found.max_tps > DEMO_LESS * usual:
        return ""
    return (
        f"the demo has at most {significant(found.max_tps, 3)} rows/s here, {rates.AUTO_SHARE:.0%} of what "
        f"these slots carry (elsewhere up to {significant(usual, 3)}; --set peak=R asks for others)"
    )


def models_of(settings: UpSettings, work: Work, places: Places, say: Say) -> Path:
    """A folder of models: of what is given and kept, or measured now if that is asked for; stand-ins where nothing is
    known."""
    from headgate.topology_runtime.measuring.calibrate import models_for

    folder, shelf = places.state / "models", shelf_of(settings, work)
    if settings.models is not None:
        return with_stand_ins(settings.models, folder, shelf, say)
    if settings.topology is None and settings.slot_cores == SLOT_CORES:
        begin_with_shipped(shelf, say)
    first = settings.measure == "first"
    if first:
        say_side_effects(settings.measure_side_effects, work.topology, say, shelf.lacking())
    told = ""
    with Bars() as bars:

        def tell(task: str, threads: int, done: int, of: int) -> None:
            nonlocal told
            if not told:
                say(
                    "measuring the tasks on this machine, once, some seconds each (they really run, with sample rows)"
                )
            bars.show("models", f"{task}, {counted(threads, 'thread')}", done, of)
            if not bars.there and task != told:
                say(f"measuring {task}: {done} of about {of} points done")
            told = task

        fresh = models_for(
            shelf, folder, first, tell=tell, measure_side_effects=settings.measure_side_effects, say=say
        )
    if fresh:
        say(f"models measured; kept for next time in {shelf.folder}")
    if unknown := [name for name in shelf.lacking() if name not in fresh]:
        say_learning(unknown, say)
    return folder


def with_stand_ins(given: Path, folder: Path, shelf: Shelf, say: Say) -> Path:
    """The folder that is given; where it lacks models, one with these and stand-ins. Raises InvalidInput."""
    from headgate.topology_runtime.measuring import model_store as store

    try:
        files = [path for path in given.iterdir() if path.suffix == ".json" and path.name[0] != "."]
    except OSError as error:
        raise InvalidInput(
            f"the models in {given} cannot be read",
            cause=error.strerror,
            hint="a folder with a TASK.json each",
        ) from error
    lacking = [name for name in store.modelled(shelf.topology) if name not in {file.stem for file in files}]
    if not lacking:
        return given
    folder.mkdir(parents=True, exist_ok=True)
    for file in files:
        shutil.copyfile(file, folder / file.name)
    for name in lacking:
        store.save(folder, store.stand_in(name, shelf.slot))
    say_learning(lacking, say)
    return folder


def say_learning(models: Collection[str], say: Say) -> None:
    names = ", ".join(models)
    say(f"nothing is known yet of {names}: one thread each to begin with; their own rows say what they need")


def shelf_of(settings: UpSettings, work: Work) -> Shelf:
    """Where models of these tasks are kept."""
    from headgate.topology_runtime.measuring.model_store import Shelf

    return Shelf(work.topology, work.user_paths, settings.slot_cores, settings.slot_memory_bytes)


def begin_with_shipped(shelf: Shelf, say: Say) -> None:
    """The demo's models that came with headgate where this machine has none yet."""
    shipped = {path.stem: path for path in demo.MODELS.glob("*.json")}
    taken = [name for name in shelf.lacking() if name in shipped]
    for name in taken:
        shelf.keep(msgspec.json.decode(shipped[name].read_bytes()))
    if taken:
        say(
            f"models that came with headgate: {', '.join(taken)}. What rows really cost here corrects them; "
            "--models DIR gives others"
        )


def say_side_effects(
    measured: bool, topology: Topology, say: Say, among: Collection[str] | None = None
) -> None:
    """What is done with tasks with side effects, before anything is. among: these models (none: all)."""
    from headgate.topology_runtime.measuring.calibrate import unsampled_models

    spared = {name for name in unsampled_models(topology) if among is None or name in among}
    names = ", ".join(name for name in topology.unsampled if topology.by_name[name].model_name in spared)
    if names and measured:
        say(
            f"as asked for, where models lack: {names} really run on sample rows, with all their side effects"
        )
    elif names:
        say(
            f"not run on sample rows, since they may have side effects: {names}. Without a model each gets one "
            "thread until its first rows have been measured (--set measure-side-effects=yes "
            "measures now, --models DIR gives models)"
        )


def write_work(places: Places, work: Work) -> Path:
    file = places.state / "topology.json"
    file.write_bytes(msgspec.json.encode(document_of(work.topology)))
    return file


def write_rates(places: Places, found: Rates) -> Path:
    """The rates as a file for the controller: `steps` and `period_s`."""
    file = places.state / "schedule.json"
    schedule = {"steps": found.steps, "period_s": found.period_s, "uncapped": found.uncapped}
    file.write_bytes(msgspec.json.encode(schedule))
    return file


# ── `headgate up --resume`: a run whose `up` was killed, or its machine, goes on from its state directory
#
# What `up` had made of its options is kept in `up.json` before anything starts; the controller's journal has
# the rest.

KEPT, LOCK, SUMMARY = "up.json", "up.lock", "summary.json"
SCHEMA = "headgate/up/v1"
GONE_S = 10.0  # the processes of the `up` that was killed end by themselves in about a second
OTHERS = (
    "dashboard",
    "dashboard_port",
    "metrics_port",
    "drain_timeout",
    "quiet_tasks",
    "seconds",
)  # options that may be others than before
ALLOWED = ("state_dir", "resume", "output", "json_output")
PORTS = {"--port": "control_port", "--command-port": "command_port"}


class KeptRun(msgspec.Struct, frozen=True):
    """What a run was started with; `controller`: the words of its controller's command line."""

    schema: str
    run: str
    folder: str
    settings: UpSettings
    controller: tuple[str, ...]
    topology: str
    user_paths: tuple[str, ...]
    traces: str
    ports: tuple[int, int, int]


def keep(places: Places, settings: UpSettings, options: list[str], work: Work) -> None:
    """Before anything starts. Raises OSError."""
    ports = places.control_port, places.command_port, places.service_port
    kept = KeptRun(
        SCHEMA,
        places.run,
        os.getcwd(),
        settings,
        tuple(options),
        work.topology.name,
        work.user_paths,
        str(places.traces),
        ports,
    )
    new = places.state / f"{KEPT}.new"
    new.write_bytes(msgspec.json.format(msgspec.json.encode(kept, enc_hook=str)))
    new.rename(places.state / KEPT)


def hold(state: Path) -> None:
    """A lock on the state directory for as long as this process lives. Raises Conflict."""
    held = os.open(state / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(held)
        raise Conflict(
            f"the run in {state} goes on: its `headgate up` lives", hint="`headgate status`"
        ) from error


def resumable(state_dir: Path | None) -> KeptRun:
    """What to go on with: the run of this state directory, or the latest one below here. Raises InvalidInput."""
    state = state_dir or latest()
    try:
        kept = msgspec.json.decode(
            (state / KEPT).read_bytes(), type=KeptRun, dec_hook=lambda kind, value: kind(value)
        )
    except OSError as error:
        raise InvalidInput(
            f"{state} holds no run that can be resumed",
            cause=error.strerror,
            hint="--state-dir names its folder",
        ) from error
    except msgspec.MsgspecError as error:
        raise InvalidInput(f"{state / KEPT} is damaged", cause=str(error), hint="start a new run") from error
    if kept.schema != SCHEMA:
        raise InvalidInput(f"{state / KEPT} is of another version", cause=f"{kept.schema}, not {SCHEMA}")
    if over(state):
        raise Conflict(f"the run in {state} has ended", hint="start a new one: `headgate up`")
    return kept


def over(state: Path) -> bool:
    """Has the run ended with nothing left, and nothing open or unfinished?"""
    try:
        summary = json.loads((state / SUMMARY).read_bytes())
        return not (rows_left(summary) or open_tasks(summary) or summary.get("unfinished"))
    except FileNotFoundError:
        return False
    except (OSError, ValueError):
        return True


def rows_left(summary: dict[str, Any]) -> int:
    """Rows that a run which goes on would read (again)."""
    left: int = summary["tuples"]["left"] + summary["lag"]["rows"]
    return left


def latest() -> Path:
    """The newest state directory below the present folder of a run that did not end, or left rows, or windows or timers
    open. Raises InvalidInput."""
    found = [path.parent for path in RUNS.glob(f"*/{KEPT}") if not over(path.parent)]
    if not found:
        raise InvalidInput(
            "there is no run to resume here",
            cause=f"no unfinished run in {RUNS.absolute()}",
            hint="`headgate up --resume --state-dir DIR`",
        )
    return max(found, key=lambda state: (state / KEPT).stat().st_mtime)


def settings_now(kept: KeptRun, given: dict[str, Any]) -> UpSettings:
    """Its settings; how it is looked at may differ. Raises UsageError."""
    odd = sorted(given.keys() - {*OTHERS, *ALLOWED})
    if odd:
        named = ", ".join("TOPOLOGY" if name == "topology" else f"--{name.replace('_', '-')}" for name in odd)
        raise UsageError(
            f"a run that is resumed has the options it was started with, so {named} cannot be given",
            hint="`headgate rate set` changes the rate; a new run may have other options",
        )
    return replace(kept.settings, **{name: given[name] for name in OTHERS if name in given})


def go_to(kept: KeptRun) -> None:
    """Into the folder where it was started: its paths are from there. Raises InvalidInput."""
    try:
        os.chdir(kept.folder)
    except OSError as error:
        raise InvalidInput(
            f"the folder that the run was started in is gone: {kept.folder}", cause=error.strerror
        ) from error


def places_again(kept: KeptRun, state: Path) -> Places:
    """Where it was; other ports where the old ones are taken by others now."""
    control, command, service = kept.ports
    end_s = time.monotonic() + GONE_S
    while taken := [port for port in kept.ports if fault_of(port)]:
        if time.monotonic() >= end_s:
            others = iter(free_ports(len(taken)))
            control, command, service = (next(others) if port in taken else port for port in kept.ports)
            break
        time.sleep(0.1)
    return Places(kept.run, state, Path(kept.traces), control, command, service)


def options_again(kept: KeptRun, places: Places, settings: UpSettings) -> list[str]:
    """The controller's command line, with its ports and its time limit of now."""
    limit = "drain-timeout="
    words = [
        f"{limit}{settings.drain_timeout}" if word.startswith(limit) else word for word in kept.controller
    ]
    for option, name in PORTS.items():
        words[words.index(option) + 1] = str(getattr(places, name))
    return options_of_seconds(words, settings.ends_after_s)


def options_of_seconds(words: list[str], ends_after_s: float | None) -> list[str]:
    """The same command line, of a run that ends after so many seconds (None: not by itself)."""
    settings = [place for place, word in enumerate(words) if word.startswith("seconds=")]
    rest = [word for place, word in enumerate(words) if not {place, place + 1} & set(settings)]
    return rest + setting_words({"seconds": ends_after_s})


def work_again(kept: KeptRun, settings: UpSettings, places: Places) -> Work:
    """What is run, as the first `up` had loaded it."""
    from headgate.topology_runtime.api.loading import load

    topology = load(str(places.state / "topology.json")).topology
    services = (demo_service(places),) if settings.topology is None else ()
    return Work(topology, kept.user_paths, services)
