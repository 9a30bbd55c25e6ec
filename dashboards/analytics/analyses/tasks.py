"""Tasks in each epoch against what was predicted, and where in the slots the difference lies."""

from __future__ import annotations

from collections import defaultdict
from itertools import groupby

from headgate.dashboards.analytics.asked import AnalysisInput, number, over
from headgate.dashboards.analytics.results import POINTS_MOST, ResidualCell, TaskResidual


def tasks(asked: AnalysisInput) -> list[TaskResidual]:
    emitted_tps = emitted_of(asked)
    found = []
    for row in asked.sums("groups", "run", "epoch", "task")[:POINTS_MOST]:
        run, task = asked.runs[row["run"]], row["task"]
        is_source = task in run.sources
        seconds = (row["max_last_us"] - row["min_first_us"]) / 1e6 + 1
        rate = over(row["tuples_out" if is_source else "tuples_in"], seconds)
        weight, emitted = run.weights.get(task), emitted_tps.get((row["run"], row["epoch"]))
        predicted = None if is_source or weight is None or emitted is None else emitted * weight
        threads = over(row["window_s"], seconds) or 0.0
        memory = over(row["memory_bytes"], row["n"])
        found.append(
            TaskResidual(
                run=row["run"],
                epoch=row["epoch"],
                task=task,
                threads=round(threads, 2),
                rate_tps=rate,
                predicted_tps=predicted,
                residual_tps=None if rate is None or predicted is None else rate - predicted,
                cpu_cores=over(row["cpu_s"], seconds),
                cpu_s_per_tuple=over(row["cpu_s"], max(row["tuples_in"], row["tuples_out"])),
                busy_share=over(row["busy_s"], row["window_s"]),
                memory_bytes=None if memory is None else memory * threads,
            )
        )
    return found


def emitted_of(asked: AnalysisInput) -> dict[tuple[str, int], float | None]:
    """(run, epoch) → mean rate of the sources: of the windows, each as often as it has rows."""
    found = {}
    rows = asked.rows("rate_windows", "run", "epoch", "w")
    for key, its in groupby(rows, key=lambda row: (row["run"], row["epoch"])):
        windows = list(its)
        known = [row["emitted_tps"] * row["n"] for row in windows if row["emitted_tps"] is not None]
        found[key] = over(sum(known), sum(row["n"] for row in windows)) if known else None
    return found


def residual_map(asked: AnalysisInput) -> list[ResidualCell]:
    """A slot's residual is shared out to its tasks by the CPU time they took."""
    slots = {
        (row["run"], row["vm"], row["slot"]): (
            over(row["cpu_means"], row["cpu_windows"]),
            over(row["cpu_residual"], row["cpu_n"]),
        )
        for row in asked.sums("slot_sums", "run", "vm", "slot")
    }
    cells = asked.sums("groups", "run", "task", "vm", "slot")
    whole: dict[tuple[str, str, int], float] = defaultdict(float)
    for cell in cells:
        whole[cell["run"], cell["vm"], cell["slot"]] += cell["cpu_s"] or 0.0
    found = []
    for cell in cells[:POINTS_MOST]:
        place = (cell["run"], cell["vm"], cell["slot"])
        cpu, residual = slots.get(place, (None, None))
        share = over(cell["cpu_s"], whole[place])
        found.append(
            ResidualCell(
                cell["run"], cell["task"], cell["vm"], cell["slot"], _times(cpu, share), _times(residual, share),
                cell["windows"],
            )
        )  # fmt: skip
    return found


def _times(value: object, share: object) -> float | None:
    a, b = number(value), number(share)
    return None if a is None or b is None else a * b
