"""Files of topologies: the same in JSON, YAML and TOML; hostile ones are refused in good time."""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.topology_runtime.api.loading import load
from headgate.topology_runtime.api.topology import (
    Edge,
    LatencyConstraint,
    Static,
    Task,
    Topology,
    document_of,
)
from headgate.topology_runtime.api.topology_files import MAX_DEPTH, read_data
from headgate.topology_runtime.api.validate import MAX_BYTES, faults_of, topology_of
from headgate.topology_runtime.errors import InvalidInput

LINEAR = Topology(
    "linear",
    (
        Task("source", "source", static=Static(1, 0.10, 0.15)),
        Task("blob", run="package.module:Class", params={"size": 3, "deep": {"a": [1, None]}}, model="blob"),
        Task("count", state="keyed", exclusive=False, max_call_s=10),
    ),
    (Edge("source", "blob"), Edge("blob", "count", 0.5, "fields", "sensor")),
    (LatencyConstraint(("source", "blob", "count"), 300, 15),),
)

JSON = """
{"schema": "headgate/topology/v1", "name": "linear",
 "tasks": [{"name": "source", "kind": "source", "static": {"threads": 1, "cpu": 0.10, "memory": 0.15}},
           {"name": "blob", "model": "blob", "run": "package.module:Class",
            "params": {"size": 3, "deep": {"a": [1, null]}}},
           {"name": "count", "state": "keyed", "exclusive": false, "max_call_s": 10}],
 "edges": [{"from": "source", "to": "blob", "selectivity": 1.0, "grouping": "shuffle"},
           {"from": "blob", "to": "count", "selectivity": 0.5, "grouping": "fields", "key": "sensor"}],
 "latency_constraints": [{"path": ["source", "blob", "count"], "limit_ms": 300, "window_s": 15}]}
"""
YAML = """
schema: headgate/topology/v1
name: linear
tasks:
  - {name: source, kind: source, static: {threads: 1, cpu: 0.10, memory: 0.15}}
  - {name: blob, model: blob, run: "package.module:Class", params: {size: 3, deep: {a: [1, null]}}}
  - {name: count, state: keyed, exclusive: false, max_call_s: 10}
edges:
  - {from: source, to: blob}
  - {from: blob, to: count, selectivity: 0.5, grouping: fields, key: sensor}
latency_constraints:
  - {path: [source, blob, count], limit_ms: 300, window_s: 15}
"""
TOML = """
name = "linear"
[[tasks]]
name = "source"
kind = "source"
static = {threads = 1, cpu = 0.10, memory = 0.15}
[[tasks]]
name = "blob"
model = "blob"
run = "package.module:Class"
params = {size = 3, deep = {a = [1]}}
[[tasks]]
name = "count"
state = "keyed"
[[edges]]
from = "source"
to = "blob"
[[edges]]
from = "blob"
to = "count"
selectivity = 0.5
grouping = "fields"
key = "sensor"
[[latency_constraints]]
path = ["source", "blob", "count"]
limit_ms = 300
"""


