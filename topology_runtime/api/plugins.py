"""What other packages add under a name, by entry points: `headgate.mappers`, `headgate.sources` and so on.

All installed packages are looked through for a name, which takes a while: so only names that are none of ours are
looked up here. A package whose list cannot be read hinders no other.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from headgate.topology_runtime.api.references import resolve
from headgate.topology_runtime.errors import HeadgateError, InvalidInput

if TYPE_CHECKING:
    from importlib.metadata import Distribution, EntryPoint

TASKS = ("sources", "sinks")  # kinds that may stand as `run` of a task


def plugin(kind: str, name: str) -> Any:
    """What a package registers under this name, imported; None: none does. Raises InvalidInput that names the package
    when it cannot be had."""
    found = _registered(kind, name)
    if found is None:
        return None
    package, point = found
    try:
        return resolve(f"{point.module}:{point.attr}")
    except HeadgateError as error:
        raise InvalidInput(
            f"broken plug-in {name!r} of {package}: {error.what}",
            cause=error.cause,
            hint=f"fix or uninstall {package}; its entry point is {point.value!r} in headgate.{kind}",
        ) from error


def registered(kind: str) -> list[str]:
    """Names of this kind that packages register; of those whose list can be read."""
    from importlib.metadata import distributions

    found = set()
    for package in distributions():
        with suppress(ValueError, OSError, AttributeError):
            found |= {point.name for point in package.entry_points if point.group == f"headgate.{kind}"}
    return sorted(found)


def with_references(document: object) -> object:
    """A topology's data in which sources and sinks of plug-ins that it names have their `module:attribute`."""
    tasks = document.get("tasks") if isinstance(document, dict) else None
    if not isinstance(document, dict) or not isinstance(tasks, list):
        return document
    return {**document, "tasks": [_with_reference(task) for task in tasks]}


def reference_of_plugin(name: str) -> str:
    """`module:attribute` of a source or sink of this name; the name itself where there is none."""
    for kind in TASKS:
        if found := _registered(kind, name):
            return f"{found[1].module}:{found[1].attr}"
    return name


def _with_reference(task: object) -> object:
    run = task.get("run") if isinstance(task, dict) else None
    if not isinstance(task, dict) or not isinstance(run, str) or not run or ":" in run:
        return task
    return {**task, "run": reference_of_plugin(run)}


def _registered(kind: str, name: str) -> tuple[str, EntryPoint] | None:
    """(package, its entry point). Raises InvalidInput when no package has it, and some cannot be read."""
    from importlib.metadata import distributions

    unreadable = []
    for package in distributions():
        try:
            for point in package.entry_points:
                if (point.group, point.name) == (f"headgate.{kind}", name):
                    return _name(package), point
        except (ValueError, OSError, AttributeError) as error:  # its entry_points.txt is damaged
            unreadable.append(f"{_name(package)}: {error}")
    if unreadable:
        raise InvalidInput(
            f"no plug-in {name!r} in headgate.{kind}, and packages whose entry points cannot be read",
            faults=unreadable,
            hint="install these packages again",
        )
    return None


def _name(package: Distribution) -> str:
    return str(package.metadata["Name"] or "a package without a name")
