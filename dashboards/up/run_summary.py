"""What `up` prints at its end: the run in numbers, and where to look next."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from headgate.topology_runtime.errors import CheckFailed, HeadgateError
from headgate.topology_runtime.output import Format, emit, write_table
from headgate.topology_runtime.topology import KEY_RANGES

Summary = dict[str, Any]


def read_summary(file: Path) -> Summary:
    """What the controller left. Raises HeadgateError when it left nothing."""
    try:
        found: Summary = json.loads(file.read_bytes())
        return found
    except (OSError, ValueError) as error:
        raise HeadgateError("the run ended without a summary", cause=str(error)) from error


def print_summary(summary: Summary, output: Format) -> None:
    """As JSON: the whole; csv: its plans; a table: for people."""
    if output == "table":
        sys.stdout.write("\n".join(lines_of(summary)) + "\n\n")
        write_table(plan_rows(summary))
    else:
        emit(output, summary, summary["plans"] if output == "csv" else [summary])


def lines_of(summary: Summary) -> list[str]:
    """The run in a few lines."""
    t, latency = summary["tuples"], summary["latency_ms"]
    achieved = f"{summary['achieved_tps']:.1f} t/s"
    if summary["offered_tps"]:
        achieved += f", {summary['achieved_tps'] / summary['offered_tps']:.1%} of what was offered"
    ms = ", ".join(
        f"{name} {value:.1f}" if value is not None else f"{name} N/A" for name, value in latency.items()
    )
    left = t.get("left_on_vms", 0)
    return [
        f"{summary['topology']} ran {summary['seconds']:.1f} s",
        f"offered   {t['offered']:,} tuples ({summary['offered_tps']:.1f} t/s)",
        f"acked     {t['acked']:,} ({achieved})",
        f"lost      {t['lost']:,}; dead letters {t['dead_lettered']:,}; "
        f"replayed {t['replayed']:,}; duplicates {_duplicates(t)}",
        *(f"          maybe more: {why}" for why in t["duplicates_why"]),
        *([f"left      about {left:,} events on VMs that are lost, or have no slot"] if left else []),
        f"latency   {ms} ms",
    ]


def _duplicates(tuples: dict[str, Any]) -> str:
    at_least = f"at least {tuples['duplicates']:,}"
    return f"{tuples['duplicates']:,}" if tuples["duplicates_exact"] else at_least


def plan_rows(summary: Summary) -> list[dict[str, Any]]:
    """The plans as a table has them."""
    return [
        {
            "plan": plan["epoch"],
            "at s": plan["at_s"],
            "reason": plan["reason"],
            "rate t/s": plan["rate_tps"],
            "slots": plan["slots"],
            "decided in s": plan["decided_s"],
            "in force after s": plan["enacted_s"],
            "pause ms": plan["pause_ms"],
            "rolled back": plan["rolled_back"],
        }
        for plan in summary["plans"]
    ]


def next_steps(trace: Path, dead: int) -> list[str]:
    """Where to look next."""
    letters = [f"the {dead:,} dead letters: headgate deadletter list --trace {trace}"] if dead else []
    return [
        *letters,
        f"the trace is in {trace}: samples, slots, rates, latency, links, decisions, views",
        f"why each plan: headgate explain --trace {trace}",
    ]


def check_dead(summary: Summary, most: float) -> None:
    """Raises CheckFailed when so large a share of the rows, or a larger one, became dead letters."""
    mended = summary.get("letters", {}).get("mended", 0)  # processed after all
    dead, acked = summary["tuples"]["dead_lettered"] - mended, summary["tuples"]["acked"] + mended
    if dead > 0 and dead >= most * (dead + acked):
        share = f"{dead / (dead + acked):.0%} of the rows" if acked else "every row"
        raise CheckFailed(
            f"{share} became a dead letter: {dead:,} of {dead + acked:,}",
            cause="a task failed on them three times each",
            hint=f"headgate deadletter list --trace {summary['trace']}",
        )


def check_lost(summary: Summary) -> None:
    """Raises HeadgateError when tuples were lost: that is a promise broken, not a result. Raises CheckFailed when
    events went with a VM that is lost, which nobody promises to prevent."""
    lost, left = summary["tuples"]["lost"], summary["tuples"].get("left_on_vms", 0)
    if lost:
        raise HeadgateError(
            f"{lost:,} tuples were lost",
            cause="a source read them, and they were neither acked nor dead-lettered when the run had ended",
            hint="the state of the run is kept; report it with its logs",
        )
    if left:
        raise CheckFailed(
            f"about {left:,} events were left on VMs",
            cause="a source had accepted them there, and the VM is lost, or has no slot that can be used",
            hint="`headgate events` says which VM; a source that can be read twice loses nothing then",
        )


def check_state(summary: Summary) -> None:
    """Raises CheckFailed when keyed state was lost: counts that people rely on are too low."""
    state = summary["state"]
    if state["lost_ranges"]:
        tasks = ", ".join(f"{task}: {ranges} of {KEY_RANGES}" for task, ranges in state["tasks"].items())
        raise CheckFailed(
            f"keyed state was lost ({tasks} key ranges)",
            cause="it lay on a VM that is gone, and snapshots stay on their VM; those ranges went on without it",
            hint="run again to count from the beginning; `headgate explain` says when it was lost",
        )