def write(folder: Path, name: str, text: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


@pytest.mark.parametrize(
    ("name", "text"), [("t.json", JSON), ("t.yaml", YAML), ("t.yml", YAML), ("T.JSON", JSON)]
)
def test_a_file_gives_its_topology_and_its_folder(tmp_path: Path, name: str, text: str) -> None:
    loaded = load(str(write(tmp_path, name, text)))
    assert loaded.topology == LINEAR
    assert loaded.user_paths == (str(tmp_path), os.getcwd())


def test_toml_has_no_null_but_all_else(tmp_path: Path) -> None:
    topology = load(str(write(tmp_path, "t.toml", TOML))).topology
    assert topology.edges == LINEAR.edges
    assert topology.latency_constraints == LINEAR.latency_constraints
    assert topology.tasks[1].params == {"size": 3, "deep": {"a": [1]}}


def test_given_folders_come_before_the_files_own(tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    loaded = load(str(write(tmp_path, "t.json", JSON)), [str(tmp_path / "lib"), str(tmp_path)])
    assert loaded.user_paths == (str(tmp_path / "lib"), str(tmp_path), os.getcwd())


def test_a_topology_survives_its_own_document() -> None:
    document = document_of(LINEAR)
    assert document["schema"] == "headgate/topology/v1"
    again, _ = topology_of(msgspec.json.decode(msgspec.json.encode(document)), "document")
    assert again == LINEAR


def faults(data: Any) -> list[str]:
    with pytest.raises(InvalidInput) as caught:
        topology_of(data, "here")
    assert caught.value.exit_code == 3
    return list(caught.value.faults)


def test_faults_of_type_and_of_rule_are_told_together() -> None:
    found = faults(
        {
            "nmae": "x",
            "tasks": [
                {"name": "a", "max_cal_s": 3, "kind": "mpa", "params": [1]},
                {"name": "b", "static": {"threads": 1.5, "cpus": 2}},
                {"nam": "c"},
                7,
                {"name": "d d", "exclusive": "yes"},
            ],
            "edges": [{"form": "a", "to": "b"}, {"from": "a", "to": "b", "key": True}],
            "latency_constraints": {"path": ["a", "b"]},
            "extra": 1,
        }
    )
    assert found == [
        "nmae: unknown key; did you mean 'name'?",
        "extra: unknown key (known: name, tasks, edges, latency_constraints, schema)",
        "name: missing",
        "tasks[0].max_cal_s: unknown key; did you mean 'max_call_s'?",
        "tasks[0].kind: expected one of source, map, flat_map, filter, hold, keyed, got 'mpa'; "
        "did you mean 'map'?",
        "tasks[0].params: expected a mapping with text keys, got [1]",
        "tasks[1].static.cpus: unknown key; did you mean 'cpu'?",
        "tasks[1].static.threads: expected a whole number, got 1.5",
        "tasks[2].nam: unknown key; did you mean 'name'?",
        "tasks[2].name: missing",
        "tasks[3]: expected a mapping with the keys name, kind, run, params, model, static, state, "
        "exclusive, max_call_s, side_effects, arriving, batched, offsets, timed, timestamps, state_version, "
        "unchained, got 7",
        "tasks[4].exclusive: expected true or false, got 'yes'",
        "edges[0].form: unknown key; did you mean 'from'?",
        "edges[0].from: missing",
        "edges[1].key: expected text or a whole number or nothing, got True",
        "latency_constraints: expected a list, got {'path': ['a', 'b']}",
        "tasks[4].name 'd d': names are 1 to 64 of A-Z a-z 0-9 _ . - and not only dots",
    ]


@pytest.mark.parametrize("data", [None, [], "text", 3])
def test_what_is_no_mapping_at_all(data: object) -> None:
    assert len(faults(data)) == 1


def test_missing_lists() -> None:
    assert faults({"name": "x"}) == ["tasks: missing"]
    assert faults({"name": "x", "tasks": []}) == ["tasks: there is none"]


@pytest.mark.parametrize(
    ("name", "text", "cause"),
    [
        ("t.json", '{"name": "a", "name": "b"}', "the key 'name' occurs twice"),
        ("t.json", '{"a": NaN}', "NaN is not a JSON number"),
        ("t.json", '{"a": ', "line 1 column 7"),
        ("t.json", '{"a": ' + "9" * 10_000 + "}", "4300 digits"),
        ("t.yaml", "a: 1\nb: 2\na: 3", "the key 'a' occurs twice in one mapping, line 3"),
        ("t.yaml", "a: &x [1]\nb: *x", "an alias, *x, line 2"),
        ("t.yaml", 'a: !!python/object/apply:os.system ["true"]', "could not determine a constructor"),
        ("t.yaml", "a: [1,\nb: {", "line 3"),
        ("t.yaml", "a: " + "[" * 500, f"nested deeper than {MAX_DEPTH}"),
        ("t.yaml", "a: " + "[" * 100_000, "nest"),  # by us, or by libyaml before
        ("t.yaml", "a: 1\n---\nb: 1", "another document"),
        ("t.yaml", "a: \x07", "control characters are not allowed"),
        ("t.yaml", "[a]: 1", "unhashable key"),
        ("t.toml", "a = 1\na = 2", "Cannot overwrite a value"),
        ("t.toml", b"a = '\xff'", "invalid start byte"),
    ],
)
def test_a_file_that_is_not_of_its_format(tmp_path: Path, name: str, text: str | bytes, cause: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        read_data(write(tmp_path, name, text))
    assert cause in str(caught.value.cause)


@pytest.mark.parametrize("name", ["t.json", "t.toml"])
def test_deep_nesting_is_refused(tmp_path: Path, name: str) -> None:
    text = ("a = " if name == "t.toml" else "") + "[" * 50_000
    with pytest.raises(InvalidInput, match="nested too deeply"):
        read_data(write(tmp_path, name, text))


def test_size_and_kind_of_file(tmp_path: Path) -> None:
    read_data(write(tmp_path, "full.json", "1" + " " * (MAX_BYTES - 1)))
    with pytest.raises(InvalidInput, match="larger than"):
        read_data(write(tmp_path, "large.json", "1" + " " * MAX_BYTES))
    os.mkfifo(tmp_path / "pipe.json")
    with pytest.raises(InvalidInput, match="not a regular file"):
        read_data(tmp_path / "pipe.json")
    (tmp_path / "zero.json").symlink_to("/dev/zero")
    with pytest.raises(InvalidInput, match="not a regular file"):
        read_data(tmp_path / "zero.json")
    with pytest.raises(InvalidInput, match=r"no such file; did you mean 'full\.json'"):
        read_data(tmp_path / "ful.json")


@pytest.mark.parametrize("reference", ["nothing", "linear.txt", "words.py", "a b:c", "", ":", "x.py:"])
def test_a_reference_to_nothing(reference: str) -> None:
    with pytest.raises(InvalidInput):
        load(reference)


WORDS = [
    field for kind in (Topology, Task, Edge, Static, LatencyConstraint) for field in kind.__struct_fields__
]
VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.sampled_from(["a", "b", "m:f", "fields", "source", "keyed", "", "\ud800", "x" * 99]),
)
DATA = st.recursive(
    VALUES,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from([*WORDS, "from", "to"]), inner, max_size=6)
    ),
    max_leaves=30,
)
PARTS = {
    "tasks": st.lists(
        st.fixed_dictionaries({"name": VALUES}, optional={"kind": VALUES, "static": DATA, "params": DATA})
    ),
    "edges": st.lists(
        st.fixed_dictionaries({"from": VALUES, "to": VALUES}, optional={"key": VALUES, "selectivity": VALUES})
    ),
}


@given(DATA | st.fixed_dictionaries({"name": VALUES, **PARTS}, optional={"latency_constraints": DATA}))
def test_any_data_is_a_topology_or_a_list_of_faults(data: object) -> None:
    try:
        topology, _ = topology_of(data, "fuzz")
    except InvalidInput as error:
        assert error.faults
        assert all(re.match(r"\S", fault) and ": " in fault for fault in error.faults)
    else:
        assert faults_of(topology) == []
        assert len(topology.breadth_first) == len(topology.tasks)


@given(
    st.binary(max_size=200) | st.text(max_size=200).map(lambda text: text.encode("utf-8", "surrogatepass"))
)
def test_any_bytes_are_data_or_refused(text: bytes) -> None:
    with TemporaryDirectory() as folder:
        for name in ("t.json", "t.yaml", "t.toml"):
            with contextlib.suppress(InvalidInput):
                read_data(write(Path(folder), name, text))
