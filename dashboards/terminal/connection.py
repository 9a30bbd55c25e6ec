"""Finding a running controller and asking it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec

from headgate.dashboards.terminal.contexts import contexts, in_use, named
from headgate.dashboards.up.places import RUNS
from headgate.topology_runtime.channels import ask
from headgate.topology_runtime.errors import HeadgateError, InvalidInput, Unreachable
from headgate.topology_runtime.keys.keyring import KEYS, read_key
from headgate.topology_runtime.keys.pairs import Contact
from headgate.topology_runtime.messages import Reply, Request

F = TypeVar("F", bound=Callable[..., Any])

ENDPOINT = Path("controller") / "endpoint"  # in a run's state directory
KEY = "headgate.key"  # in click's context: the file of --key
PING_S = 1.0  # a live controller answers in milliseconds; a busy machine may take longer
ANSWER_S = 10.0


class Endpoint(msgspec.Struct, frozen=True):
    """The part of a controller's endpoint file that clients need."""

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
    """`--controller` and `--key`; the command gets `controller`, `contact_of` finds the key."""
    command = click.option(
        "--key", type=click.Path(path_type=Path), metavar="FILE", expose_value=False, callback=_note_key,
        help="Your key, where --controller is tcp://HOST:PORT.",
    )(command)  # fmt: skip
    return click.option(
        "--controller",
        metavar="WHERE",
        help="A run's state directory, a context, or tcp://HOST:PORT (default: the newest run below .headgate, "
        "else the context in use).",
    )(command)


def _note_key(context: click.Context, _: click.Parameter, value: Path | None) -> None:
    context.meta[KEY] = value


def contact_of(where: str | None) -> Contact:
    """To the controller, with the caller's key. Raises Unreachable when no run is found, InvalidInput without a key."""
    context = click.get_current_context(silent=True)
    file: Path | None = context.meta.get(KEY) if context is not None else None
    if where is not None and "://" in where:
        return read_key(file).contact(where) if file is not None else _known(where)
    if where is not None and (context_named := named(where)) is not None:
        return context_named.contact()
    if where is not None:
        found = _read(Path(where) / ENDPOINT)
        return _in(Path(where), found.commands, file) if found else _nothing_in(where)
    for run in _runs():
        found = _read(run / ENDPOINT)
        if found and _alive(run, found):
            return _in(run, found.commands, file)
    used = in_use()
    if used is not None:
        return used.contact()
    raise Unreachable(
        f"no running controller is found below {RUNS.absolute()}",
        hint="start one with `headgate up`, or name it: --controller STATE_DIR, or a context (`headgate context add`)",
    )


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
    raise InvalidInput(f"there is no key in {state / KEYS}", hint="give yours: --key FILE")


def _known(endpoint: str) -> Contact:
    """By the key of the run here, or of the context, that is at this endpoint. Raises InvalidInput."""
    for run in _runs():
        found = _read(run / ENDPOINT)
        if found and found.commands == endpoint:
            return _in(run, endpoint)
    for one in contexts().values():
        if one.address == endpoint:
            return one.contact()
    raise InvalidInput(
        f"no key is known for the controller at {endpoint}",
        hint=f"--key FILE, or `headgate context add NAME --address {endpoint} --key FILE`",
    )


def _nothing_in(where: str) -> Contact:
    raise Unreachable(
        f"no controller runs in {where}", cause=f"there is no {ENDPOINT} in it, and no context of that name"
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
