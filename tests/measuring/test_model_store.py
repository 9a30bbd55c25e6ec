"""When kept models serve again, and when not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from headgate.topology_runtime.api.topology import Edge, Static, Task, Topology, digest_of
from headgate.topology_runtime.errors import InvalidInput
from headgate.topology_runtime.measuring import model_store as store
from headgate.topology_runtime.measuring.calibrate import models_for
from headgate.topology_runtime.tasks import computing, demo

MIB = 1 << 20


def topology(run: str = "mine:work", **params: Any) -> Topology:
    tasks = (
        Task("source", "source", "headgate.topology_runtime.tasks.row_sources:Counter", static=Static()),
        Task("work", run=run, params=params),
    )
    return Topology("t", tasks, (Edge("source", "work"),))


def digest(topology: Topology, model: str = "work", *paths: object, size: int = MIB) -> str:
    return store.digest(topology, model, [str(path) for path in paths], size)


def shelf(topology: Topology, cache: Path, *paths: object) -> store.Shelf:
    return store.Shelf(topology, [str(path) for path in paths], 0.2, MIB, cache=cache)


@pytest.mark.parametrize("task", ["parse", "mean", "sample", "score", "lookup"])
def test_ports_and_folders_do_not_matter(task: str) -> None:
    one = digest(demo.topology("127.0.0.1:4000", None, "a"), task)
    assert digest(demo.topology("127.0.0.1:5000", None, "b"), task) == one


def test_parameters_and_code_matter_and_what_looks_like_an_address_does_not() -> None:
    for other in (topology(size=2), topology(run="mine:other"), topology(text="12:30 o'clock")):
        assert digest(other) != digest(topology(size=1))
    assert digest(topology()) != digest(topology(), size=2 * MIB)
    places = ("x:1", "localhost:80", "http://a.b-c:8080", "[::1]:9")
    assert len({digest(topology(upstream=address)) for address in places}) == 1


@pytest.mark.parametrize("place", ["mine.py", "mine/__init__.py"])
def test_changed_code_is_measured_anew(tmp_path: Path, place: str) -> None:
    file = tmp_path / place
    file.parent.mkdir(exist_ok=True)
    file.write_text("def work(row): return row\n")
    before = digest(topology(), "work", tmp_path)
    file.write_text("def work(row):\n    return row  # as before\n")
    assert digest(topology(), "work", tmp_path) == before
    file.write_text("def work(row): return [row]\n")
    assert digest(topology(), "work", tmp_path) != before


CODE = {
    "mine.py": "import json\nfrom help import wide\nimport rare\nLIMIT = 3\n"
    "def work(row): return inner(row)\n"
    "def inner(row): return wide(row) + LIMIT\n"
    "def other(row): return rare.thing(row)\n",
    "help.py": "from deep import deeper as below\ndef wide(row): return below(row)\ndef alone(row): return row\n",
    "deep.py": "def deeper(row): return row\n",
    "rare.py": "def thing(row): return row\n",
}


@pytest.mark.parametrize(
    ("file", "old", "new", "matters"),
    [
        ("mine.py", "LIMIT = 3", "LIMIT = 4", True),
        ("mine.py", "wide(row) +", "wide(row) -", True),
        ("help.py", "below(row)", "below([row])", True),
        ("deep.py", "return row", "return [row]", True),
        ("mine.py", "rare.thing(row)", "rare.thing([row])", False),
        ("help.py", "def alone(row): return row", "def alone(row): return [row]", False),
        ("rare.py", "return row", "return [row]", False),
    ],
)
def test_what_a_task_calls_in_the_project_counts_and_nothing_else(
    tmp_path: Path, file: str, old: str, new: str, matters: bool
) -> None:
    for name, text in CODE.items():
        (tmp_path / name).write_text(text)
    before = digest(topology(), "work", tmp_path)
    changed = CODE[file].replace(old, new)
    assert changed != CODE[file]
    (tmp_path / file).write_text(changed)
    assert (digest(topology(), "work", tmp_path) != before) is matters


def test_who_edits_one_task_loses_one_model(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("def work(row): return row\ndef more(row): return row\n")
    tasks = (*topology().tasks, Task("more", run="mine:more"))
    both = msgspec.structs.replace(topology(), tasks=tasks, edges=(*topology().edges, Edge("work", "more")))
    kept = shelf(both, tmp_path / "cache", tmp_path)
    assert kept.lacking() == ["work", "more"]
    for name in ("work", "more"):
        kept.keep({"task": name, "points": []})
    assert kept.lacking() == []
    file.write_text("def work(row): return row\ndef more(row): return [row]\n")
    assert kept.lacking() == ["more"] and list(kept.kept()) == ["work"]


def test_code_is_found_without_importing_it(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("raise SystemExit\n")
    task = topology().by_name["work"]
    assert store.code_digest(task, (str(tmp_path),)) is not None
    assert store.code_digest(task, ()) is None
    file = msgspec.structs.replace(task, run=f"{tmp_path / 'mine.py'}:work")
    assert store.code_digest(file, ()) == store.code_digest(task, (str(tmp_path),))


def test_the_cache_is_where_xdg_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    file = store.Shelf(topology(), (), 0.12, MIB).file("work")
    assert file.relative_to(tmp_path).parts[:4] == ("headgate", "models", store.machine(), "slot-0.12")
    assert file.name == "work.json"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert store.cache_home() == tmp_path / "home" / ".cache"


def test_only_tasks_that_are_planned_from_models_are_measured() -> None:
    names = list(store.modelled(demo.topology("a:1", None, "x")))
    assert names == ["parse", "mean", "sample", "score", "lookup"]


def test_kept_models_are_used_and_broken_ones_are_missed(tmp_path: Path) -> None:
    kept, run = shelf(topology(), tmp_path / "cache"), tmp_path / "run"
    assert kept.lacking() == ["work"]
    kept.keep({"task": "work", "points": []})
    assert models_for(kept, run) == []
    assert json.loads((run / "work.json").read_text())["points"] == []
    kept.file("work").write_text("{")
    assert kept.lacking() == ["work"]


def test_what_is_not_known_gets_a_stand_in_that_is_not_kept(tmp_path: Path) -> None:
    kept, run = shelf(topology(), tmp_path / "cache"), tmp_path / "run"
    assert models_for(kept, run, first=False) == [] and kept.lacking() == ["work"]
    assert store.stands_in(json.loads((run / "work.json").read_text()))
    store.save(tmp_path / "fresh", {"task": "work", "points": [1]})
    store.save(tmp_path / "fresh", {"task": "stranger", "points": [1]})
    assert kept.take_up(tmp_path / "fresh") == ["work"] and kept.lacking() == []
    assert kept.take_up(tmp_path / "fresh") == [], "it is known"


def test_where_no_task_needs_a_model_there_is_an_empty_folder_of_them(tmp_path: Path) -> None:
    """`up` reads it: a topology of tasks of fixed size alone said that its models could not be read."""
    tasks = (
        Task("source", "source", "headgate.topology_runtime.tasks.row_sources:Counter", static=Static()),
        Task("store", run="mine:work", static=Static()),
    )
    fixed = Topology("t", tasks, (Edge("source", "store"),))
    assert models_for(shelf(fixed, tmp_path / "cache"), tmp_path / "run") == []
    assert list((tmp_path / "run").iterdir()) == []
    bare = Topology("t", (Task("a"), Task("b")), (Edge("a", "b"),))
    with pytest.raises(InvalidInput) as caught:
        models_for(shelf(bare, tmp_path / "cache"), tmp_path / "run")
    assert len(caught.value.faults) == 2, "without code they cannot be measured"


def test_corrected_models_take_the_place_of_those_before_which_stay(tmp_path: Path) -> None:
    kept, fresh = shelf(topology(), tmp_path / "cache"), tmp_path / "corrected"
    kept.keep({"task": "work", "points": [1]})
    for number in (2, 3):
        store.save(fresh, {"task": "work", "points": [number]})
        assert kept.take_corrections(fresh) == ["work"]
    assert kept.take_corrections(fresh) == [], "it is there already"
    files = kept.file("work").parent.iterdir()
    told = {path.name: json.loads(path.read_text())["points"] for path in files}
    assert told == {"work.json": [3], "work.json.v1": [1], "work.json.v2": [2]}
    (fresh / "work.json").write_text("{")
    assert kept.take_corrections(fresh) == []


@pytest.mark.parametrize("run", ["headgate.tasks:Pi", "headgate.topology_runtime.tasks.computing:Pi"])
def test_the_code_of_ready_made_tasks_counts_by_whichever_name(run: str) -> None:
    code = Path(computing.__file__).read_bytes()
    assert store.code_digest(Task("pi", run=run), ()) == digest_of(code)
