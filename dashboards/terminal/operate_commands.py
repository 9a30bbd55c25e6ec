"""Commands that change a running topology: `rate set`, `stop`, `apply`, `resume`."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec

from headgate.dashboards.runs.connection import (
    asked,
    contact_of,
    controller_option,
    topology_at,
    traces_option,
)
from headgate.dashboards.runs.live_view import carries_words, vms_of
from headgate.topology_runtime.commands.number_options import Number
from headgate.topology_runtime.commands.output import Format, answer, bar, format_options
from headgate.topology_runtime.errors import CheckFailed, Unreachable
from headgate.topology_runtime.keys.key_pairs import Contact
from headgate.topology_runtime.traces.trace_plans import PlanHead, plans_in, the_id
from headgate.topology_runtime.wording import significant


@click.command()
@click.argument("rate", type=Number(0, 1e9))
@controller_option
@format_options
def set_rate(rate: float, controller: str | None, output: Format) -> None:
    """Offer RATE rows/s from now on, instead of the run's rates."""
    done = asked(controller, "rate_set", {"rate_tps": rate})
    now, before = significant(done["rate_tps"], 6), significant(done["before_tps"], 6)
    answer(output, "headgate/rate/v1", done, f"the input rate is {now} rows/s; it was {before}")


@click.command()
@click.argument("topology", required=False)
@click.option("--drain-timeout", type=Number(0, 7 * 86400, min_open=True), metavar="S",
              help="Wait so long at most; rows not done are left [as long as rows get done].")  # fmt: skip
@controller_option
@format_options
def stop(topology: str | None, drain_timeout: float | None, controller: str | None, output: Format) -> None:
    """Stop a run: no more is read, what is in flight is finished, then everything ends.

    TOPOLOGY: which, of a controller that several share; the others go on, and get its slots.

    A second `headgate stop` ends it at once, one with --drain-timeout by then. Rows that are left are read again by
    `headgate up --resume`, and windows that are open go on.
    """
    arguments = {"drain_timeout_s": drain_timeout} if drain_timeout else {}
    if topology is None:
        done = asked(controller, "stop", arguments)
    else:
        shared = contact_of(controller)
        try:
            done = asked(topology_at(shared, topology), "stop", arguments)
        except Unreachable:  # its controller cannot run: whoever starts it lets it be
            done = asked(shared, "dismiss", {"topology": topology})
    answer(output, "headgate/stop/v1", done, f"run {done['run']} is {done['stage']}")


@click.command()
@click.argument("plan", required=False)
@controller_option
@format_options
def apply(plan: str | None, controller: str | None, output: Format) -> None:
    """Bring into force the plan that waits for approval (`up --mode approve`; `headgate status` shows it).

    PLAN is its id; a plan that is stale, or another one, is refused (exit code 6).
    """
    done = asked(controller, "apply", {"id": plan} if plan else {})
    answer(output, "headgate/apply/v1", done, f"plan {done['id']} is being enacted as epoch {done['epoch']}")


@click.command()
@click.option(
    "--mode", type=click.Choice(["auto", "advise", "approve"]), help="Plan in this mode from now on."
)
@controller_option
@format_options
def resume(mode: str | None, controller: str | None, output: Format) -> None:
    """Clear alarms and whatever keeps a controller from planning by itself, a plan that `rollback` brought back too."""
    done = asked(controller, "resume", {"mode": mode} if mode else {})
    held = f"; planning was held: {done['was_held']}" if done.get("was_held") else ""
    answer(output, "headgate/resume/v1", done, f"planning goes on in mode {done['mode']}{held}")


# ── `headgate drain`, `cordon`, `uncordon`: VMs that a running controller shall do without, and may use
# again

F = TypeVar("F", bound=Callable[..., Any])
LOOK_S = 0.3
DEADLINE_S = 120.0

vms_argument = click.argument("vms", metavar="VM...", nargs=-1, required=True)


