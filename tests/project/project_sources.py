"""Files of ours, each read and parsed once."""

from __future__ import annotations

import ast
import functools
from pathlib import Path


@functools.cache
def text_of(path: Path) -> str:
    return path.read_text("utf-8")


@functools.cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(text_of(path))


@functools.cache
def nodes_of(path: Path) -> tuple[ast.AST, ...]:
    """All nodes of its tree."""
    return tuple(ast.walk(tree_of(path)))
