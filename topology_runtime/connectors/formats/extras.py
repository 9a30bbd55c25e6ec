"""Packages that only some connectors and formats need."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any

from headgate.topology_runtime.errors import InvalidInput


@cache
def needed(module: str, extra: str) -> Any:
    """The module. Raises InvalidInput, with what to install, where it is missing."""
    try:
        return import_module(module)
    except ImportError as error:
        hint = f"pip install 'headgate[{extra}]'"
        raise InvalidInput(f"{extra!r} needs the module {module}", cause=str(error), hint=hint) from error
