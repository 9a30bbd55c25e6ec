"""`headgate new`: a project that runs, with a test and data, to begin from."""

from __future__ import annotations

import keyword
import re
import sys
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import click

from headgate.topology_runtime.commands.connected_project import (
    SINKS,
    SOURCES,
    about,
    connected_files,
    extras_of,
)
from headgate.topology_runtime.errors import Conflict, UsageError

TEMPLATES = "headgate.topology_runtime.project_templates"
EXAMPLES = {  # name: (what it does, the file it writes)
    "words": ("Counts the words of a text.", "words.jsonl"),
    "sensors": ("The mean temperature of rooms, from readings of sensors.", "means.jsonl"),
    "clicks": ("Clicks of users become sessions.", "sessions.jsonl"),
}
TAKEN = ("headgate", "tests", "data")


@click.command()
@click.argument("name")
@click.option(
    "--example",
    type=click.Choice(list(EXAMPLES)),
    help="What the flow does to begin with, over a file; sensors unless said otherwise.",
)
@click.option("--source", type=click.Choice(list(SOURCES)), help="Where rows come from.")
@click.option("--sink", type=click.Choice(list(SINKS)), 
              help="Where results go.  [default with --source: sqlite]")  # fmt: skip
def new(name: str, example: str | None, source: str | None, sink: str | None) -> None:
    """Make a folder NAME with a flow, its test and a README: it runs and passes as it is. With data of its own, or
    with services to connect to.

    \b
    headgate new rooms
    cd rooms && python -m pytest && headgate up rooms.flow:flow --rates 500 --seconds 5

    \b
    headgate new city --source mqtt --sink postgres
    """
    package = package_of(name)
    if example and (source or sink):
        raise UsageError("--example has its own source and sink", hint="leave out --example")
    folder = Path(name)
    if folder.exists() or folder.is_symlink():
        raise Conflict(
            f"{name} is there already",
            cause="nothing is written over",
            hint="another name, or another folder",
        )
    if source or sink:
        ends = source or "folder", sink or "sqlite"
        made = common(name, package, extras_of(*ends)) | connected_files(name, package, *ends)
        said = [about(*ends), f"cd {name}", "less README.md"]
    else:
        made = project(name, package, example or "sensors")
        run = f"headgate up {package}.flow:flow --rates 500 --seconds 5"
        said = [EXAMPLES[example or "sensors"][0], f"cd {name}", "python -m pytest", run]
    for path, text in made.items():
        place = folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")
    click.echo(f"{name}: {said[0]} Next:\n  " + "\n  ".join(said[1:]), err=True)


def package_of(name: str) -> str:
    """The import name of a project. Raises UsageError for a name that gives none."""
    package = name.replace("-", "_")
    why = None
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]*[A-Za-z0-9]|[A-Za-z]", name):
        why = "a name has letters, digits, - and _, and begins with a letter"
    elif keyword.iskeyword(package) or keyword.issoftkeyword(package):
        why = "it is a word of Python"
    elif package in sys.stdlib_module_names or package in TAKEN:
        why = f"`import {package}` finds something else"
    if why is not None:
        raise UsageError(f"invalid project name {name!r}: {why}", hint="headgate new rooms")
    return package


def common(name: str, package: str, extras: Sequence[str] = ()) -> dict[str, str]:
    """path → text of what each project has. extras: of headgate, that it depends on."""
    needs = f"headgate[{','.join(extras)}]" if extras else "headgate"
    settings = _filled(files(TEMPLATES) / "pyproject.toml.txt", PROJECT=name, PACKAGE=package, NEEDS=needs)
    ignored = f"__pycache__/\n*.jsonl\n!{package}/data/*\ntraces/\n"
    return {f"{package}/__init__.py": "", ".gitignore": ignored, "pyproject.toml": settings}


def project(name: str, package: str, example: str) -> dict[str, str]:
    """path → text of all its files."""
    root = files(TEMPLATES)
    about, output = EXAMPLES[example]
    words = {"PROJECT": name, "PACKAGE": package, "ABOUT": about, "OUTPUT": f"`{output}`"}
    made = common(name, package) | {"README.md": _filled(root / "README.md.txt", **words)}
    for file in sorted((root / example).iterdir(), key=lambda found: found.name):
        if file.name == "flow.py.txt":
            made[f"{package}/flow.py"] = _filled(file, **words)
        elif file.name == "test_flow.py.txt":
            made["tests/test_flow.py"] = _filled(file, **words)
        elif not file.name.startswith("_"):
            made[f"{package}/data/{file.name}"] = file.read_text(encoding="utf-8")
    return made


def _filled(template: Any, **words: str) -> str:
    text = template.read_text(encoding="utf-8")
    return re.sub("|".join(words), lambda found: words[found[0]], text)
