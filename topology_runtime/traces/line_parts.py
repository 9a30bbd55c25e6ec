"""Files of JSON lines in parts, as a trace has them: the recorder makes them, whoever reads a trace finds them."""

from __future__ import annotations

from pathlib import Path


def parts_of(path: Path) -> list[Path]:
    """The files with the lines of `path`, oldest first: `inputs-000001.jsonl.gz` …, at last itself. A part of
    which there is a compressed file too (a kill between the two) is named once."""
    aside = {
        part.name.removesuffix(".gz"): part for part in sorted(path.parent.glob(f"{path.stem}-*.jsonl*"))
    }
    return [*aside.values(), *([path] if path.exists() else [])]


def number_of(part: Path) -> int:
    """A part's number, from 1; 0 for the one being written."""
    number = part.name.partition(".")[0].rpartition("-")[2]
    return int(number) if number.isdigit() else 0
