"""Mappers, allocators, sources, sinks and machines of other packages, found by their entry points."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from headgate.controller.controller_cli import installed_machines
from headgate.controller.files.installed_schedulers import add_installed
from headgate.controller.models.plans import Allocation, TaskAllocation
from headgate.controller.plan.mappers.free_slots import Room
from headgate.topology_runtime.api.cluster import Vm
from headgate.topology_runtime.api.plugins import plugin, with_references
from headgate.topology_runtime.errors import InvalidInput, UsageError

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = Path(__file__).with_name("evenly_package")
FLOW = {
    "schema": "headgate/topology/v1",
    "name": "evens",
    "tasks": [
        {
            "name": "source",
            "kind": "source",
            "run": "numbers",
            "static": {"threads": 1, "cpu": 0.1, "memory": 0.1},
        },
        {"name": "pi", "run": "headgate.topology_runtime.tasks.computing:Pi"},
        {"name": "sink", "run": "drop", "static": {"threads": 1, "cpu": 0.1, "memory": 0.1}},
    ],
    "edges": [{"from": "source", "to": "pi"}, {"from": "pi", "to": "sink"}],
}


def register(site: Path, package: str, text: str) -> None:
    """What an installer leaves of a package's entry points."""
    folder = site / f"{package}-1.0.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    (folder / "entry_points.txt").write_text(text)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that the package of evenly_package is installed in."""
    groups = tomllib.loads((PACKAGE / "pyproject.toml").read_text())["project"]["entry-points"]
    lines = [
        f"[{group}]\n" + "".join(f"{k} = {v}\n" for k, v in named.items()) for group, named in groups.items()
    ]
    site = tmp_path / "site"
    register(site, "evenly", "\n".join(lines))
    shutil.copy(PACKAGE / "evenly.py", site)
    monkeypatch.syspath_prepend(str(site))
    return site


def headgate(site: Path, *words: str) -> Any:
    env = {**os.environ, "PYTHONPATH": f"{ROOT / '.editable'}:{site}"}
    return subprocess.run(
        [sys.executable, "-P", "-m", "headgate", *words],
        cwd=site.parent, env=env, capture_output=True, text=True, timeout=60,
    )  # fmt: skip


def planned(site: Path, *words: str) -> Any:
    (site.parent / "flow.json").write_text(json.dumps(FLOW))
    models = ROOT / "topology_runtime" / "examples" / "models"
    return headgate(site, "plan", "flow.json", "--models", str(models), "--rate", "200", "-o", "json", *words)


def test_a_mapper_of_another_package_makes_plans(site: Path) -> None:
    done = planned(site, "--mapper", "evenly")
    assert done.returncode == 0, done.stderr
    plan = json.loads(done.stdout)
    assert plan["mapper"] == "evenly"
    held = [sum(slot["threads"].values()) for slot in plan["placement"]]
    assert sum(held) == sum(task["threads"] for task in plan["allocation"])
    assert max(held) - min(held) <= 1


def test_sources_and_sinks_of_other_packages_stand_in_topologies_by_name(site: Path) -> None:
    tasks = with_references(FLOW)["tasks"]  # type: ignore[index]
    assert [task["run"] for task in tasks] == ["evenly:Numbers", FLOW["tasks"][1]["run"], "evenly:drop"]  # type: ignore[index]
    (site.parent / "flow.json").write_text(json.dumps(FLOW))
    done = headgate(site, "topology", "show", "flow.json", "-o", "json")
    assert done.returncode == 0, done.stderr


def test_a_name_that_nobody_registers_is_refused_as_before(site: Path) -> None:
    assert plugin("mappers", "oddly") is None
    done = planned(site, "--mapper", "oddly")
    assert done.returncode == 3
    assert "--mapper: no 'oddly', there are dsm," in done.stderr


def test_a_broken_plugin_is_named_and_hinders_no_other(site: Path) -> None:
    register(site, "sour", "[headgate.mappers]\nsour = sour:place\n[headgate.machines]\ncloud = json:dumps\n")
    register(site, "torn", "[headgate.mappers\nhalf")
    (site / "sour.py").write_text("raise RuntimeError('no licence')\n")
    assert plugin("mappers", "evenly").__name__ == "evenly"
    with pytest.raises(
        InvalidInput, match="broken plug-in 'sour' of sour: importing 'sour' raised"
    ) as caught:
        plugin("mappers", "sour")
    assert "no licence" in str(caught.value.cause)
    done = planned(site, "--mapper", "sour")
    assert done.returncode == 3
    assert "broken plug-in 'sour' of sour" in done.stderr
    assert planned(site, "--mapper", "evenly").returncode == 0


TWO_SLOTS = Room((Vm("vm1", 2),))
THREE_THREADS = Allocation("mba", 1.0, (TaskAllocation("pi", 1.0, 3, 0.3, 0.3),), 1)
FAULTY = {
    "return 1 / 0": ("raised an error", "ZeroDivisionError: division by zero ("),
    "return None": ("returned NoneType", "return a Placement"),
    "return Filling().placement(allocation, room.vms)": (
        "returned a placement that cannot be",
        "task 'pi': 0 threads are placed, 3 allocated",
    ),
    "return evenly(allocation, replace(room, vms=(Vm('vm1', 3),)))": (
        "returned a placement that cannot be",
        "slot vm1/2 is none of room.slots()",
    ),
}


@pytest.mark.parametrize("body", FAULTY)
def test_what_a_mapper_does_wrong_is_said_to_be_its_fault(
    site: Path, body: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    register(site, "faulty", "[headgate.mappers]\nfaulty = faulty:place\n")
    (site / "faulty.py").write_text(
        "from evenly import Filling, evenly\n"
        "from msgspec.structs import replace\n"
        "from headgate.topology_runtime.api.cluster import Vm\n\n"
        f"def place(allocation, room):\n    {body}\n"
    )
    monkeypatch.setattr("headgate.controller.files.installed_schedulers.MAPPERS", rows := {})
    monkeypatch.delitem(sys.modules, "faulty", raising=False)
    add_installed(mapper="faulty")
    what, why = FAULTY[body]
    with pytest.raises(InvalidInput, match=f"mapper 'faulty' {what}") as caught:
        rows["faulty"].place(THREE_THREADS, TWO_SLOTS)
    assert any(why in part for part in (str(caught.value.cause), caught.value.hint, *caught.value.faults))


def test_a_name_that_is_nearly_that_of_a_package_is_suggested(site: Path) -> None:
    done = planned(site, "--mapper", "evenyl")
    assert done.returncode == 3
    assert "did you mean 'evenly'?" in done.stderr


def test_machines_of_another_package_are_made_with_a_folder(site: Path, tmp_path: Path) -> None:
    register(
        site,
        "cloud",
        "[headgate.machines]\nfiles = headgate.controller.files.machine_providers:FileMachines\n",
    )
    machines = installed_machines("files", tmp_path / "machines")
    assert machines.list().desired == ()
    with pytest.raises(UsageError, match="clouds: no such plug-in"):
        installed_machines("clouds", tmp_path / "machines")


def test_the_mapper_of_the_guide_is_twenty_lines_long() -> None:
    text = (PACKAGE / "evenly.py").read_text()
    assert len(text[: text.index("class Numbers")].splitlines()) <= 24
