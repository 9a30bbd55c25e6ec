"""Finding a running controller and asking it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec

from headgate.dashboards.runs.run_places import RUNS
from headgate.topology_runtime.commands.output import FILE
from headgate.topology_runtime.errors import HeadgateError, InvalidInput, Unreachable
from headgate.topology_runtime.keys.key_files import keep_whole, read_whole
from headgate.topology_runtime.keys.key_pairs import Contact
from headgate.topology_runtime.keys.keyring import KEYS, KeyFile, read_key
from headgate.topology_runtime.platform.http_options import settings_folder
from headgate.topology_runtime.traces.trace_plans import TRACES
from headgate.topology_runtime.wire.channels import ask
from headgate.topology_runtime.wire.messages import Reply, Request

# ── Which controllers somebody works with: names for an address and a key, and the one in use. One file,
# his alone

SCHEMA = "headgate/contexts/v1"


class KnownController(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """forwarded: the address leads through ssh to another machine."""

    address: str
    key: KeyFile
    forwarded: bool = False

    def contact(self) -> Contact:
        return msgspec.structs.replace(self.key.contact(self.address), forwarded=self.forwarded)


class ContextsFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    use: str = ""
    contexts: dict[str, KnownController] = {}
    schema: str = SCHEMA


def path() -> Path:
    """`HEADGATE_CONTEXTS`, or where a user's settings are."""
    told = os.environ.get("HEADGATE_CONTEXTS")
    return Path(told) if told else settings_folder() / "contexts.json"


def read() -> ContextsFile:
    """Raises InvalidInput when it is no such file, or others may read it."""
    return read_whole(path(), ContextsFile) if path().exists() else ContextsFile()


def write(whole: ContextsFile) -> None:
    """Raises InvalidInput when the disk does not take it."""
    try:
        path().parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        keep_whole(path(), whole)
    except OSError as error:
        raise InvalidInput(f"{path()} cannot be written", cause=error.strerror) from error


def remember(name: str, known: KnownController) -> None:
    """Under this name, and in use from now on. Raises InvalidInput."""
    whole = read()
    if whole.use != name or whole.contexts.get(name) != known:
        write(ContextsFile(name, {**whole.contexts, name: known}))


def forget(name: str) -> None:
    """Raises InvalidInput."""
    whole = read()
    if name in whole.contexts:
        rest = {other: one for other, one in whole.contexts.items() if other != name}
        write(ContextsFile("" if whole.use == name else whole.use, rest))


# ── ────────────────────────────────────────────────────────────────────────────────────────────────────

F = TypeVar("F", bound=Callable[..., Any])

ENDPOINT = Path("controller") / "endpoint"  # in a run's state directory
KEY = "HEADGATE_KEY"  # names the file of your key
PING_S = 1.0  # a live controller answers in milliseconds; a busy machine may take longer
ANSWER_S = 10.0


class Endpoint(msgspec.Struct, frozen=True):
    commands: str
    pid: int


class CommandRefused(HeadgateError):
    """The controller answered with an error: its code, words and exit code."""

    def __init__(self, reply: Reply) -> None:
        assert reply.error is not None
        code, exit_code, what, cause, hint, faults = reply.error
        super().__init__(what, cause=cause, hint=hint, faults=faults)
        self.code = code
        self.exit_code = exit_code


def controller_option(command: F) -> F:
    """`--controller`; the command gets `controller`, `contact_of` finds the key."""
    return click.option(
        "--controller",
        metavar="WHERE",
        help="A run's state directory, a context, or tcp://HOST:PORT (default: the newest run below .headgate, "
        "else the context in use); WHERE/TOPOLOGY: one of several that share it.",
    )(command)


def traces_option(about: str) -> Callable[[F], F]:
    return click.option("--traces", type=FILE, default=TRACES, show_default=True, help=about)


def contact_of(where: str | None, key: Path | None = None) -> Contact:
    """To the controller, with this key, or that of HEADGATE_KEY, else the one that belongs to it. Raises Unreachable
    when no run is found, InvalidInput without a key."""
    told = os.environ.get(KEY)
    file = key or (Path(told) if told else None)
    if where is not None and (base := _shared_by(where)) is not None:
        return topology_at(contact_of(base, key), where.rpartition("/")[2])
    if where is not None and "://" in where:
        return read_key(file).contact(where) if file is not None else _known(where)
    if where is not None and (known := read().contexts.get(where)) is not None:
        return known.contact()
    if where is not None:
        found = _read(Path(where) / ENDPOINT)
        if found is None:
            cause = f"there is no {ENDPOINT} in it, and no context of that name"
            raise Unreachable(f"no controller runs in {where}", cause=cause)
        return _in(Path(where), found.commands, file)
    return contact_of(place_of(), key)


