"""What a run holds of its machine, sample by sample, and whether it grows: slopes with their confidence."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from watched_runs.trials import CGROUP_ROOTS, ROLES, Trial

MB = 1e6
FLAT_PCT_PER_H = 1.0
POINTS_MOST = 1500  # of a fit: it looks at every pair


def sample(running: Trial, run: str) -> dict[str, float]:
    """RSS (MB), descriptors and threads per role, files and bytes on disk, cgroups, processes."""
    found: dict[str, float] = {"processes": len(running.everyone())}
    for role in ROLES:
        pids = running.pids(role)
        found |= {f"{role} {name}": value for name, value in _of_processes(pids).items()}
        found[f"{role} number"] = len(pids)
    for role in ("agent", "controller"):
        found |= {f"oldest {role} {k}": v for k, v in _of_processes(running.pids(role)[:1]).items()}
        found[f"oldest {role} pid"] = next(iter(running.pids(role)), 0)
    found |= {f"up {name}": value for name, value in _of_processes([running.process.pid]).items()}
    for name, folder in (("state", "state"), ("trace", "traces")):
        found |= {f"{name} {what}": value for what, value in _of_folder(running.folder / folder).items()}
    found["cgroups"] = sum(1 for root in CGROUP_ROOTS for _ in root.glob(f"headgate-{run}/**/"))
    return found


def _of_processes(pids: Sequence[int]) -> dict[str, float]:
    """Sums over those that still run."""
    sums = {"rss_mb": 0.0, "fds": 0.0, "threads": 0.0}
    for pid in pids:
        try:
            process = psutil.Process(pid)
            one = process.memory_info().rss / MB, process.num_fds(), process.num_threads()
        except psutil.Error:
            continue
        for name, value in zip(sums, one, strict=True):
            sums[name] += value
    return sums


def _of_folder(folder: Path) -> dict[str, float]:
    sizes = list(_sizes(folder))
    return {"files": float(len(sizes)), "mb": sum(sizes) / MB}


def _sizes(folder: Path) -> Iterator[int]:
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                yield os.stat(os.path.join(place, name)).st_size
            except FileNotFoundError:
                continue


@dataclass(frozen=True)
class Slope:
    """Theil–Sen: percent of the mean per hour, with the bounds of its 95 % interval."""

    mean: float
    per_h_pct: float
    low_pct: float
    high_pct: float

    @property
    def flat(self) -> bool:
        return self.per_h_pct < FLAT_PCT_PER_H

    @property
    def grows(self) -> bool:
        """Surely: the whole interval is above the limit."""
        return self.low_pct >= FLAT_PCT_PER_H


def slope(seconds: Sequence[float], values: Sequence[float]) -> Slope | None:
    """None with too few points to tell."""
    from scipy.stats import theilslopes

    step = len(values) // POINTS_MOST + 1
    times, points = [s / 3600 for s in seconds[::step]], list(values[::step])
    if len(points) < 5:
        return None
    mean = sum(points) / len(points)
    fitted = theilslopes(points, times)
    scale = 100.0 / mean if mean else 0.0
    return Slope(mean, *(float(x) * scale for x in (fitted.slope, fitted.low_slope, fitted.high_slope)))


def slopes(samples: Sequence[dict[str, float]], warm_up_s: float) -> dict[str, Slope]:
    """Of each figure after the warm-up; of a process named `oldest`, of its last life only."""
    found = {}
    for name in samples[-1]:
        if name in ("seconds",) or name.endswith(" pid"):
            continue
        chosen = [one for one in samples if one["seconds"] >= warm_up_s and name in one]
        if name.startswith("oldest "):
            chosen = last_life(chosen, " ".join(name.split()[:2]) + " pid")
        fitted = slope([one["seconds"] for one in chosen], [one[name] for one in chosen])
        if fitted is not None:
            found[name] = fitted
    return found


def last_life(samples: Sequence[dict[str, float]], pid: str) -> list[dict[str, float]]:
    """The samples at the end with one and the same process, without its first quarter: it warms up as well.

    A controller's rings of history, events and decisions take a quarter of an hour to fill."""
    if not samples:
        return []
    mine = []
    for one in reversed(samples):
        if one[pid] != samples[-1][pid]:
            break
        mine.append(one)
    mine.reverse()
    return mine[len(mine) // 4 :]


def picture(samples: Sequence[dict[str, Any]], path: Path) -> None:
    """Every figure over time, one small chart each."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    names = [name for name in samples[-1] if name != "seconds" and not name.endswith(" pid")]
    columns = 4
    rows = -(-len(names) // columns)
    figure, axes = pyplot.subplots(rows, columns, figsize=(4 * columns, 1.8 * rows), squeeze=False)
    for axis, name in zip(axes.flat, names, strict=False):
        shown = [one for one in samples if name in one]
        axis.plot([one["seconds"] / 60 for one in shown], [one[name] for one in shown], linewidth=0.8)
        axis.set_title(name, fontsize=8)
        axis.set_ylim(bottom=0)
        axis.tick_params(labelsize=6)
    for axis in axes.flat[len(names) :]:
        axis.set_visible(False)
    figure.supxlabel("minutes", fontsize=8)
    figure.tight_layout()
    figure.savefig(path)
    pyplot.close(figure)
