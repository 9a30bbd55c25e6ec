"""`headgate new`: a project that runs, with a test and data, to begin from."""

from __future__ import annotations

import keyword
import re
import sys
from importlib.resources import files
from pathlib import Path
from typing import Any

import click

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
@click.option("--example", type=click.Choice(list(EXAMPLES)), default="sensors", show_default=True,
              help="What the flow does to begin with.")  # fmt: skip
def new(name: str, example: str) -> None:
    """Make a folder NAME with a flow, its test, data and a README: it runs and passes as it is.

    \b
    headgate new rooms
    cd rooms && python -m pytest && headgate up rooms.flow:flow --rates 500 --seconds 5
    """
    package = package_of(name)
    folder = Path(name)
    if folder.exists() or folder.is_symlink():
        raise Conflict(
            f"{name} is there already",
            cause="nothing is written over",
            hint="another name, or another folder",
        )
    for path, text in project(name, package, example).items():
        place = folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")
    click.echo(f"{name}: {EXAMPLES[example][0]} Next:", err=True)
    click.echo(
        f"  cd {name}\n  python -m pytest\n  headgate up {package}.flow:flow --rates 500 --seconds 5",
        err=True,
    )


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


def project(name: str, package: str, example: str) -> dict[str, str]:
    """path → text of all its files."""
    root = files(TEMPLATES)
    about, output = EXAMPLES[example]
    words = {"PROJECT": name, "PACKAGE": package, "ABOUT": about, "OUTPUT": f"`{output}`"}

    def filled(template: Any) -> str:
        text = template.read_text(encoding="utf-8")
        return re.sub("|".join(words), lambda found: words[found[0]], text)

    made = {
        f"{package}/__init__.py": "",
        ".gitignore": f"__pycache__/\n*.jsonl\n!{package}/data/*\ntraces/\n",
    }
    for kept in ("README.md", "pyproject.toml"):
        made[kept] = filled(root / f"{kept}.txt")
    for file in sorted((root / example).iterdir(), key=lambda found: found.name):
        if file.name == "flow.py.txt":
            made[f"{package}/flow.py"] = filled(file)
        elif file.name == "test_flow.py.txt":
            made["tests/test_flow.py"] = filled(file)
        elif not file.name.startswith("_"):
            made[f"{package}/data/{file.name}"] = file.read_text(encoding="utf-8")
    return made
