"""The text of `headgate explain TOPOLOGY`, made from its data."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from headgate.controller.offline.answers import short_sizes
from headgate.controller.offline.traffic_told import traffic_sentences
from headgate.controller.offline.whatif_words import between, breaks, money, next_step
from headgate.controller.plan.schedulers import MAPPERS
from headgate.topology_runtime.faults.words import counted, significant

if TYPE_CHECKING:
    from headgate.controller.offline.answers import Row

ALL_SLOTS = 24  # of larger plans only slots that are shared are told about one by one


def text_of(document: Row) -> str:
    """All of it in paragraphs."""
    parts = {
        "Threads": [_threads(reason) for reason in document["threads"]],
        "Slots": _slots(document),
        "Traffic": traffic_sentences(document["traffic"]),
        "Limit": _limit(document),
        "One more slot": [next_step(document)],
        "Rejected": _rejected(document),
    }
    lines = [_head(document)]
    for title, sentences in parts.items():
        lines += ["", title, *(f"  {sentence}" for sentence in sentences)]
    return "\n".join(lines)


def _head(document: Row) -> str:
    pair = f"{document['allocator']}+{document['mapper']}".upper()
    counts = document["slots"]
    extra = f" ({counts['estimated']} estimated and {counts['extra']} extra)" if counts["extra"] else ""
    cost = f"{money(document['usd_per_hour'])} an hour"
    return (
        f"{document['topology']} at {significant(document['rate_tps'])} tuples/s by {pair}: "
        f"{counted(counts['total'], 'slot')}{extra} on VMs of {short_sizes(document['vms'])}, {cost}; "
        f"predicted to carry {significant(document['predicted_tps'])} tuples/s{between(document)}"
    )


# ── why so many threads ─────────────────────────────────────────────────────────────────────────


def _threads(reason: Row) -> str:
    task, count = reason["task"], counted(reason["threads"], "thread")
    sees = f"{task} sees {significant(reason['rate_tps'])} tuples/s"
    if reason["rule"] == "fixed":
        needs = f"CPU {reason['cpu_slots']:.2f} and memory {reason['memory_slots']:.2f}"
        return f"{task} is of fixed size: {count}, {needs} of a slot, as the topology says."
    if reason["rule"] == "unmeasured":
        return f"{sees}; it was not measured yet: {count} in a slot of its own."
    one = f"which carries {significant(reason['one_thread_tps'])} (I(1))"
    if reason["rule"] == "lone":
        return f"{sees}; it may run in one thread only, {one}: {count}."
    if reason["rule"] == "linear":
        return f"{sees}; as often as one thread, {one}, goes into that: {count}."
    if reason["rule"] == "bundles":
        return f"{sees}; {_bundles(reason)}: {count}."
    return f"{sees}: {count}."


def _bundles(reason: Row) -> str:
    """`one slot carries at most 40 with 60 threads (ω̂, τ̂); 2 full bundles carry 80, …`."""
    peak = f"{significant(reason['peak_tps'])} with {counted(reason['peak_threads'], 'thread')} (ω̂, τ̂)"
    text, full = f"one slot carries at most {peak}", reason["full_bundles"]
    if full:
        carry = significant(full * reason["peak_tps"])
        text += f"; {full} full {'bundle carries' if full == 1 else 'bundles carry'} {carry}"
    if not reason["rest_threads"]:
        return text
    rest = significant(reason["rest_tps"])
    need = f"{'the remaining ' if full else ''}{rest} {'needs' if reason['rest_tps'] == 1 else 'need'}"
    can = f"T({rest}), which can do {significant(reason['rest_peak_tps'])}"
    return f"{text}; {need} {counted(reason['rest_threads'], 'thread')} ({can})"


# ── why this slot ───────────────────────────────────────────────────────────────────────────────


def _slots(document: Row) -> list[str]:
    rule = [MAPPERS[document["mapper"]].words]
    if document["mapper"] != "sam":
        return [*rule, *_tally(document)]
    by_slot = [
        (f"{vm}/{number}", list(rows))
        for (vm, number), rows in groupby(document["placement"], lambda row: (row["vm"], row["slot"]))
    ]
    lines, alone = rule, 0
    for slot, rows in by_slot:
        if len(by_slot) > ALL_SLOTS and rows[0]["full"]:
            alone += 1
        else:
            lines += [f"{slot}: {_bundle(row)}" for row in sorted(rows, key=_step)]
    if alone:
        lines.append(f"{counted(alone, 'slot')} more: a full bundle alone in each, in the next empty slot.")
    return lines


def _step(row: Row) -> int:
    """When SAM put it there: what is free is told as of then."""
    return row["choices"][0]["step"] if row["choices"] else 0


def _tally(document: Row) -> list[str]:
    """How the threads of each task are spread over slots."""
    found: dict[str, list[int]] = {}
    for row in document["placement"]:
        found.setdefault(row["task"], []).append(row["threads"])
    return [
        f"{task}: {counted(sum(each), 'thread')} in {counted(len(each), 'slot')}, {_range(each)}"
        for task, each in found.items()
    ]


def _range(each: list[int]) -> str:
    low, high = min(each), max(each)
    return f"{low} in each." if low == high else f"{low} to {high} in each."


def _bundle(row: Row) -> str:
    about = f"{counted(row['threads'], 'thread')} of {row['task']}"
    if not row["choices"]:
        return f"{about}."
    if row["full"]:
        return f"{about}, a full bundle: alone in the next empty slot."
    first = row["choices"][0]
    each = "in all" if first["threads"] == row["threads"] else "each"
    return f"{about}, {each} {_pair(first['needs'])}: {_choice(first)}."


def _choice(choice: Row) -> str:
    """Where a partial bundle fits best, and the slots that lost."""
    lost = [f"{free['slot']} ({_pair(free)} free)" for free in choice["passed_over"]]
    too_small = f"too little was free on {', '.join(lost)}" if lost else ""
    if choice["rule"] == "empty":
        return f"the next empty slot, since {too_small or 'no slot was in use yet'}"
    others = [f"{free['slot']} ({_pair(free)} free)" for free in choice["runners_up"]]
    runner = f"; the next fullest was {', '.join(others)}" if others else ""
    why = f"best fit, the fullest slot with room ({_pair(choice['free'])} free){runner}"
    return f"{why}; {too_small}" if too_small else why


def _pair(amount: Row) -> str:
    return f"CPU {amount['cpu']:.3f} and memory {amount['memory']:.3f}"


# ── what limits, what was rejected ──────────────────────────────────────────────────────────────


def _limit(document: Row) -> list[str]:
    lines = [breaks(document["rate_tps"], document["limit"])]
    if document["ceilings"]:
        each = ", ".join(f"{c['task']} {significant(c['rate_tps'])}" for c in document["ceilings"])
        lines.append(f"Input rates at which all threads of a task are at their peaks: {each} tuples/s.")
    return lines


def _rejected(document: Row) -> list[str]:
    lines = [_other(row, document) for row in document["rejected"]["pairs"]]
    for mix in document["rejected"]["mixes"]:
        chosen = ", as chosen" if mix["chosen"] else ""
        cost = f"{counted(mix['slots'], 'slot')}, {money(mix['usd_per_hour'])} an hour{chosen}"
        lines.append(f"{mix['mix']} mix of VMs: {short_sizes(mix['vms'])}: {cost}.")
    return lines


def _other(row: Row, document: Row) -> str:
    pair = row["pair"].upper()
    if row["slots"] is None:
        return f"{pair}: no plan; {row['reason']}."
    carried = row["shuffle_tps" if document["routing"] == "shuffle" else "weighted_tps"]
    carries = f"would carry {significant(carried)} tuples/s"
    at = f" ({row['limited_by']} on {row['limited_by_slot']} limits it)" if row["limited_by"] else ""
    about = f"{pair}: {counted(row['slots']['total'], 'slot')}, {money(row['usd_per_hour'])} an hour, {carries}{at}"
    return f"{about}: {_verdict(row['slots']['used'] - document['slots']['used'], document['rate_tps'] - carried)}."


def _verdict(more_slots: int, short_tps: float) -> str:
    """What speaks against another pair; nothing may."""
    against = [f"{counted(more_slots, 'slot')} more"] if more_slots > 0 else []
    if short_tps > 1e-6:
        against.append(f"{significant(short_tps)} tuples/s short")
    if against:
        return " and ".join(against)
    return (
        f"{counted(-more_slots, 'slot')} fewer, and it carries the rate"
        if more_slots < 0
        else "would do as well"
    )
