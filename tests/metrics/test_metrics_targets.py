"""Where Prometheus finds the processes of a run of `up`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headgate.dashboards.up.metrics_targets import file_of, metrics_option, port_of, targets, write_targets


def test_vms_have_the_ports_after_the_controllers():
    assert [port_of(9400, vm) for vm in ("vm1", "vm2", "vm12")] == [9401, 9402, 9412]
    assert metrics_option(9400, "vm3") == ["--metrics-port", "9403"]


@pytest.mark.parametrize("vm", ["vm", "vm0", "vm9999"])
def test_a_vm_for_which_there_is_no_port_tells_nothing(vm):
    assert metrics_option(65000, vm) == []


def test_without_the_option_nobody_tells_anything():
    assert metrics_option(None, "vm1") == []


def test_prometheus_reads_who_is_there(tmp_path: Path):
    state = tmp_path / "run"
    write_targets(state, 9400, ["vm2", "vm1"])
    write_targets(state, 9400, ["vm2", "vm1", "odd"])
    found = json.loads(file_of(state).read_text())
    assert found == targets(9400, ["vm1", "vm2"])
    assert [(one["targets"], one["labels"]) for one in found] == [
        (["127.0.0.1:9400"], {"role": "controller"}),
        (["127.0.0.1:9401", "127.0.0.1:9402"], {"role": "agent"}),
    ]
    assert [path.name for path in tmp_path.iterdir()] == ["run.targets.json"]
