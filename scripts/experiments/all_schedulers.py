"""Every scheduler on the same topologies and graphs, planned, and some run: docs/experiments/all-schedulers.md.

scripts/reproduce --planners all                       plans and graphs
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
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]

from controller.offline.answers import pairs_of, supply_of  # noqa: E402
from controller.offline.options import asked  # noqa: E402
from controller.offline.random_problems import random_problem  # noqa: E402
from controller.plan.placing.algorithms import PLACERS, placed  # noqa: E402
from controller.plan.placing.optimal import optimal  # noqa: E402
from controller.plan.placing.problem import missing, saved  # noqa: E402
from controller.plan.placing.reading import asked_of  # noqa: E402
from controller.plan.scaling import compared  # noqa: E402
from controller.plan.schedulers import PAIRS  # noqa: E402
from controller.plan.schedulers import pairs as all_pairs  # noqa: E402
from experiments.reproducing.cells import FIXED, SHAPES  # noqa: E402
from experiments.reproducing.writing import machine  # noqa: E402
from experiments.scheduler_page import OURS, USUAL, page  # noqa: E402
from topology_runtime.errors import HeadgateError, UsageError  # noqa: E402

Row = dict[str, Any]
RATES_TPS = (50.0, 100.0, 200.0)
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
    data["load"] = (
        f"a load of {os.getloadavg()[2]:.0f} on its {os.cpu_count()} cores"  # of a quarter of an hour
    )
    return data


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
    """A row per rate and pair, as `headgate compare` has them, and the CPU time that a plan took: wall-clock time would
    tell of whoever keeps the machine busy."""
    supply = supply_of(asked({"topology": shape}))
    rows = []
    for rate_tps in RATES_TPS:
        for pair in pairs:
            took = []
            for _ in range(turns):
                began = time.process_time()
                cell = compared(supply, pair, rate_tps)
                took.append(time.process_time() - began)
            row: Row = {
                "topology": shape,
                "rate_tps": rate_tps,
                "pair": pair,
                "seconds": statistics.median(took),
            }
            if cell.plan is None or cell.crossings is None:
                rows.append({**row, "reason": cell.reason})
                continue
            crossed = cell.crossings
            row |= {
                "reason": None,
                "slots": cell.plan.slots.total,
                "gap": cell.plan.allocation.gap,
                "usd_per_hour": round(sum(vm.usd_per_hour for vm in cell.plan.vms), 6),
                "weighted_tps": cell.weighted_tps,
                "shuffle_tps": cell.shuffle_tps,
                "rows_tps": crossed.rows_tps,
                "between_slots_tps": crossed.between_slots_tps,
                "between_vms_tps": crossed.between_vms_tps,
            }
            rows.append(row)
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
    command = [sys.executable, "-P", str(ROOT / "scripts" / "experiments" / "reproduce.py")]
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
