"""What the runs of headgate and its peers say: ratios within a turn, their medians, and whether goals are met.

Pure. A run is a row of the CSV that `scripts/bench peers --to` keeps, under the names of `Run`.
"""

from __future__ import annotations

import csv
import io
import statistics
from collections.abc import Iterable, Sequence
from typing import NamedTuple

# ── What headgate is to reach beside its peers, and what a peer is called in tables. The goals are those of
# its design ("Speed: what the data plane and the controller can reach", first table: a runtime with
# acks, samples and metrics on).
#
# Rates are headgate's by the peer's, at least so much; latencies headgate's by the peer's, at most so much.
# Goals hold with chaining. There are none for W4, nor for a peer that is not named.

MEASURES = {"W1": ("per_s",), "W2": ("per_s",), "W3": ("p50_ms", "p99_ms"), "W4": ("per_s",)}

GOALS: dict[tuple[str, str, str], float] = {
    ("W1", "bytewax-items", "per_s"): 15.0,
    ("W1", "bytewax", "per_s"): 0.9,
    ("W1", "pathway", "per_s"): 18.0,
    ("W1", "flink", "per_s"): 60.0,
    ("W1", "pyspark", "per_s"): 20.0,
    ("W1", "ray", "per_s"): 4.0,
    ("W2", "bytewax-items", "per_s"): 80.0,
    ("W2", "bytewax", "per_s"): 5.0,
    ("W2", "pathway", "per_s"): 12.0,
    ("W2", "flink", "per_s"): 60.0,
    ("W2", "pyspark", "per_s"): 20.0,
    ("W2", "ray", "per_s"): 4.0,
    ("W3", "bytewax-items", "p50_ms"): 1.0,
    ("W3", "bytewax-items", "p99_ms"): 1.2,
    ("W3", "pathway", "p50_ms"): 0.15,
    ("W3", "flink", "p50_ms"): 0.02,
    ("W3", "pyspark", "p50_ms"): 0.005,
    ("W3", "ray", "p50_ms"): 0.4,
}

SHOWN = {
    "bytewax": "bytewax, lists of 1,000 (W4: a source of 512 at once)",
    "bytewax-items": "bytewax, rows one by one",
    "ray": "ray, actors, batches of 1,000 (W3: a compiled graph)",
    "pathway": "pathway",
    "flink": "PyFlink, process mode",
    "flink-quick": "PyFlink, bundles of 5 ms, no buffer timeout",
    "pyspark": "PySpark structured streaming",
}


# ── ────────────────────────────────────────────────────────────────────────────────────────────────────

OURS, CHAINED = "headgate", "headgate-chained"


class Run(NamedTuple):
    """One run of a system in a turn. A figure that it has not is empty; `why` says why it has none. load: of the
    machine over the minute before, in processes that want to run."""

    turn: int
    work: str
    system: str
    version: str = ""
    per_s: float | None = None
    p50_ms: float | None = None
    p99_ms: float | None = None
    load: float | None = None
    delivery: str = ""
    why: str = ""


class Spread(NamedTuple):
    median: float
    least: float
    most: float

    def __str__(self) -> str:
        return f"{short(self.median)} ({short(self.least)} to {short(self.most)})"


class Line(NamedTuple):
    """headgate's figure by the peer's, over n turns that have both; met: with chaining. None: nothing to say."""

    work: str
    peer: str
    measure: str
    version: str
    n: int
    ours: Spread | None
    chained: Spread | None
    goal: float | None
    met: bool | None
    why: str


