"""The data as a page: each figure beside the paper's, and what differs. The same data give the same page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from headgate.lab.markdown import table, wrapped
from headgate.lab.reproduction.rate_stair import DOUBT
from headgate.lab.reproduction.reproduction_answers import (
    achieved,
    by_latency,
    cpu_of_slots,
    gains,
    rate_scores,
    slots_per_rate,
    use_scores,
)
from headgate.lab.reproduction.reproduction_cells import ACQUIRED, FIXED, MICRO

Data = dict[str, Any]
PREFIX = "reproduction-"  # of the pictures' files
DRAWN = ("slots", "planned", "predicted", "likely", "cpu", "memory", "latency")
PAPER_R2 = {
    "planned": "0.55 to 0.69",  # of each micro topology
    "predicted": "0.71 to 0.95",
    "likely": "0.71 to 0.95",
    "cpu": "≥ 0.81",
    "memory": "≥ 0.55",
}
PAPER_LATENCIES = "mba+dsm≤lsa+dsm,mba+rsm≤lsa+rsm≤mba+sam"


# ── the page ────────────────────────────────────────────────────────────────────────────────────


def page(data: Data) -> str:
    fixed = _fixed(data)
    columns = (
        "what",
        "section, figure",
        "paper 0 (shuffle)",
        "here, shuffle",
        "here, weighted",
        "both",
        "cells",
    )
    parts = [
        _head(data),
        "## In short\n",
        table(columns, _short_rows(data, fixed)) + "\n",
        "## By shape\n",
        _by_shape(data, fixed),
        "## Pictures\n",
        _pictures(),
        "## What differs from the paper\n",
        _differences(data),
    ]
    return "\n".join(wrapped(line) for line in "\n".join(parts).rstrip().split("\n")) + "\n"


def _head(data: Data) -> str:
    of, cells = data["settings"], data["cells"]
    failed = [cell for cell in cells if cell.get("failed")]
    unstable = sum(not cell["actual_tps"] for cell in cells if not cell.get("failed"))
    done = f"{len(cells)} of {data['wanted']} cells"
    lost = sum(cell["tuples"]["lost"] for cell in cells if cell.get("tuples"))
    words = [
        "# Paper 0's experiments on this runtime\n",
        "Sections 8.4 to 8.6 of A. Shukla, Y. Simmhan, *Model-driven Scheduling for Distributed Stream Processing "
        "Systems*, run for real: each cell is a whole run of `headgate up` with a given plan, led up a stair of rates "
        "until it does not keep up. `headgate analyze` judged the steps from the traces. "
        "[reproduction.json](reproduction.json) has every cell.\n",
        f"- **Command**: `{data['command']}` (resumable; `--short` for a minute).",
        f"- **Machine**: {data['machine']}; VMs of {of['vms']} slots, each slot {of['slot_cores']:g} core and "
        f"{of['slot_memory_bytes'] / 2**20:.0f} MiB; VMs are processes on it.",
        f"- **Done**: {done}, from {data['began']} to {data['ended']} UTC, {data['run_minutes']:.0f} min of runs; "
        f"{len(failed)} failed; {unstable} kept up with no step and are scored nowhere; rows lost: {lost}.",
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
        ("likely", "expected", "8.5.1, Fig. 10", False),
        ("likely", "expected, at the machine's speed in the run,", "8.5.1, Fig. 10", True),
    ):
        fit = lambda cells, of=of, at=at: _rate_fit(cells, of, at)  # noqa: E731
        add(f"{words} against actual rate: R² (median error)", where, PAPER_R2[of], fit, fixed)
    for of, words, where, at in (
        ("cpu", "CPU of VMs", "8.5.2, Fig. 11", False),
        ("memory", "memory of VMs", "8.5.2, Fig. 12", False),
    ):
        fit = lambda cells, of=of, at=at: _number(use_scores(cells, of, True, at)["r2"])  # noqa: E731
        add(f"{words}: R²", where, PAPER_R2[of], fit, fixed)
    for allocator, paper in (("lsa", "15 to 35%"), ("mba", "70 to 90%")):
        mine = [cell for cell in fixed if cell["pair"].startswith(allocator)]
        if mine:
            what = f"CPU of all slots on average, pairs with {allocator.upper()}"
            add(what, "8.5.2", paper, lambda cells: _percent(cpu_of_slots(cells)), mine)
    above = [cell for cell in fixed if cell["pair"].split("+")[1] in ("dsm", "rsm")]
    if above:
        add("actual rate of MBA above LSA's, same mapper", "8.5.1", "20 to 175%", _above, above)
    micro = [cell for cell in fixed if cell["shape"] in MICRO and cell.get("latency")]
    for key, words, paper in (
        ("shape", "micro shapes", "diamond<star<linear"),
        ("pair", "pairs", PAPER_LATENCIES),
    ):
        add(f"median latency of {words}, rising", "8.6, Fig. 13", paper, partial(_rising, key=key), micro)
    acquired = [cell for cell in data["cells"] if cell["section"] == ACQUIRED and not cell.get("failed")]
    for pair, paper in (
        ("mba+sam", "≥ 90% micro, ≥ 95% applications"),
        ("lsa+rsm", "≥ 70% micro, ≥ 60% applications"),
    ):
        for section, words, cells, said in (
            ("8.4", "slots acquired", acquired, paper),
            ("8.5", "fixed slots", fixed, "–"),
        ):
            mine = [cell for cell in cells if cell["pair"] == pair]
            if mine:
                what = f"actual / planned rate, {pair.upper()}, {words}: mean (least)"
                add(what, section, said, partial(_achieved, pair=pair), mine)
    return rows


def _rising(cells: Sequence[Data], key: str) -> str:
    return "<".join(by_latency(cells, key)) or "–"


def _above(cells: Sequence[Data]) -> str:
    found = gains(cells)
    return f"{100 * min(found):.0f} to {100 * max(found):.0f}%" if found else "–"


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


def _by_shape(data: Data, fixed: Sequence[Data]) -> str:
    ratios = {row["shape"]: row["ratio"] for row in _ratios(data)}
    rows = []
    for shape in _order(data, "shape"):
        cells = [cell for cell in fixed if cell["shape"] == shape and cell["actual_tps"]]
        cpu, memory = (use_scores(cells, of, True, False)["r2"] for of in ("cpu", "memory"))
        rows.append((
            shape, str(len(cells)), _rate_fit(cells, "predicted", False), _rate_fit(cells, "likely", False),
            _number(cpu), _number(memory), _number(ratios.get(shape)),
        ))  # fmt: skip
    columns = (
        "shape", "cells", "predicted rate: R² (median error)", "expected rate: R² (median error)", "CPU of VMs: R²",
        "memory of VMs: R²", "slots of MBA+SAM for one of LSA+RSM at the same achieved rate",
    )  # fmt: skip
    return table(columns, rows) + "\n"


def _pictures() -> str:
    words = (
        "*Expected* is what the slowest of several slots that are about full together carries, each being off by a "
        "twentieth. CPU, memory and latency are those of the last stable step.\n"
    )
    images = "\n\n".join(f"![{name}]({PREFIX}{name}.svg)" for name in DRAWN)
    return f"{words}\n{images}\n"


def _differences(data: Data) -> str:
    of = data["settings"]
    return "\n".join([
        f"- The paper has 20 slots of a whole core on five VMs (8.5); here VMs of {of['vms']} slots of "
        f"{of['slot_cores']:g} core on one machine, beside controller and agents. Few slots make "
        "few placements: pairs often plan nearly alike.",
        "- Blob and table are plain waits (200 ms, 50 ms) in place of Azure's services, so LSA runs out of no "
        "memory, which decides most of the paper's slot counts; π and XML compute a fifth as long.",
        "- Finance, Traffic and Smart grid have [shapes of ours](../explanation/papers.md).",
        "- Trials take seconds, the paper's 15 minutes; each cell was run once.",
    ])  # fmt: skip


# ── small means ─────────────────────────────────────────────────────────────────────────────────


def _fixed(data: Data) -> list[Data]:
    return [cell for cell in data["cells"] if cell["section"] == FIXED and not cell.get("failed")]


def _order(data: Data, key: str) -> list[str]:
    """In the order of the settings, and only those there are."""
    there = {cell[key] for cell in data["cells"]}
    return [name for name in data[f"{key}s"] if name in there]


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f}%"
