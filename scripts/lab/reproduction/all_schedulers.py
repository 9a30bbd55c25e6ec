"""Every scheduler on the same topologies and graphs, planned, and some run: docs/experiments/all-schedulers.md.

scripts/reproduce --planners all                       plans and graphs; runs stay as they were
scripts/reproduce --planners mba+sam,optimal+optimal   only these pairs
scripts/reproduce --planners all --run linear,diamond  … and run two of them on these shapes
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

from headgate.controller.plan.placing.placement_problem import missing, saved
from headgate.controller.plan.scaling import compared
from headgate.controller.plan.schedulers import PAIRS
from headgate.controller.plan.schedulers import pairs as all_pairs
from headgate.controller.planning_commands.plan_request import pairs_of, supply_of
from headgate.controller.planning_commands.planning_options import asked
from headgate.lab.markdown import table, wrapped
from headgate.lab.placing.placing_algorithms import PLACERS, optimal, placed
from headgate.lab.placing.problem_files import asked_of
from headgate.lab.placing.random_problems import random_problem
from headgate.lab.reproduction.reproduction_cells import FIXED, SHAPES
from headgate.lab.reproduction.reproduction_writing import machine
from headgate.topology_runtime.errors import HeadgateError, UsageError

# ── All schedulers side by side, as a page: the same data give the same page. Pure ───
#
# plans: {topology, rate_tps, pair, slots, usd_per_hour, weighted_tps, shuffle_tps, rows_tps,
# between_slots_tps, between_vms_tps, seconds, reason}; graphs: {what, of_optimum, worst, incomplete, seconds}
# runs: {shape, pair, slots, planned_tps, predicted_tps, actual_tps, bounded, lowest_tps (that was offered)}

Data = dict[str, Any]
OURS, USUAL = "optimal+optimal", "mba+sam"
CARRIED = 0.995  # of the rate: a plan that is predicted to carry less is no plan for it
SHOWN_TPS = 100.0


def page(data: Data) -> str:
    at = [plan for plan in data["plans"] if plan["rate_tps"] == SHOWN_TPS]
    parts = [
        _head(data),
        _slots(data),
        _rates(at),
        _graphs(data),
        _runs(data),
        _loses(data),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _head(data: Data) -> str:
    rates = ", ".join(f"{rate:g}" for rate in data["rates"])
    setting = (
        f"Pairs of allocator and mapper on six topologies with the published models at {rates} rows/s, on VMs of "
        "4, 2 and 1 slots at $0.098 an hour for a slot; placers on paper 2's graphs; two pairs run. "
        "[all-schedulers.json](all-schedulers.json) has all figures."
    )
    machine = (
        f"Machine: {data['machine']}, {data['when']}, with {data['load']}. Times are CPU time, medians of "
        f"n = {data['turns']}: compare them with each other only."
    )
    command = f"```\n{data['command']}\n```"
    return f"# All schedulers side by side\n\n{wrapped(setting)}\n\n{command}\n\n{wrapped(machine)}"


def _table(title: str, words: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return f"## {title}\n\n{wrapped(words)}\n\n{table(columns, rows)}"


def _by_topology(plans: Sequence[Data], cell: Callable[[Data], str]) -> tuple[list[str], list[list[str]]]:
    """(columns, rows) of a table with a row per pair and a column per topology."""
    names = list(dict.fromkeys(plan["topology"] for plan in plans))
    pairs = list(dict.fromkeys(plan["pair"] for plan in plans))
    by = {(plan["pair"], plan["topology"]): plan for plan in plans}

    def shown(pair: str, name: str) -> str:
        found = by[pair, name]
        return "–" if found["reason"] else cell(found)

    return ["pair", *names], [[f"`{pair}`", *(shown(pair, name) for name in names)] for pair in pairs]


def _slots(data: Data) -> str:
    plans = data["plans"]
    rates = data["rates"]
    by = {(plan["pair"], plan["topology"], plan["rate_tps"]): plan for plan in plans}
    first = [plan for plan in plans if plan["rate_tps"] == rates[0]]

    def cell(plan: Data) -> str:
        found = [by[plan["pair"], plan["topology"], rate] for rate in rates]
        return "/".join("–" if one["reason"] else str(one["slots"]) for one in found)

    names = list(dict.fromkeys(plan["topology"] for plan in first))
    pairs = list(dict.fromkeys(plan["pair"] for plan in first))
    rows = [
        [f"`{pair}`", *(cell({"pair": pair, "topology": name}) for name in names), _cost(plans, pair)]
        for pair in pairs
    ]
    shown = "/".join(f"{rate:g}" for rate in rates)
    words = (
        f"Acquired for {shown} rows/s, and what all six cost an hour at {SHOWN_TPS:g}. –: no plan. Fewer are "
        "better only where the rate is carried (next table)."
    )
    return _table("Slots and cost", words, ["pair", *names, f"$ per hour at {SHOWN_TPS:g}"], rows)


def _cost(plans: Sequence[Data], pair: str) -> str:
    own = [plan for plan in plans if plan["pair"] == pair and plan["rate_tps"] == SHOWN_TPS]
    return "–" if any(plan["reason"] for plan in own) else f"{sum(plan['usd_per_hour'] for plan in own):.2f}"


def _rates(at: Sequence[Data]) -> str:
    columns, rows = _by_topology(
        at,
        lambda plan: (
            f"{_part(plan['weighted_tps'], plan['rate_tps'])}/{_part(plan['shuffle_tps'], plan['rate_tps'])}"
        ),
    )
    words = f"Predicted, in % of {SHOWN_TPS:g} rows/s (100 at most): weighted/shuffled routing."
    return _table("What the plans carry", words, columns, rows)


def _part(tps: float, of_tps: float) -> str:
    return f"{min(100.0, 100 * tps / of_tps):.0f}"


def _left(plan: Data, name: str) -> float:
    return float(plan[name] / plan["rows_tps"])


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:,.0f}" if seconds >= 0.01 else f"{1000 * seconds:.2g}"


def _graphs(data: Data) -> str:
    rows = [
        [
            f"`{row['what']}`",
            f"{row['of_optimum']:.1%}",
            f"{row['worst']:.1%}",
            str(row["incomplete"]),
            _ms(row["seconds"]),
        ]
        for row in data["graphs"]
    ]
    words = (
        f"{data['graphs_n']} graphs by seeds from {data['graphs_from']} on: 17 tasks in 3 to 7 groups on 8 nodes. "
        "Traffic that is saved, as a part of the optimum's, over all graphs and in the worst one; placements with a "
        "task left over; milliseconds (median)."
    )
    return _table("Paper 2's graphs", words, ["placer", "saved", "worst", "incomplete", "ms"], rows)


def _runs(data: Data) -> str:
    if not data["runs"]:
        return ""
    rows = []
    for (shape, pair), found in _of_cells(data["runs"]).items():
        shown = ", ".join(_shown(run) for run in found)
        planned = median(run["planned_tps"] for run in found)
        could = median(run["predicted_tps"] / run["planned_tps"] for run in found)
        rows.append(
            [
                shape,
                f"`{pair}`",
                str(found[0]["slots"]),
                f"{planned:g}",
                f"{could:.2f}",
                shown,
                _part_of(_achieved(found)),
            ]
        )
    words = (
        "The highest rate that each plan has on the same fixed slots (models measured there; median), and "
        "the part of it that a run kept up with, led up a stair of rates. < a part: even the lowest step was too "
        "high; such a run is not in the median. Runs alternate."
    )
    if of := data.get("runs_of"):
        words = f"{words[:-1]}; of an earlier day: {of}."
    columns = [
        "shape",
        "pair",
        "slots",
        "planned rows/s",
        "predicted / planned",
        "achieved / planned, each run",
        "median",
    ]
    return _table("Run", words, columns, rows)


def _of_cells(runs: Sequence[Data]) -> dict[tuple[str, str], list[Data]]:
    found: dict[tuple[str, str], list[Data]] = {}
    for run in sorted(runs, key=lambda run: (run["shape"], run["pair"])):
        found.setdefault((run["shape"], run["pair"]), []).append(run)
    return found


def _shown(run: Data) -> str:
    if run["actual_tps"] is None:
        return f"< {run['lowest_tps'] / run['planned_tps']:.2f}"
    return f"{'' if run['bounded'] else '≥ '}{run['actual_tps'] / run['planned_tps']:.2f}"


def _achieved(found: Sequence[Data]) -> float | None:
    """Of the planned rate, the median of the runs that kept up with a step; None where none did."""
    parts = [run["actual_tps"] / run["planned_tps"] for run in found if run["actual_tps"] is not None]
    return median(parts) if parts else None


def _part_of(part: float | None) -> str:
    return "–" if part is None else f"{part:.2f}"


# ── where ours loses ────────────────────────────────────────────────────────────────────────────


def _loses(data: Data) -> str:
    at = [plan for plan in data["plans"] if plan["rate_tps"] == SHOWN_TPS and not plan["reason"]]
    ours = {plan["topology"]: plan for plan in at if plan["pair"] == OURS}
    if not ours:
        return ""
    usual = {plan["topology"]: plan for plan in at if plan["pair"] == USUAL}
    others = [
        plan for plan in at if plan["pair"] != OURS and plan["weighted_tps"] >= CARRIED * plan["rate_tps"]
    ]
    lines = [
        f"- **Slots**: {_slots_lost(ours, others)}",
        f"- **Rows between slots**: {_lost(ours, others, 'between_slots_tps')}",
        f"- **Rows between VMs**: {_lost(ours, others, 'between_vms_tps')}",
        f"- **Shuffle routing**: {_shuffle_lost(ours, others)}",
        f"- **Time**: a plan takes {_times(ours, usual)} as long as by `{USUAL}` (median of the topologies).",
    ]
    lines += [line for line in (_graphs_lost(data), _runs_lost(data)) if line]
    head = f"`{OURS}` beside plans that are predicted to carry {SHOWN_TPS:g} rows/s with weighted routing:"
    return "\n".join(["## Where ours loses", "", wrapped(head), "", *map(wrapped, lines)])


def _times(ours: dict[str, Data], usual: dict[str, Data]) -> str:
    ratios = [own["seconds"] / usual[name]["seconds"] for name, own in ours.items() if name in usual]
    return f"{median(ratios):,.0f} ×" if ratios else "–"


def _slots_lost(ours: dict[str, Data], others: Sequence[Data]) -> str:
    fewer = [plan for plan in others if plan["slots"] < ours[plan["topology"]]["slots"]]
    if fewer:
        return (
            "; ".join(f"{plan['topology']}: `{plan['pair']}` takes {plan['slots']}" for plan in fewer) + "."
        )
    same = sorted({plan["topology"] for plan in others if plan["slots"] == ours[plan["topology"]]["slots"]})
    return f"nowhere; as many are taken by others on {', '.join(same)}." if same else "nowhere."


def _lost(ours: dict[str, Data], others: Sequence[Data], name: str) -> str:
    told = []
    for topology, own in ours.items():
        there = [plan for plan in others if plan["topology"] == topology]
        best = min(there, key=lambda plan: _left(plan, name), default=None)
        if best is not None and _left(best, name) < _left(own, name) - 0.005:
            told.append(f"{topology} {_left(own, name):.0%} (`{best['pair']}` {_left(best, name):.0%})")
    return f"{', '.join(told)}." if told else "nowhere."


def _shuffle_lost(ours: dict[str, Data], others: Sequence[Data]) -> str:
    told = []
    for topology, own in ours.items():
        best = max(
            (plan for plan in others if plan["topology"] == topology),
            key=lambda plan: plan["shuffle_tps"],
            default=None,
        )
        if best is not None and best["shuffle_tps"] > own["shuffle_tps"] * 1.005:
            both = (_part(one["shuffle_tps"], one["rate_tps"]) for one in (own, best))
            told.append("{} {} % (`{}` {} %)".format(topology, next(both), best["pair"], next(both)))
    return (
        f"without weights its fuller slots carry less of the rate: {', '.join(told)}." if told else "nowhere."
    )


def _graphs_lost(data: Data) -> str | None:
    by = {row["what"]: row for row in data["graphs"]}
    ours, quick = by.get("refined"), by.get("top-down")
    if ours is None or quick is None:
        return None
    times = ours["seconds"] / quick["seconds"]
    left, quick_left = 1 - ours["of_optimum"], 1 - quick["of_optimum"]
    return (
        f"- **Paper 2's graphs**: `refined` takes {times:,.1f} × the time of `top-down`, and leaves {left:.2%} of the "
        f"optimum (top-down {quick_left:.2%})."
    )


def _runs_lost(data: Data) -> str | None:
    parts = {cell: _achieved(found) for cell, found in _of_cells(data["runs"]).items()}
    told = [
        f"{shape} {_part_of(part)} (`{USUAL}` {_part_of(parts[shape, USUAL])})"
        for (shape, pair), part in parts.items()
        if pair == OURS and (part or 0.0) < (parts.get((shape, USUAL)) or 0.0)
    ]
    return f"- **Run**: achieved / planned is lower on {', '.join(told)}." if told else None


ROOT = Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]


Row = dict[str, Any]
RATES_TPS = (50.0, 100.0, 200.0)
SEARCH_S = 600.0  # a search ends by its steps then, and not by the clock of a busy machine
WORK = ROOT / ".headgate" / "planners"


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="scripts/reproduce", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--planners", required=True, metavar="all|A+M,…")
    parser.add_argument("--turns", type=int, default=3, help="plans timed for each figure [3]")
    parser.add_argument("--graphs", type=int, default=200, help="of paper 2's class [200]")
    parser.add_argument("--from", dest="first", type=int, default=1, help="their first seed [1]")
    parser.add_argument("--run", metavar="SHAPE,…", help=f"of {','.join(SHAPES)}")
    parser.add_argument("--run-turns", type=int, default=1, help="each so often, one after the other [1]")
    parser.add_argument(
        "--models", type=Path, metavar="DIR", help="for runs: of `headgate model profile`, here, today"
    )
    parser.add_argument("--work", type=Path, default=WORK, help="state and traces of runs")
    parser.add_argument("--output", type=Path, default=ROOT / "docs", help="[docs]")
    options = parser.parse_args(words)
    try:
        print(written(made(options, words), options.output))
    except HeadgateError as error:
        print("\n".join(error.lines()), file=sys.stderr)
        return error.exit_code
    return 0


def made(options: argparse.Namespace, words: Sequence[str]) -> Row:
    """All figures."""
    pairs = shown_pairs() if options.planners == "all" else pairs_of(options.planners)
    data = {
        "schema": "headgate/all-schedulers/v1",
        "command": shlex.join(["scripts/reproduce", *without_places(words)]),
        "machine": machine(),
        "when": datetime.now(UTC).strftime("%Y-%m-%d"),
        "load": "",
        "turns": options.turns,
        "rates": list(RATES_TPS),
        "plans": [row for shape in SHAPES for row in plans(shape, pairs, options.turns)],
        "graphs_n": options.graphs,
        "graphs_from": options.first,
        "graphs": graphs(options.first, options.graphs),
        "runs": [],
    }
    if options.run:
        data["runs"] = runs(options.run.split(","), options.work.resolve(), options.run_turns, options.models)
    else:
        data |= earlier_runs(options.output)
    data["load"] = (
        f"a load of {os.getloadavg()[2]:.0f} on its {os.cpu_count()} cores"  # of a quarter of an hour
    )
    return data


def earlier_runs(output: Path) -> Row:
    """Of the page that is there: plans are made anew without them. `runs_of`: when, where and by what that was."""
    path = output / "experiments" / "all-schedulers.json"
    if not path.exists():
        return {"runs": []}
    before = json.loads(path.read_text(encoding="utf-8"))
    of = before.get("runs_of") or f"`{before['command']}` on {before['machine']}, {before['when']}"
    return {"runs": before["runs"], "runs_of": of} if before["runs"] else {"runs": []}


def shown_pairs() -> tuple[str, ...]:
    """Those of paper 0, MBA with every mapper, and ours; not every mapper after LSA, nor in what optimal reserves."""
    return tuple(pair for pair in all_pairs() if pair in PAIRS or pair.startswith("mba+") or pair == OURS)


def without_places(words: Sequence[str]) -> list[str]:
    """Words that strangers can type: without where results went."""
    kept: list[str] = []
    rest = iter(words)
    for word in rest:
        if word in ("--work", "--output"):
            next(rest, None)
        elif word == "--models":
            next(rest, None)
            kept += [word, "DIR"]
        elif not word.startswith(("--work=", "--output=")):
            kept.append(word)
    return kept


# ── planned ─────────────────────────────────────────────────────────────────────────────────────


def plans(shape: str, pairs: Sequence[str], turns: int) -> list[Row]:
    """A row per rate and pair, as `headgate plan --compare` has them, and the CPU time that a plan took:
    wall-clock time would tell of whoever keeps the machine busy."""
    supply = supply_of(asked({"topology": shape, "search_seconds": SEARCH_S}))
    rows = []
    for rate_tps in RATES_TPS:
        for pair in pairs:
            took = []
            for _ in range(turns):
                began = time.process_time()
                cell = compared(supply, pair, rate_tps)
                took.append(time.process_time() - began)
            slots = cell["slots"] and cell["slots"]["total"]
            rows.append({"topology": shape, **cell, "slots": slots, "seconds": statistics.median(took)})
    print(f"planned: {shape}", file=sys.stderr)
    return rows


def graphs(first: int, count: int) -> list[Row]:
    """A row per placer: what it saves of the optimum."""
    heuristics = [name for name, placer in PLACERS.items() if placer.place is not None]
    names = [*heuristics, "optimal"]
    kept: dict[str, list[float]] = {name: [] for name in names}
    took: dict[str, list[float]] = {name: [] for name in names}
    short = dict.fromkeys(names, 0)
    for seed in range(first, first + count):
        problem = asked_of(random_problem(seed), f"seed {seed}").problem
        for name in names:
            began = time.process_time()
            if name == "optimal":
                best = optimal(problem)
                if best is None or best.counts is None:
                    raise HeadgateError(f"no optimum of seed {seed} was found in time")
                counts = best.counts
            else:
                counts = placed(problem, name)
            took[name].append(time.process_time() - began)
            short[name] += bool(missing(problem, counts))
            kept[name].append(saved(problem, counts))
    best_of = kept["optimal"]
    return [
        {
            "what": name,
            "of_optimum": sum(kept[name]) / sum(best_of),
            "worst": min(one / most for one, most in zip(kept[name], best_of, strict=True) if most),
            "incomplete": short[name],
            "seconds": statistics.median(took[name]),
        }
        for name in names
    ]


# ── run ─────────────────────────────────────────────────────────────────────────────────────────


def runs(shapes: Sequence[str], work: Path, turns: int, models: Path | None = None) -> list[Row]:
    """The usual pair and ours on fixed slots, by the experiments of paper 0; what was run in `work` stays."""
    if unknown := [shape for shape in shapes if shape not in SHAPES]:
        raise UsageError(f"--run: there is no shape {unknown[0]!r}", hint=",".join(SHAPES))
    command = [sys.executable, "-P", str(ROOT / "scripts" / "lab" / "reproduction" / "reproduce.py")]
    command += ["--shapes", ",".join(shapes), "--pairs", f"{USUAL},{OURS}", "--routings", "weighted"]
    command += ["--models", str(models.resolve())] if models is not None else []
    rows: list[Row] = []
    for turn in range(1, turns + 1):
        own = work / str(turn)
        ended = subprocess.run([*command, "--work", str(own), "--output", str(own / "page")], check=False)
        if ended.returncode:
            raise HeadgateError("the runs did not come to an end", hint="the same command goes on with them")
        rows += run_rows(json.loads((own / "page" / "reproduction.json").read_text("utf-8")))
    return rows


def run_rows(data: Row) -> list[Row]:
    """What the page says of the cells of section 8.5 in `headgate/reproduction/v1`."""
    return [
        {
            "shape": cell["shape"],
            "pair": cell["pair"],
            "slots": cell["slots"]["used"],
            "planned_tps": cell["planned_tps"],
            "predicted_tps": cell["predicted_tps"],
            "actual_tps": cell["actual_tps"],
            "bounded": cell["bounded"],
            "lowest_tps": min(step["offered_tps"] for step in cell["steps"]),
        }
        for cell in data["cells"]
        if cell["section"] == FIXED and not cell.get("failed")
    ]


def written(data: Row, output: Path) -> Path:
    """Write data and page; the page."""
    (output / "experiments").mkdir(parents=True, exist_ok=True)
    kept = json.dumps(data, indent=1, allow_nan=False) + "\n"
    (output / "experiments" / "all-schedulers.json").write_text(kept, encoding="utf-8")
    path = output / "experiments" / "all-schedulers.md"
    path.write_text(page(data), encoding="utf-8")
    return path


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
