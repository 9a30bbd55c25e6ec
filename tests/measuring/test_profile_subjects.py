"""What can be profiled by name, and how its sample events look."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headgate.topology_runtime.errors import HeadgateError, InvalidInput
from headgate.topology_runtime.measuring.profile_subjects import (
    FORMS,
    SampleEvents,
    of_references,
    of_topology,
    params_of,
)

TASKS = """
import json

def length(event):
    return len(event)

def value(event):
    return event["value"] * 2

def square(event):
    return event * event if isinstance(event, int) else 1 / 0

def broken(event):
    raise RuntimeError("no such table")

class Scaled:
    def __init__(self, by=2):
        self.by = by
    def __call__(self, event):
        return json.loads(event)["value"] * self.by
"""


@pytest.fixture
def tasks(tmp_path: Path) -> Path:
    file = tmp_path / "mine.py"
    file.write_text(TASKS)
    return file


def test_each_form_of_events_is_the_same_event():
    rows = {form: SampleEvents(form).read(7, 1)[0] for form in FORMS}
    event = json.loads(rows["text"])
    assert rows["json"] == event
    assert rows["pair"] == (7, rows["text"])
    assert rows["number"] == 7 == event["id"]
    assert rows["bytes"].decode() == rows["text"]


def test_events_of_a_file_come_again_from_its_start(tmp_path):
    file = tmp_path / "events.txt"
    file.write_text("a\n\nb\r\n")
    assert SampleEvents("text", str(file)).read(0, 3) == ["a", "b", "a"]
    (tmp_path / "empty").write_text("\n")
    with pytest.raises(InvalidInput, match="cannot read the events"):
        SampleEvents("text", str(tmp_path / "empty"))


def test_the_form_of_events_that_a_task_takes_is_found(tasks):
    subjects = of_references([f"{tasks}:{name}" for name in ("length", "value", "square", "Scaled")], {})
    assert subjects.forms == {"length": "text", "value": "json", "square": "number", "Scaled": "text"}
    assert [task.name for task in subjects.tasks] == ["length", "value", "square", "Scaled"]
    assert len(subjects.topology.sources) == 4


def test_a_task_that_takes_no_form_says_what_it_said_to_each(tasks):
    with pytest.raises(HeadgateError) as caught:
        of_references([f"{tasks}:broken"], {})
    assert len(caught.value.faults) == len(FORMS)
    assert all("no such table" in fault for fault in caught.value.faults)


def test_ready_made_tasks_have_names_and_take_parameters():
    subjects = of_references(["spin", "slow=spin"], {"cpu_ms": 0.5})
    assert [task.name for task in subjects.tasks] == ["spin", "slow"]
    assert subjects.tasks[1].params["cpu_ms"] == 0.5


def test_what_names_no_task_is_refused():
    for references, words in (
        (["spinn"], "did you mean 'spin'"),
        (["absent.py:f"], "no such file"),
        (["no.such.module:f"], "there is no module"),
        (["two words=spin"], "cannot be a task's name"),
        (["spin", "spin"], "together"),
    ):
        with pytest.raises(InvalidInput) as caught:
            of_references(references, {})
        assert words in "\n".join(caught.value.lines())
    with pytest.raises(InvalidInput):
        of_topology("headgate.topology_runtime.tasks.demo:topology", ["nobody"])


def test_parameters_are_json_or_text():
    assert params_of(["a=1", "b=[1, 2]", "c=x=y", "d="]) == {"a": 1, "b": [1, 2], "c": "x=y", "d": ""}
    with pytest.raises(InvalidInput):
        params_of(["a"])
