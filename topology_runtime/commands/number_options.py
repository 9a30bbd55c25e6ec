"""The type of every option and argument that is a number with a fraction: `NaN` is none, infinity only where it means
something."""

from __future__ import annotations

import math
from typing import Any

import click


class Number(click.FloatRange):
    """As `click.FloatRange`, whose bounds let NaN pass, and infinity where one is missing."""

    def __init__(
        self, least: float | None = None, most: float | None = None, *, infinite: bool = False, **more: Any
    ) -> None:
        super().__init__(least, most, **more)
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
