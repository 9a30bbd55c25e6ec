"""`headgate model list|show|compare|import`: what there is, what it says, and nothing copied half."""

from __future__ import annotations

import csv
import io
import json
import shutil

import pytest
from scene import COUNT, PARSE

from headgate.controller.files.planning_inputs import read_models
from headgate.controller.model_commands.model_facts import compared
from headgate.controller.models.task_models import Model, ModelSlot, Point, Spread, half_widths
from headgate.topology_runtime.api.topology import Task
from headgate.topology_runtime.measuring import model_store as store

SLOT = {"cores": 0.5, "memory_bytes": 2**30, "machine": store.machine()}


def model_file(task, points=PARSE, **more):
    return {"schema": "headgate/model/v1", "task": task, "slot": SLOT, "points": points, **more}


@pytest.fixture
def cached(scene, monkeypatch):
    """A cache with models of two topologies."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(scene.folder / "cache"))
    for digest, measured in (("aaaa", "2026-01-02T00:00:00Z"), ("bbbb", "2026-03-04T00:00:00Z")):
        folder = scene.folder / "cache" / "headgate" / "models" / "machine" / digest / "slot-0.5"
        folder.mkdir(parents=True)
        content = model_file("parse", measured_at=measured)
        (folder / "parse.json").write_text(json.dumps(content))
    return scene


def models_dir(scene):
    return str(scene.folder / "models")


def read(scene, *words):
    return json.loads(scene.headgate("model", *words, "-o", "json"))


# ── list ────────────────────────────────────────────────────────────────────────────────────────


def test_list_tells_peak_use_and_age_of_every_model_of_the_cache(cached):
    document = read(cached, "list")
    assert document["schema"] == "headgate/models/v1" and document["faults"] == []
    rows = document["models"]
    assert [row["folder"].split("/")[-2] for row in rows] == ["aaaa", "bbbb"]
    first = rows[0]
    assert (first["task"], first["points"], first["peak_tps"], first["peak_threads"]) == (
        "parse",
        2,
        100.0,
        4,
    )
    assert (first["cpu"], first["memory"], first["slot_cores"]) == (0.8, 0.2, 0.5)
    assert first["measured_at"] == "2026-01-02T00:00:00Z" and first["stale"] == []
    assert first["age_s"] - rows[1]["age_s"] == pytest.approx(61 * 86_400, abs=5)


def test_list_for_people_has_a_table_per_folder(cached):
    text = cached.headgate("model", "list")
    assert text.count("at threads") == 2 and "0.5 cores, 1 GiB" in text and "2026-01-02" in text


def test_an_empty_cache_is_no_error_and_says_where_models_come_from(scene, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(scene.folder / "nothing"))
    assert read(scene, "list")["models"] == []
    assert "headgate up" in scene.err


def test_a_model_of_another_machine_is_stale(scene):
    scene.write("models/parse.json", model_file("parse") | {"slot": {**SLOT, "machine": "Azure D1"}})
    scene.write("models/count.json", model_file("count", COUNT))
    stale = {row["task"]: row["stale"] for row in read(scene, "list", models_dir(scene))["models"]}
    assert stale == {"parse": ["other machine: Azure D1"], "count": []}


def test_a_model_is_stale_once_the_code_it_was_measured_with_has_changed(scene):
    code = scene.folder / "mytasks.py"
    code.write_text("def parse(row): return row\n")
    run = "mytasks:parse"
    digest = store.code_digest(Task("parse", run=run), [str(scene.folder)])
    scene.write("models/parse.json", model_file("parse", run=run, code_digest=digest))
    listing = ("list", models_dir(scene), "--path", str(scene.folder))

    def stale():
        return {row["task"]: row["stale"] for row in read(scene, *listing)["models"]}["parse"]

    assert stale() == []
    code.write_text("def parse(row): return [row]\n")
    assert stale() == ["code of mytasks:parse has changed"]
    code.unlink()
    assert stale() == []  # not found: nothing is claimed


def test_list_shows_what_is_sound_and_then_names_every_fault(scene, capsys):
    from headgate.dashboards import headgate_command as cli

    scene.write("models/count.json", {"schema": "headgate/model/v1", "task": "count", "points": []})
    scene.write("models/other.json", model_file("parse"))
    assert cli.main(["model", "list", models_dir(scene), "-o", "json"]) == 3
    out, err = capsys.readouterr()
    assert [row["task"] for row in json.loads(out)["models"]] == ["parse"]
    assert "count.json: points: expected a list" in err
    assert "other.json: task: 'parse' belongs into parse.json" in err


def test_list_of_no_folder_is_refused(scene):
    scene.headgate("model", "list", str(scene.folder / "absent"), code=3)


# ── show ────────────────────────────────────────────────────────────────────────────────────────


def test_show_gives_every_point_with_its_gain_over_one_thread(scene):
    text = scene.headgate("model", "show", "parse", "--models", models_dir(scene), "-o", "csv")
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [(row["threads"], row["rate_tps"], row["gain"]) for row in rows] == [
        ("1", "50.0", "1.0"),
        ("4", "100.0", "2.0"),
    ]
    assert [row["peak"] for row in rows] == ["false", "true"]


def test_show_says_the_model_in_a_sentence(scene):
    text = scene.headgate("model", "show", "parse", "--models", models_dir(scene))
    assert (
        "parse: at most 100 rows/s in one slot, with 4 threads, 80 % of its CPU and 20 % of its memory"
        in text
    )


def test_show_tells_the_spread_that_a_model_knows(scene):
    points = [PARSE[0], {**PARSE[1], "spread": {"rate_tps": 4.0, "cpu": 0.02}}]
    scene.model("parse", points)
    text = scene.headgate("model", "show", "parse", "--models", models_dir(scene))
    assert "100 rows/s (±4.0 %)" in text
    document = read(scene, "show", "parse", "--models", models_dir(scene))
    assert document["models"][0]["spread"] == 0.04
    assert document["models"][0]["model"]["points"][1]["spread"] == {"rate_tps": 4.0, "cpu": 0.02}


def test_show_takes_files_folders_and_tasks_and_each_model_once(scene):
    names = [str(scene.folder / "models" / "parse.json"), models_dir(scene), "count"]
    document = read(scene, "show", *names, "--models", models_dir(scene))
    assert [model["task"] for model in document["models"]] == ["parse", "count"]


def test_of_several_models_of_a_task_the_one_measured_last_is_shown(cached):
    document = read(cached, "show", "parse")
    assert document["models"][0]["measured_at"] == "2026-03-04T00:00:00Z"
    assert "2 models" in cached.err and "bbbb" in cached.err


def test_an_unknown_task_is_refused_with_the_nearest_name(scene):
    scene.headgate("model", "show", "prase", "--models", models_dir(scene), code=3)
    assert "did you mean 'parse'?" in scene.err
    scene.headgate("model", "show", "parse", "--models", str(scene.folder / "absent"), code=3)
    scene.headgate("model", "show", code=2)


def test_show_draws_the_curves(scene):
    picture = scene.folder / "curves.svg"
    scene.headgate("model", "show", "--models", models_dir(scene), "--plot", str(picture))
    assert "<!-- parse -->" in picture.read_text("utf-8")


def test_a_picture_that_cannot_be_is_refused_before_anything_is_printed(scene):
    scene.headgate("model", "show", "parse", "--models", models_dir(scene), "--plot", "curves.gif", code=2)
    assert "svg, png, pdf" in scene.err


# ── compare ─────────────────────────────────────────────────────────────────────────────────────


def model(*points, task="t"):
    return Model(task, ModelSlot(), points)


def test_compare_reads_between_points_and_not_beyond_the_last():
    a = model(Point(1, 10.0, 0.2, 0.1), Point(3, 30.0, 0.6, 0.3))
    b = model(Point(1, 11.0, 0.3, 0.1), Point(2, 20.0, 0.5, 0.2), Point(4, 60.0, 0.9, 0.2))
    rows = compared(a, b)
    assert [(row["threads"], row["interpolated"]) for row in rows] == [(1, []), (2, ["a"]), (3, ["b"])]
    assert (rows[1]["rate_a_tps"], rows[1]["cpu_a"]) == (20.0, pytest.approx(0.4))
    assert rows[2]["rate_b_tps"] == 40.0
    assert rows[0]["rate_difference"] == pytest.approx(0.1)
    assert rows[0]["cpu_difference"] == pytest.approx(0.1)
    assert rows[0]["memory_difference"] == 0.0


@pytest.mark.parametrize(
    ("spread_a", "spread_b", "within"),
    [
        (None, None, None),
        (Spread(rate_tps=1.0), None, True),
        (Spread(rate_tps=0.9), None, False),
        (Spread(rate_tps=0.5), Spread(relative=0.05), True),
        (Spread(cpu=0.5), None, None),
    ],
)
def test_within_the_spread_means_both_spreads_together(spread_a, spread_b, within):
    a = model(Point(1, 10.0, 0.2, 0.1, spread=spread_a))
    b = model(Point(1, 11.0, 0.2, 0.1, spread=spread_b))
    assert compared(a, b)[0]["within_spread"] is within


def test_half_widths_are_absolute():
    point = Point(2, 40.0, 0.2, 0.1, spread=Spread(relative=0.05, memory=0.01))
    assert half_widths(point) == (2.0, 0.0, 0.01)


def test_compare_tells_differences_and_what_only_one_side_has(scene):
    other = scene.folder / "other"
    shutil.copytree(scene.folder / "models", other)
    (other / "count.json").unlink()
    faster = [{**point, "rate_tps": 1.1 * point["rate_tps"]} for point in PARSE]
    scene.write("other/parse.json", model_file("parse", faster))
    picture = scene.folder / "both.svg"
    document = read(scene, "compare", models_dir(scene), str(other), "--plot", str(picture))
    assert document["schema"] == "headgate/model-comparison/v1"
    assert [row["rate_difference"] for row in document["rows"]] == pytest.approx([0.1, 0.1])
    assert document["only_in"] == {"a": ["count"], "b": []}
    assert "only in" in scene.err and "count" in scene.err
    assert "slots differ" in document["notes"][0]
    assert "models (solid) against other (dashed, hollow)" in picture.read_text("utf-8")


def test_two_sets_without_a_task_in_common_cannot_be_compared(scene):
    folder = scene.folder / "models"
    scene.headgate("model", "compare", str(folder / "parse.json"), str(folder / "count.json"), code=3)
    assert "no task has a model in both" in scene.err


# ── import ──────────────────────────────────────────────────────────────────────────────────────


def test_import_copies_models_with_where_they_came_from(scene):
    scene.write("models/parse.json", model_file("parse", trials=3))
    target = scene.folder / "taken"
    document = read(scene, "import", models_dir(scene), "--output", str(target))
    assert [row["task"] for row in document["models"]] == ["count", "parse"]
    there = read_models(target)
    assert there["parse"].points == read_models(scene.folder / "models")["parse"].points
    assert there["parse"].more["imported_from"] == str((scene.folder / "models" / "parse.json").resolve())
    assert there["parse"].more["imported_at"].endswith("Z") and there["parse"].more["trials"] == 3


def test_import_takes_the_models_that_a_run_was_planned_with(scene):
    run = {"schema": "headgate/trace/v1", "models": [model_file("parse"), model_file("count", COUNT)]}
    scene.write("run.json", run)
    for number, source in enumerate((scene.folder / "run.json", scene.folder)):
        target = scene.folder / f"from-run-{number}"
        scene.headgate("model", "import", str(source), "--output", str(target))
        assert set(read_models(target)) == {"parse", "count"}


def test_nothing_is_imported_when_one_model_is_not_sound_and_every_fault_is_listed(scene):
    scene.write("models/count.json", {"schema": "headgate/model/v1", "task": "count", "points": []})
    scene.write("bad.json", {"schema": "headgate/trace/v2"})
    target = scene.folder / "taken"
    sources = [models_dir(scene), str(scene.folder / "bad.json"), str(scene.folder / "absent")]
    scene.headgate("model", "import", *sources, "--output", str(target), code=3)
    for fault in ("count.json: points", "bad.json: schema", "no file or folder", "nothing was imported"):
        assert fault in scene.err
    assert not target.exists()


def test_import_does_not_overwrite_unless_told_to(scene):
    target = scene.folder / "taken"
    scene.headgate("model", "import", str(scene.folder / "models" / "parse.json"), "--output", str(target))
    before = (target / "parse.json").read_bytes()
    scene.model("parse", [{**PARSE[0], "rate_tps": 77.0}])
    scene.headgate("model", "import", models_dir(scene), "--output", str(target), code=3)
    assert "parse.json: is there already" in scene.err and "--force" in scene.err
    assert (target / "parse.json").read_bytes() == before and not (target / "count.json").exists()
    document = read(scene, "import", models_dir(scene), "--output", str(target), "--force")
    assert [row["replaced"] for row in document["models"]] == [False, True]
    assert read_models(target)["parse"].points[0].rate_tps == 77.0


def test_one_task_from_two_places_is_refused(scene):
    scene.write("parse.json", model_file("parse"))
    sources = [models_dir(scene), str(scene.folder / "parse.json")]
    scene.headgate("model", "import", *sources, "--output", str(scene.folder / "taken"), code=3)
    assert "a model of 'parse' comes from" in scene.err


def test_a_run_without_models_and_a_file_that_is_no_json_are_faults(scene):
    scene.write("run.json", {"schema": "headgate/trace/v1", "models": []})
    (scene.folder / "broken.json").write_text("{")
    for name, fault in (("run.json", "at least one model"), ("broken.json", "is not JSON")):
        scene.headgate(
            "model", "import", str(scene.folder / name), "--output", str(scene.folder / "t"), code=3
        )
        assert fault in scene.err


def test_no_task_is_measured_in_a_slot_smaller_than_a_worker(scene):
    scene.headgate("model", "profile", "flow.py:score", "--set", "slot-memory=33554432", code=4)
    assert "a slot has 32 MiB of memory, a worker without tasks takes 34" in scene.err
