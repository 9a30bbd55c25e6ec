"""The data as a page: each figure beside the paper's, and what differs. Pure: the same data give the same page."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from headgate.lab.reproduction.rate_stair import DOUBT
from headgate.lab.reproduction.reproduction_answers import (
    achieved,
    cpu_of_slots,
    gains,
    rate_scores,
    slots_per_rate,
    use_scores,
)
from headgate.lab.reproduction.reproduction_cells import ACQUIRED, FIXED, MICRO

Data = dict[str, Any]
PREFIX = "reproduction-"  # of the pictures' files
PAPER_R2 = {
    "planned": "0.55 to 0.69",
    "predicted": "0.71 to 0.95",
    "likely": "0.71 to 0.95",
    "cpu": "≥ 0.81",
    "memory": "≥ 0.55",
}


# ── the page ────────────────────────────────────────────────────────────────────────────────────


def page(data: Data) -> str:
    fixed = _fixed(data)
    parts = [
        _head(data),
        "## In short\n",
        _table(
            (
                "what",
                "section, figure",
                "paper 0 (shuffle)",
                "here, shuffle",
                "here, weighted",
                "both",
                "cells",
            ),
            _short_rows(data, fixed),
        ),
        "## Slots that a rate needs (8.4, Fig. 7 and 8)\n",
        _slots_words(data),
        "## Planned, predicted and actual rate on fixed slots (8.5.1, Fig. 9 and 10)\n",
        _rates_words(data, fixed),
        "## CPU and memory (8.5.2, Fig. 11 and 12)\n",
        _use_words(data, fixed),
        "## Latency (8.6, Fig. 13)\n",
        _latency_words(fixed),
        "## What differs from the paper\n",
        _differences(data),
    ]
    return "\n".join(parts).rstrip() + "\n"


def _head(data: Data) -> str:
    of, cells = data["settings"], data["cells"]
    failed = [cell for cell in cells if cell.get("failed")]
    unstable = sum(not cell["actual_tps"] for cell in cells if not cell.get("failed"))
    done = f"{len(cells)} of {data['wanted']} cells"
    lost = sum(cell["tuples"]["lost"] for cell in cells if cell.get("tuples"))
    words = [
        "# Paper 0's experiments on this runtime\n",
        "Sections 8.4 to 8.6 of A. Shukla, Y. Simmhan, *Model-driven Scheduling for Distributed Stream Processing",
        "Systems*, run for real: each cell is a whole run of `headgate up` with a plan that is given and held, led up",
        "a stair of rates until it does not keep up. The Spark pipeline (`headgate analyze`) judged the steps from the",
        "traces. This page is made from [reproduction.json](reproduction.json) and holds nothing else.\n",
        f"- **Command**: `{data['command']}` (resumable; `--short` for a minute).",
        f"- **Machine**: {data['machine']}; VMs of {of['vms']} slots, each slot {of['slot_cores']:g} core and "
        f"{of['slot_memory_bytes'] / 2**20:.0f} MiB; VMs are processes on it.",
        f"- **Done**: {done}, from {data['began']} to {data['ended']} UTC, {data['run_minutes']:.0f} min of runs; "
        f"{len(failed)} failed; {unstable} kept up with no step and are scored nowhere; tuples lost: {lost}.",
        f"- **A step**: {of['short_s']:g} to {DOUBT * of['long_s']:g} s at one rate, each {of['step']:.0%} above the "
        f"one before, from {of['first']:.0%} of the predicted rate; stable: latency (in the trace) and queue (while it "
        "was led) grow by at most 0.02 s/s; a rate that fails is tried twice. The *actual* rate is the geometric mean "
        "of the last stable step and the next.",
        "- **R²** is 1 − SSres / SStot about the line predicted = actual.\n",
    ]
    if failed:
        words += [f"- failed: {cell['key']}: {cell['failed']}" for cell in failed] + [""]
    return "\n".join(words)


def _short_rows(data: Data, fixed: Sequence[Data]) -> list[Sequence[str]]:
    rows: list[Sequence[str]] = []
    shapes = [*_order(data, "shape"), None]

    def add(
        what: str, where: str, paper: str, of: Callable[[Sequence[Data]], str], cells: Sequence[Data]
    ) -> None:
        cells = [cell for cell in cells if cell["actual_tps"]]
        parts = [[c for c in cells if c["routing"] == routing] for routing in ("shuffle", "weighted")]
        rows.append(
            (what, where, paper, *(of(part) if part else "–" for part in (*parts, cells)), str(len(cells)))
        )

    for of, words, where, at in (
        ("planned", "planned", "8.5.1, Fig. 9", False),
        ("predicted", "predicted", "8.5.1, Fig. 10", False),
        ("likely", "likely", "8.5.1, Fig. 10", False),
        ("likely", "likely, for the speed of the machine in the run,", "8.5.1, Fig. 10", True),
    ):
        for shape in shapes:
            what = f"{words} against actual rate, {shape or 'all shapes'}: R² (median error)"
            paper = PAPER_R2[of] if shape in MICRO else "–"
            fit = lambda cells, of=of, at=at: _rate_fit(cells, of, at)  # noqa: E731
            add(what, where, paper, fit, _of_shape(fixed, shape))
    for of, words, where, at in (
        ("cpu", "CPU of VMs", "8.5.2, Fig. 11", False),
        ("cpu", "CPU of VMs, for the speed of the machine in the run", "8.5.2, Fig. 11", True),
        ("memory", "memory of VMs", "8.5.2, Fig. 12", False),
    ):
        for shape in shapes:
            what = f"{words}, {shape or 'all shapes'}: R²"
            paper = PAPER_R2[of] if shape in MICRO else "–"
            fit = lambda cells, of=of, at=at: _number(use_scores(cells, of, True, at)["r2"])  # noqa: E731
            add(what, where, paper, fit, _of_shape(fixed, shape))
    for allocator, paper in (("lsa", "15 to 35 %"), ("mba", "70 to 90 %")):
        mine = [cell for cell in fixed if cell["pair"].startswith(allocator)]
        if mine:
            what = f"CPU of all slots on average, pairs with {allocator.upper()}"
            add(what, "8.5.2", paper, lambda cells: _percent(cpu_of_slots(cells)), mine)
    above = [cell for cell in fixed if cell["pair"].split("+")[1] in ("dsm", "rsm")]
    if above:
        add("actual rate of MBA above LSA's, same mapper", "8.5.1", "20 to 175 %", _above, above)
    acquired = [cell for cell in data["cells"] if cell["section"] == ACQUIRED and not cell.get("failed")]
    for pair, paper in (
        ("mba+sam", "≥ 90 % micro, ≥ 95 % applications"),
        ("lsa+rsm", "≥ 70 % micro, ≥ 60 % applications"),
    ):
        for section, words, cells, said in (
            ("8.4", "slots acquired", acquired, paper),
            ("8.5", "fixed slots", fixed, "–"),
        ):
            mine = [cell for cell in cells if cell["pair"] == pair]
            if mine:
                what = f"actual / planned rate, {pair.upper()}, {words}: mean (least)"
                add(what, section, said, partial(_achieved, pair=pair), mine)
    for row in _ratios(data):
        what = f"slots of MBA+SAM for one of LSA+RSM at the same achieved rate, {row['shape']}"
        paper = "about 0.5, as planned" if row["shape"] in MICRO else "0.50 to 0.67, as planned"
        rows.append((what, "8.4", paper, "–", f"{row['ratio']:.2f}", "–", str(row["n"])))
    return rows


def _above(cells: Sequence[Data]) -> str:
    found = gains(cells)
    return f"{100 * min(found):.0f} to {100 * max(found):.0f} %" if found else "–"


def _of_shape(cells: Sequence[Data], shape: str | None) -> list[Data]:
    """None: all."""
    return [cell for cell in cells if shape in (None, cell["shape"])]


def _rate_fit(cells: Sequence[Data], of: str, at_speed: bool) -> str:
    score = rate_scores(cells, at_speed)[of]
    return f"{_number(score['r2'])} ({_percent(score['median_error'])})"


def _achieved(cells: Sequence[Data], pair: str) -> str:
    found = achieved(cells, pair)
    return f"{_percent(found['mean'])} ({_percent(found['least'])})"


def _ratios(data: Data) -> list[Data]:
    cells = [cell for cell in data["cells"] if not cell.get("failed")]
    found = (slots_per_rate(cells, shape, "weighted") for shape in _order(data, "shape"))
    return [row for row in found if row is not None]


def _slots_words(data: Data) -> str:
    rows = []
    done = [cell for cell in data["cells"] if cell["section"] == ACQUIRED and not cell.get("failed")]
    run = {(cell["shape"], cell["pair"], cell["planned_tps"]): cell for cell in done}
    for row in data["slot_counts"]:
        cell = run.get((row["shape"], row["pair"], row["rate_tps"]))
        rows.append((
            row["shape"], f"{row['rate_tps']:g}", row["pair"].upper(), str(row["estimated"]), str(row["extra"]),
            str(row["total"]), _cell_rate(cell), _percent(_share(cell)),
        ))  # fmt: skip
    columns = (
        "shape",
        "planned tuples/s",
        "pair",
        "slots allocated",
        "added",
        "in all",
        "actual tuples/s",
        "of planned",
    )
    words = (
        "For a quarter, a half and the whole of the rate that MBA+SAM plans on the fixed slots (the paper: 50, 100 and "
        "200 tuples/s). VMs are acquired by size 4, 2, 1. The half was run, weighted, where this machine has the "
        "slots; the stair went on above the planned rate.\n"
    )
    return f"{words}\n![slots]({PREFIX}slots.svg)\n\n{_table(columns, rows)}"


def _rates_words(data: Data, fixed: Sequence[Data]) -> str:
    rows = []
    for cell in sorted(
        fixed, key=lambda c: (_order(data, "shape").index(c["shape"]), c["pair"], c["routing"])
    ):
        rows.append((
            cell["shape"], cell["pair"].upper(), cell["routing"], _rate(cell.get("planned_tps")),
            _rate(cell.get("predicted_tps")), _rate(cell.get("likely_tps")), _cell_rate(cell), _percent(_share(cell)),
            _percent(_share(cell, "likely_tps")), cell.get("limited_by") or "–",
        ))  # fmt: skip
    columns = (
        "shape", "pair", "routing", "planned", "predicted", "likely", "actual (last stable … next)", "of planned",
        "of likely", "limited by (predicted)",
    )  # fmt: skip
    at = rate_scores(fixed, at_speed=True)
    raw = rate_scores(fixed)
    words = (
        f"All {raw['n']} cells: predicted R² {_number(raw['predicted']['r2'])}, error median "
        f"{_percent(raw['predicted']['median_error'])}, 95 % {_percent(raw['predicted']['p95_error'])}. *Likely* is "
        f"what the slowest of several slots that are about full together carries, each being off by a twentieth "
        f"(`controller/plan/predict/prediction.py`): R² {_number(raw['likely']['r2'])}, median "
        f"{_percent(raw['likely']['median_error'])}, 95 % {_percent(raw['likely']['p95_error'])}. From models brought "
        f"to the speed that the machine had in the last stable step and the next, by a loop in a slot beside it: "
        f"likely R² {_number(at['likely']['r2'])}, median {_percent(at['likely']['median_error'])}.\n"
    )
    images = (
        "\n\n".join(f"![{name}]({PREFIX}{name}.svg)" for name in ("planned", "predicted", "likely")) + "\n"
    )
    return f"{words}\n{images}\n{_table(columns, rows)}"


def _use_words(data: Data, fixed: Sequence[Data]) -> str:
    rows = []
    for shape in [*_order(data, "shape"), None]:
        cells = _of_shape(fixed, shape)
        cpu, memory = (use_scores(cells, of, by_vm=False) for of in ("cpu", "memory"))
        rows.append((
            shape or "**all**", str(cpu["n"]), _number(cpu["r2"]), _points(cpu["mean_error"]),
            _number(memory["r2"]), _points(memory["mean_error"]),
        ))  # fmt: skip
    columns = ("shape", "slots", "CPU R²", "mean error, points", "memory R²", "mean error, points")
    words = (
        "At the last stable step: measured in the trace, predicted at the rate that came through. The pictures have a "
        "point per VM, as the paper's; the table a point per slot. Memory is what the slot's process holds.\n"
    )
    pictures = f"![cpu]({PREFIX}cpu.svg)\n\n![memory]({PREFIX}memory.svg)"
    return f"{words}\n{pictures}\n\n{_table(columns, rows)}\n{_end_words(data)}"


def _end_words(data: Data) -> str:
    rows = [
        (shape, task, f"{100 * cpu:.2g}")
        for shape, ends in data["ends"].items()
        for task, cpu in ends.items()
    ]
    words = (
        "Source and sink reserve 10 % of a slot each in the paper. Here what they used in a run by MBA+DSM, at four "
        "fifths of its predicted rate, was declared in proportion to their rate (`cpu_per_tps`).\n"
    )
    columns = ("shape", "task", "CPU of a slot for each tuple/s of the task, points")
    return f"{words}\n{_table(columns, rows)}"


def _latency_words(fixed: Sequence[Data]) -> str:
    rows = [
        (cell["shape"], cell["pair"].upper(), cell["routing"], _rate(cell["low_tps"]),
         *(_ms(cell["latency"][name]) for name in ("p50_s", "p95_s", "p99_s")))
        for cell in sorted(fixed, key=lambda c: (c["shape"], c["pair"], c["routing"]))
        if cell.get("latency")
    ]  # fmt: skip
    columns = ("shape", "pair", "routing", "at tuples/s", "p50, ms", "p95, ms", "p99, ms")
    words = (
        "From the intended emit time to the sink, at the last stable step, so near the limit of each plan, and at "
        "different rates. The paper gives no numbers, but an order of medians: MBA+DSM ≤ LSA+DSM, MBA+RSM ≤ LSA+RSM ≤ "
        "MBA+SAM, and Diamond below Star below Linear.\n"
    )
    return f"{words}\n![latency]({PREFIX}latency.svg)\n\n{_table(columns, rows)}"


def _differences(data: Data) -> str:
    of = data["settings"]
    return "\n".join([
        f"- The paper has 20 slots of a whole core on five VMs (8.5); here VMs of {of['vms']} slots of "
        f"{of['slot_cores']:g} core on one machine, beside controller, agents and what else runs on it. Few slots make "
        "few placements: pairs often plan nearly alike.",
        "- Blob and table are plain waits (200 ms, 50 ms) in place of Azure's services, so LSA has no memory to run "
        "out of, which is what decides most of the paper's slot counts; π and XML compute a fifth as long.",
        "- The tasks are Python: threads of one slot share an interpreter lock.",
        "- Finance, Traffic and Smart grid have shapes of ours (see [docs/paper.md](../paper.md)).",
        "- Trials take seconds where the paper's took 15 minutes, and each cell was run once.",
        "- *weighted* routing is headgate's; the paper's Storm shuffles.",
    ])  # fmt: skip


# ── small means ─────────────────────────────────────────────────────────────────────────────────


def _fixed(data: Data) -> list[Data]:
    return [cell for cell in data["cells"] if cell["section"] == FIXED and not cell.get("failed")]


def _order(data: Data, key: str) -> list[str]:
    """In the order of the settings, and only those there are."""
    there = {cell[key] for cell in data["cells"]}
    return [name for name in data[f"{key}s"] if name in there]


def _share(cell: Mapping[str, Any] | None, of: str = "planned_tps") -> float | None:
    return cell["actual_tps"] / cell[of] if cell and cell.get("actual_tps") else None


def _cell_rate(cell: Mapping[str, Any] | None) -> str:
    if cell is None or cell.get("failed"):
        return "–"
    if cell["actual_tps"] is None:
        return "none"
    high = _rate(cell["high_tps"]) if cell["bounded"] else "?"
    return f"{_rate(cell['actual_tps'])} ({_rate(cell['low_tps'])} … {high})"


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows), ""])


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f} %"


def _points(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f}"


def _rate(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}"


def _ms(value: float | None) -> str:
    return "–" if value is None else f"{1000 * value:.0f}"
