#!/usr/bin/env python3
"""Words that this project does not use, found where people read them.

    python scripts/vocabulary.py                  the documents, and what commands print (--shown of the packages)
    python scripts/vocabulary.py PATHS            these files and folders; of Python comments, docstrings, other strings
    python scripts/vocabulary.py --shown PATHS    of Python what users see: no comments, of docstrings those of commands
    python scripts/vocabulary.py --count …        a line for each word, with how often it was found

The words stand in scripts/words.md, in the table under "Words we do not use": `| not | use |`, several in a cell
separated by commas. A word is looked for as a whole word in any case; a space in it matches any white space. It is
right where it is part of what the table says to use ("letters" in "dead letters"), in code of a document (fenced or in
backticks) and in the target of a link. Of strings of Python files those count that hold a space. Exit code 1 when
anything is found.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
WORDS = ROOT / "scripts" / "words.md"
HEADING = "## Words we do not use"
DOCUMENTS = (
    "README.md", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "tests/README.md", "docs",
    "examples",
)  # fmt: skip
PACKAGES = ("agent", "controller", "dashboards", "topology_runtime", "scripts/lab")
SUFFIXES = (".md", ".py")
SKIPPED = (
    "docs/decisions/[0-9]*",
    "scripts/words.md",
)  # what was decided stays as it was written; the table itself
ALLOWED = frozenset({  # (path, word) where the word is right; keep it tiny
    ("docs/explanation/protocol.md", "tuples"),  # a section that code cites by its name
})  # fmt: skip
DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
CODE = re.compile(r"^```.*?^```|``.+?``|`[^`\n]+`|\]\([^)\n]+\)", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Rule:
    word: str
    use: str
    found: re.Pattern[str]
    right: re.Pattern[str] | None  # the word inside one of these is as it should be


@dataclass(frozen=True, order=True)
class Finding:
    path: str
    line: int
    word: str
    use: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.word} -> {self.use}"


def rules_of(text: str) -> list[Rule]:
    """Of the table in the text of the glossary."""
    _, heading, rest = text.partition(HEADING)
    if not heading:
        raise SystemExit(f"no heading {HEADING!r} in {WORDS}")
    rules = []
    for line in rest.partition("\n## ")[0].splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if len(cells) == 2 and not set(cells[0]) <= set("-: ") and cells[0] != "not":
            rules += [_rule(word.strip(), cells[1]) for word in cells[0].split(",")]
    return sorted(rules, key=lambda rule: -len(rule.word))


def _rule(word: str, use: str) -> Rule:
    names = [name.strip() for name in use.replace("(", ",").replace(")", "").split(",")]
    containing = [
        name for name in names if _pattern(word).search(name) or word in name.replace("_", " ").split()
    ]
    right = re.compile("|".join(_pattern(name).pattern for name in containing), re.IGNORECASE)
    return Rule(word, use, _pattern(word), right if containing else None)


def _pattern(words: str) -> re.Pattern[str]:
    spaced = r"\s+".join(re.escape(word) for word in words.split())
    return re.compile(rf"(?<![\w-]){spaced}(?![\w-])", re.IGNORECASE)


def findings(path: Path, rules: Iterable[Rule], shown: bool = False) -> Iterator[Finding]:
    name = path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else str(path)
    for first, text in _passages(path, shown):
        taken: list[tuple[int, int]] = []  # by longer words, which come first
        for rule in rules:
            right = [match.span() for match in rule.right.finditer(text)] if rule.right else []
            for match in rule.found.finditer(text):
                inside = any(begin <= match.start() and match.end() <= end for begin, end in right + taken)
                if not inside and (name, rule.word) not in ALLOWED:
                    taken.append(match.span())
                    line = first + text.count("\n", 0, match.start())
                    yield Finding(name, line, " ".join(match[0].split()), rule.use)


def _passages(path: Path, shown: bool) -> Iterator[tuple[int, str]]:
    """Text for people, with the number of its first line; code in it is blank."""
    text = path.read_text("utf-8")
    if path.suffix == ".py":
        yield from ((line, _without_code(passage)) for line, passage in _of_python(text, shown))
    else:
        yield 1, _without_code(text)


def _without_code(text: str) -> str:
    return CODE.sub(lambda match: re.sub(r"\S", " ", match[0]), text)


def _of_python(text: str, shown: bool) -> Iterator[tuple[int, str]]:
    if not shown:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT:
                yield token.start[0], token.string
    waiting: list[ast.AST] = [ast.parse(text)]
    while waiting:
        node = waiting.pop()
        if shown and isinstance(node, DOCUMENTED) and ast.get_docstring(node) and not _is_command(node):
            del node.body[0]
        said = _said(node)
        if " " in said.strip():
            yield node.lineno, said  # type: ignore[attr-defined]  # a constant or an f-string has a line
        parts = ast.iter_child_nodes(node)
        waiting += [part for part in parts if not (said and isinstance(part, ast.Constant))]


def _is_command(node: ast.AST) -> bool:
    """A function whose docstring is the help of a command."""
    marks = node.decorator_list if isinstance(node, ast.FunctionDef) else []
    return any("command" in ast.unparse(mark) or "group" in ast.unparse(mark) for mark in marks)


def _said(node: ast.AST) -> str:
    """The text of a string; an f-string's with … for what is put in."""
    if isinstance(node, ast.JoinedStr):
        return "".join(_said(part) or "…" for part in node.values)
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def files(paths: Iterable[Path]) -> Iterator[Path]:
    for path in paths:
        found = sorted(path.rglob("*")) if path.is_dir() else [path]
        for file in found:
            name = file.relative_to(ROOT) if file.is_relative_to(ROOT) else file
            if file.suffix in SUFFIXES and not any(name.match(skipped) for skipped in SKIPPED):
                yield file


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("paths", nargs="*", type=Path, metavar="PATHS")
    parser.add_argument("--count", action="store_true", help="a line for each word instead of each place")
    parser.add_argument("--shown", action="store_true", help="of Python only what users see")
    given = parser.parse_args(words)
    asked = [path.resolve() for path in given.paths] or [ROOT / path for path in (*DOCUMENTS, *PACKAGES)]
    shown = given.shown or not given.paths
    rules = rules_of(WORDS.read_text("utf-8"))
    there = files(path for path in asked if path.exists() or given.paths)
    found = sorted({finding for file in there for finding in findings(file, rules, shown)})
    if given.count:
        for (word, use), times in Counter((each.word.lower(), each.use) for each in found).most_common():
            print(f"{times:>6}  {word} -> {use}")
    else:
        print("".join(f"{finding}\n" for finding in found), end="")
    if found:
        places = len({each.path for each in found})
        print(f"{len(found)} words in {places} files; scripts/words.md says what to use", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