def place_of() -> str:
    """WHERE, when nobody says: the newest run here, or the context in use. Raises Unreachable."""
    alive = [run for run in _runs() if (found := _read(run / ENDPOINT)) and _alive(run, found)]
    if alive:
        if len(alive) > 1:
            _say_which(alive[0], len(alive))
        return str(alive[0])
    whole = read()
    if whole.use in whole.contexts:
        return whole.use
    raise Unreachable(
        f"no running controller is found below {RUNS.absolute()}",
        hint="start one with `headgate up`, or name it: --controller STATE_DIR, or a context (`headgate context add`)",
    )


def _shared_by(where: str) -> str | None:
    """WHERE of WHERE/TOPOLOGY; None where it names a controller itself."""
    base, _, name = where.rpartition("/")
    if not base or not name or base.endswith("/") or (Path(where) / ENDPOINT).exists():
        return None
    if where in (known := read().contexts):
        return None
    return base if base in known or "://" in base or (Path(base) / ENDPOINT).exists() else None


def topology_at(shared: Contact, name: str) -> Contact:
    """The controller of one of the topologies that a shared controller runs. Raises CommandRefused, Unreachable."""
    found = asked(shared, "topology", {"topology": name})
    if found["commands"] is None:
        raise Unreachable(f"the controller of {name} does not answer now", cause=found["text"] or None)
    return shared.to(found["commands"])


_said = set[Path]()


def _say_which(run: Path, of: int) -> None:
    """Once: somebody may mean another."""
    if run not in _said:
        _said.add(run)
        click.echo(f"this is run {run.name}, the newest of {of} here; --controller {run} names one", err=True)


def _runs() -> list[Path]:
    """State directories, the newest first."""
    files = sorted(RUNS.glob(f"*/{ENDPOINT}"), key=_changed, reverse=True)
    return [file.parents[1] for file in files]


def _in(state: Path, endpoint: str, file: Path | None = None) -> Contact:
    """By the key that is given, or by one in a run's own folder. Raises InvalidInput."""
    if file is not None:
        return read_key(file).contact(endpoint)
    for role in ("operator", "viewer"):
        for own in sorted((state / KEYS).glob(f"{role}.*.key")):
            return read_key(own).contact(endpoint)
    raise InvalidInput(
        f"there is no key in {state / KEYS}", hint="set HEADGATE_KEY=FILE, the file of your key"
    )


def _known(endpoint: str) -> Contact:
    """By the key of the run here, or of the context, that is at this endpoint. Raises InvalidInput."""
    for run in _runs():
        found = _read(run / ENDPOINT)
        if found and found.commands == endpoint:
            return _in(run, endpoint)
    for one in read().contexts.values():
        if one.address == endpoint:
            return one.contact()
    raise InvalidInput(
        f"no key is known for the controller at {endpoint}",
        hint=f"set HEADGATE_KEY=FILE, or `headgate context add NAME --address {endpoint} --key FILE`",
    )


def _read(file: Path) -> Endpoint | None:
    """What the controller wrote there; None without a file."""
    try:
        return msgspec.json.decode(file.read_bytes(), type=Endpoint)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Unreachable(f"{file} does not say where a controller is", cause=str(error)) from error


def _changed(file: Path) -> float:
    try:
        return file.stat().st_mtime
    except FileNotFoundError:
        return 0.0


def _alive(state: Path, endpoint: Endpoint) -> bool:
    """Does it answer? A controller that was killed left its file: its process is not there any more."""
    if not Path(f"/proc/{endpoint.pid}").exists():
        return False
    try:
        return ask(_in(state, endpoint.commands), Request("ping"), PING_S).error is None
    except (Unreachable, InvalidInput):  # of another user, perhaps: not ours to speak to
        return False


def data_of(reply: Reply) -> Any:
    """What was asked for; raises Refused."""
    if reply.error is not None:
        raise CommandRefused(reply)
    return reply.data


def asked(where: str | Contact | None, command: str, arguments: dict[str, Any] | None = None) -> Any:
    """One command to the controller, its data. Raises Unreachable, CommandRefused."""
    contact = where if isinstance(where, Contact) else contact_of(where)
    return data_of(ask(contact, Request(command, arguments or {}), ANSWER_S))
