"""`headgate diff OLD NEW`: threads that stay, move, start and stop; slots, VMs and cost."""

from __future__ import annotations

import csv
import io
import json

import pytest


@pytest.fixture
def plans(scene):
    """Files of a plan for 200 and one for 400 rows/s."""
    return [scene.write(f"{rate}.json", scene.plan("--rate", rate)) for rate in ("200", "400")]


def changed(scene, old, new):
    return json.loads(scene.headgate("diff", old, new, "-o", "json"))


def test_nothing_changes_to_itself(scene, plans):
    found = changed(scene, plans[0], plans[0])
    assert found["schema"] == "headgate/diff/v1"
    assert (found["changed"], found["slots"], found["vms"]) == (False, [], [])
    assert found["threads"]["move"] == found["threads"]["start"] == found["threads"]["stop"] == 0
    assert "nothing moves" in scene.headgate("diff", plans[0], plans[0])


def test_there_and_back_is_the_same_the_other_way_round(scene, plans):
    there, back = changed(scene, *plans), changed(scene, *reversed(plans))
    assert there["threads"]["start"] == back["threads"]["stop"] > 0
    assert there["threads"]["stay"] == back["threads"]["stay"] > 0
    assert there["old"] == back["new"] and there["old"]["usd_per_hour"] < there["new"]["usd_per_hour"]


def test_threads_add_up_per_task(scene, plans):
    for task in changed(scene, *plans)["tasks"]:
        assert task["stay"] + task["move"] + task["stop"] == task["old"]
        assert task["stay"] + task["move"] + task["start"] == task["new"]


def test_people_see_signs_and_what_it_comes_to(scene, plans):
    lines = scene.headgate("diff", *plans).splitlines()
    assert any(line.startswith("+ vm2") for line in lines)
    assert any(line.startswith("+ vm2/0  ") for line in lines)
    assert "$0.392 → $" in lines[-4] and "slot" in lines[-4]
    assert lines[-3].startswith("planned for 200 → 400 rows/s")
    assert lines[-1].startswith("rows/s that leave a slot ") and " → " in lines[-1]
    assert not any("\x1b" in line for line in lines)


def test_colours_come_on_a_terminal_unless_they_are_not_desired(scene, plans, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b[32m+ vm2" in scene.headgate("diff", *plans)
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[32m" not in scene.headgate("diff", *plans)


def test_rows_are_the_slots_that_change(scene, plans):
    rows = list(csv.DictReader(io.StringIO(scene.headgate("diff", *plans, "-o", "csv"))))
    assert {row["change"] for row in rows} <= {"added", "removed", "changed"}
    assert json.loads(rows[0]["new"])


def test_a_thread_that_leaves_one_slot_for_another_moves(scene):
    old = scene.plan("--rate", "100", "--vms", "4")
    new = json.loads(json.dumps(old))
    new["placement"][0]["slot"] = 3
    new["prediction"]["slots"][0]["slot"] = 3
    found = changed(scene, scene.write("old.json", old), scene.write("new.json", new))
    moving = sum(old["placement"][0]["threads"].values())
    assert found["threads"] == {"stay": 6 - moving, "move": moving, "start": 0, "stop": 0}
    assert [slot["change"] for slot in found["slots"]] == ["removed", "added"]


def test_files_that_are_no_plan_end_3(scene, plans):
    scene.headgate("diff", plans[0], scene.write("x.json", {"placement": []}), code=3)
    assert "schema: expected 'headgate/plan/v1'" in scene.err
    scene.headgate("diff", plans[0], str(scene.folder / "none.json"), code=3)
    scene.headgate("diff", plans[0], code=2)
