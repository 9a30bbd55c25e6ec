"""How good predictions were: R² (1 − SSres/SStot), errors, by shape; as a table for the docs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import mean, median
from typing import Any

from controller.knowledge.models import Model

COLUMNS = (
    "placements", "n", "rates, tuples/s", "rate R²", "error, median", "95th percentile", "CPU R²",
    "mean error, points", "memory R²", "mean error, MB",
)  # fmt: skip


def r2(predicted: Sequence[float], measured: Sequence[float]) -> float:
    """1 − SSres/SStot about the line predicted = measured; below 0 when the mean would do better."""
    middle = mean(measured)
    total = sum((value - middle) ** 2 for value in measured)
    rest = sum((p - m) ** 2 for p, m in zip(predicted, measured, strict=True))
    return 1 - rest / total if total > 0 else float("nan")


def quantile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def at_models_speed(line: Mapping[str, Any], models: Mapping[str, Model]) -> float:
    """The measured rate as it would have been at the speed the limiting task's model was measured at; as it
    is when that task waits."""
    model = models.get(line["limited_by"])
    if model is None or line["limit_waits"]:
        return float(line["measured_tps"])
    return float(line["measured_tps"] * float(model.more["reference_speed"]) / line["speed"])


def table(lines: Sequence[Mapping[str, Any]], models: Mapping[str, Model]) -> str:
    """Markdown: a row per shape and routing, one per shape, and all."""
    good = [line for line in lines if "failed" not in line]
    failed = len(lines) - len(good)
    rows = []
    shapes = list(dict.fromkeys(line["shape"] for line in good))
    for shape in shapes:
        here = [line for line in good if line["shape"] == shape]
        rows += [
            (f"{shape}, {r}", [li for li in here if li["routing"] == r]) for r in ("weighted", "shuffle")
        ]
        rows.append((f"**{shape}**", here))
    rows.append(("**all**", good))
    out = ["| " + " | ".join(COLUMNS) + " |", "|" + "---|" * len(COLUMNS)]
    out += [_row(name, here, models) for name, here in rows if here]
    if failed:
        out.append(f"\n{failed} of {len(lines)} trials failed and are left out.")
    return "\n".join(out)


def _row(name: str, lines: Sequence[Mapping[str, Any]], models: Mapping[str, Model]) -> str:
    predicted = [float(line["predicted_tps"]) for line in lines]
    measured = [at_models_speed(line, models) for line in lines]
    errors = [abs(p - m) / m for p, m in zip(predicted, measured, strict=True)]
    slots = [slot for line in lines for slot in line["slots"]]
    cpu = [s["cpu_predicted"] for s in slots], [s["cpu_measured"] for s in slots]
    memory = (
        [s["memory_predicted_bytes"] / 1e6 for s in slots],
        [s["memory_measured_bytes"] / 1e6 for s in slots],
    )
    cells = [
        name,
        str(len(lines)),
        f"{min(measured):.3g} … {max(measured):.3g}",
        f"{r2(predicted, measured):.3f}",
        f"{100 * median(errors):.1f} %",
        f"{100 * quantile(errors, 0.95):.1f} %",
        f"{r2(*cpu):.3f}",
        f"{100 * mean(abs(p - m) for p, m in zip(*cpu, strict=True)):.1f}",
        f"{r2(*memory):.3f}",
        f"{mean(abs(p - m) for p, m in zip(*memory, strict=True)):.2f}",
    ]
    return "| " + " | ".join(cells) + " |"
