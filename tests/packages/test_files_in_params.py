"""Params that name files: they travel, or are refused by name, and are found where the package is unpacked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from package_made import folder

from headgate.topology_runtime.packages.files_named import travelling
from headgate.topology_runtime.packages.manifest import BadPackage
from headgate.topology_runtime.packages.params import placed
from headgate.topology_runtime.topology import Task, Topology


def topology(**params: Any) -> Topology:
    return Topology("t", (Task("read", run="a:b", params=params), Task("plain")))


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(folder(tmp_path / "here", {"local.txt": b"1", "words/x": b""}))
    return folder(tmp_path / "flow", {"data/words.txt": b"a", "flow.py": b"", "deploy.key": b""})


def sent(root: Path, given: Topology, **more: Any) -> dict[str, Any]:
    return travelling(given, root, {"data/words.txt", "flow.py"}, **more).tasks[0].params


def test_a_file_of_the_package_travels_however_it_is_written(root: Path) -> None:
    given = topology(
        whole=str(root / "data" / "words.txt"),
        inside="data/words.txt",
        deep={"list": ["flow.py", 3, None]},
        folder="data/",
        named="package:data/words.txt",
        words=["words", "a sentence of it", "", "x" * 5000, "no/such/file"],
    )
    params = sent(root, given)
    assert params["whole"] == params["inside"] == params["named"] == "package:data/words.txt"
    assert params["deep"] == {"list": ["package:flow.py", 3, None]} and params["folder"] == "package:data"
    assert params["words"] == given.tasks[0].params["words"], "words are no files"
    there = placed(travelling(given, root, {"data/words.txt", "flow.py"}), "/store/code").tasks[0].params
    assert there["whole"] == "/store/code/data/words.txt" and there["folder"] == "/store/code/data"
    assert there["words"] == given.tasks[0].params["words"]


def test_files_that_would_not_be_there_are_refused_by_name_all_at_once(root: Path) -> None:
    given = topology(
        a="/etc/hostname", b="local.txt", c=str(root / "deploy.key"), d="package:nothing", e="words/"
    )
    with pytest.raises(BadPackage) as error:
        sent(root, given)
    assert [fault.split()[0] for fault in error.value.faults] == [f"read.{name}" for name in "abcde"]
    assert "--on-every-host" in str(error.value.hint)


def test_what_is_said_to_be_on_every_host_stays_as_it_is(root: Path) -> None:
    assert sent(root, topology(a="/etc/hostname"), everywhere=["read.a"]) == {"a": "/etc/hostname"}


def test_a_path_cannot_lead_out_of_the_package(root: Path) -> None:
    for path in ("package:../deploy.key", "package:", "package:data/../../x", "package:/etc/passwd"):
        with pytest.raises(BadPackage):
            sent(root, topology(a=path))
