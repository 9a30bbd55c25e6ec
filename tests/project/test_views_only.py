"""Whoever shows a run is given its view, and can read nothing else of what the controller knows."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import pytest
from sources import tree_of

from headgate.controller.controller import Controller

ROOT = Path(__file__).resolve().parents[2]
SHOWN = (
    *sorted((ROOT / "controller/views").glob("*.py")),
    ROOT / "controller/publisher.py",
    ROOT / "controller/viewers.py",
)
ALLOWED = {
    "headgate.controller.views",
    "headgate.controller.publisher",
    "headgate.controller.knowledge.run_view",
    "headgate.controller.knowledge.diagnoses",
    "headgate.controller.knowledge.models",
    "headgate.controller.knowledge.placed_threads",
    "headgate.controller.knowledge.plans",
    "headgate.controller.knowledge.records",
    "headgate.controller.knowledge.windows",
}
PLANTED = (
    "from headgate.controller.core.loop import Loop",
    "from headgate.controller.knowledge.knowledge import Knowledge",
    "from headgate.controller.knowledge import membership",
    "import headgate.controller.monitor.intake",
    "if TYPE_CHECKING:\n    from headgate.controller.execute.ending import Ending",
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
    shell = tree_of(ROOT / "controller/controller.py")
    modules = [node.module or "" for node in ast.walk(shell) if isinstance(node, ast.ImportFrom)]
    assert not [name for name in modules if name.startswith("headgate.controller.core")]
