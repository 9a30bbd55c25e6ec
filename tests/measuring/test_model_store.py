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


def test_ports_and_folders_do_not_matter_but_files_do() -> None:
    one = store.digest(demo.topology("127.0.0.1:4000", None, "a"), (), MIB)
    assert store.digest(demo.topology("127.0.0.1:5000", None, "b"), (), MIB) == one
    assert store.digest(demo.topology("127.0.0.1:4000", "events.csv", "a"), (), MIB) != one


def test_parameters_and_code_matter_and_what_looks_like_an_address_does_not() -> None:
    for other in (topology(size=2), topology(run="mine:other"), topology(text="12:30 o'clock")):
        assert store.digest(other, (), MIB) != store.digest(topology(size=1), (), MIB)
    assert store.digest(topology(), (), MIB) != store.digest(topology(), (), 2 * MIB)
    places = ("x:1", "localhost:80", "http://a.b-c:8080", "[::1]:9")
    assert len({store.digest(topology(upstream=address), (), MIB) for address in places}) == 1


@pytest.mark.parametrize("place", ["mine.py", "mine/__init__.py"])
def test_changed_code_is_measured_anew(tmp_path: Path, place: str) -> None:
    file = tmp_path / place
    file.parent.mkdir(exist_ok=True)
    file.write_text("def work(row): return row\n")
    before = store.digest(topology(), (str(tmp_path),), MIB)
    assert store.digest(topology(), (str(tmp_path),), MIB) == before
    file.write_text("def work(row): return [row]\n")
    assert store.digest(topology(), (str(tmp_path),), MIB) != before


def test_code_is_found_without_importing_it(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("raise SystemExit\n")
    task = topology().by_name["work"]
    assert store.code_digest(task, (str(tmp_path),)) is not None
    assert store.code_digest(task, ()) is None
    file = msgspec.structs.replace(task, run=f"{tmp_path / 'mine.py'}:work")
    assert store.code_digest(file, ()) == store.code_digest(task, (str(tmp_path),))


def test_the_cache_is_where_xdg_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = store.folder(topology(), (), 0.12, MIB)
    assert folder.relative_to(tmp_path).parts[:2] == ("headgate", "models")
    assert folder.parts[-3] == store.machine() and folder.name == "slot-0.12"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert store.cache_home() == tmp_path / "home" / ".cache"


def test_only_tasks_that_are_planned_from_models_are_measured() -> None:
    names = list(store.modelled(demo.topology("a:1", None, "x")))
    assert names == ["parse", "mean", "sample", "score", "lookup"]


def test_kept_models_are_used_and_broken_ones_are_missed(tmp_path: Path) -> None:
    folder = store.folder(topology(), (), 0.2, MIB, tmp_path)
    assert store.missing(topology(), folder) == ["work"]
    store.save(folder, {"task": "work", "points": []})
    assert json.loads((folder / "work.json").read_text())["points"] == []
    assert models_for(topology(), (), 0.2, MIB, cache=tmp_path) == (folder, False)
    (folder / "work.json").write_text("{")
    assert store.missing(topology(), folder) == ["work"]


def test_where_no_task_needs_a_model_there_is_an_empty_folder_of_them(tmp_path: Path) -> None:
    """`up` reads it: a topology of tasks of fixed size alone said that its models could not be read."""
    tasks = (
        Task("source", "source", "headgate.topology_runtime.tasks.row_sources:Counter", static=Static()),
        Task("store", run="mine:work", static=Static()),
    )
    fixed = Topology("t", tasks, (Edge("source", "store"),))
    folder, fresh = models_for(fixed, (), 0.2, MIB, cache=tmp_path)
    assert (list(folder.iterdir()), fresh) == ([], False)
    bare = Topology("t", (Task("a"), Task("b")), (Edge("a", "b"),))
    with pytest.raises(InvalidInput) as caught:
        models_for(bare, (), 0.2, MIB, cache=tmp_path)
    assert len(caught.value.faults) == 2, "without code they cannot be measured"


def test_corrected_models_take_the_place_of_those_before_which_stay(tmp_path: Path) -> None:
    kept, fresh = tmp_path / "kept", tmp_path / "corrected"
    for number in (1, 2, 3):
        store.save(kept if number == 1 else fresh, {"task": "work", "points": [number]})
        store.take_corrections(kept, fresh)
    assert store.take_corrections(kept, fresh) == [], "it is there already"
    told = {path.name: json.loads(path.read_text())["points"] for path in kept.iterdir()}
    assert told == {"work.json": [3], "work.json.v1": [1], "work.json.v2": [2]}
    store.save(fresh, {"task": "stranger", "points": []})
    (fresh / "broken.json").write_text("{")
    assert store.take_corrections(kept, fresh) == [] and not (kept / "stranger.json").exists()


@pytest.mark.parametrize("run", ["headgate.tasks:Pi", "headgate.topology_runtime.tasks.computing:Pi"])
def test_the_code_of_ready_made_tasks_counts_by_whichever_name(run: str) -> None:
    code = Path(computing.__file__).read_bytes()
    assert store.code_digest(Task("pi", run=run), ()) == digest_of(code)