def wait_option(default_s: float, until: str) -> Callable[[F], F]:
    """`--deadline`, after which what was asked for goes on alone."""
    return click.option(
        "--deadline",
        type=Number(0),
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
    _print_cordon(output, "drain", told)


@click.command()
@vms_argument
@controller_option
@format_options
def cordon(vms: tuple[str, ...], controller: str | None, output: Format) -> None:
    """Make no plan with these VMs from now on; what runs there stays until the next plan (`drain` moves it at once)."""
    _print_cordon(output, "cordon", asked(controller, "cordon", {"vms": list(vms)}))


@click.command()
@vms_argument
@controller_option
@format_options
def uncordon(vms: tuple[str, ...], controller: str | None, output: Format) -> None:
    """Plan with these VMs again: the end of `cordon` and `drain`. Nothing moves back by itself before it is needed."""
    _print_cordon(output, "uncordon", asked(controller, "uncordon", {"vms": list(vms)}))


def until_drained(
    controller: str | Contact | None, vms: tuple[str, ...], deadline_s: float
) -> list[dict[str, Any]]:
    """Wait until nothing is left on these VMs. Raises CheckFailed at the deadline."""
    until, gone = time.monotonic() + deadline_s, 0
    status, found = _seen(controller, vms)
    total = sum(map(threads_on, found))

    def left(vm: Mapping[str, Any]) -> str:
        alive = sum(
            slot["state"] not in ("empty", "exited", "quarantined", "withheld") for slot in vm["slots"]
        )
        return f"{vm['vm']}: {threads_on(vm)} threads and {alive} workers are left"

    with bar(f"threads moved off {', '.join(vms)}", total) as step:
        while any(vm["cordon"] == "draining" for vm in found):
            if time.monotonic() > until:
                raise CheckFailed(
                    f"not drained within {deadline_s:g} s",
                    faults=[left(vm) for vm in found if vm["cordon"] == "draining"],
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


def _waits_for(status: dict[str, Any]) -> str | None:
    alarms = [alarm["text"] for alarm in status.get("alarms") or ()]
    decision = status.get("last_decision") or {}
    return "; ".join(alarms) or decision.get("text")


CORDON_WORDS = {
    "": "may be planned with",
    "cordoned": "is cordoned: no plan is made with it",
    "draining": "is draining",
    "drained": "is drained: nothing is left on it",
}


def _print_cordon(output: Format, name: str, told: dict[str, Any]) -> None:
    words = "\n".join(f"{vm['vm']} {CORDON_WORDS[vm['cordon'] or '']}" for vm in told["vms"])
    answer(output, f"headgate/{name}/v1", told, words, told["vms"])


# ── `headgate rollback ID`: a running controller brings an earlier plan into force again, and holds it ───


@click.command()
@click.argument("plan", metavar="ID")
@controller_option
@traces_option("The folder of traces, where plans of all runs are.")
@click.option(
    "--force", "instead", is_flag=True, help="Also where another plan was brought back and is held."
)
@format_options
def rollback(plan: str, controller: str | None, traces: Path, instead: bool, output: Format) -> None:
    """Bring the placement of an earlier plan into force again, as a new enactment, and hold it.

    ID is the beginning of a plan's id (`headgate history`), of this run or of another run of the same topology.
    From then on the controller plans nothing by itself, but round a VM or slot that fails, until `headgate resume`.
    Its VMs and slots must be there, or to be had; else it is refused (exit code 3), and so it is when something else
    is being enacted or another plan is held (exit code 6).
    """
    done = asked(controller, "rollback", {"plan": found_plan(plan, controller, traces), "instead": instead})
    as_other = f" as plan {done['as']} (its models or VMs are others now)" if done["as"] != done["id"] else ""
    more = f"; waits for {', '.join(done['asked'])}" if done["asked"] else ""
    how = f"comes back{as_other}, as epoch {done['epoch']}" if done["moves"] else "runs already"
    words = f"plan {done['id']} {how}: {done['text']}{more}\n"
    words += f"{carries_words(done['predicted_tps'])}, "
    answer(output, "headgate/rollback/v1", done, words + "and held until `headgate resume`")


def found_plan(beginning: str, controller: str | None, traces: Path) -> Any:
    """The plan whole, of a trace or of what the controller knows. Raises InvalidInput."""
    known = {one["id"]: one for one in asked(controller, "plans")["plans"]}
    recorded = {one.head.id: one for one in plans_in(traces, beginning)}
    heads = [
        *(msgspec.convert(one, PlanHead) for one in known.values()),
        *(x.head for x in recorded.values()),
    ]
    found = the_id(beginning, heads, f"{traces} or of the running controller")
    if found in recorded:
        return recorded[found].data
    return asked(controller, "plans", {"id": found})["plan"]
