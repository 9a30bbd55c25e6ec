"""The base classes of tasks as a user sees them: their examples are run, and mypy --strict finds what is wrong."""

from __future__ import annotations

import ast
import doctest
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import headgate
import headgate.tasks
from headgate import Keyed, LiveSource, Source, Window
from headgate.topology_runtime.api import builder, logic

ROOT = Path(__file__).resolve().parents[2]
HEAD = """from collections.abc import Iterable, Sequence
from headgate import Keyed, LiveSource, Source, Window, topology

flow = topology("typed")
"""
COUNT = """
class Count({base}):
    def new(self, key: str) -> int:
        return 0

    def {process}(self, key: str, row: {row}, state: int) -> tuple[int, Iterable[{out}]]:
        return state + 1, [{given}]

"""
GOOD = (
    """
class Numbers(Source[int]):
    def read(self, position: int, limit: int) -> Sequence[int]:
        return range(position, position + limit)

class Live(LiveSource):
    def poll(self, limit: int) -> Sequence[int]:
        return []

class Sum(Window[None, int, int]):
    def ready(self, key: None, rows: Sequence[int]) -> bool:
        return len(rows) == 2

    def finish(self, key: None, rows: Sequence[int]) -> list[int]:
        return [sum(rows)]
"""
    + COUNT.format(base="Keyed[str, int, str, int]", process="process", row="str", out="int", given="state")
    + COUNT.format(base="Keyed", process="process", row="str", out="int", given="state").replace(
        "Count", "Loose"
    )
    + """
flow.source("numbers", Numbers) >> flow.task("sum", Sum) >> flow.task("count", Count).by(0)
flow.source("live", Live) >> flow.task("loose", Loose).by(0)
"""
)
USED = 'flow.source("live") >> flow.task("count", Count).by(0)\n'
BAD = {
    "a misspelt method of a class that is called": (
        COUNT.format(base="Keyed", process="proces", row="str", out="int", given="state") + "Count()\n",
        'Cannot instantiate abstract class "Count" with abstract attribute "process"',
    ),
    "a misspelt method of a class that a task runs": (
        COUNT.format(base="Keyed", process="proces", row="str", out="int", given="state") + USED,
        '"ClassLacksMethods" has no attribute "by"',
    ),
    "a source that cannot be read": (
        "class Empty(Source[int]):\n    pass\n\nflow.source('empty', Empty) >> flow.task('sink')\n",
        'Unsupported operand types for >> ("ClassLacksMethods" and "End")',
    ),
    "rows of another type than the base says": (
        COUNT.format(
            base="Keyed[str, int, bytes, int]", process="process", row="str", out="int", given="state"
        ),
        'Argument 2 of "process" is incompatible with supertype',
    ),
    "output of another type than the base says": (
        COUNT.format(base="Keyed[str, int, str, int]", process="process", row="str", out="str", given="key"),
        'Return type "tuple[int, Iterable[str]]" of "process" incompatible',
    ),
}


def mypy(folder: Path, texts: dict[str, str]) -> dict[str, list[str]]:
    """file → the errors that `mypy --strict` finds in it."""
    for name, text in texts.items():
        (folder / f"{name}.py").write_text(HEAD + text, "utf-8")
    command = [sys.executable, "-P", "-m", "mypy", "--strict", "--config-file=", "--follow-imports=silent"]
    done = subprocess.run(
        [*command, "--cache-dir", str(folder / "cache"), *(f"{name}.py" for name in texts)],
        cwd=folder,
        env={**os.environ, "MYPYPATH": str(ROOT / ".editable")},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert not done.stderr, done.stderr
    lines = [line.partition(".py:") for line in done.stdout.splitlines() if ": error: " in line]
    return {name: [said for file, _, said in lines if file == name] for name in texts}


def test_mypy_passes_what_is_right_and_tells_what_is_wrong(tmp_path: Path) -> None:
    texts = {"good": GOOD, **{f"bad{number}": text for number, (text, _) in enumerate(BAD.values())}}
    found = mypy(tmp_path, texts)
    assert found["good"] == []
    for number, (what, (_, said)) in enumerate(BAD.items()):
        assert any(said in line for line in found[f"bad{number}"]), (what, found[f"bad{number}"])


@pytest.mark.parametrize("module", [headgate, headgate.tasks], ids=["headgate", "headgate.tasks"])
def test_what_mypy_sees_is_what_is_imported(module: ModuleType) -> None:
    imports = [
        n
        for n in ast.walk(ast.parse(Path(str(module.__file__)).read_text("utf-8")))
        if isinstance(n, ast.ImportFrom)
    ]
    seen = {one.name: node.module for node in imports for one in node.names if one.asname}
    assert seen == module.PLACES and set(module.__all__) == set(seen)
    assert all(getattr(module, name).__name__ in (name, "Builder") for name in seen)


@pytest.mark.parametrize("base", [Keyed, LiveSource, Source, Window])
def test_a_base_is_not_made_by_itself(base: type) -> None:
    with pytest.raises(TypeError, match="abstract"):
        base()


@pytest.mark.parametrize("module", [logic, builder], ids=lambda module: module.__name__.rpartition(".")[2])
def test_the_examples_give_what_they_say(module: ModuleType) -> None:
    done = doctest.testmod(module)
    assert done.attempted > 8
    assert done.failed == 0


def test_whatever_users_import_from_logic_has_an_example() -> None:
    public = [
        name for name in dir(logic) if getattr(getattr(logic, name), "__module__", "") == logic.__name__
    ]
    told = [name for name in public if ">>>" in (getattr(logic, name).__doc__ or "")]
    asked = {"Context", "Exhausted", "Keyed", "LiveSource", "Source", "To", "Window", "any_thread", "batched",
             "flat_map", "keep_if", "no_side_effects", "side_effects"}  # fmt: skip
    assert asked <= set(told)
