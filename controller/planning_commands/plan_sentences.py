"""Plans and predictions as rows for tables and CSV, and as sentences for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from msgspec.structs import asdict

from headgate.controller.models.plan_data import placement_data
from headgate.controller.models.plans import Placement, Plan, Prediction, usd_per_hour
from headgate.controller.plan.schedulers import MAPPERS
from headgate.controller.planning_commands.plan_request import short_sizes
from headgate.topology_runtime.api.cluster import Vm
from headgate.topology_runtime.wording import counted, significant

if TYPE_CHECKING:
    from headgate.controller.models.plan_data import PlanTraffic
    from headgate.controller.models.plans import Plan
    from headgate.controller.plan.scaling import Row
    from headgate.topology_runtime.api.topology import Topology


def slot_rows(placement: Placement, prediction: Prediction) -> list[Row]:
    """One row per slot with threads: who is in it, its CPU and memory."""
    placed = {(entry["vm"], entry["slot"]): entry for entry in placement_data(placement)}
    return [
        {
            "vm": use.vm,
            "slot": use.slot,
            "threads": placed[use.vm, use.slot]["threads"],
            "full": placed[use.vm, use.slot].get("full", False),
            "cpu": use.cpu,
            "memory": use.memory,
        }
        for use in prediction.slots
    ]


def readable_slots(rows: Sequence[Row]) -> list[Row]:
    """The same rows for people: `vm1/0`, `blob 50, table 20`, per cent."""
    return [
        {
            "slot": f"{row['vm']}/{row['slot']}",
            "threads": ", ".join(f"{task} {count}" for task, count in row["threads"].items())
            + (" (full bundle)" if row["full"] else ""),
            "cpu": f"{row['cpu']:.0%}",
            "memory": f"{row['memory']:.0%}",
        }
        for row in rows
    ]


def task_rows(plan: Plan) -> list[Row]:
    """What was allocated to each task, in words of bundles where MBA made them."""
    return [
        {
            "task": task.task,
            "rate_tps": task.rate_tps,
            "threads": task.threads,
            "bundles": _bundles(task.full_bundles, task.bundle_threads, task.rest_threads, task.static),
            "cpu_slots": task.cpu_slots,
            "memory_slots": task.memory_slots,
        }
        for task in plan.allocation.tasks
    ]


def vm_rows(plan: Plan) -> list[Row]:
    """The VMs with what they cost and what is used of them."""
    uses = {use.vm: use for use in plan.prediction.vms}
    return [
        {
            "vm": vm.vm,
            "slots": vm.slots,
            "rack": vm.rack,
            "usd_per_hour": vm.usd_per_hour,
            "cpu_slots": uses[vm.vm].cpu if vm.vm in uses else 0.0,
            "memory_slots": uses[vm.vm].memory if vm.vm in uses else 0.0,
        }
        for vm in plan.vms
    ]


def headline(plan: Plan) -> str:
    """The plan in a sentence."""
    slots, made = plan.slots, f"{plan.allocator}+{plan.mapper}, {plan.routing}"
    added = f", {slots.extra} more than estimated" if slots.extra else ""
    unused = f", {slots.total - slots.used} of them empty" if slots.total > slots.used else ""
    gap = plan.allocation.gap
    if gap is not None:
        added += ", no fewer do" if gap <= 0 else f", at most {gap:.1%} of them too many"
    return (
        f"{plan.topology} at {significant(plan.rate_tps, 6)} rows/s ({made}): "
        f"{counted(slots.total, 'slot')}{unused}{added} "
        f"on {vms_words(plan.vms)}, ${usd_per_hour(plan.vms):g} per hour; {carries(plan.prediction)}"
    )


def carries(prediction: Prediction) -> str:
    """What it supports and why no more."""
    if prediction.told_tps is None:
        return "what it carries is not known yet"
    text = f"carries {significant(prediction.rate_tps, 6)} rows/s"
    if (sure := prediction.sure) is not None:
        text += f", {significant(sure.rate_tps, 6)} of them with a probability of {sure.told} at least"
    if prediction.rate_low_tps is not None and prediction.rate_high_tps is not None:
        likely = f", likely {significant(prediction.likely_tps)}" if prediction.likely_tps is not None else ""
        low, high = significant(prediction.rate_low_tps), significant(prediction.rate_high_tps)
        text += f" (between {low} and {high} by its models{likely})"
    if prediction.limited_by is None:
        return f"{text}; nothing that has a model limits it"
    at = f" in slot {prediction.limited_by_slot}" if prediction.limited_by_slot else ""
    return f"{text}, limited by {prediction.limited_by}{at}"


def vms_words(vms: Sequence[Vm]) -> str:
    """`3 VMs (2 × 4 + 2 slots)`."""
    sizes = Counter(vm.slots for vm in vms)
    parts = (
        f"{count} × {slots}" if count > 1 else f"{slots}"
        for slots, count in sorted(sizes.items(), reverse=True)
    )
    return f"{counted(len(vms), 'VM')} ({' + '.join(parts)} slots)"


def _bundles(full: int, size: int, rest: int, static: bool) -> str:
    if static:
        return "fixed size"
    parts = [f"{full} × {size}"] if full else []
    return " + ".join([*parts, *([str(rest)] if rest else [])])


# ── What a plan's tasks will say to each other across slots and VMs, as data and in sentences ───────────


def planned_traffic(plan: Plan, topology: Topology) -> PlanTraffic:
    """At the planned rate; measured: was it planned by measured traffic?"""
    from headgate.controller.models.plan_data import EdgeTraffic, PlanTraffic
    from headgate.controller.plan.predict.vm_links import crossings_of, links_of, said_on_edges

    said = said_on_edges(plan, topology)
    edges = tuple(
        EdgeTraffic(edge.source, edge.target, edge.selectivity, rows, size)
        for edge, (rows, size) in zip(topology.edges, said, strict=True)
    )
    known = any(vm.bandwidth_bytes_per_s is not None for vm in plan.vms)
    return PlanTraffic(
        bool(plan.prediction.flows),
        **asdict(crossings_of(plan, topology)),
        edges=edges,
        links=links_of(plan, topology) if known else (),
    )


def traffic_data(plan: Plan, topology: Topology) -> dict[str, Any]:
    """The same as plain data."""
    from headgate.controller.models.plan_data import traffic_block

    return traffic_block(planned_traffic(plan, topology))


def traffic_sentences(found: dict[str, Any]) -> list[str]:
    """In a sentence, and by edge what was measured."""
    slots = _amount(found["between_slots_tps"], found["between_slots_bytes_per_s"])
    vms = _amount(found["between_vms_tps"], found["between_vms_bytes_per_s"])
    rows = f"{significant(found['rows_tps'])} rows/s on {counted(len(found['edges']), 'edge')}"
    lines = [f"Of {rows}, {slots} leave a slot and {vms} a VM."]
    if found["measured"]:
        lines += [
            f"Measured, {edge['from']} → {edge['to']}: {edge['selectivity']:.4g} rows for each, "
            + (
                f"{significant(edge['row_bytes'])} bytes"
                if edge["row_bytes"] is not None
                else "of unknown size, all within slots"
            )
            for edge in found["edges"]
        ]
    return lines + [_link(link) for link in found.get("links", ()) if link["bandwidth_mbps"] is not None]


def _link(link: dict[str, Any]) -> str:
    sent, taken = (link[key] * 8e-6 for key in ("out_bytes_per_s", "in_bytes_per_s"))
    has = link["bandwidth_mbps"]
    return (
        f"{link['vm']} sends {significant(sent)} Mbit/s and takes in {significant(taken)}, "
        f"{max(sent, taken) / has:.1%} of the {significant(has)} of its link."
    )


def _amount(rows_tps: float, bytes_per_s: float | None) -> str:
    size = f" ({bytes_per_s:,.0f} bytes/s)" if bytes_per_s is not None else ""
    return f"{significant(rows_tps)} rows/s{size}"


# ── The sentences of `--rates`, made from its rows: what it takes, what breaks first, what is next

EACH = 3  # with up to so many rates each has a sentence; with more, the first and the last


def sentences_of(rows: Sequence[Row], fixed: bool) -> list[str]:
    """A few sentences on all rows; `fixed`: the VMs are there anyhow."""
    planned = [row for row in rows if row["reason"] is None]
    chosen = planned if len(planned) <= EACH else [planned[0], planned[-1]]
    sentences = [_span(planned[0], planned[-1])] if len(planned) > 1 and not fixed else []
    for row in chosen:
        sentences.append(f"{needs(row, fixed)} {breaks(row['rate_tps'], row['limit'])} {next_step(row)}")
    failed = [row for row in rows if row["reason"] is not None]
    if failed:
        rates = ", ".join(significant(row["rate_tps"]) for row in failed)
        sentences.append(f"No plan for {rates} rows/s: {failed[0]['reason']}.")
    return sentences


def _span(low: Row, high: Row) -> str:
    more_slots = high["slots"]["total"] - low["slots"]["total"]
    more_tps = high["rate_tps"] - low["rate_tps"]
    first, last = low["slots"]["total"], high["slots"]["total"]
    text = (
        f"From {significant(low['rate_tps'])} to {significant(high['rate_tps'])} rows/s it takes {first} to "
    )
    text += f"{counted(last, 'slot')}, {money(low['usd_per_hour'])} to {money(high['usd_per_hour'])} an hour"
    if more_tps <= 0:
        return f"{text}."
    return f"{text}: about {100 * more_slots / more_tps:.2g} slots for every 100 rows/s more."


def needs(row: Row, fixed: bool) -> str:
    """`At 250 rows/s you need 19 slots (4,4,4,4,2,1), $1.86 an hour, …`."""
    at = f"At {significant(row['rate_tps'])} rows/s you need "
    cost = f"{money(row['usd_per_hour'])} an hour, {money(row['usd_per_month'])} a month"
    slots = counted(row["slots"]["total"], "slot")
    if fixed:
        return f"{at}{row['slots']['used']} of the {slots} there are ({cost}, used or not)."
    return f"{at}{slots} (VMs of {short_sizes(row['vms'])}), {cost}{_saved(row['baseline'])}."


def _saved(baseline: Row) -> str:
    pair, part = baseline["pair"].upper(), baseline["saved_part"]
    if baseline["slots"] is None:
        return f"; no {pair} ({baseline['reason']})"
    if part is None or baseline["same_pair"]:
        return ""
    much = f"{abs(part):.0%} {'less' if part > 0 else 'more'} than" if part else "as much as"
    text = f", {much} {pair} with its {counted(baseline['slots'], 'slot')}"
    if baseline["short_tps"] > 0:
        return f"{text}, which would carry {significant(baseline['predicted_tps'])} rows/s only"
    return text


def breaks(rate_tps: float, limit: Row) -> str:
    """What breaks first when the rate rises and the plan stays."""
    if limit["by"] is None:
        known = limit["rate_tps"] is not None
        return (
            "Nothing limits the rate: no task has a model."
            if known
            else "What limits the rate is not known yet."
        )
    at, start = significant(limit["rate_tps"]), "The first thing to break"
    if limit["rate_tps"] < rate_tps * (1 - 1e-6):
        start = f"The plan would carry {at} rows/s only: the first thing to break"
    return f"{start} is task {limit['task']} on {limit['slot']}: above {at} rows/s {_why(limit)}."


def between(document: Row) -> str:
    """` (between 240 and 260)`, when the models carry the spread of their measurements."""
    low, high = document["predicted_low_tps"], document["predicted_high_tps"]
    return "" if low is None or high is None else f" (between {significant(low)} and {significant(high)})"


def _why(limit: Row) -> str:
    threads, at, peak = counted(limit["threads"], "thread"), limit["slot"], significant(limit["peak_tps"])
    one, weighted = limit["threads"] == 1, limit["weighted_tps"]
    better = f"; weighted routing would carry {significant(weighted)} on the same slots" if weighted else ""
    if limit["by"] == "routing":
        share = f"shuffle gives its {threads} on {at} {limit['share']:.1%} of the rows"
        return f"{share}, more than the {peak} rows/s they carry at most{better}"
    others = ", and its other slots can take no more" if limit["task_slots"] > 1 and not weighted else ""
    if limit["by"] == "cpu":
        shares = "shares" if one else "share"
        return f"no CPU is left on {at}, where its {threads} {shares} it{others}{better}"
    return f"its {threads} on {at} {'is at its' if one else 'are at their'} peak of {peak} rows/s{others}"


def next_step(row: Row) -> str:
    """How far the same slots go when planned for more, and what the next step costs and buys."""
    same, more = row["same_slots"], row["more_slots"]
    if same is None:
        return "No rate needs more slots than these."
    all_ = same["slots"] != row["slots"]["used"]
    which = f"all {counted(same['slots'], 'slot')}" if all_ else "the same slots"
    start = f"{which[0].upper()}{which[1:]} do no more than {_up_to(same)}"
    if same["rate_tps"] > row["rate_tps"]:
        start = f"Planned again, {which} do up to {_up_to(same)}"
    if more is None:
        return f"{start}, and a few slots more would not help."
    extra = more["slots"] - same["slots"]
    verb, fewer = ("buys", "") if extra == 1 else ("buy", ", fewer buy nothing")
    gain = f"{significant(more['carried_tps'] - same['carried_tps'])} rows/s"
    then = f"{counted(more['slots'], 'slot')}, {money(more['usd_per_hour'])} an hour, up to {_up_to(more)}"
    return f"{start}; {counted(extra, 'slot')} more ({then}) {verb} {gain}{fewer}."


def _up_to(reach: Row) -> str:
    """The rate that plans, and what would be carried of it if that is less."""
    short = reach["carried_tps"] < reach["rate_tps"] * (1 - 1e-6)
    carried = f", of which {significant(reach['carried_tps'])} would be carried" if short else ""
    return f"{significant(reach['rate_tps'])} rows/s{carried}"


def money(usd: float) -> str:
    return f"${usd:,.0f}" if usd >= 1000 else f"${usd:,.2f}"


# ── The text of `--explain`, made from its data ─────────────────────────────────────────

ALL_SLOTS = 24  # of larger plans only slots that are shared have a line each


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


def predicted_words(carried_tps: float | None) -> str:
    if carried_tps is None:
        return "what it carries is not known yet"
    return f"predicted to carry {significant(carried_tps)} rows/s"


def _head(document: Row) -> str:
    pair = f"{document['allocator']}+{document['mapper']}".upper()
    counts = document["slots"]
    extra = f" ({counts['estimated']} estimated and {counts['extra']} extra)" if counts["extra"] else ""
    cost = f"{money(document['usd_per_hour'])} an hour"
    return (
        f"{document['topology']} at {significant(document['rate_tps'])} rows/s by {pair}: "
        f"{counted(counts['total'], 'slot')}{extra} on VMs of {short_sizes(document['vms'])}, {cost}; "
        f"{predicted_words(document['predicted_tps'])}{between(document)}"
    )


# ── why so many threads ─────────────────────────────────────────────────────────────────────────


def _threads(reason: Row) -> str:
    task, count = reason["task"], counted(reason["threads"], "thread")
    sees = f"{task} sees {significant(reason['rate_tps'])} rows/s"
    if reason["rule"] == "fixed":
        needs = f"CPU {reason['cpu_slots']:.2f} and memory {reason['memory_slots']:.2f}"
        return f"{task} is of fixed size: {count}, {needs} of a slot, as the topology says."
    if reason["rule"] == "unmeasured":
        return f"{sees}; what its rows cost is not known yet: {count}."
    one = f"which carries {significant(reason['one_thread_tps'])} (I(1))"
    if reason["rule"] == "lone":
        return f"{sees}; it may run in one thread only, {one}: {count}."
    if reason["rule"] == "linear":
        return f"{sees}; as often as one thread, {one}, goes into that: {count}."
    if reason["rule"] == "bundles":
        return f"{sees}; {_bundle_words(reason)}: {count}."
    return f"{sees}: {count}."


def _bundle_words(reason: Row) -> str:
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
    mapper = MAPPERS.get(document["mapper"])  # none: of a plug-in that is not installed here
    rule = [mapper.words] if mapper is not None else []
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
    """When SAM put it there: what was free then."""
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
        lines.append(f"Input rates at which all threads of a task are at their peaks: {each} rows/s.")
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
    short = 0.0 if carried is None else document["rate_tps"] - carried
    carries = (
        "would carry what is not known yet"
        if carried is None
        else f"would carry {significant(carried)} rows/s"
    )
    at = f" ({row['limited_by']} on {row['limited_by_slot']} limits it)" if row["limited_by"] else ""
    about = f"{pair}: {counted(row['slots']['total'], 'slot')}, {money(row['usd_per_hour'])} an hour, {carries}{at}"
    return f"{about}: {_verdict(row['slots']['used'] - document['slots']['used'], short)}."


def _verdict(more_slots: int, short_tps: float) -> str:
    """What speaks against another pair; nothing may."""
    against = [f"{counted(more_slots, 'slot')} more"] if more_slots > 0 else []
    if short_tps > 1e-6:
        against.append(f"{significant(short_tps)} rows/s short")
    if against:
        return " and ".join(against)
    return (
        f"{counted(-more_slots, 'slot')} fewer, and it carries the rate"
        if more_slots < 0
        else "would do as well"
    )
