"""What says that it is pure is held to it: it, or a package that it lies in, is named in the import contract."""

from __future__ import annotations

import ast
import functools
import re
import tomllib
from pathlib import Path

from sources import tree_of

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("agent", "controller", "dashboards", "topology_runtime")
PURE = re.compile(r"\bPure(?! but for)\b")  # "Pure but for …" names what it is not


@functools.cache
def modules() -> dict[str, str]:
    """The docstring of every module of the product, by its name."""
    found = {}
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            name = ".".join(("headgate", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(
                ".__init__"
            )
            found[name] = ast.get_docstring(tree_of(path)) or ""
    return found


def contracted() -> set[str]:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    return set(
        next(one for one in contracts if one["name"].startswith("what decides is pure"))["source_modules"]
    )


def test_what_says_that_it_is_pure_is_under_the_contract() -> None:
    held = contracted()
    said = [name for name, words in modules().items() if PURE.search(words)]
    assert len(said) > 50
    loose = [name for name in said if not any(name == one or name.startswith(f"{one}.") for one in held)]
    assert loose == []


def test_the_contract_names_only_what_there_is() -> None:
    assert contracted() <= set(modules())


def test_the_contract_covers_all_that_the_controller_decides_by() -> None:
    """Whole folders: a new module in them is held to it without a word."""
    phases = ("core", "views", "monitor", "analyze", "plan", "execute", "knowledge")
    assert {f"headgate.controller.{phase}" for phase in phases} <= contracted()
