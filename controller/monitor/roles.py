"""Who may say and ask what, by whose key it came under. Pure."""

from __future__ import annotations

from headgate.topology_runtime.errors import BadMessage, Conflict, HeadgateError, Refused
from headgate.topology_runtime.keys.pairs import Who
from headgate.topology_runtime.messages import FromAgent, Request
from headgate.topology_runtime.wire_version import REMEDY, client_fault

LOOKING = frozenset(
    [
        "ping",
        "status",
        "submission",
        "summary",
        "explain",
        "events",
        "whatif",
        "plans",
        "snapshot",
        "deadletters",
        "deadletter",
    ]
)
CLIENTS = ("operator", "viewer")


def check_name(message: FromAgent, who: Who) -> None:
    """An agent speaks for its own VM only. Raises BadMessage."""
    if message.vm != who.name:
        raise BadMessage(f"the agent of {who.name} speaks for another VM", cause=repr(message.vm))


def foreign(request: Request, ours: str) -> HeadgateError | None:
    """Why what it speaks is not understood by headgate `ours`; None when it is."""
    fault = client_fault(request.protocol, request.version, ours)
    return Conflict(fault, hint=f"install one version; {REMEDY}") if fault else None


def refused_to(who: Who, command: str) -> HeadgateError | None:
    """Why he may not ask this; None when he may: a viewer looks and changes nothing."""
    if who.role == "operator" or (who.role == "viewer" and command in LOOKING):
        return None
    return Refused(
        f"{command} is not for the {who}",
        cause="a viewer's key looks and changes nothing",
        hint="use an operator's key: --key FILE",
    )
