"""The results of two analyses of the same: all that differs, but for when and where."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

APART = ("seconds", "models", "output", "made_of")  # which times, where, and of which paths


def differences(a: Any, b: Any, at: str = "") -> Iterator[str]:
    """Sums of floats may differ in their last digits: their order does."""
    if isinstance(a, dict) and isinstance(b, dict):
        for key in sorted((a.keys() | b.keys()) - set(APART)):
            yield from differences(a.get(key, "absent"), b.get(key, "absent"), f"{at}.{key}")
    elif isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        for n, (x, y) in enumerate(zip(a, b, strict=True)):
            yield from differences(x, y, f"{at}[{n}]")
    elif a != b and not (isinstance(a, float) and a == pytest.approx(b, rel=1e-9, abs=1e-12)):
        yield f"{at}: {a} for {b}"


def results(folder: Path) -> dict[str, Any]:
    files = [folder / "analysis.json", *sorted((folder / "results").glob("*.json"))]
    return {file.name: json.loads(file.read_text("utf-8")) for file in files}
