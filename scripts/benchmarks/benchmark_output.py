"""How the benchmarks of one result are asked, and how they tell it: as JSON, or a line per figure."""

from __future__ import annotations

import argparse
import json
from typing import Any


def parser_of(about: str | None) -> argparse.ArgumentParser:
    """With what `scripts/bench` passes to every benchmark: names, and the form of the output."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("names", nargs="*")
    parser.add_argument("-o", "--output", choices=("json", "table"), default="json")
    return parser


def tell(found: dict[str, Any], output: str) -> None:
    if output == "json":
        print(json.dumps(found, allow_nan=False))
        return
    width = max(map(len, found))
    for name, value in found.items():
        print(f"{name:>{width}}  {value}")
