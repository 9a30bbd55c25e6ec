"""Both machines providers keep one contract: idempotent, listed, given back."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from headgate.controller.files.machine_providers import FileMachines, Listing, Machines
from headgate.topology_runtime.api.cluster import Vm
from headgate.topology_runtime.errors import Infeasible

VM = Vm("vm3", 4, 0.2)


@pytest.fixture(params=["file", "none"])
def machines(request: pytest.FixtureRequest, tmp_path: Path) -> Machines:
    return FileMachines(tmp_path / "machines") if request.param == "file" else Machines()


def test_a_vm_is_either_had_or_refused(machines: Machines) -> None:
    try:
        machines.request(VM)
    except Infeasible:
        assert machines.list() == Listing((), ())
    else:
        machines.request(VM)
        assert machines.list().desired == ("vm3",)


def test_giving_back_leaves_nothing_and_may_be_repeated(machines: Machines) -> None:
    machines.release("vm3")
    try:
        machines.request(VM)
    except Infeasible:
        assert not isinstance(machines, FileMachines)
    machines.release("vm3")
    machines.release("vm3")
    assert machines.list().desired == ()


def test_the_file_is_whole_and_says_what_is_desired(tmp_path: Path) -> None:
    machines = FileMachines(tmp_path)
    machines.request(VM)
    assert msgspec.json.decode((tmp_path / "vm3.desired").read_bytes(), type=Vm) == VM
    assert [path.name for path in tmp_path.iterdir()] == ["vm3.desired"]


def test_what_runs_is_listed(tmp_path: Path) -> None:
    (tmp_path / "vm1.running").write_text("4711\n")
    assert FileMachines(tmp_path).list() == Listing((), ("vm1",))
