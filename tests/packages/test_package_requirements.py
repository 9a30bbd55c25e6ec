"""What a package needs beside its code: which lines count, and what contradicts headgate's own."""

from __future__ import annotations

import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from package_made import folder

from headgate.agent.dependencies import displaced, needed
from headgate.topology_runtime.packages.manifest import BadPackage, PackagedFile, PackageManifest
from headgate.topology_runtime.packages.requirements import faults_of_lines, missing

HASH = "--hash=sha256:" + "ab" * 32


def manifest(*lines: str) -> PackageManifest:
    return PackageManifest("n", (PackagedFile("a.py", 0, "0" * 64),), "0.1.0", "3.11", lines)


@pytest.mark.parametrize(
    "line",
    [f"six==1.16 {HASH}", f"A.b_c[x,y]==1!2.0rc1+local {HASH} {HASH}", f"six==1.16 ; python_version >= '3' {HASH}",
     f"six == 1.16 {HASH}", f"six==1.16; sys_platform == 'linux' {HASH}"],
)  # fmt: skip
def test_lines_as_pip_compile_writes_them_count(line: str) -> None:
    assert list(faults_of_lines([line])) == []
    assert missing([line], {}) == ([line], [])


@pytest.mark.parametrize(
    "line",
    ["six", "six==1.16", f"six>=1 {HASH}", f"six==1.* {HASH}", f"-e . {HASH}", f"--index-url http://x {HASH}",
     f"six @ http://x {HASH}", f"./six.whl {HASH}", f"six==1 --hash=md5:{'a' * 32}", f"six==1 {HASH} --pre",
     f"six==1 --global-option=x {HASH}", f"six==1 ; --pre {HASH}", "six==1 --hash=sha256:zz"],
)  # fmt: skip
def test_lines_that_could_become_something_else_do_not(line: str) -> None:
    assert len(list(faults_of_lines([line]))) == 1


def test_what_stands_beside_headgate_is_used_in_its_version_and_refused_in_another() -> None:
    lines = [f"Some_Thing==1.0 {HASH}", f"msgspec=={version('msgspec')} {HASH}", f"Py.YAML==0.1 {HASH}"]
    assert missing(lines[:2], {"msgspec": version("msgspec")}) == (lines[:1], [])
    found, faults = missing(lines, {"py-yaml": "6.0", "msgspec": version("msgspec")})
    assert found == lines[:1] and faults == [
        "it needs py-yaml 0.1, and headgate stands beside py-yaml 6.0 there"
    ]
    assert needed(manifest()) == []
    assert needed(manifest(*lines[:2])) == lines[:1]
    with pytest.raises(BadPackage, match="contradict"):
        needed(manifest(f"msgspec==0.0.1 {HASH}"))


def test_modules_that_would_take_anothers_place_are_named(tmp_path: Path) -> None:
    names = ("agent/__init__.py", "json/__init__.py", "msgspec.py", "own/__init__.py", "own.dist-info/METADATA",
             "bin/tool", "_own.cpython-311-x86_64-linux-gnu.so", "typing.py", "notes.txt")  # fmt: skip
    site = folder(tmp_path / "site", dict.fromkeys(names, b""))
    assert displaced(site) == ["agent", "json", "msgspec", "typing"]
    assert displaced(tmp_path / "nothing") == []
    assert "json" in sys.stdlib_module_names
