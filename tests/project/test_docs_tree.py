"""The documents: every link and anchor leads somewhere, lines are short, and every command that they show exists."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from headgate.dashboards import headgate_command as cli

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(path for path in DOCS.rglob("*.md") if "decisions" not in path.parts)
FRONT = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "tests/README.md")]
MAX_WORDS, MAX_WIDTH = 30_000, 100


def names(path: Path) -> str:
    return str(path.relative_to(ROOT))


def prose(text: str) -> Iterator[str]:
    """Lines that are no code, no table and no picture."""
    code = False
    for line in text.splitlines():
        code ^= line.lstrip().startswith("```")
        if not code and not line.lstrip().startswith(("|", "```", "![")):
            yield line


def anchor(heading: str) -> str:
    """As GitHub makes it of a heading."""
    words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
    return re.sub(r"[^\w\- ]", "", words).replace(" ", "-")


@pytest.mark.parametrize("path", [*FRONT, *PAGES], ids=names)
def test_links_and_anchors_lead_somewhere(path: Path) -> None:
    broken = []
    for target in re.findall(r"\]\((?!https?:)([^)\s]+)", "\n".join(prose(path.read_text("utf-8")))):
        file, _, part = target.partition("#")
        page = (path.parent / file).resolve() if file else path
        if not page.exists():
            broken.append(target)
        elif part and page.suffix == ".md":
            headings = re.findall(r"^#+ (.*)$", page.read_text("utf-8"), re.MULTILINE)
            broken += [] if part in map(anchor, headings) else [target]
    assert broken == []


MADE = {"controller/plan/mappers/in_order.py", "tests/FOLDER"}  # what the reader makes or chooses


@pytest.mark.parametrize("path", [*FRONT, *PAGES], ids=names)
def test_files_that_are_named_exist(path: Path) -> None:
    """Paths from the root of the repository, patterns included; in tests/README.md from its folder too."""
    folders = "agent|controller|dashboards|topology_runtime|tests|scripts|docs"
    named = re.findall(rf"[` (]((?:{folders})/[\w./*-]+)", path.read_text("utf-8"))
    roots = (ROOT, path.parent) if path.parent.name == "tests" else (ROOT,)
    missing = [
        name
        for name in named
        if name not in MADE and not any(any(root.glob(name.rstrip("./"))) for root in roots)
    ]
    assert missing == []


@pytest.mark.parametrize("path", [*FRONT, *PAGES], ids=names)
def test_lines_are_short(path: Path) -> None:
    assert [line for line in prose(path.read_text("utf-8")) if len(line) > MAX_WIDTH] == []


@pytest.mark.parametrize("path", [*FRONT, *PAGES], ids=names)
def test_commands_that_are_shown_exist(path: Path) -> None:
    """Lines of code that begin with `headgate`, and `headgate …` in sentences."""
    text = path.read_text("utf-8")
    code = "\n".join(re.findall(r"```[a-z]*\n(.*?)```", text, re.DOTALL))
    shown = re.findall(r"^headgate ([a-z]+(?: [a-z]+){0,2})", code, re.MULTILINE)
    shown += re.findall(r"`headgate ([a-z]+(?: [a-z]+){0,2})", "\n".join(prose(text)))
    assert [words for words in shown if not exists(words.split())] == []


def exists(words: list[str]) -> bool:
    """Do they begin with a command, or are they a group of commands?"""
    begins = {" ".join(words[:n]) for n in range(1, len(words) + 1)}
    group = " ".join(words) + " "
    return bool(begins & cli.COMMANDS.keys()) or any(name.startswith(group) for name in cli.COMMANDS)


def test_documents_are_read_in_an_hour_or_two() -> None:
    assert sum(len(path.read_text("utf-8").split()) for path in PAGES) <= MAX_WORDS
