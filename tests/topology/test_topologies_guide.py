"""The examples of docs/reference/topology.md do what the guide says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from headgate.topology_runtime.api.loading import load
from headgate.topology_runtime.errors import InvalidInput

pytestmark = pytest.mark.live

GUIDE = (Path(__file__).parents[2] / "docs" / "reference" / "topology.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", GUIDE, re.DOTALL)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    words, latency = blocks("python")
    (tmp_path / "words.py").write_text(words + latency)
    (tmp_path / "words.json").write_text(blocks("json")[0])
    return tmp_path


def test_the_python_example(project: Path) -> None:
    topology = load("words.py:flow").topology
    kinds = {task.name: task.kind for task in topology.tasks}
    assert kinds == {
        "lines": "source",
        "split": "flat_map",
        "long": "filter",
        "count": "keyed",
        "show": "map",
    }
    assert topology.rates(100.0)["count"] == pytest.approx(100 * 4.5 * 0.6)
    assert topology.latency_constraints[0].limit_ms == 300.0


def test_the_file_example_can_be_run(project: Path) -> None:
    topology = load("words.json", runs=True).topology
    assert [task.kind for task in topology.tasks] == ["source", "flat_map", "keyed"]


def test_the_faults_shown_are_those_told(project: Path) -> None:
    text = blocks("json")[0]
    text = text.replace('"run": "words:split"', '"run": "words:split", "max_cal_s": 3')
    text = text.replace('"words:word_of"}]', '"words:word_of"}, {"from": "count", "to": "split"}]')
    text = text.replace('"edges": [', '"edges": [{"from": "lines", "to": "cuont"}, ')
    (project / "words.json").write_text(text)
    with pytest.raises(InvalidInput) as caught:
        load("words.json")
    shown = blocks("text")[0]
    for fault in caught.value.faults:
        assert re.sub(r"\[\d+\]", "[]", fault) in re.sub(r"\[\d+\]", "[]", shown)
    assert len(caught.value.faults) == 3
