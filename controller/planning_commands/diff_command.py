"""`headgate diff OLD NEW`: what bringing NEW into force after OLD would change."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headgate.topology_runtime.commands.output import Format, console, emit, format_options
from headgate.topology_runtime.traces.trace_plans import TRACES
from headgate.topology_runtime.wording import counted, significant

if TYPE_CHECKING:
    from headgate.controller.models.plan_data import PlanTraffic
    from headgate.controller.models.plans import Plan
    from headgate.controller.planning_commands.plan_changes import Changes, SlotChange

SIGNS = {"added": "+", "removed": "-", "changed": "~", "same": " "}
COLOURS = {"added": "green", "removed": "red", "changed": "yellow", "same": ""}


@click.command()
@click.argument("old", metavar="OLD")
@click.argument("new", metavar="NEW")
@click.option(
    "--traces",
    type=click.Path(path_type=Path),
    default=TRACES,
    show_default=True,
    help="The folder of traces, for ids.",
)
@format_options
def diff(old: str, new: str, traces: Path, output: Format) -> None:
    """Threads that stay, move, start and stop from plan OLD to plan NEW, by slot; VMs and cost.

    OLD and NEW are files that `headgate plan … -o json` wrote, or ids (at least 4 letters of them) of plans of runs
    whose traces are there, as `headgate history` lists them."""
    from headgate.controller.files.planning_inputs import named_plan
    from headgate.controller.models.plan_data import traffic_block
    from headgate.controller.planning_commands.plan_changes import changes_data

    (before, was), (after, will) = (named_plan(name, traces) for name in (old, new))
    if output == "table":
        print_diff(before, after)
        if was is not None and will is not None:
            _say(traffic_line(was, will))
        return
    document = changes_data(before, after)
    if was is not None and will is not None:
        document["traffic"] = {"old": traffic_block(was), "new": traffic_block(will)}
    emit(output, document, document["slots"])


def print_diff(old: Plan, new: Plan) -> None:
    """For people: a line per slot that changes, then what it comes to."""
    from headgate.controller.planning_commands.plan_changes import changes, price_between

    found = changes(old, new)
    if old.topology != new.topology:
        _say(f"from topology {old.topology!r} to {new.topology!r}", "bold")
    for vm in found.vms:
        _say(
            f"{SIGNS[vm.change]} {vm.vm}  {counted(vm.slots, 'slot')}, ${vm.usd_per_hour:g}/h",
            COLOURS[vm.change],
        )
    for slot in found.slots:
        if slot.change != "same":
            _say(f"{SIGNS[slot.change]} {slot.vm}/{slot.slot}  {threads_words(slot)}", COLOURS[slot.change])
    for line in summary_lines(old, new, found):
        _say(line)
    if words := price_between(old, new).words:
        _say(words)


def threads_words(slot: SlotChange) -> str:
    """`blob 50 → 40, table 0 → 20`; threads alone for a slot that comes or goes."""
    if slot.change == "added":
        return ", ".join(f"{task} {count}" for task, count in slot.new.items())
    if slot.change == "removed":
        return ", ".join(f"{task} {count}" for task, count in slot.old.items())
    words = []
    for task in dict.fromkeys((*slot.old, *slot.new)):
        had, has = slot.old.get(task, 0), slot.new.get(task, 0)
        words.append(f"{task} {had}" if had == has else f"{task} {had} → {has}")
    return ", ".join(words)


def summary_lines(old: Plan, new: Plan, found: Changes) -> list[str]:
    """What the change comes to: slots, threads, cost, rate."""
    from headgate.controller.models.plans import usd_per_hour

    if not found.vms and all(slot.change == "same" for slot in found.slots):
        moves = "nothing moves"
    else:
        done = ((what, found.total(what)) for what in ("stay", "move", "start", "stop"))
        moves = "threads: " + ", ".join(f"{count} {what}" for what, count in done)
    slots = _more(new.slots.total - old.slots.total, "slot")
    vms = _more(len(new.vms) - len(old.vms), "VM")
    was, will = usd_per_hour(old.vms), usd_per_hour(new.vms)
    cost = f"${was:g} → ${will:g} per hour" if was != will else f"${will:g} per hour as before"
    rate = _change(old.rate_tps, new.rate_tps)
    carried = _change(old.prediction.told_tps, new.prediction.told_tps)
    return [f"{slots}, {vms}, {moves}; {cost}", f"planned for {rate} rows/s, predicted to carry {carried}"]


def traffic_line(old: PlanTraffic, new: PlanTraffic) -> str:
    """What leaves slots and VMs before and after."""
    slots = _change(old.between_slots_tps, new.between_slots_tps)
    return f"rows/s that leave a slot {slots}, a VM {_change(old.between_vms_tps, new.between_vms_tps)}"


def _change(old: float | None, new: float | None) -> str:
    was, will = ("not known yet" if rate is None else significant(rate, 6) for rate in (old, new))
    return will if was == will else f"{was} → {will}"


def _more(difference: int, what: str) -> str:
    if difference == 0:
        return f"no {what} more or less"
    return f"{'+' if difference > 0 else '-'}{counted(abs(difference), what)}"


def _say(line: str, style: Any = "") -> None:
    import sys

    console(sys.stdout).print(line, style=style or None, soft_wrap=True)
