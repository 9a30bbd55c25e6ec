"""`headgate drain`, `cordon`, `uncordon`: VMs that a running controller shall do without, and may use again."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

from headgate.dashboards.terminal.connection import asked, controller_option
from headgate.dashboards.terminal.live_view import vms_of
from headgate.topology_runtime.errors import CheckFailed
from headgate.topology_runtime.keys.pairs import Contact
from headgate.topology_runtime.output import Format, emit, format_options
from headgate.topology_runtime.progress import bar

F = TypeVar("F", bound=Callable[..., Any])
LOOK_S = 0.3
DEADLINE_S = 120.0

vms_argument = click.argument("vms", metavar="VM...", nargs=-1, required=True)


def wait_option(default_s: float, until: str) -> Callable[[F], F]:
    """`--deadline SECONDS`, after which what was asked for goes on alone."""
    return click.option(
        "--deadline",
        type=click.FloatRange(0),
        default=default_s,
        show_default=True,
        metavar="SECONDS",
        help=f"Wait so long until {until}; 0: do not wait.",
    )


deadline_option = wait_option(DEADLINE_S, "nothing runs there")
force_option = click.option(
    "--force", is_flag=True, help="Also where the other VMs carry less than is planned for."
)


@click.command()
@vms_argument
@deadline_option
@force_option
@controller_option
@format_options
def drain(vms: tuple[str, ...], deadline: float, force: bool, controller: str | None, output: Format) -> None:
    """Move all that runs on these VMs to others, and plan without them from now on: no row and no state is lost.

    Where the other VMs would carry less than is planned for it is refused (exit code 6). When the deadline has passed
    it ends 8 and the draining goes on. `headgate uncordon` ends it, and lets them be planned with again.
    """
    told = asked(controller, "drain", {"vms": list(vms), "force": force})
    if deadline > 0:
        told = {"vms": until_drained(controller, vms, deadline)}
    _print(output, "drain", told)


@click.command()
@vms_argument
@controller_option
@format_options
def cordon(vms: tuple[str, ...], controller: str | None, output: Format) -> None:
    """Make no plan with these VMs from now on; what runs there stays until the next plan (`drain` moves it at once)."""
    _print(output, "cordon", asked(controller, "cordon", {"vms": list(vms)}))


@click.command()
@vms_argument
@controller_option
@format_options
def uncordon(vms: tuple[str, ...], controller: str | None, output: Format) -> None:
    """Plan with these VMs again: the end of `cordon` and `drain`. Nothing moves back by itself before it is needed."""
    _print(output, "uncordon", asked(controller, "uncordon", {"vms": list(vms)}))


def until_drained(
    controller: str | Contact | None, vms: tuple[str, ...], deadline_s: float
) -> list[dict[str, Any]]:
    """Wait until nothing is left on these VMs. Raises CheckFailed at the deadline."""
    until, gone = time.monotonic() + deadline_s, 0
    status, found = _seen(controller, vms)
    total = sum(map(threads_on, found))
    with bar(f"threads moved off {', '.join(vms)}", total) as step:
        while any(vm["cordon"] == "draining" for vm in found):
            if time.monotonic() > until:
                raise CheckFailed(
                    f"not drained within {deadline_s:g} s",
                    faults=[f"{vm['vm']}: {_left(vm)}" for vm in found if vm["cordon"] == "draining"],
                    cause=_waits_for(status),
                    hint="it goes on: `headgate status` shows how far it is, `headgate uncordon` ends it",
                )
            time.sleep(LOOK_S)
            status, found = _seen(controller, vms)
            now = max(0, total - sum(map(threads_on, found)))
            step(now, now - gone)
            gone = now
    return [{"vm": vm["vm"], "cordon": vm["cordon"]} for vm in found]


def _seen(controller: str | Contact | None, vms: tuple[str, ...]) -> tuple[Any, list[Mapping[str, Any]]]:
    """(all that the controller tells, what it tells of these VMs)."""
    status = asked(controller, "status")
    return status, [vm for vm in vms_of(status) if vm["vm"] in vms]


def threads_on(vm: Mapping[str, Any]) -> int:
    """Of all plans, those that leave too."""
    return sum(sum(slot["threads"].values()) + slot["leaving"] for slot in vm["slots"])


def _left(vm: Mapping[str, Any]) -> str:
    alive = sum(slot["state"] not in ("empty", "exited", "quarantined") for slot in vm["slots"])
    return f"{threads_on(vm)} threads and {alive} workers are left"


def _waits_for(status: dict[str, Any]) -> str | None:
    alarms = [alarm["text"] for alarm in status.get("alarms") or ()]
    decision = status.get("last_decision") or {}
    return "; ".join(alarms) or decision.get("text")


def _print(output: Format, name: str, told: dict[str, Any]) -> None:
    if output != "table":
        emit(output, {"schema": f"headgate/{name}/v1", **told}, told["vms"])
        return
    words = {
        "": "may be planned with",
        "cordoned": "is cordoned: no plan is made with it",
        "draining": "is draining",
        "drained": "is drained: nothing is left on it",
    }
    for vm in told["vms"]:
        sys.stdout.write(f"{vm['vm']} {words[vm['cordon'] or '']}\n")
