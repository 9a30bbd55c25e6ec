"""The type of every option and argument that is a number with a fraction: `NaN` is none, infinity only where it means
something."""

from __future__ import annotations

import math
from typing import Any

import click


class Number(click.FloatRange):
    """As `click.FloatRange`, whose bounds let NaN pass, and infinity where one is missing."""

    def __init__(
        self, min: float | None = None, max: float | None = None, *, infinite: bool = False, **more: Any
    ) -> None:
        super().__init__(min, max, **more)
        self._infinite = infinite
        if self.min is None and self.max is None:
            self.name = "float"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        found = super().convert(value, param, ctx)
        if math.isnan(found) or (math.isinf(found) and not self._infinite):
            self.fail(f"{value} is not a finite number.", param, ctx)
        return found

    def _describe_range(self) -> str:
        return super()._describe_range() if self.name != "float" else ""


UNITS_MS = {"us": 0.001, "ms": 1.0, "s": 1000.0, "": 1.0}


class Duration(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.4
    """`50ms`, `0.05s`, or a number of milliseconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        text = str(value).strip()
        number = text.rstrip("usm")
        try:
            found = float(number) * UNITS_MS[text[len(number) :]]
        except (KeyError, ValueError):
            found = 0.0
        if not 0 < found < float("inf"):
            self.fail(f"{value!r} is no duration above 0: 50ms, 0.05s", param, ctx)
        return found
