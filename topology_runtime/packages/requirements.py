"""Lines of a requirements.txt: what is needed, at which version, known by which hashes. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from headgate.topology_runtime.faults.words import shown

LINE = re.compile(
    r"(?P<name>[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)(?:\[[A-Za-z0-9._, -]+\])?"
    r" ?== ?(?P<version>[A-Za-z0-9.!+_-]+)"
    r"(?: ?;(?: (?!--)[^ ]+)+)?(?: --hash=sha256:[0-9a-f]{64})+"
)


def faults_of_lines(lines: Sequence[str]) -> Iterator[str]:
    """A requirement is one version, known by its hashes; anything else could become something else."""
    for line in lines:
        if not LINE.fullmatch(line):
            yield (
                f"requirements.txt: {shown(line)} is no NAME==VERSION --hash=sha256:…, "
                "as `pip-compile --generate-hashes` writes it"
            )


def normal(name: str) -> str:
    """A distribution's name as all its spellings share it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def missing(lines: Sequence[str], installed: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """(lines that are to be installed, faults). installed: versions of what stands beside headgate, by normal names:
    the same version does, another one cannot be had beside it."""
    wanted, faults = [], []
    for line in lines:
        found = LINE.fullmatch(line)
        assert found is not None, line
        name, version = normal(found["name"]), found["version"]
        if name not in installed:
            wanted.append(line)
        elif installed[name] != version:
            faults.append(
                f"it needs {name} {version}, and headgate stands beside {name} {installed[name]} there"
            )
    return wanted, faults
