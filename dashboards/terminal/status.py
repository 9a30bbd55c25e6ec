"""`headgate status`: what a running controller sees and wants, once."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import click

from headgate.dashboards.terminal.connection import asked, controller_option
from headgate.dashboards.terminal.live_view import picture
from headgate.topology_runtime.errors import CheckFailed
from headgate.topology_runtime.output import Format, Row, console, emit, format_options, write_table
from headgate.topology_runtime.wire_version import REMEDY

# Of tasks, for people: it fits 80 columns; -o json has all.
SHOWN = {
    "task": "task", "threads": "threads", "rate_in_tps": "in/s", "rate_out_tps": "out/s", "queue": "queue",
    "busy_share": "busy", "latency_p50_ms": "p50 ms", "latency_p99_ms": "p99 ms", "cpu_cores": "cores",
}  # fmt: skip


@click.command()
@controller_option
@click.option("--check", is_flag=True, help="End 8 unless the verdict is stable and there is no alarm.")
@format_options
def status(controller: str | None, check: bool, output: Format) -> None:
    """Show what the controller of a run sees: rates, verdict, plan, slots, tasks, alarms.

    As csv and jsonl: one row per slot.
    """
    found: dict[str, Any] = asked(controller, "status")
    if output == "table":
        print_status(found)
    else:
        emit(output, found, slot_rows(found))
    if check:
        check_stable(found)


def check_stable(found: Mapping[str, Any]) -> None:
    """Raises CheckFailed unless the verdict is `stable` and there is no alarm."""
    verdict = found.get("verdict") or {}
    word = verdict.get("verdict", "unknown")
    if word != "stable":
        raise CheckFailed(f"the topology is {word}", cause=verdict.get("text"), hint="`headgate explain`")
    alarms = [alarm["text"] for alarm in found.get("alarms") or ()]
    if alarms:
        raise CheckFailed(
            "the topology is stable, but there are alarms", faults=alarms, hint="`headgate events`"
        )


def slot_rows(found: Mapping[str, Any]) -> list[Row]:
    """One row per slot of every VM."""
    return [{"vm": vm["vm"], "vm_state": vm["state"], **slot} for vm in found["vms"] for slot in vm["slots"]]


def path_words(path: Mapping[str, Any]) -> str:
    """How a latency constraint stands."""
    ends = f"{path['path'][0]} → {'… → ' * (len(path['path']) > 2)}{path['path'][-1]} within {path['limit_ms']:g} ms"
    if path["most_ms"] is None:
        return f"{ends}: no rows yet"
    done = {
        "leave earlier": path["shortened"], "leave later": path["lengthened"], "threads are chained": path["chained"]
    }  # fmt: skip
    text = f"{ends}: {path['most_ms']:.1f} ms on the slowest way, {path['least_ms']:.1f} on the quickest"
    text += "".join(f"; {n} {'' if 'chained' in what else 'buffers '}{what}" for what, n in done.items() if n)
    return text + (f"\nnothing helps: {path['text']}" if path["standing"] == "helpless" else "")


def print_status(found: Mapping[str, Any]) -> None:
    """The picture of `up`, tasks, the last decision."""
    console(sys.stdout).print(picture(found, (), None))
    if found.get("tasks"):
        sys.stdout.write("\n")
        write_table([{name: task.get(key) for key, name in SHOWN.items()} for task in found["tasks"]])
    for path in found.get("paths") or ():
        sys.stdout.write(f"\n{path_words(path)}\n")
    for vm in found["vms"]:
        if vm.get("skew"):
            theirs, ours = (f"headgate {one['headgate']} (wire version {one['wire']})" for one in (vm, found))
            sys.stdout.write(f"\n{vm['vm']} runs {theirs}, the controller {ours}: {REMEDY}\n")
        if behind_ms := vm.get("clock_behind_ms"):
            off = (
                f"{abs(behind_ms) / 1000:,.3f} s {'behind' if behind_ms > 0 else 'ahead of'} the controller's"
            )
            sys.stdout.write(
                f"\nthe clock of {vm['vm']} is {off} (± {vm['clock_error_ms']:.1f} ms); it is corrected\n"
            )
    decision = found.get("last_decision")
    if decision:
        sys.stdout.write(
            f"\nlast decision, {decision['time']}: {decision.get('action')}: {decision.get('text')}\n"
        )
