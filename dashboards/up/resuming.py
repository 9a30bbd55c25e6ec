"""`headgate up --resume`: a run whose `up` was killed, or its machine, goes on from its state directory.

What `up` had made of its options is kept in `up.json` before anything starts; the controller's journal has the rest.
"""

from __future__ import annotations

import fcntl
import os
import socket
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from headgate.dashboards.up.places import HOST, RUNS, Places, free_ports
from headgate.dashboards.up.preparation import Work, demo_service
from headgate.dashboards.up.settings import UpSettings
from headgate.topology_runtime.errors import Conflict, InvalidInput, UsageError

KEPT, LOCK = "up.json", "up.lock"
SCHEMA = "headgate/up/v1"
GONE_S = 10.0  # the processes of the `up` that was killed end by themselves in about a second
LOOKED_AT = ("dashboard", "dashboard_port", "metrics")  # options that may be others than before
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
        kept = msgspec.json.decode((state / KEPT).read_bytes(), type=KeptRun, dec_hook=_path)
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
    if (state / "summary.json").exists():
        raise Conflict(f"the run in {state} has ended", hint="start a new one: `headgate up`")
    return kept


def latest() -> Path:
    """The newest state directory of a run that did not end, below the present folder. Raises InvalidInput."""
    found = [path.parent for path in RUNS.glob(f"*/{KEPT}") if not (path.parent / "summary.json").exists()]
    if not found:
        raise InvalidInput(
            "there is no run to resume here",
            cause=f"no unfinished run in {RUNS.absolute()}",
            hint="`headgate up --resume --state-dir DIR`",
        )
    return max(found, key=lambda state: (state / KEPT).stat().st_mtime)


def settings_now(kept: KeptRun, given: dict[str, Any]) -> UpSettings:
    """Its settings; how it is looked at may differ. Raises UsageError."""
    odd = sorted(given.keys() - {*LOOKED_AT, *ALLOWED})
    if odd:
        named = ", ".join("TOPOLOGY" if name == "topology" else f"--{name.replace('_', '-')}" for name in odd)
        raise UsageError(
            f"a run that is resumed has the options it was started with, so {named} cannot be given",
            hint="`headgate rate set` changes the rate; a new run may have other options",
        )
    return replace(kept.settings, **{name: given[name] for name in LOOKED_AT if name in given})


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
    while taken := [port for port in kept.ports if not _free(port)]:
        if time.monotonic() >= end_s:
            others = iter(free_ports(len(taken)))
            control, command, service = (next(others) if port in taken else port for port in kept.ports)
            break
        time.sleep(0.1)
    return Places(kept.run, state, Path(kept.traces), control, command, service)


def options_again(kept: KeptRun, places: Places) -> list[str]:
    """The controller's command line, with its ports of now."""
    words = list(kept.controller)
    for option, name in PORTS.items():
        words[words.index(option) + 1] = str(getattr(places, name))
    return words


def work_again(kept: KeptRun, settings: UpSettings, places: Places) -> Work:
    """What is run, as the first `up` had loaded it."""
    from headgate.topology_runtime.loading import load

    topology = load(str(places.state / "topology.json")).topology
    services = (demo_service(places),) if settings.topology is None else ()
    return Work(topology, kept.user_paths, services)


def _free(port: int) -> bool:
    try:
        socket.create_server((HOST, port)).close()
    except OSError:
        return False
    return True


def _path(kind: type[Any], value: Any) -> Any:
    return kind(value)
