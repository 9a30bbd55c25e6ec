"""Rows of a hundred kilobytes go in as many frames as they need; one that no frame holds is a dead letter, once."""

from __future__ import annotations

import itertools
from collections import Counter
from pathlib import Path

import pytest
from large_tasks import BAD
from test_data_plane_live import HERE, stored, with_store

from headgate.topology_runtime import messages as m
from headgate.topology_runtime.topology import Edge, Static, Task, Topology
from headgate.topology_runtime.worker.rig import Rig

pytestmark = pytest.mark.live


def test_large_rows_arrive_and_one_that_is_too_large_is_a_dead_letter(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    tasks = (
        Task("source", kind="source", run="rig_tasks:Ids", static=Static()),
        Task("swell", run="large_tasks:swell"),
        Task("shrink", run="large_tasks:shrink"),
        Task("store", kind="hold"),
    )
    edges = tuple(Edge(a.name, b.name) for a, b in itertools.pairwise(tasks))
    topology = with_store(Topology("large", tasks, edges), tmp_path / "out")
    places = {"source": [0], "swell": [0], "shrink": [1], "store": [1]}
    settings = m.DataPlaneSettings(gap_s=0.2, frame_rows=256)  # frames of more than ZeroMQ lets in
    rig = Rig(topology, places, str(tmp_path), (HERE,), settings)
    try:
        rig.start()
        emitted = rig.emit(1500.0, 0.8)
        letters = rig.letters()
    finally:
        rig.stop()
    assert emitted > 300
    assert [(letter.task, letter.position) for letter in letters] == [("swell", BAD)]
    assert "768 KiB" in letters[0].error
    assert stored(tmp_path) == Counter(set(range(emitted)) - {BAD})
