"""What messages advise can be done: every option and setting that they name is one of the command that prints them."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from project_sources import nodes_of

from headgate.dashboards import headgate_command as cli

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("agent", "controller", "dashboards", "lab", "topology_runtime")
OF_OTHERS = (  # the table of all commands, and a worker's own line
    ROOT / "dashboards/headgate_command.py",
    ROOT / "topology_runtime/testing/conformance/real_runs.py",
)
SOURCES = {
    ".".join(("headgate", package, *path.relative_to(folder).with_suffix("").parts)): path
    for package in PACKAGES
    for folder in (ROOT / "scripts/lab" if package == "lab" else ROOT / package,)
    for path in sorted(folder.rglob("*.py"))
    if path not in OF_OTHERS
}
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
OTHERS = {  # options of what is no command of ours
    "scripts/services start": {"blobs", "rows"},
    "protoc": {"include_imports"},
    "==": {"hash", "generate-hashes"},
    "pip download": {"dest"},
    "connect": {"embedded"},
}
OWN = {"debug", "help", "help-all", "version", "set"}  # of `headgate` itself, and what is looked at below
NAMES = sorted(cli.COMMANDS, key=len, reverse=True)


@dataclass(frozen=True)
class Words:
    options: frozenset[str]
    settings: frozenset[str]


@functools.cache
def words_of(command: str) -> Words:
    loaded = cli.load(command)
    options = (word for one in loaded.params for word in (*one.opts, *one.secondary_opts))
    settings = frozenset(one.key for one in getattr(loaded, "settings", ()))
    return Words(frozenset(word[2:] for word in options if word.startswith("--")), settings)


@functools.cache
def imported(module: str) -> frozenset[str]:
    found = set[str]()
    for node in nodes_of(SOURCES[module]):
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{name.name}" for name in node.names)}
    return frozenset(found & SOURCES.keys())


@functools.cache
def reach(command: str) -> frozenset[str]:
    """Modules that a command imports, also those that it imports later. `up` starts a controller. What `lab`
    simulates is told to who runs it."""
    seen: set[str] = set()
    left = [cli.COMMANDS[command][0].partition(":")[0]]
    if command in ("up", "submit"):
        left.append(cli.COMMANDS["controller run"][0].partition(":")[0])
    while left:
        module = left.pop()
        if module not in seen:
            seen.add(module)
            left += imported(module)
            if command.startswith("lab "):
                left = [one for one in left if one.startswith("headgate.lab.")]
    return frozenset(seen)


def messages(path: Path) -> Iterator[tuple[int, str]]:
    """Line and text of its strings about options, `…` for what is filled in; no docstring, no lone option."""
    nodes = nodes_of(path)
    bodies = (node.body for node in nodes if isinstance(node, DOCUMENTED))
    skipped = {id(body[0].value) for body in bodies if body and isinstance(body[0], ast.Expr)}
    for node in nodes:
        if isinstance(node, ast.JoinedStr):
            skipped |= {id(part) for part in ast.walk(node) if part is not node}
            text = "".join(str(p.value) if isinstance(p, ast.Constant) else "…" for p in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in skipped:
            text = node.value
        else:
            continue
        if "--" in text and " " in text.strip():
            yield node.lineno, text


def named(before: str) -> str | None:
    """The command that text before an option names: `up …`, headgate keys list …, agent run."""
    before = re.sub(r"\s+", " ", before)
    clause = re.split(r"[;(] ?|: |` (?!without )|, ", before)[-1]
    found = ((list(re.finditer(rf"(?:^|[ `]){name}[` ]", clause)), name) for name in NAMES)
    ends = [(matches[-1].end(), len(name), name) for matches, name in found if matches]
    return max(ends)[2] if ends else None


def faults(text: str, commands: Sequence[str]) -> list[str]:
    """What a message of these commands says that one of them does not know."""
    found = []
    for match in re.finditer(r"(?<![\w-])--(?:(set) )?([a-z][\w-]*)", text):
        setting, word = bool(match[1]), match[2]
        before = text[: match.start()]
        if word in OWN or any(tool in before and word in own for tool, own in OTHERS.items()):
            continue
        command = named(before)
        asked = [words_of(name) for name in ([command] if command else commands)]
        right = [one.settings if setting else one.options for one in asked]
        wrong = [one.options if setting else one.settings for one in asked]
        if not any(word in known for known in right) or any(word in known for known in wrong):
            found.append(match[0])
    return found


@pytest.mark.parametrize("package", PACKAGES)
def test_messages_name_options_that_their_command_has(package: str) -> None:
    found = []
    for module, path in SOURCES.items():
        told = list(messages(path)) if module.split(".")[1] == package else []
        commands = [name for name in cli.COMMANDS if told and module in reach(name)]
        if commands or package != "lab":  # which has scripts as well
            commands = commands or NAMES
            found += [(module, line, wrong, text) for line, text in told for wrong in faults(text, commands)]
    assert found == []


@pytest.mark.parametrize(
    ("text", "commands", "wrong"),
    [
        ("give larger slots (`--slot-memory`)", ["up", "controller run"], ["--slot-memory"]),
        ("give larger slots (`up --set slot-memory=…`)", ["plan"], []),
        ("`--slot-memory 1G`, please", ["agent run"], []),
        ("allow more (--max-vms, --max-usd-per-hour)", ["up", "controller run"], ["--max-usd-per-hour"]),
        ("`headgate rollback … --instead` takes its place", ["controller run"], ["--instead"]),
        ("`headgate rollback … --force` takes its place", ["controller run"], []),
        ("headgate deadletter replay --trace TRACE", ["up"], []),
        ("--planner mba+sam is quick", ["up"], ["--planner"]),
        ("give --set rate=5", ["up"], ["--set rate"]),
    ],
)
def test_an_option_of_another_command_is_found(text: str, commands: list[str], wrong: list[str]) -> None:
    assert faults(text, commands) == wrong


@pytest.mark.parametrize("command", cli.COMMANDS)
def test_the_help_of_a_command_shows_options_that_it_has(command: str) -> None:
    assert faults(cli.load(command).help or "", [command]) == []
