"""The house: what stands where, what no tool checks by itself."""

from __future__ import annotations

import ast
import importlib
import os
import re
import subprocess
import tomllib
from collections.abc import Sequence
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import pytest
from project_sources import nodes_of, text_of, tree_of

from headgate.dashboards import headgate_command as cli
from headgate.topology_runtime.wire import wire_version

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("agent", "controller", "dashboards", "topology_runtime")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
SOURCES = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
SCRIPTS = ("setup", "run", "test", "lint", "bench", "services", "reproduce")
MAX_LINES, MAX_FUNCTION_LINES, MAX_PARAMETERS = 800, 60, 8
VAGUE = {"utils", "util", "helpers", "helper", "common", "manager", "base", "misc"}


def test_only_what_was_asked_for_stands_at_the_top():
    asked = {"pyproject.toml", "agent", "controller", "topology_runtime", "dashboards", "tests", "scripts"}
    needed = {
        "README.md",
        "ARCHITECTURE.md",
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        "LICENSE",
        "SECURITY.md",
        "docs",
        "examples",
        "findings",
    }
    listed = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "--cached", "--others", "--exclude-standard"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    there = {line.split("/")[0] for line in listed.stdout.splitlines()}
    visible = {name for name in there if not name.startswith(".")}
    assert asked <= visible
    assert visible - asked - needed == set()


@pytest.mark.parametrize("name", [*(f"scripts/{name}" for name in SCRIPTS), ".ci/run"])
def test_scripts_can_be_run_and_stop_at_the_first_error(name):
    path = ROOT / name
    assert os.access(path, os.X_OK)
    text = path.read_text("utf-8")
    assert text.startswith("#!/usr/bin/env bash\n") and "set -euo pipefail" in text
    subprocess.run(["bash", "-n", str(path)], check=True)


def test_the_version_is_one():
    assert PROJECT["project"]["version"] == cli.VERSION == wire_version.VERSION == version("headgate")


def test_every_dependency_says_why_it_is_there():
    lines = (ROOT / "pyproject.toml").read_text("utf-8").splitlines()
    required = [line for line in lines if re.match(r'    "[a-z0-9-]+>=', line)]
    assert len(required) >= len(PROJECT["project"]["dependencies"])
    undocumented = [line for line in required if "#" not in line and "types-" not in line]
    assert undocumented == []


def test_every_dependency_is_used():
    modules = {"pyzmq": "zmq", "pyyaml": "yaml", "prometheus-client": "prometheus_client"}
    text = "\n".join(map(text_of, SOURCES))
    for line in PROJECT["project"]["dependencies"]:
        name = line.split(">=")[0]
        assert re.search(rf"^\s*(import|from) {modules.get(name, name)}\b", text, re.M), name


def test_what_must_be_pure_is_in_the_contract():
    contracts = PROJECT["tool"]["importlinter"]["contracts"]
    pure = next(c for c in contracts if "pure" in c["name"])["source_modules"]
    for path in SOURCES:
        if path.name in ("state.py", "ledger.py", "slot_state.py"):
            module = ".".join(("headgate", *path.relative_to(ROOT).with_suffix("").parts))
            assert module in pure, module


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_files_and_functions_stay_small(path):
    assert text_of(path).count("\n") <= MAX_LINES
    for node in nodes_of(path):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            arguments = node.args
            count = len(arguments.args) + len(arguments.posonlyargs)
            if "connectors" not in path.parts:  # there they are what a user may set in a topology
                count += len(arguments.kwonlyargs)
            assert (node.end_lineno or 0) - node.lineno <= MAX_FUNCTION_LINES, node.name
            assert count <= MAX_PARAMETERS, node.name


def test_no_module_has_a_name_that_says_nothing():
    assert [path for path in SOURCES if path.stem in VAGUE] == []


def test_no_test_file_has_the_name_of_another():
    every = [path.name for path in (ROOT / "tests").rglob("*.py")]
    names = [name for name in every if name != "conftest.py"]  # pytest tells these apart by their folders
    assert sorted(names) == sorted(set(names))


def test_nothing_unfinished_is_left():
    marks = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")
    found = [str(path) for path in SOURCES if marks.search(text_of(path))]
    assert found == []


def test_no_private_place_is_named():
    """What is read by strangers names no folder of the machine that it was written on."""
    private = re.compile(r"/(tmp|work|root|home)/[A-Za-z.]")
    documents = [
        ROOT / "README.md",
        ROOT / "ARCHITECTURE.md",
        ROOT / "CHANGELOG.md",
        *(ROOT / "docs").rglob("*.md"),
    ]
    for path in (*SOURCES, *documents):
        if path.exists():
            assert not private.search(path.read_text("utf-8")), path


