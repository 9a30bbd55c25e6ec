"""As in_process.py, in real worker processes: rows of the test come from a file, rows of sinks go to files."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import Any

from msgspec.structs import replace

from headgate.topology_runtime.api.builder import Builder
from headgate.topology_runtime.api.logic import Exhausted, Keyed, Source, Window
from headgate.topology_runtime.api.task_functions import build
from headgate.topology_runtime.api.timed import is_timed
from headgate.topology_runtime.api.topology import Task, Topology
from headgate.topology_runtime.connectors.secrets import as_text
from headgate.topology_runtime.errors import InvalidInput
from headgate.topology_runtime.testing import input_rows
from headgate.topology_runtime.testing.in_process import Inputs
from headgate.topology_runtime.testing.run_results import Result, failed_row, watched
from headgate.topology_runtime.worker.keyed_state.snapshot_files import path_of, read
from headgate.topology_runtime.worker.keyed_state.state_snapshots import contents_of, of_range
from headgate.topology_runtime.worker.rig import Rig
from headgate.topology_runtime.worker.rows import row_values

HERE = __name__
RATE_TPS, TIMEOUT_S = 50_000.0, 60.0


class GivenRows(Source):
    """Rows that a test gave, from a file."""

    def __init__(self, path: str) -> None:
        with open(path, "rb") as file:
            self._rows = row_values.read(file.read(), row_values.NESTED)

    def read(self, position: int, limit: int) -> Sequence[Any]:
        if position >= len(self._rows):
            raise Exhausted
        return self._rows[position : position + limit]  # type: ignore[no-any-return]


class WatchedSink:
    """Made as the sink's own object, whose rows are kept in a file too."""

    def __new__(cls, path: str, run: str, params: dict[str, Any], state: str) -> Any:
        logic = build(Task("sink", run=run, params=params, state="keyed" if state == "keyed" else "none"))
        return watched(logic, partial(_append, path))

    def __call__(self, row: Any) -> Any:
        raise NotImplementedError("`__new__` gives the sink's own object")


def _append(path: str, rows: Iterable[Any]) -> None:
    data = row_values.write(list(rows), row_values.NESTED)
    with open(path, "ab") as file:
        file.write(len(data).to_bytes(4) + data)


def _appended(path: str) -> Iterator[Any]:
    if os.path.exists(path):
        with open(path, "rb") as file:
            while head := file.read(4):
                yield from row_values.read(file.read(int.from_bytes(head)), row_values.NESTED)


def run_in_workers(flow: Builder | Topology, inputs: Inputs | None, workers: int) -> Result:
    """See `testing.run`. Raises InvalidInput for what needs virtual time or the end of the input."""
    topology = flow.build() if isinstance(flow, Builder) else flow
    given = {name: list(rows) for name, rows in input_rows.checked(topology, inputs).items()}
    if any(isinstance(row, input_rows.Pause) for row in chain.from_iterable(given.values())):
        raise InvalidInput("no waits with workers", cause="their time is real", hint="leave `workers` out")
    _check(topology)
    with tempfile.TemporaryDirectory(prefix="headgate-") as folder:
        shown = replace(
            topology, tasks=tuple(_changed(task, topology, given, folder) for task in topology.tasks)
        )
        places = {task.name: [n % workers] for n, task in enumerate(topology.tasks)}
        rig = Rig(shown, places, folder, tuple(_paths()))
        try:
            rig.start()
            rig.offer([(0.0, RATE_TPS)])
            rig.wait(lambda: all(s.exhausted for s in rig.sources()), TIMEOUT_S, "sources to end")
            rig.drain(TIMEOUT_S)
            rig.send("committed", draining=True)  # the report that answers has all dead letters
            rig.wait(rig.ready, TIMEOUT_S, "dead letters")
            letters = [failed_row(letter) for letter in rig.letters()]
        finally:
            rig.stop()
        numbers = {spec.task: spec.thread for spec in rig.threads}
        keyed = [task for task in topology.tasks if task.state == "keyed"]
        states = {task.name: _states(task, folder, numbers[task.name]) for task in keyed}
        sinks = [task.name for task in topology.tasks if not topology.out_edges(task.name)]
        return Result({sink: list(_appended(_rows_of(folder, sink))) for sink in sinks}, letters, states)


def _check(topology: Topology) -> None:
    for task in topology.tasks:
        logic = build(task) if task.kind in ("hold", "keyed") else None
        open_panes = isinstance(logic, Window) and logic.max_age_s is None
        if (
            open_panes
            or is_timed(logic)
            or (isinstance(logic, Keyed) and type(logic).finish is not Keyed.finish)
        ):
            raise InvalidInput(
                f"task {task.name!r} needs the end of the input",
                cause="workers alone are not told of it: `headgate up` tells them, and `workers=0` does",
                hint="leave `workers` out",
            )


def _paths() -> Iterator[str]:
    yield from (os.path.abspath(path) for path in sys.path if path == "" or os.path.isdir(path))


def _rows_of(folder: str, task: str) -> str:
    return os.path.join(folder, f"rows-of-{task}")


def _changed(task: Task, topology: Topology, given: dict[str, list[Any]], folder: str) -> Task:
    """A source that is given has its rows from a file; a sink is watched."""
    if task.name in given:
        path = os.path.join(folder, f"given-{task.name}")
        with open(path, "wb") as file:
            file.write(row_values.write(given[task.name], row_values.NESTED))
        return replace(task, run=f"{HERE}:GivenRows", params={"path": path})
    if topology.out_edges(task.name):
        return task
    params = {
        "path": _rows_of(folder, task.name),
        "run": task.run,
        "params": as_text(task.params),  # read where the sink's own object is made
        "state": task.state,
    }
    return replace(task, run=f"{HERE}:WatchedSink", params=params)


def _states(task: Task, folder: str, thread: int) -> dict[Any, Any]:
    """What the last snapshot of a keyed task has."""
    logic, saved = build(task), read(path_of(folder, task.name, thread))
    copies = saved.copies if saved is not None else ()
    return {key: logic.restore(state) for copy in copies for key, state in of_range(contents_of(copy).states)}
