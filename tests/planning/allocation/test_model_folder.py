"""Models on disk: what is kept, what is refused, and where."""

from __future__ import annotations

import json
import os

import pytest

from headgate.controller.files.planning_inputs import MODEL_MOST_BYTES, read_models, write_model
from headgate.controller.models.field_reader import within_edits
from headgate.controller.models.task_models import Model, ModelSlot, Point, Spread
from headgate.topology_runtime.errors import InvalidInput

POINT = {"threads": 1, "rate_tps": 2.0, "cpu": 0.0673, "memory": 0.2392}


def document(**changes: object) -> dict[str, object]:
    return {
        "schema": "headgate/model/v1",
        "task": "blob",
        "slot": {"cores": 0.2},
        "points": [POINT],
    } | changes


def write(folder, data, name="blob.json"):
    (folder / name).write_text(data if isinstance(data, str) else json.dumps(data))


def faults_of(folder) -> tuple[str, ...]:
    with pytest.raises(InvalidInput) as refused:
        read_models(folder)
    assert refused.value.exit_code == 3
    return refused.value.faults


def test_reads_a_folder(tmp_path):
    write(tmp_path, document())
    write(tmp_path, document(task="pi"), "pi.json")
    (tmp_path / "notes.txt").write_text("not a model")
    found = read_models(tmp_path)
    assert list(found) == ["blob", "pi"]
    assert found["blob"].points == (Point(1, 2.0, 0.0673, 0.2392),)
    assert found["blob"].slot == ModelSlot(0.2)


def test_what_is_no_regular_file_is_refused(tmp_path):
    os.mkfifo(tmp_path / "blob.json")
    assert faults_of(tmp_path) == ("blob.json: is not a regular file",)


def test_unknown_keys_survive_reading_and_writing(tmp_path):
    kept = document(
        measured="2026-11-20",
        slot={"cores": 0.2, "kernel": "6.18"},
        points=[POINT | {"trials": 5}, POINT | {"threads": 2}],
    )
    write(tmp_path, kept)
    model = read_models(tmp_path)["blob"]
    path = write_model(tmp_path / "again", model)
    assert path.name == "blob.json"
    assert read_models(tmp_path / "again") == {"blob": model}
    written = json.loads(path.read_text())
    assert written["measured"] == "2026-11-20"
    assert written["slot"]["kernel"] == "6.18"
    assert [point.get("trials") for point in written["points"]] == [5, None]
    assert os.listdir(tmp_path / "again") == ["blob.json"]


@pytest.mark.parametrize(
    ("written", "spread"),
    [
        (0.05, Spread(relative=0.05)),
        (0, Spread(relative=0)),
        ({"rate_tps": 0.4, "cpu": 0.01, "memory": 0.002}, Spread(None, 0.4, 0.01, 0.002)),
        ({"cpu": 0.01}, Spread(cpu=0.01)),
        ({"rate_tps": 0.4, "quantile": 0.9}, Spread(rate_tps=0.4)),
        ({}, Spread()),
        (None, None),
    ],
)
def test_spread_is_read_and_written_as_it_was(tmp_path, written, spread):
    data = document(points=[POINT | {"spread": written, "trials": 5}, POINT | {"threads": 2}])
    write(tmp_path, data)
    model = read_models(tmp_path)["blob"]
    assert [point.spread for point in model.points] == [spread, None]
    again = json.loads(write_model(tmp_path / "again", model).read_text())
    assert again["points"] == data["points"]
    assert read_models(tmp_path / "again") == {"blob": model}


@pytest.mark.parametrize(
    ("spread", "fault"),
    [
        (-0.1, "spread: expected a part of the rate from 0 to 1 (0.05, not 5), or an object, got -0.1"),
        (5, "spread: expected a part of the rate from 0 to 1 (0.05, not 5), or an object, got 5"),
        (
            float("nan"),
            "spread: expected a part of the rate from 0 to 1 (0.05, not 5), or an object, got nan",
        ),
        (True, "spread: expected a part of the rate from 0 to 1 (0.05, not 5), or an object, got True"),
        ([0.1], "spread: expected a part of the rate from 0 to 1 (0.05, not 5), or an object, got a list"),
        ({"rate_tps": -1}, "spread.rate_tps: expected a finite number of at least 0, got -1"),
        ({"memory": None}, "spread.memory: expected a fraction of the slot (0.02, not 2), got None"),
        ({"cpu": float("inf")}, "spread.cpu: expected a fraction of the slot (0.02, not 2), got inf"),
        ({"cpu": 5}, "spread.cpu: expected a fraction of the slot (0.02, not 2), got 5"),
        ({"rate_tsp": 5}, "spread.rate_tsp: unknown key; did you mean 'rate_tps'?"),
    ],
)
def test_faults_of_a_spread(tmp_path, spread, fault):
    write(tmp_path, document(points=[POINT, POINT | {"threads": 2, "spread": spread}]))
    assert faults_of(tmp_path) == (f"blob.json: points[1].{fault}",)


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"points": []}, "blob.json: points: expected a list with at least one point, got []"),
        ({"points": None}, "blob.json: points: expected a list, got None"),
        ({"points": [3]}, "blob.json: points[0]: expected an object, got 3"),
        (
            {"schema": "headgate/model/v2"},
            "blob.json: schema: expected 'headgate/model/v1', got 'headgate/model/v2'",
        ),
        (
            {"task": "a/../b"},
            "blob.json: task 'a/../b': names are 1 to 64 of A-Z a-z 0-9 _ . - and not only dots",
        ),
        ({"task": "pi"}, "blob.json: task: 'pi' belongs into pi.json"),
        ({"task": 7}, "blob.json: task: expected a name, got 7"),
        ({"slot": {"cores": 2}}, "blob.json: slot.cores: expected more than 0 and at most 1, got 2"),
        ({"slot": 4}, "blob.json: slot: expected an object, got 4"),
        (
            {"slot": {"memory_bytes": 0.5}},
            "blob.json: slot.memory_bytes: expected an integer from 1 to 9223372036854775807, got 0.5",
        ),
        ({"slot": {"machine": 5}}, "blob.json: slot.machine: expected text of at most 128 characters, got 5"),
        ({"slot": {"core": 0.2}}, "blob.json: slot.core: unknown key; did you mean 'cores'?"),
        ({"wake_cp": 0.1}, "blob.json: wake_cp: unknown key; did you mean 'wake_cpu'?"),
    ],
)
def test_faults_of_the_file(tmp_path, changes, fault):
    write(tmp_path, document(**changes))
    assert faults_of(tmp_path) == (fault,)