def test_every_decision_has_a_number_of_its_own():
    files = sorted((ROOT / "docs/decisions").glob("[0-9]*.md"))
    numbers = [int(path.name[:4]) for path in files]
    titles = [int(path.read_text("utf-8").partition(".")[0].removeprefix("# ")) for path in files]
    assert len(set(numbers)) == len(numbers) and titles == numbers


def test_the_index_names_every_decision_once():
    folder = ROOT / "docs/decisions"
    named = re.findall(
        r"^- \[\d+\. [^\]]+\]\(([^)]+)\)", (folder / "README.md").read_text("utf-8"), re.MULTILINE
    )
    assert sorted(named) == sorted(path.name for path in folder.glob("[0-9]*.md"))


def test_links_in_documents_lead_somewhere():
    for path in (
        ROOT / "README.md",
        ROOT / "ARCHITECTURE.md",
        ROOT / "tests" / "README.md",
        *(ROOT / "docs").rglob("*.md"),
    ):
        for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", path.read_text("utf-8")):
            assert (path.parent / target).exists(), f"{path.name}: {target}"


SHARED = {
    "Check",
    "DiskSeen",
    "End",
    "Tick",
}  # one meaning in both places: an event, a message and what keeps it


def test_one_class_name_means_one_thing():
    """A name stands once in the four packages, but for those that mean the same wherever they stand."""
    places = {}
    for path in SOURCES:
        for node in tree_of(path).body:
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name, []).append(path.name)
    twice = {name for name, found in places.items() if len(found) > 1}
    assert twice <= SHARED, {name: places[name] for name in twice - SHARED}


def private_names_of_others(nodes: Sequence[ast.AST]) -> list[str]:
    """What a test file reaches into: `_names` that it imports, or asks something else than its own classes for."""
    own = {node.name for node in nodes if isinstance(node, ast.ClassDef | ast.FunctionDef)}
    found = []
    for node in nodes:
        if isinstance(node, ast.ImportFrom):
            found += [alias.name for alias in node.names if alias.name.startswith("_")]
        elif isinstance(node, ast.Attribute) and re.match(r"_[a-z]", node.attr):
            holder = node.value.id if isinstance(node.value, ast.Name) else ""
            if holder not in ("self", "cls", "os") and node.attr not in own | {
                "_replace"
            }:  # of a named tuple
                found.append(ast.unparse(node))
    return found


def test_tests_use_only_what_is_public():
    """What a test needs is public, or a test of it says something that nobody can see."""
    for path in (ROOT / "tests").rglob("*.py"):
        assert private_names_of_others(nodes_of(path)) == [], path


def test_a_private_name_is_noticed_and_a_tests_own_is_not():
    asked = "from a import _b\nc._d()\nself._e\nf._replace(x=1)\nclass _G: ...\nh._G"
    assert private_names_of_others(tuple(ast.walk(ast.parse(asked)))) == ["_b", "c._d"]


@pytest.mark.parametrize("page", ["ARCHITECTURE.md", "CONTRIBUTING.md"])
def test_every_file_that_a_guide_names_is_there(page):
    """Paths in backticks that begin with a folder of ours, patterns included."""
    named = re.findall(
        r"`((?:agent|controller|dashboards|topology_runtime|tests|scripts|docs)/[^`\s:]*)",
        (ROOT / page).read_text("utf-8"),
    )
    assert len(named) > 5
    assert [name for name in named if not any(ROOT.glob(name.rstrip("/")))] == []


def test_a_plans_way_is_at_most_eighteen_files():
    text = (ROOT / "ARCHITECTURE.md").read_text("utf-8")
    walk = text.split("**A plan.**")[1].split("\n\n")[0]
    assert len(set(re.findall(r"`([a-z_]+/[^`]*\.py)`", walk))) <= 18


def test_what_scripts_import_of_the_product_is_there():
    """Most of them run seldom: a renamed class would show on the day somebody measures."""
    missing = []
    for path in sorted((ROOT / "scripts").rglob("*.py")):
        for node in nodes_of(path):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("headgate."):
                module = importlib.import_module(node.module)
                for name in node.names:
                    if not hasattr(module, name.name) and not (
                        hasattr(module, "__path__") and find_spec(f"{node.module}.{name.name}")
                    ):
                        missing.append(f"{path.name}: {node.module}.{name.name}")
    assert missing == []


def test_rates_are_told_without_exponents():
    """By `significant`: a task of 25,570 rows a second is not one of 2.557e+04."""
    wrong = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in SOURCES
        for node in nodes_of(path)
        if isinstance(node, ast.FormattedValue)
        and isinstance(node.value, ast.Name | ast.Attribute | ast.Subscript)
        and ast.unparse(node.value).rstrip("']").endswith("_tps")
        and node.format_spec is not None
        and ast.unparse(node.format_spec).endswith("g'")
    ]
    assert not wrong
