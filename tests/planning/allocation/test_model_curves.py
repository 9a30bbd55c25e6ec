"""I, C, M, T, ω̂ and τ̂ of a performance model (paper 0, section 6)."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner
from msgspec.structs import replace
from worlds import chain, model_of

from headgate.controller.controller_cli import run
from headgate.controller.models.plans import Bundle, Placement
from headgate.controller.models.task_models import (
    Model,
    ModelSlot,
    Point,
    Spread,
    cpu,
    memory,
    missing_models,
    peak,
    peak_rate,
    threads_for,
)
from headgate.controller.plan.predict.slot_fit import fitted, held_memory, resident_memory
from headgate.topology_runtime.api.cluster import Slot, Vm
from headgate.topology_runtime.api.topology import Edge, Static, Task, Topology
from headgate.topology_runtime.errors import InvalidInput

BLOB = model_of("blob", (1, 2, 0.07, 0.24), (20, 10, 0.15, 0.26), (50, 30, 0.77, 0.31))


@pytest.mark.parametrize(
    ("read", "found"),
    [
        (peak_rate, {0: 0, 1: 2, 20: 10, 35: 20, 50: 30, 51: 30, 500: 30}),
        (cpu, {20: 0.15, 35: 0.46, 50: 0.77, 100: 1.54, 101: 1.61, 120: 1.69}),
        (memory, {70: 0.31 + 0.26}),
    ],
)
def test_rates_stay_flat_above_the_last_point_and_needs_add_up(read, found):
    assert [read(BLOB, threads) for threads in found] == pytest.approx(list(found.values()))
    assert peak_rate(model_of("t", (4, 8, 0.5, 0.5)), 1) == pytest.approx(2), "from nothing to the first"
    assert cpu(model_of("t", (1, 10, 1.02, 0.1)), 1) == 1.02, "as it was measured"


def test_the_peak_is_the_best_point_and_of_equals_that_with_the_fewest_threads():
    assert peak(model_of("file", (1, 60000, 0.58, 0.12), (2, 50000, 0.52, 0.03))) == (60000, 1)
    assert peak(model_of("t", (1, 5, 0.1, 0.1), (2, 9, 0.2, 0.1), (8, 9, 0.4, 0.1))) == (9, 2)


@pytest.mark.parametrize(
    ("rate", "threads"), [(0, 1), (2, 1), (2.1, 20), (10 * (1 + 1e-12), 20), (10.1, 50), (30, 50), (31, None)]
)
def test_threads_for_takes_measured_counts_only(rate, threads):
    assert threads_for(BLOB, rate) == threads


def test_missing_models_name_the_task_and_the_nearest_model():
    faults = missing_models(chain("blob", "tabel", ends=True), {"blob": BLOB, "table": BLOB})
    assert faults == ["task 'tabel': no model 'tabel'; did you mean 'table'?"]


# ── Models measured in one size of slot are scaled where that is known, and refused where it is not ─────

FLOW = Topology("flow", (Task("source", static=Static()), Task("work", run="x:y")), (Edge("source", "work"),))
GIB = 1 << 30
POINT = Point(1, 100.0, 0.9, 0.1, Spread(memory=0.02))


def model(cores: float, memory_bytes: int, task: str = "work") -> Model:
    return Model(task, ModelSlot(cores, memory_bytes, "here"), (POINT,), {"base_memory": 0.05, "other": 1})


def test_memory_is_scaled_by_its_bytes() -> None:
    (found,) = fitted([model(0.2, 2 * GIB)], FLOW, 0.2, GIB // 2)
    assert found.points == (Point(1, 100.0, 0.9, 0.4, Spread(memory=0.08)),)
    assert found.more == {"base_memory": 0.2, "other": 1} and found.slot == ModelSlot(0.2, GIB // 2, "here")


def test_the_same_slots_change_nothing() -> None:
    before = model(0.2, GIB)
    assert fitted([before], FLOW, 0.2, GIB) == (before,)


def test_who_does_not_say_in_what_slot_is_measured_in_these() -> None:
    (found,) = fitted([Model("work", ModelSlot(), (POINT,))], FLOW, 0.2, GIB)
    assert found.points == (POINT,) and found.slot == ModelSlot(0.2, GIB)


def test_models_of_other_cores_are_refused_with_what_to_do() -> None:
    with pytest.raises(InvalidInput) as refused:
        fitted([model(0.5, GIB)], FLOW, 0.2, GIB)
    assert refused.value.faults == ("work: measured in a slot of 0.5 cores",)
    assert "--slot-cores 0.5" in refused.value.hint and "model profile --slot-cores 0.2" in refused.value.hint


def test_a_model_that_is_not_used_refuses_nothing() -> None:
    found = fitted([model(0.5, GIB, "other"), model(0.2, GIB)], FLOW, 0.2, GIB)
    assert [one.task for one in found] == ["other", "work"]


def test_a_controller_is_not_started_with_them(tmp_path: Path) -> None:
    slot = {"cores": 0.5, "memory_bytes": GIB, "machine": "here"}
    point = {"threads": 1, "rate_tps": 100.0, "cpu": 0.9, "memory": 0.1}
    document = {"schema": "headgate/model/v1", "task": "work", "slot": slot, "points": [point]}
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "work.json").write_text(json.dumps(document))
    (tmp_path / "flow.json").write_bytes(msgspec.json.encode(FLOW))
    words = ["--topology", str(tmp_path / "flow.json"), "--models", str(tmp_path / "models"), "--rate", "5"]
    words += ["--vms", "vm1=4", "--slot-cores", "0.2", "--state-dir", str(tmp_path / "state")]
    result = CliRunner().invoke(run, words)
    assert isinstance(result.exception, InvalidInput), result.exception
    assert "do not fit slots of 0.2 cores" in result.exception.what
    assert not (tmp_path / "state").exists(), "nothing is left behind"


# ── What slots hold in memory: imports once, threads each, the bare worker where it is known ────────────

SIZE = 3_758_096_384
A = replace(model_of("a", (1, 10, 0.5, 0.10), (11, 50, 0.9, 0.20)), more={"base_memory": 0.09})
B = replace(model_of("b", (1, 10, 0.5, 0.06)), more={"base_memory": 0.05})
TWO_TASKS = chain("a", "b", ends=True)
FIRST, SECOND = Slot("vm1", 0), Slot("vm1", 1)
PLACED = Placement(
    (Bundle(FIRST, "source", 1), Bundle(FIRST, "a", 11), Bundle(FIRST, "b", 1), Bundle(SECOND, "b", 1))
)


def test_what_two_tasks_import_is_counted_once():
    held = resident_memory(PLACED, TWO_TASKS, {"a": A, "b": B})
    assert held[FIRST] == pytest.approx((0.09 + 0.11 + 0.01) * SIZE)
    assert held[SECOND] == pytest.approx(0.06 * SIZE)


def test_the_bare_worker_and_tasks_of_fixed_size_are_held_too():
    known = {"a": replace(A, more={**A.more, "worker_bytes": SIZE // 100}), "b": B}
    held = held_memory(PLACED, TWO_TASKS, known, [Vm("vm1", 2)])
    assert held[FIRST] == pytest.approx(0.01 + 0.21 + 0.15, rel=1e-6)
    assert held[SECOND] == pytest.approx(0.01 + 0.06, rel=1e-6)


@pytest.mark.parametrize("more", [{}, {"worker_bytes": 0}])
def test_without_a_known_worker_nothing_is_claimed(more):
    known = {"a": replace(A, more=more), "b": B}
    assert held_memory(PLACED, TWO_TASKS, known, [Vm("vm1", 2)]) == {}