NO_NUMBER = [-0.1, float("nan"), float("inf"), None, "2", True]


@pytest.mark.parametrize(
    ("key", "values", "said"),
    [
        ("rate_tps", [0, *NO_NUMBER], "a finite number above 0"),
        ("cpu", [92.35, *NO_NUMBER], "a fraction of the slot (0.92, not 92)"),
        ("memory", [92.35, *NO_NUMBER], "a fraction of the slot (0.92, not 92)"),
        ("threads", [0, -3, 1.5, 10**7, *NO_NUMBER], "an integer from 1 to 1000000"),
        ("wake_cpu", NO_NUMBER, "a finite number of at least 0"),
        ("worker_bytes", NO_NUMBER, "a finite number of at least 0"),
        ("base_memory", [92, *NO_NUMBER], "a finite number of at least 0"),
        ("cpu_spread", [2.1, *NO_NUMBER], "a finite number of at least 0"),
        ("wait_spread", [2.1, *NO_NUMBER], "a finite number of at least 0"),
        ("frame_cpu", NO_NUMBER, "a finite number of at least 0"),
        ("crossing_cpu", NO_NUMBER, "a finite number of at least 0"),
        ("frame_rows", [0, 0.5, *NO_NUMBER], "a finite number of at least 1"),
    ],
)
def test_what_numbers_may_be(tmp_path, key, values, said):
    of_task = key not in ("rate_tps", "cpu", "memory", "threads")
    for value in values:
        top, point = ({key: value}, {}) if of_task else ({}, {key: value})
        write(tmp_path, document(points=[POINT | point], **top))
        place = key if of_task else f"points[0].{key}"
        assert faults_of(tmp_path) == (f"blob.json: {place}: expected {said}, got {value!r}",)


@pytest.mark.parametrize("counts", [(1, 1), (2, 1), (1, 3, 2), (1, 3, 3)])
def test_thread_counts_rise(tmp_path, counts):
    write(tmp_path, document(points=[POINT | {"threads": count} for count in counts]))
    (fault,) = faults_of(tmp_path)
    place = len(counts) - 1
    assert fault == (
        f"blob.json: points[{place}].threads: thread counts must rise, "
        f"and {counts[-1]} follows {max(counts[:-1])}"
    )


def test_all_faults_of_all_files_are_listed(tmp_path):
    write(tmp_path, document(points=[POINT | {"rate_tps": 0, "cpu": -1}], schema="x"))
    write(tmp_path, "[1, 2", "broken.json")
    write(tmp_path, "[]", "list.json")
    write(tmp_path, '{"a":' * 100_000, "deep.json")
    write(tmp_path, " " * (MODEL_MOST_BYTES + 1), "large.json")
    (tmp_path / "folder.json").mkdir()
    faults = faults_of(tmp_path)
    places = [fault.split(": ")[0] for fault in faults]
    assert places == ["blob.json"] * 3 + [
        "broken.json",
        "deep.json",
        "folder.json",
        "large.json",
        "list.json",
    ]


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(InvalidInput, match="cannot be read"):
        read_models(tmp_path / "none")


def test_a_faulty_model_is_not_written(tmp_path):
    with pytest.raises(InvalidInput):
        write_model(tmp_path, Model("../blob", ModelSlot(), (Point(1, float("nan"), 0.1, 0.1),)))
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("word", "near"),
    [("cpu", True), ("cpus", True), ("pcu", True), ("cp", True), ("memory", False), ("spread", False)],
)
def test_within_two_letters(word, near):
    assert within_edits(word, "cpu", 2) is near
