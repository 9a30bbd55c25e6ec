"""The figures of a run, worked out from its files by NumPy and SciPy, as docs/reference/report-metrics.md defines them.

Nothing here is the analysis's, or Spark's: an error in either shows as a difference.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from scipy.stats import linregress, theilslopes

Row = dict[str, Any]
Floats = np.ndarray[Any, Any]


def grouped(rows: Iterable[Row], key: Callable[[Row], Hashable]) -> dict[Any, list[Row]]:
    found: dict[Any, list[Row]] = defaultdict(list)
    for row in rows:
        found[key(row)].append(row)
    return dict(sorted(found.items()))


def mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None and math.isfinite(value)]
    return sum(known) / len(known) if known else None


def over(a: float, b: float) -> float | None:
    return a / b if b else None


def lower_quantile(values: Iterable[float], share: float) -> float:
    """The least value that so many are not above."""
    return float(np.quantile(np.array(list(values)), share, method="inverted_cdf"))


class RunFiles:
    """The tables of one run, every row with `us`, its time. A segment whose name begins with _ was never finished."""

    def __init__(self, folder: Path, window_s: int) -> None:
        self.folder, self.window_s = folder, window_s
        self.head = json.loads((folder / "run.json").read_text("utf-8"))
        self.key = f"{self.head['topology']['name']}/{folder.name}"
        self.samples, self.slots, self.rates, self.latency, self.links = (
            self._read(table) for table in ("samples", "slots", "rates", "latency", "links")
        )
        self.begin_us = min(row["us"] for row in self.samples)
        self._rates_of_seconds()

    def _read(self, table: str) -> list[Row]:
        files = [file for file in (self.folder / table).glob("*.parquet") if file.name[0] != "_"]
        found = pa.concat_tables([pq.read_table(file) for file in files])
        rows: list[Row] = found.to_pylist()
        for row, us in zip(rows, found["time"].cast(pa.int64()).to_pylist(), strict=True):
            row["us"], row["w"] = us, us // (self.window_s * 1_000_000)
        return sorted(rows, key=lambda row: row["us"])

    def _rates_of_seconds(self) -> None:
        for rows in grouped(self.rates, lambda row: row["source"]).values():
            before = None
            for row in rows:
                since_s = None if before is None else (row["us"] - before) / 1e6
                before = row["us"]
                for name in ("offered", "emitted", "acked"):
                    known = since_s is not None and 0 < since_s < 60
                    row[name + "_now"] = row[name] / since_s if known and since_s else None

    # ── rates ───────────────────────────────────────────────────────────────────────────────────

    def rate_windows(self) -> dict[tuple[int, int], Row]:
        """(epoch, window) → means."""
        names = {"offered_tps": "offered_now", "emitted_tps": "emitted_now", "acked_tps": "acked_now"}
        names |= {"planned_tps": "planned_tps", "predicted_tps": "predicted_tps"}
        return {
            key: {told: mean(row[name] for row in rows) for told, name in names.items()}
            | {"acked": sum(row["acked"] or 0 for row in rows), "n": len(rows)}
            for key, rows in grouped(self.rates, lambda row: (row["epoch"], row["w"])).items()
        }

    def tried(self, episodes: list[Row]) -> dict[tuple[int, int], Row]:
        slow = [(e["from_s"] * 1e6 + self.begin_us, e["to_s"] * 1e6 + self.begin_us) for e in episodes]
        windows = self.rate_windows()
        first = {epoch: min(w for e, w in windows if e == epoch) for epoch, _ in windows}
        found = {}
        for (epoch, w), row in windows.items():
            begin, end = (at * self.window_s * 1e6 for at in (w, w + 1))
            inside = any(begin >= a and end <= b for a, b in slow)
            known = row["acked_tps"] is not None and (row["predicted_tps"] or 0) > 0
            if known and w > first[epoch] and (inside or (row["offered_tps"] or 0) > row["predicted_tps"]):
                found[epoch, w] = row
        return found

    # ── slots ───────────────────────────────────────────────────────────────────────────────────

    def compared(self, of: str) -> list[tuple[Row, float, float]]:
        """Rows of `slots` that have both: the row, measured, predicted."""
        both = [(row, row[of], row[f"predicted_{of}"]) for row in self.slots]
        return [
            (r, a, p) for r, a, p in both if a is not None and p is not None and np.isfinite([a, p]).all()
        ]

    def window_errors(self, of: str) -> dict[Any, float]:
        """|mean measured − mean predicted| of a slot in a window of an epoch."""
        by = grouped(self.slots, lambda r: (r["epoch"], r["vm"], r["slot"], r["w"]))
        found = {}
        for key, rows in by.items():
            predicted = mean(p for r, _, p in ((r, r[of], r[f"predicted_{of}"]) for r in rows if both(r, of)))
            measured = mean(r[of] for r in rows)
            if predicted is not None and measured is not None:
                found[key] = abs(measured - predicted)
        return found

    # ── threads of a task in a slot ─────────────────────────────────────────────────────────────

    def bundles(self) -> dict[tuple[int, str, int, str, int], Row]:
        """(epoch, VM, slot, task, window) → sums over its rows."""
        sums = ("window_s", "cpu_s", "tuples_in", "tuples_out", "queue", "busy_s", "memory_bytes")
        found = {}
        for key, rows in grouped(
            self.samples, lambda r: (r["epoch"], r["vm"], r["slot"], r["task"], r["w"])
        ).items():
            one: Row = {name: sum(row[name] for row in rows) for name in sums} | {"n": len(rows)}
            one["first"], one["last"] = rows[0]["us"], rows[-1]["us"]
            one["seconds"] = (one["last"] - one["first"]) / 1e6 + one["window_s"] / one["n"]
            one["threads"] = max(1, round(one["window_s"] / one["seconds"]))
            found[key] = one
        return found

    def interference(self) -> dict[str, Row]:
        bundles = self.bundles()
        inside: dict[Any, set[str]] = defaultdict(set)
        for _, vm, slot, task, w in bundles:
            inside[vm, slot, w].add(task)
        sums: dict[str, Row] = defaultdict(lambda: defaultdict(float))
        for (_, vm, slot, task, w), one in bundles.items():
            tuples = max(one["tuples_in"], one["tuples_out"])
            if tuples >= 1:
                kind = "alone" if inside[vm, slot, w] == {task} else "shared"
                sums[task][kind + "_cpu"] += one["cpu_s"]
                sums[task][kind] += tuples
                sums[task][kind + "_windows"] += 1
        return {
            task: {
                f"{kind}_s_per_tuple": over(of[kind + "_cpu"], of[kind]) for kind in ("alone", "shared")
            } | {f"{kind}_windows": of[kind + "_windows"] for kind in ("alone", "shared")}
            for task, of in sums.items()
        }  # fmt: skip

    def _lines(self, name: str) -> list[Row]:
        file = self.folder / name
        return [json.loads(line) for line in file.read_text("utf-8").splitlines()] if file.exists() else []

    def settled(self) -> dict[Any, list[Row]]:
        """(epoch, VM, slot, task, thread) → windows of each thread of a plan in force."""
        members = grouped(
            self.samples, lambda r: tuple(r[name] for name in ("epoch", "vm", "slot", "task", "thread"))
        )
        begins = {epoch: rows[0]["us"] for epoch, rows in grouped(self.samples, lambda r: r["epoch"]).items()}
        enacted, plans = {}, {line["plan"]["id"]: line["plan"] for line in self._lines("plans.jsonl")}
        planned: dict[Any, int] = {}
        for line in self._lines("decisions.jsonl"):
            if (told := line.get("enacted")) and "in_force" in told:
                enacted[told["epoch"]] = datetime.fromisoformat(told["in_force"]).timestamp() * 1e6
            for slot in plans.get((line.get("plan") or {}).get("id"), {}).get("placement", ()):
                for task, threads in slot["threads"].items():
                    planned[line["epoch"], slot["vm"], slot["slot"], task] = threads
        fits = {key[0] for key in members if key[:4] in planned}
        found = {}
        for place, keys in grouped(({"key": key} for key in members), lambda one: one["key"][:4]).items():
            longest = sorted((one["key"] for one in keys), key=lambda key: (-members[key][-1]["us"], key[4]))
            for key in longest[: planned.get(place, 0)] if place[0] in fits else longest:
                since = max(begins[place[0]], enacted.get(place[0], 0.0)) + 1e6
                until = min((us for epoch, us in begins.items() if epoch > place[0]), default=math.inf)
                first, ever = members[key][0]["us"], max(row["memory_bytes"] for row in members[key])
                rows = [
                    row for row in members[key]
                    if row["window_s"] >= 0.1 and first < row["us"] < until and (row["memory_bytes"] or not ever)
                    and row["us"] - math.floor(row["window_s"] * 1e6) >= since
                ]  # fmt: skip
                if rows:
                    found[key] = rows
        return found

    def bottlenecks(self) -> dict[int, list[Row]]:
        """Epoch → its groups of threads of the plan, the nearest to a limit first."""
        parts = self.settled()
        groups = grouped(
            ({"key": key, "rows": rows} for key, rows in parts.items()), lambda one: one["key"][:4]
        )
        found: dict[int, list[Row]] = defaultdict(list)
        for (epoch, vm, slot, task), threads in groups.items():
            its = [row for key, rows in parts.items() if key[:3] == (epoch, vm, slot) for row in rows]
            group = self._group(task, vm, slot, [one["rows"] for one in threads])
            found[epoch].append(group | self._slot(epoch, vm, slot, its))
        for epoch, rows in found.items():
            for row in rows:
                row["load"] = self._load(row, rows, row["planned"] or 0.0)
            order = sorted(
                (row for row in rows if row["tuples"] > 0),
                key=lambda r: (
                    -r["grows"], -r["queue_growth_tps"] if r["grows"] else -round(r["load"], 2), -r["own_cpu"],
                    r["task"], r["vm"], r["slot"],
                ),
            )  # fmt: skip
            found[epoch] = order[:3]
        return found

    def _slot(self, epoch: int, vm: str, slot: int, its: list[Row]) -> Row:
        """What the whole slot used while these windows of threads lasted."""
        begin = min(row["us"] - math.floor(row["window_s"] * 1e6) for row in its)
        rows = [
            row for row in self.slots
            if (row["epoch"], row["vm"], row["slot"]) == (epoch, vm, slot)
            and row["us"] - math.floor(row["window_s"] * 1e6) >= begin - 2000 and row["us"] <= its[-1]["us"] + 2000
        ]  # fmt: skip
        found: Row = {}
        for told, name in (("cpu_share", "cpu"), ("planned", "predicted_cpu")):
            known = [row for row in rows if row[name] is not None and math.isfinite(row[name])]
            seconds = sum(row["window_s"] for row in known)
            found[told] = over(sum(row[name] * row["window_s"] for row in known), seconds)
        return found

    def _group(self, task: str, vm: str, slot: int, threads: list[list[Row]]) -> Row:
        taken = "tuples_out" if task in self.sources else "tuples_in"
        seconds = [sum(row["window_s"] for row in rows) for rows in threads]
        each = list(zip(threads, seconds, strict=True))
        slopes = [
            float(linregress([row["us"] / 1e6 for row in rows], [row["queue"] for row in rows]).slope)
            for rows in threads
            if len(rows) > 1
        ]
        tuples, growth = sum(row[taken] for rows in threads for row in rows), sum(slopes) if slopes else None
        busy = sum(row["busy_s"] for rows in threads for row in rows) / sum(seconds)
        return {
            "task": task, "vm": vm, "slot": slot, "tuples": tuples, "queue_growth_tps": growth,
            "threads": math.floor(sum(seconds) / max(seconds) + 0.5),
            "busy_share": None if task in self.sources else busy,
            "taken_tps": sum(sum(row[taken] for row in rows) / s for rows, s in each),
            "queue_mean": sum(sum(row["queue"] * row["window_s"] for row in rows) / s for rows, s in each),
            "own_cpu": sum(sum(row["cpu_s"] for row in rows) / s for rows, s in each),
            "grows": growth is not None and growth * max(seconds) ** 2 > 0.5 * tuples,
        }  # fmt: skip

    def _load(self, of: Row, groups: list[Row], planned: float) -> float:
        """Of the rate at which it saturates; tasks of fixed size reserve and have none."""
        fixed = {
            task["name"]: task["static"]["cpu"] / task["static"]["threads"]
            for task in self.head["topology"]["tasks"]
            if "static" in task
        }
        if of["task"] in fixed:
            return 0.0
        points = [p for model in self.head["models"] if model["task"] == of["task"] for p in model["points"]]
        if not points:
            return float(max(of["busy_share"] or 0.0, of["cpu_share"] or 0.0))
        peak = np.interp(
            max(1, round(of["threads"])), [p["threads"] for p in points], [p["rate_tps"] for p in points]
        )
        here = [one for one in groups if (one["vm"], one["slot"]) == (of["vm"], of["slot"])]
        reserved = sum(fixed.get(one["task"], 0.0) * round(one["threads"]) for one in here)
        return float(max(of["taken_tps"] / peak, (planned - reserved) / (1 - reserved)))

    def tasks(self) -> dict[tuple[int, str], Row]:
        """(epoch, task) → what it did."""
        found: dict[tuple[int, str], Row] = {}
        for key, rows in grouped(self.samples, lambda r: (r["epoch"], r["task"])).items():
            seconds = (rows[-1]["us"] - rows[0]["us"]) / 1e6 + 1
            total = {
                n: sum(r[n] for r in rows) for n in ("tuples_in", "tuples_out", "cpu_s", "busy_s", "window_s")
            }
            found[key] = {
                "cpu_cores": total["cpu_s"] / seconds,
                "cpu_s_per_tuple": over(total["cpu_s"], max(total["tuples_in"], total["tuples_out"])),
                "busy_share": total["busy_s"] / total["window_s"],
                "rate_tps": total["tuples_out" if key[1] in self.sources else "tuples_in"] / seconds,
            }
        return found

    @property
    def sources(self) -> set[str]:
        fed = {edge["to"] for edge in self.head["topology"]["edges"]}
        return {task["name"] for task in self.head["topology"]["tasks"]} - fed

    # ── latency ─────────────────────────────────────────────────────────────────────────────────

    def latency_epochs(self) -> dict[tuple[int, str, str], Row]:
        found = {}
        for key, rows in grouped(self.latency, lambda r: (r["epoch"], r["source"], r["sink"])).items():
            tuples = sum(row["tuples"] for row in rows)
            found[key] = {
                "tuples": tuples,
                "mean_s": sum(row["tuples"] * row["latency_s"] for row in rows) / tuples,
                "max_s": max(row["latency_s"] for row in rows),
            } | {f"p{int(100 * q)}_s": weighted_quantile(rows, q) for q in (0.5, 0.95, 0.99)}
        return found

    def whole(self, told: Row) -> Row:
        """The run in one row; `told`: of the analysis its episodes, and what the controller counted."""
        windows = self.rate_windows().values()
        cost = self.cost().values()
        slow = np.zeros(int((self.samples[-1]["us"] - self.begin_us) / 1e3) + 60_000, bool)
        for one in told["episodes"]:
            slow[round(1e3 * one["from_s"]) : round(1e3 * one["to_s"])] = True
        found: Row = {"waited_s": slow.sum() / 1e3} | told["counted"]
        for name in ("offered_tps", "acked_tps"):
            known = [row for row in windows if row[name] is not None]
            found[name] = sum(row[name] * row["n"] for row in known) / sum(row["n"] for row in known)
        for name in ("slot_hours", "usd"):
            found[name] = sum(row[name] for row in cost)
        found |= {f"p{int(100 * q)}_s": weighted_quantile(self.latency, q) for q in (0.5, 0.95, 0.99)}
        return found | {"replans": sum(row["reason"] != "start" for row in self.replans())}

    def counted(self) -> Row:
        """What the controller said last of each count."""
        found: Row = {}
        file = self.folder / "views.jsonl"
        for line in file.read_text("utf-8").splitlines() if file.exists() else ():
            found |= (json.loads(line).get("patch") or json.loads(line)).get("tuples") or {}
        return found

    def latency_slopes(self) -> dict[tuple[int, str, str], float | None]:
        """Theil–Sen of the medians of a second, put together to at most 24."""
        found: dict[tuple[int, str, str], float | None] = {}
        for key, rows in grouped(self.latency, lambda r: (r["epoch"], r["source"], r["sink"])).items():
            seconds = grouped(rows, lambda r: r["us"] // 1_000_000)
            middle = {s: lower_quantile((r["latency_s"] for r in of), 0.5) for s, of in seconds.items()}
            points = put_together(middle, 24)
            found[key] = float(theilslopes(points[1], points[0]).slope) if len(points[0]) >= 4 else None
        return found

    # ── links, money, plans ─────────────────────────────────────────────────────────────────────

    def pairs(self) -> dict[tuple[int, str, str], Row]:
        length = {
            epoch: sum(max(r["window_s"] for r in of) for of in grouped(rows, lambda r: r["us"]).values())
            for epoch, rows in grouped(self.links, lambda r: r["epoch"]).items()
        }
        found = {}
        for key, rows in grouped(self.links, lambda r: (r["epoch"], r["from_task"], r["to_task"])).items():
            frames = sum(row["frames"] for row in rows)
            found[key] = {
                "tuples_tps": sum(row["tuples"] for row in rows) / length[key[0]],
                "bytes_per_s": sum(row["bytes"] for row in rows) / length[key[0]],
            } | {
                f"{name}_latency_s": over(sum(r[f"{name}_latency_s"] * r["frames"] for r in rows), frames)
                for name in ("buffer", "channel")
            }
        return found

    def cost(self) -> dict[int, Row]:
        """Epoch → hours of slots, from their first thread to their last, and of their VMs, in gaps as in the rest of
        it; and what was acked."""
        threads = grouped(self.samples, lambda row: (row["epoch"], row["vm"], row["slot"]))
        held = {
            of: (min(row["us"] for row in rows), max(row["us"] for row in rows))
            for of, rows in threads.items()
        }
        slots: dict[int, float] = defaultdict(float)
        windows: dict[Any, float] = defaultdict(float)
        for row in self.slots:
            first, last = held.get((row["epoch"], row["vm"], row["slot"]), (math.inf, 0))
            if first <= row["us"] <= last:
                slots[row["epoch"]] += row["window_s"]
                at = row["epoch"], row["vm"], row["us"]
                windows[at] = max(windows[at], row["window_s"])
        vms: dict[int, dict[str, float]] = defaultdict(lambda: defaultdict(float))
        for (epoch, vm, _), seconds in windows.items():
            vms[epoch][vm] += seconds
        gaps, prices = self._gaps(), {vm["vm"]: vm.get("usd_per_hour") for vm in self.head["vms"]}
        later = (self.head["settings"].get("spare") or {}).get("usd_per_hour")
        found = {}
        for epoch, by_vm in vms.items():
            times = 1 + gaps[epoch] / max(by_vm.values())
            found[epoch] = {
                "slot_hours": slots[epoch] * times / 3600,
                "vm_hours": sum(by_vm.values()) * times / 3600,
                "usd": sum(prices.get(vm, later) * s for vm, s in by_vm.items()) * times / 3600,
                "tuples_acked": sum(row["acked"] for row in self.rates if row["epoch"] == epoch),
            }
        return found

    def _gaps(self) -> dict[int, float]:
        """Epoch → seconds of it in pauses of over 2 s."""
        found: dict[int, float] = defaultdict(float)
        last_us, last_epoch = math.inf, 0
        for row in sorted(self.slots, key=lambda row: row["us"] - row["window_s"] * 1e6):
            pause_s = (row["us"] - row["window_s"] * 1e6 - last_us) / 1e6
            if pause_s > 2:
                found[last_epoch] += pause_s
            if row["us"] >= last_us or last_us == math.inf:
                last_us, last_epoch = row["us"], row["epoch"]
        return found

    def replans(self) -> list[Row]:
        lines = [
            json.loads(line) for line in (self.folder / "decisions.jsonl").read_text("utf-8").splitlines()
        ]
        return [
            self._around(datetime.fromisoformat(line["time"]), line["trigger"])
            for line in lines
            if line["action"] == "plan"
        ]

    def _around(self, time: datetime, reason: str) -> Row:
        at_us = round(time.timestamp() * 1e6)
        near = [row for row in self.samples if -5e6 <= row["us"] - at_us <= 10e6]
        threads = grouped(near, lambda row: row["thread"])
        before = after = 0
        for rows in threads.values():
            seconds = {math.floor((row["us"] - at_us) / 1e6) for row in rows}
            early = [r["tuples_out"] for r in rows if r["us"] < at_us]
            late = [r["tuples_out"] for r in rows if 0 <= math.floor((r["us"] - at_us) / 1e6) <= 4]
            if early and late and max(seconds) >= 8:
                before, after = before + sum(early), after + sum(late)
        return {
            "reason": reason,
            "at_s": round((at_us - self.begin_us) / 1e6, 3),
            "dip": 1 - after / before if before and reason != "start" else None,
        }


def both(row: Row, of: str) -> bool:
    values = (row[of], row[f"predicted_{of}"])
    return None not in values and bool(np.isfinite(values).all())


def weighted_quantile(rows: list[Row], share: float) -> float:
    """The latency that this share of the tuples does not exceed."""
    order = sorted(rows, key=lambda row: row["latency_s"])
    reached = np.cumsum([row["tuples"] for row in order])
    at = int(np.searchsorted(reached, share * reached[-1] * (1 - 1e-12)))
    return float(order[at]["latency_s"])


def put_together(bins: dict[int, float], most: int) -> tuple[Floats, Floats]:
    """Neighbouring bins put together to at most so many: means of their middles and of their values."""
    first, last = min(bins), max(bins)
    each = math.ceil((last - first + 1) / most)
    groups = grouped(({"at": at, "value": v} for at, v in bins.items()), lambda b: (b["at"] - first) // each)
    at_s = [np.mean([b["at"] + 0.5 for b in of]) for of in groups.values()]
    return np.array(at_s), np.array([np.mean([b["value"] for b in of]) for of in groups.values()])


def fit(actual: Floats, predicted: Floats) -> Row:
    """n, R² (None where all predictions, or all values, are the same), and the mean error."""
    residual, spread = ((actual - predicted) ** 2).sum(), ((actual - actual.mean()) ** 2).sum()
    told = len(actual) > 1 and spread > 1e-12 * (actual**2).sum() and np.ptp(predicted) > 0
    r2 = float(1 - residual / spread) if told else None
    return {"n": len(actual), "r2": r2, "mae": float(np.abs(actual - predicted).mean())}