def written(runs: Iterable[Run]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(Run._fields)
    for run in runs:
        writer.writerow(
            ["" if v is None else f"{v:.6g}" if isinstance(v, float) else v for v in run]
        )  # fmt: skip
    return out.getvalue()


def read(text: str) -> list[Run]:
    runs = []
    for row in csv.DictReader(io.StringIO(text)):
        figures = {
            key: float(row[key]) if row[key] else None for key in ("per_s", "p50_ms", "p99_ms", "load")
        }
        words = {key: row[key] for key in ("work", "system", "version", "delivery", "why")}
        runs.append(Run(turn=int(row["turn"]), **words, **figures))
    return runs


def short(value: float) -> str:
    """Two figures, at least."""
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"


def spread(values: Sequence[float]) -> Spread | None:
    return Spread(statistics.median(values), min(values), max(values)) if values else None


def is_rate(measure: str) -> bool:
    return measure == "per_s"


def lines(runs: Sequence[Run]) -> list[Line]:
    """By works, and within a work by peers, in the order in which they came."""
    at = {(run.turn, run.work, run.system): run for run in runs}
    turns = sorted({run.turn for run in runs})
    found = []
    for work, peer in dict.fromkeys((run.work, run.system) for run in runs):
        if peer in (OURS, CHAINED):
            continue
        theirs = [run for run in runs if (run.work, run.system) == (work, peer)]
        for measure in MEASURES[work]:
            by_form = {
                form: [
                    ours / figure
                    for turn in turns
                    if (figure := figure_of(at.get((turn, work, peer)), measure))
                    and (ours := figure_of(at.get((turn, work, form)), measure))
                ]
                for form in (OURS, CHAINED)
            }
            ours, chained = spread(by_form[OURS]), spread(by_form[CHAINED])
            goal, met = GOALS.get((work, peer, measure)), None
            if goal is not None and chained is not None:
                met = chained.median >= goal if is_rate(measure) else chained.median <= goal
            version = next((run.version for run in theirs if run.version), "")
            why = next((run.why for run in theirs if run.why), "")
            n = max(map(len, by_form.values()))
            found.append(Line(work, peer, measure, version, n, ours, chained, goal, met, why))
    return found


def figure_of(run: Run | None, measure: str) -> float | None:
    figure = None if run is None else getattr(run, measure)
    return None if figure is None else float(figure)


def markdown(runs: Sequence[Run]) -> str:
    """Two tables: ratios beside their goals, and each system's own figures, load and promise."""
    out = [
        "| headgate's by the peer's | n | a thread per task | chained | goal | |",
        "|---|---|---|---|---|---|",
    ]
    names = {"per_s": "rows/s", "p50_ms": "p50", "p99_ms": "p99"}
    for line in lines(runs):
        what = f"{line.work} {names[line.measure]}, {SHOWN[line.peer]} {line.version}".rstrip()
        goal = "" if line.goal is None else f"{'≥' if is_rate(line.measure) else '≤'} {line.goal:g}"
        verdict = "; ".join(filter(None, ({None: "", True: "met", False: "missed"}[line.met], line.why)))
        cells = [
            what,
            str(line.n),
            *("" if s is None else str(s) for s in (line.ours, line.chained)),
            goal,
            verdict,
        ]
        out.append("| " + " | ".join(cells) + " |")
    out += [
        "",
        "| system | version | W1, rows/s | W2 | W3, ms: p50, p99 | W4 | it promises |",
        "|---" * 7 + "|",
    ]
    for system in dict.fromkeys(run.system for run in runs):
        own = [run for run in runs if run.system == system]
        cells = [system, next((run.version for run in own if run.version), "")]
        for work, measures in MEASURES.items():
            medians = [
                spread([v for run in own if run.work == work and (v := figure_of(run, measure))])
                for measure in measures
            ]
            cells.append(", ".join(short(s.median) for s in medians if s))
        promises = dict.fromkeys(run.delivery for run in own if run.delivery)
        cells.append(max(promises, key=len, default=""))
        out.append("| " + " | ".join(cells) + " |")
    by_turn = [
        max(run.load or 0.0 for run in runs if run.turn == turn) for turn in sorted({r.turn for r in runs})
    ]
    out += ["", "Load at most, by turn: " + ", ".join(f"{load:.1f}" for load in by_turn) + "."]
    return "\n".join(out) + "\n"
