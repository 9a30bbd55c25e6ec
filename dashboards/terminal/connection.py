"""Finding a running controller and asking it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec

from dashboards.up.places import RUNS
from topology_runtime.channels import ask
from topology_runtime.errors import HeadgateError, Unreachable
from topology_runtime.messages import Reply, Request

F = TypeVar("F", bound=Callable[..., Any])

ENDPOINT = Path("controller") / "endpoint"  # in a run's state directory
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
    """`--controller`; the command gets `controller`."""
    return click.option(
        "--controller",
        metavar="WHERE",
        help="tcp://HOST:PORT or a run's state directory (default: the newest run below .headgate).",
    )(command)


def endpoint_of(where: str | None) -> str:
    """The endpoint to speak to. Raises Unreachable when no run is found."""
    if where is not None and "://" in where:
        return where
    if where is not None:
        found = _read(Path(where) / ENDPOINT)
        return found.commands if found else _nothing_in(where)
    files = sorted(RUNS.glob(f"*/{ENDPOINT}"), key=_changed, reverse=True)
    for file in files:
        found = _read(file)
        if found and _alive(found):
            return found.commands
    raise Unreachable(
        f"no running controller is found below {RUNS.absolute()}",
        hint="start one with `headgate up`, or name it: --controller tcp://HOST:PORT",
    )


def _nothing_in(where: str) -> str:
    raise Unreachable(f"no controller runs in {where}", cause=f"there is no {ENDPOINT} in it")


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


def _alive(endpoint: Endpoint) -> bool:
    """Does it answer? A controller that was killed left its file: its process is not there any more."""
    if not Path(f"/proc/{endpoint.pid}").exists():
        return False
    try:
        return ask(endpoint.commands, Request("ping"), PING_S).error is None
    except Unreachable:
        return False


def data_of(reply: Reply) -> Any:
    """What was asked for; raises Refused."""
    if reply.error is not None:
        raise CommandRefused(reply)
    return reply.data


def asked(where: str | None, command: str, arguments: dict[str, Any] | None = None) -> Any:
    """One command to the controller, its data. Raises Unreachable, Refused."""
    return data_of(ask(endpoint_of(where), Request(command, arguments or {}), ANSWER_S))
