"""What says that it is pure is held to it: it, or a package that it lies in, is named in the import contract."""

from __future__ import annotations

import ast
import functools
import inspect
import re
import tomllib
from pathlib import Path

import pytest
from project_sources import tree_of

from headgate.controller.controller_process import Controller

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("agent", "controller", "dashboards", "topology_runtime", "scripts/lab")
PURE = re.compile(r"\bPure(?! but for)\b")  # "Pure but for …" names what it is not


@functools.cache
def modules() -> dict[str, str]:
    """The docstring of every module of the product, by its name."""
    found = {}
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            parts = path.relative_to(ROOT).with_suffix("").parts
            name = ".".join(("headgate", *parts[parts[0] == "scripts" :])).removesuffix(".__init__")
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


# ── Whoever shows a run is given its view, and can read nothing else of what the controller knows ───────

SHOWN = (
    *sorted((ROOT / "controller/views").glob("*.py")),
    ROOT / "controller/viewers.py",
    ROOT / "controller/viewers.py",
)
ALLOWED = {
    "headgate.controller.views",
    "headgate.controller.viewers",
    "headgate.controller.knowledge.run_view",
    "headgate.controller.knowledge.diagnoses",
    "headgate.controller.models.task_models",
    "headgate.controller.models.plans",
    "headgate.controller.knowledge.journal_records",
    "headgate.controller.knowledge.measured_window",
}
PLANTED = (
    "from headgate.controller.core.loop import Loop",
    "from headgate.controller.knowledge.knowledge import Knowledge",
    "from headgate.controller.knowledge import membership",
    "import headgate.controller.monitor.sample_intake",
    "if TYPE_CHECKING:\n    from headgate.controller.execute.run_end import Ending",
    "def late():\n    from headgate.controller.analyze import lag",
)


def strangers(tree: ast.AST) -> list[str]:
    """Modules of the controller that are imported, at any depth, and are neither views nor frozen values."""
    found = []
    for node in ast.walk(tree):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import | ast.ImportFrom) else []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module] if node.module in ALLOWED else [f"{node.module}.{name}" for name in names]
        found += [name for name in names if name.startswith("headgate.controller") and not allowed(name)]
    return found


def allowed(name: str) -> bool:
    return name in ALLOWED or name.startswith("headgate.controller.views.")


@pytest.mark.parametrize("path", SHOWN, ids=lambda path: path.name)
def test_views_are_functions_of_the_view(path: Path) -> None:
    assert strangers(tree_of(path)) == []


@pytest.mark.parametrize("planted", PLANTED)
def test_a_planted_import_is_seen(planted: str) -> None:
    assert strangers(ast.parse(planted)) != []


def test_the_shell_is_given_a_step_and_no_core() -> None:
    """A function from an event to instructions: there is no state behind it that could be read."""
    assert list(inspect.signature(Controller).parameters) == ["step", "place", "machines"]
    shell = tree_of(ROOT / "controller/controller_process.py")
    modules = [node.module or "" for node in ast.walk(shell) if isinstance(node, ast.ImportFrom)]
    assert not [name for name in modules if name.startswith("headgate.controller.core")]
