"""The code of a task: what a function or class is, and what it calls in the user's project, found without importing.

Definitions count by their syntax trees, so comments and formatting do not. What is imported from elsewhere (the
standard library, installed packages) counts by its name. What is not found as a definition counts as its whole file.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from headgate.topology_runtime.api.topology import digest_of

Statements = dict[str, list[ast.stmt]]  # name → the top-level statements that bind it
DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def code_files(module: str, places: Sequence[str]) -> list[Path]:
    """Where a module, or a `.py` file, may be."""
    if not module:
        return []
    if module.endswith(".py"):
        return [Path(module), *(Path(place) / module for place in places)]
    found = [Path(place, *module.split(".")) for place in places]
    return [file for path in found for file in (path.with_suffix(".py"), path / "__init__.py")]


def file_of(module: str, places: Sequence[str]) -> Path | None:
    return next((path for path in code_files(module, places) if path.is_file()), None)


def digest_reached(file: Path, name: str, places: Sequence[str]) -> str:
    """Of what `name` in this file is, and of all that it reaches in files of the same project. Raises OSError."""
    todo, seen = [(file, name.partition(".")[0])], set[tuple[Path, str]]()
    texts = set[str]()
    while todo:
        at = todo.pop()
        if at in seen:
            continue
        seen.add(at)
        bound = _statements(at[0], at[0].stat().st_mtime_ns)
        if bound is None or at[1] not in bound:
            texts.add(digest_of(at[0].read_bytes()))
            continue
        for statement in bound[at[1]]:
            texts.add(f"{at[1]} {ast.dump(statement)}")
            todo += _reached(statement, at, bound, places)
    return digest_of(msgspec.json.encode(sorted(texts)))


@functools.lru_cache(64)
def _statements(file: Path, _changed_ns: int) -> Statements | None:
    """None: it cannot be parsed."""
    try:
        tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError):
        return None
    found: Statements = {}
    for statement in tree.body:
        for name in _bound(statement):
            found.setdefault(name, []).append(statement)
    return found


def _bound(statement: ast.stmt) -> Iterator[str]:
    """The names that a top-level statement binds, also inside of `if`, `try` and `with`."""
    if isinstance(statement, DEFINITIONS):
        yield statement.name
        return
    for node in ast.walk(statement):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, DEFINITIONS):
            yield node.name
        elif isinstance(node, ast.alias):
            yield node.asname or node.name.partition(".")[0]


def _reached(
    statement: ast.stmt, at: tuple[Path, str], bound: Statements, places: Sequence[str]
) -> Iterator[tuple[Path, str]]:
    """What a statement uses: of its own file by name, of other files of the project by what it imports of them."""
    file, name = at
    for node in ast.walk(statement):
        if isinstance(node, ast.Name) and node.id in bound:
            yield file, node.id
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if (alias.asname or alias.name.partition(".")[0]) != name and node is statement:
                    continue
                if (found := file_of(alias.name, places)) is not None:
                    yield found, ""  # no name of it: the whole file
        elif isinstance(node, ast.ImportFrom):
            yield from _imported(node, name if node is statement else "", file, places)


def _imported(
    node: ast.ImportFrom, name: str, file: Path, places: Sequence[str]
) -> Iterator[tuple[Path, str]]:
    """name: the one that is asked for; "": all."""
    if node.level:
        folder = file.parents[node.level - 1]
        places, module = [str(folder)], node.module or "__init__"
    else:
        module = node.module or ""
    for alias in node.names:
        if name and (alias.asname or alias.name) != name:
            continue
        inside = file_of(f"{module}.{alias.name}" if node.module else alias.name, places)
        if inside is not None:
            yield inside, ""
        elif (found := file_of(module, places)) is not None:
            yield found, alias.name
