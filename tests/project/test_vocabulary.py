"""scripts/vocabulary.py finds the words of the glossary's table, where people read them, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

import vocabulary

TABLE = """# Words

| letters | not of the table |

## Words we do not use

| not | use |
|---|---|
| letters, letter | dead letters, dead letter |
| effects | side effects, side_effects |
| tuples, tuples/s | rows, rows/s |
| let go | released |
"""
RULES = vocabulary.rules_of(TABLE)


def found(folder: Path, name: str, text: str) -> list[tuple[int, str]]:
    path = folder / name
    path.write_text(text, "utf-8")
    return sorted((each.line, each.word) for each in vocabulary.findings(path, RULES))


def test_only_the_table_under_the_heading_is_read():
    assert {rule.word for rule in RULES} == {
        "letters",
        "letter",
        "effects",
        "tuples",
        "tuples/s",
        "let go",
    }


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Two letters\nand a Letter", [(1, "letters"), (2, "Letter")]),
        ("dead letters, side effects and side_effects", []),
        ("100 tuples/s of tuples", [(1, "tuples"), (1, "tuples/s")]),
        ("they are let\ngo", [(1, "let go")]),
        ("lettering and newsletter", []),
        ("`letters` and [what](letters.md#letters)\n```\nletters\n```\nletters", [(5, "letters")]),
    ],
)
def test_what_is_found_in_a_document(tmp_path, text, words):
    assert found(tmp_path, "page.md", text) == words


def test_what_is_found_in_code(tmp_path):
    text = (
        '"""Of letters."""\n'
        "letters = {'letters': 1}  # names and keys are no text, letters in a comment are\n"
        'raise ValueError(f"{letters} effects")\n'
    )
    assert found(tmp_path, "code.py", text) == [(1, "letters"), (2, "letters"), (3, "effects")]


def test_of_what_is_shown_are_messages_and_the_help_of_commands_but_no_comments(tmp_path):
    path = tmp_path / "code.py"
    text = (
        '"""Of letters."""\n'
        "@click.command()\n"
        "def show():  # letters\n"
        '    """Show letters."""\n'
        "def told():\n"
        '    """Of letters."""\n'
        '    print("some letters")\n'
    )
    path.write_text(text, "utf-8")
    assert sorted(each.line for each in vocabulary.findings(path, RULES, shown=True)) == [4, 7]


def test_a_glossary_without_the_table_is_refused():
    with pytest.raises(SystemExit, match="no heading"):
        vocabulary.rules_of("# Words\n")


def test_the_glossary_of_the_project_has_rules_and_uses_none_of_their_words(tmp_path):
    text = vocabulary.WORDS.read_text("utf-8")
    rules = vocabulary.rules_of(text)
    assert len(rules) > 40
    copy = tmp_path / "glossary.md"
    copy.write_text(text.partition(vocabulary.HEADING)[0], "utf-8")
    assert list(vocabulary.findings(copy, rules)) == []
