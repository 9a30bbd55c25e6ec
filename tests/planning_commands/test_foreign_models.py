"""`headgate model import --from flink|storm`: what their metrics make known, and what is refused.

Documents have the shape that Flink 2.2.1 answered with (`test_flink_live.py` runs one) and that Storm 2 documents.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest
from scene import Scene

from headgate.controller.files.planning_inputs import read_models
from headgate.controller.model_commands.foreign_metrics import task_name

PARSE, COUNT, SOURCE = "a0bcbe636c3291fd3f45c25deb2b0823", "b71731f1c0df9c3076c4a455334d0ad6", "e5a72f35"


def vertex(key: str, name: str, parallelism: int, rows: Any, busy_ms: Any) -> dict[str, Any]:
    return {
        "id": key,
        "slotSharingGroupId": "6e4906dbfca9686795d6e67ebcf233dc",
        "name": name,
        "maxParallelism": 128,
        "parallelism": parallelism,
        "status": "RUNNING",
        "start-time": 1795474859186,
        "end-time": -1,
        "duration": 60_000,
        "tasks": {"RUNNING": parallelism, "FINISHED": 0},
        "metrics": {
            "read-bytes": 2_000_000,
            "read-bytes-complete": True,
            "read-records": rows,
            "read-records-complete": True,
            "write-records": rows,
            "write-records-complete": True,
            "accumulated-backpressured-time": 0,
            "accumulated-idle-time": 9_000,
            "accumulated-busy-time": busy_ms,
        },
    }


def flink_job() -> dict[str, Any]:
    """Three subtasks of `parse` were busy for 45 s together and took 9,000 rows: 200 rows per busy second."""
    return {
        "jid": "08f335c3b6164746aa64b9c31af3a26d",
        "name": "flow",
        "isStoppable": False,
        "state": "RUNNING",
        "job-type": "STREAMING",
        "duration": 61_000,
        "maxParallelism": -1,
        "vertices": [
            vertex(SOURCE, "Source: source", 1, 0, 0.0),
            vertex(PARSE, "parse", 3, 9_000, 45_000.0),
            vertex(COUNT, "count", 1, 9_000, "4500.0"),
        ],
        "plan": {
            "nodes": [
                {"id": SOURCE, "parallelism": 1},
                {"id": PARSE, "parallelism": 3, "inputs": [{"num": 0, "id": SOURCE}]},
                {"id": COUNT, "parallelism": 1, "inputs": [{"num": 0, "id": PARSE}]},
            ]
        },
    }


def of_all(busy_ms: Any, rows_tps: Any) -> list[dict[str, Any]]:
    return [
        {
            "id": "busyTimeMsPerSecond",
            "min": 0.0,
            "max": busy_ms,
            "avg": busy_ms,
            "sum": busy_ms,
            "skew": 0.0,
        },
        {
            "id": "numRecordsInPerSecond",
            "min": 0.0,
            "max": rows_tps,
            "avg": rows_tps,
            "sum": rows_tps,
            "skew": 0.0,
        },
    ]


def of_each(*pairs: tuple[Any, Any]) -> list[dict[str, Any]]:
    found = []
    for part, (busy_ms, rows_tps) in enumerate(pairs):
        found.append({"id": f"{part}.busyTimeMsPerSecond", "value": str(busy_ms)})
        found.append({"id": f"{part}.numRecordsInPerSecond", "value": str(rows_tps)})
    return found


def storm_topology() -> dict[str, Any]:
    return {
        "name": "WordCount3",
        "id": "WordCount3-1-1402960825",
        "workersTotal": 3,
        "window": "600",
        "status": "ACTIVE",
        "uptimeSeconds": 1759,
        "windowHint": "10m 0s",
        "spouts": [
            {"executors": 5, "emitted": 28880, "completeLatency": "0.000", "spoutId": "spout", "tasks": 5}
        ],
        "bolts": [bolt("count", 12, 184_620, "0.048"), bolt("split", 2, 240_000, "4.000", "0.850")],
    }


def bolt(name: str, executors: int, executed: int, latency: str, capacity: str = "0.003") -> dict[str, Any]:
    return {
        "executors": executors,
        "emitted": 184_580,
        "acked": 184_640,
        "executeLatency": latency,
        "tasks": executors,
        "executed": executed,
        "processLatency": "0.043",
        "boltId": name,
        "lastError": "",
        "errorTime": None,
        "capacity": capacity,
        "failed": 0,
    }


def storm_component(*executors: tuple[int, str]) -> dict[str, Any]:
    return {
        "name": "WordCount3",
        "id": "split",
        "componentType": "bolt",
        "window": "600",
        "executors": len(executors),
        "tasks": len(executors),
        "boltStats": [],
        "executorStats": [
            {
                "id": f"[{n}-{n}]",
                "uptimeSeconds": 300,
                "executed": executed,
                "executeLatency": latency,
                "capacity": "0.5",
            }
            for n, (executed, latency) in enumerate(executors)
        ],
    }


def imported(scene: Scene, system: str, data: Any, *words: str, code: int = 0) -> dict[str, Any]:
    file = scene.write("metrics.json", data)
    to = str(scene.folder / "made")
    text = scene.headgate(
        "model", "import", "--from", system, file, "--output", to, *words, "-o", "json", code=code
    )
    return json.loads(text) if text else {}


def made(scene: Scene) -> dict[str, Any]:
    return read_models(scene.folder / "made")


# ── Flink ───────────────────────────────────────────────────────────────────────────────────────


def test_a_job_gives_what_one_thread_of_each_vertex_takes(scene: Scene) -> None:
    document = imported(scene, "flink", flink_job())
    assert (document["schema"], document["from"]) == ("headgate/model-import/v1", "flink")
    assert document["left_out"] == ["Source: source"]
    models = made(scene)
    assert {task: model.points[0].rate_tps for task, model in models.items()} == {
        "parse": pytest.approx(200.0),
        "count": pytest.approx(2000.0),
    }
    [point] = models["parse"].points
    assert (point.threads, point.cpu, point.memory, point.spread) == (1, 1.0, 0.0, None)
    parse = next(row for row in document["models"] if row["task"] == "parse")
    assert (parse["threads_seen"], parse["busy_seen"]) == (3, pytest.approx(0.25))
    assert "whole core" in scene.err and "memory" in scene.err and "Source: source" in scene.err
    assert models["parse"].more["assumed"] == document["assumed"]


def test_such_models_can_be_planned_with(scene: Scene) -> None:
    imported(scene, "flink", flink_job())
    text = scene.headgate(
        "plan",
        str(scene.folder / "flow.json"),
        "--models",
        str(scene.folder / "made"),
        "--rate",
        "390",
        "-o",
        "json",
    )
    threads = {task["task"]: task["threads"] for task in json.loads(text)["allocation"]}
    assert threads == {"source": 1, "parse": 2, "count": 1}


def test_the_last_minute_of_all_subtasks(scene: Scene) -> None:
    imported(
        scene,
        "flink",
        {"job": flink_job(), "metrics": {PARSE: of_all(1500.0, 300.0), COUNT: of_all(200.0, 100.0)}},
    )
    assert made(scene)["parse"].points[0].rate_tps == pytest.approx(200.0)
    assert made(scene)["count"].points[0].rate_tps == pytest.approx(500.0)


def test_subtasks_that_differ_make_a_spread(scene: Scene) -> None:
    metrics = {PARSE: of_each((500.0, 90.0), (500.0, 100.0), (500.0, 110.0)), COUNT: of_each((200.0, 100.0))}
    imported(scene, "flink", {"job": flink_job(), "metrics": metrics})
    [point] = made(scene)["parse"].points
    assert point.rate_tps == pytest.approx(200.0) and point.spread.relative == pytest.approx(0.1)


def test_threads_that_wait_share_a_slot_when_told_what_they_take(scene: Scene) -> None:
    imported(scene, "flink", flink_job(), "--thread-cpu", "0.1", "--thread-memory", "0.2")
    one, five = made(scene)["parse"].points
    assert (one.threads, one.rate_tps, one.cpu, one.memory) == (1, pytest.approx(200.0), 0.1, 0.2)
    assert (five.threads, five.rate_tps, five.cpu, five.memory) == (5, pytest.approx(1000.0), 0.5, 1.0)
    assert "given, not measured" in scene.err


def test_several_files_are_weighed_by_their_busy_time(scene: Scene) -> None:
    other = flink_job()
    other["vertices"][1]["metrics"].update({"read-records": 2_700, "accumulated-busy-time": 9_000.0})
    second = scene.write("other.json", other)
    document = imported(scene, "flink", flink_job(), second)
    rate = (9_000 + 2_700) / (45 + 9)
    [point] = made(scene)["parse"].points
    assert point.rate_tps == pytest.approx(rate) and point.spread.relative == pytest.approx(
        50 / rate, abs=1e-4
    )
    assert len(document["models"]) == 2


def test_only_what_is_named_is_imported_and_under_its_name(scene: Scene) -> None:
    job = flink_job()
    job["vertices"][2] = vertex(COUNT, "Sink: out -&gt; (a, b)", 1, 0, 0.0)
    imported(scene, "flink", job, code=3)
    assert "Sink: out -> (a, b): it took no rows" in scene.err and "--task" in scene.err
    imported(scene, "flink", job, "--task", "parse")
    assert list(made(scene)) == ["parse"]
    job["vertices"][2]["metrics"].update({"read-records": 100, "accumulated-busy-time": 50.0})
    imported(scene, "flink", job, "--task", "out=Sink: out -> (a, b)")
    assert set(made(scene)) == {"parse", "out"}
    imported(scene, "flink", job, "--task", "parze", "--force", code=3)
    assert "did you mean 'parse'" in scene.err


@pytest.mark.parametrize(
    ("operator", "task"),
    [("Source: a b", "a_b"), ("Sink: out", "out"), ("x -> (y, Sink: z)", "x_y_z"), ("→", None), ("..", None)],
)
def test_names_of_tasks(operator: str, task: str | None) -> None:
    assert task_name(operator) == task


# ── Storm ───────────────────────────────────────────────────────────────────────────────────────


def test_a_topology_gives_what_one_executor_of_each_bolt_takes(scene: Scene) -> None:
    document = imported(scene, "storm", storm_topology())
    models = made(scene)
    assert models["count"].points[0].rate_tps == pytest.approx(1000 / 0.048)
    assert models["count"].points[0].spread.relative == pytest.approx(0.0005 / 0.048, abs=1e-4)
    assert models["split"].points[0].rate_tps == pytest.approx(250.0)
    split = next(row for row in document["models"] if row["task"] == "split")
    assert (split["threads_seen"], split["busy_seen"]) == (2, pytest.approx(240_000 * 0.004 / 600 / 2))
    assert "count was busy for 0.1% of the time only" in scene.err and "spout" in scene.err


def test_counts_of_all_time_are_of_the_time_it_is_up(scene: Scene) -> None:
    data = storm_topology() | {"window": ":all-time", "uptimeSeconds": 1200}
    document = imported(scene, "storm", data)
    split = next(row for row in document["models"] if row["task"] == "split")
    assert split["busy_seen"] == pytest.approx(240_000 * 0.004 / 1200 / 2)


def test_a_component_gives_the_spread_of_its_executors(scene: Scene) -> None:
    document = imported(scene, "storm", storm_component((30_000, "4.000"), (30_000, "5.000")))
    [point] = made(scene)["split"].points
    rate = 60_000 / (30 * 4 + 30 * 5)
    assert point.rate_tps == pytest.approx(rate) and point.spread.relative == pytest.approx(
        25 / rate, abs=1e-4
    )
    assert document["models"][0]["busy_seen"] == pytest.approx((0.4 + 0.5) / 2)  # in 300 s, not in 600


# ── what is refused ─────────────────────────────────────────────────────────────────────────────

Spoil = Callable[[dict[str, Any]], Any]
FLINK: list[tuple[Spoil, str]] = [
    (
        lambda job: job["vertices"][1]["metrics"].pop("accumulated-busy-time"),
        "parse: accumulated-busy-time is missing",
    ),
    (
        lambda job: job["vertices"][1]["metrics"].update({"accumulated-busy-time": "NaN"}),
        "is NaN: it was not measured",
    ),
    (lambda job: job["vertices"][1]["metrics"].update({"read-records": -1}), "read-records: -1 is negative"),
    (
        lambda job: job["vertices"][1]["metrics"].update({"read-records": "many"}),
        "expected a number, got 'many'",
    ),
    (lambda job: job["vertices"][1]["metrics"].update({"read-records": True}), "read-records is True"),
    (lambda job: job["vertices"][1]["metrics"].update({"accumulated-busy-time": 0}), "in no busy time"),
    (
        lambda job: job["vertices"][1]["metrics"].update({"accumulated-busy-time": 190_000}),
        "with only 3 to be so",
    ),
    (lambda job: job["vertices"][1].update(duration=0), "it did not begin"),
    (lambda job: job["vertices"][1].pop("parallelism"), "parallelism is missing"),
    (lambda job: job["vertices"][1].update(parallelism=0), "it has no threads"),
    (lambda job: job["vertices"][1].pop("metrics"), "read-records is missing"),
    (lambda job: job["vertices"][1].pop("name"), "vertices[1]: expected an object with a name"),
    (lambda job: job["vertices"][2].update(name="Sink: parse"), "would both be task 'parse'"),
    (lambda job: job["vertices"][2].update(name="→"), "no task can be called so"),
    (lambda job: job["vertices"].clear(), "expected what `GET /jobs/JOB` answers"),
    (lambda job: job.pop("vertices"), "expected what `GET /jobs/JOB` answers"),
]


@pytest.mark.parametrize(("spoil", "told"), FLINK)
def test_a_job_with_a_fault_is_refused_whole(scene: Scene, spoil: Spoil, told: str) -> None:
    job = copy.deepcopy(flink_job())
    spoil(job)
    imported(scene, "flink", job, code=3)
    assert told in scene.err and "cause: " in scene.err and "try: " in scene.err
    assert not (scene.folder / "made").exists()


@pytest.mark.parametrize(
    ("metrics", "told"),
    [
        ({PARSE: of_all("NaN", 300.0)}, "parse: busyTimeMsPerSecond is NaN"),
        ({PARSE: of_all(100.0, None)}, "parse: numRecordsInPerSecond is missing"),
        ({PARSE: []}, "parse: numRecordsInPerSecond is missing"),
        ({}, f"parse: metrics has no list of {PARSE}"),
        ({PARSE: of_each((500.0, 90.0))}, "metrics of 1 subtasks, but its parallelism is 3"),
        ([], "expected an object by ids of vertices"),
    ],
)
def test_the_last_minute_with_a_fault_is_refused(scene: Scene, metrics: Any, told: str) -> None:
    imported(scene, "flink", {"job": flink_job(), "metrics": metrics}, "--task", "parse", code=3)
    assert told in scene.err


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (lambda data: data["bolts"][1].update(executeLatency="NaN"), "split: executeLatency is NaN"),
        (lambda data: data["bolts"][1].pop("executeLatency"), "split: executeLatency is missing"),
        (
            lambda data: data["bolts"][1].update(executeLatency="-1.0"),
            "split: executeLatency: -1 is negative",
        ),
        (
            lambda data: data["bolts"][1].update(executeLatency="0.000"),
            "rows take less than Storm can report",
        ),
        (lambda data: data["bolts"][1].update(executed=0), "split: it took no rows"),
        (lambda data: data["bolts"][1].update(executors=0), "split: it has no threads"),
        (lambda data: data["bolts"][1].pop("boltId"), "bolts[1]: expected an object with a boltId"),
        (lambda data: data.pop("window"), "window is missing"),
        (lambda data: data.pop("bolts"), "expected what `GET /api/v1/topology/ID` answers"),
        (lambda data: data.update(window=":all-time", uptimeSeconds=0), "it has just started"),
    ],
)
def test_a_topology_with_a_fault_is_refused_whole(scene: Scene, spoil: Spoil, told: str) -> None:
    data = storm_topology()
    spoil(data)
    imported(scene, "storm", data, code=3)
    assert told in scene.err and not (scene.folder / "made").exists()


def test_a_component_with_a_fault_names_the_executor(scene: Scene) -> None:
    imported(scene, "storm", storm_component((30_000, "4.000"), (30_000, "NaN")), code=3)
    assert "split: executorStats[1]: executeLatency is NaN" in scene.err
    imported(scene, "storm", storm_component(), code=3)
    assert "executorStats is empty" in scene.err


def test_what_is_no_such_file_and_what_is_there_already(scene: Scene) -> None:
    (scene.folder / "broken.json").write_text("{")
    scene.headgate(
        "model",
        "import",
        "--from",
        "flink",
        str(scene.folder / "broken.json"),
        "--output",
        str(scene.folder),
        code=3,
    )
    assert "is not JSON" in scene.err
    imported(scene, "flink", [1], code=3)
    imported(scene, "flink", flink_job())
    imported(scene, "flink", flink_job(), code=3)
    assert "is there already" in scene.err and "--force" in scene.err
    assert all(row["replaced"] for row in imported(scene, "flink", flink_job(), "--force")["models"])


def test_options_of_other_systems_go_with_them(scene: Scene) -> None:
    models, to = str(scene.folder / "models"), str(scene.folder / "made")
    for words in (("--task", "parse"), ("--thread-cpu", "0.5"), ("--thread-memory", "0.5")):
        scene.headgate("model", "import", models, "--output", to, *words, code=2)
        assert f"{words[0]} needs --from" in scene.err
    imported(scene, "flink", flink_job(), "--task", "=x", code=2)
    imported(scene, "flink", flink_job(), "--thread-cpu", "0", code=2)
