"""What clients ask a controller, and what it answers: a part of `messages`."""

from __future__ import annotations

from typing import Any

import msgspec

from headgate.topology_runtime.errors import HeadgateError
from headgate.topology_runtime.wire_version import UNTOLD, VERSION, WIRE


class Request(msgspec.Struct, frozen=True, tag="request"):
    """A command to the controller; `arguments` are plain values. protocol, version: what who asks speaks."""

    command: str
    arguments: dict[str, Any] = {}
    protocol: int = UNTOLD
    version: str = ""


ReplyError = tuple[str, int, str, str | None, str | None, tuple[str, ...]]


class Reply(msgspec.Struct, frozen=True, tag="reply"):
    """`data` of a command done, or the error as (code, exit code, what, cause, hint, faults)."""

    data: Any = None
    error: ReplyError | None = None


def from_here(request: Request) -> Request:
    """With what this headgate speaks."""
    return msgspec.structs.replace(request, protocol=WIRE, version=VERSION)


def refusal(error: HeadgateError) -> Reply:
    """The answer to what cannot be done: the client gets the error's code, words and exit code."""
    return Reply(error=(error.code, error.exit_code, error.what, error.cause, error.hint, error.faults))
