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
MAX_WORDS, MAX_WIDTH = 35_000, 100


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


MADE = {"tests/FOLDER"}  # what the reader makes or chooses


@pytest.mark.parametrize("path", [*FRONT, *PAGES], ids=names)
def test_files_that_are_named_exist(path: Path) -> None:
    """Paths from the root of the repository, patterns included; in tests/README.md from its folder too."""
    folders = "agent|controller|dashboards|topology_runtime|tests|scripts|docs|examples|findings"
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


def command_lines(text: str) -> Iterator[str]:
    """What follows `headgate` in lines of code, up to a pipe or a remark, and in sentences; without `$(…)`."""
    blocks = "\n".join(re.findall(r"```[a-z]*\n(.*?)```", text, re.DOTALL)).replace("\\\n", " ")
    blocks = re.sub(r"\$\([^)]*\)", "…", blocks)
    yield from re.findall(r"(?:^|exec |\| )headgate (.*?)(?= #| \| |$)", blocks, re.MULTILINE)
    yield from re.findall(r"`headgate ([^`]*)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))


def unknown(line: str) -> list[str]:
    """Options and settings of a command line that its command does not have."""
    words = line.split()
    name = next((name for n in (3, 2, 1) if (name := " ".join(words[:n])) in cli.COMMANDS), None)
    if name is None:  # a group, or the options of `headgate` itself
        return []
    command = cli.load(name)
    options = {
        "--help",
        "--debug",
        *(each for one in command.params for each in (*one.opts, *one.secondary_opts)),
    }
    settings = {setting.key for setting in getattr(command, "settings", ())}
    own = words[: words.index("--")] if "--" in words else words
    used = [found[1] for word in own if (found := re.match(r"\[?(--?[a-zA-Z][\w-]*)", word))]
    given = re.findall(r"--set ([a-z][\w-]*)=", " ".join(own))
    return [f"{name} {word}" for word in used if word not in options] + [
        f"{name} --set {key}" for key in given if key not in settings
    ]


@pytest.mark.parametrize("path", [*FRONT, *PAGES], ids=names)
def test_options_and_settings_that_are_shown_exist(path: Path) -> None:
    assert [wrong for line in command_lines(path.read_text("utf-8")) for wrong in unknown(line)] == []


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ("up flow.py:flow --rates 50 --gap 2", ["up --gap"]),
        ("up --set gap=2 --set gapp=3", ["up --set gapp"]),
        ("cluster exec -- uname -a", []),
        ("plan linear --rate 100 -o json", []),
    ],
)
def test_an_option_that_a_command_does_not_have_is_found(line: str, wrong: list[str]) -> None:
    assert unknown(line) == wrong


def test_the_package_of_the_guides_is_the_one_that_tests_install() -> None:
    package = ROOT / "tests" / "plugins" / "evenly_package"
    mapper, source = (
        (DOCS / "how-to" / name).read_text("utf-8") for name in ("add-a-mapper.md", "add-a-source.md")
    )
    code = (package / "evenly.py").read_text("utf-8")
    assert code[code.index("def evenly") : code.index("class Numbers")].strip() in mapper
    groups = re.findall(
        r"^\[project\.entry-points.*\n.*$", (package / "pyproject.toml").read_text("utf-8"), re.M
    )
    assert len(groups) == 3
    assert [group for group in groups if group not in mapper + source] == []
