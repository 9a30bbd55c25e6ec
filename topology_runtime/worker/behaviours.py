"""Which behaviour a thread of a task has. Pure but for the user's code"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headgate.topology_runtime.logic import kind_of
from headgate.topology_runtime.worker.keyed import KeyedTask
from headgate.topology_runtime.worker.keyed_rows import KeyedRows
from headgate.topology_runtime.worker.thread_core import Behaviour, MapTask, ThreadCore
from headgate.topology_runtime.worker.user_code import UserCode
from headgate.topology_runtime.worker.watch import CallWatch
from headgate.topology_runtime.worker.windows import WindowRows, WindowTask


def behaviour_of(
    core: ThreadCore,
    logic: Any,
    pause: Callable[[float], None],
    watch: CallWatch | None = None,
) -> Behaviour:
    """Of a thread whose task takes in rows, round its object `logic`."""
    task = core.task
    kind = task.kind if task.kind != "map" else kind_of(logic)  # a file need not say it
    if task.state == "keyed":
        kind = "keyed"
    code = UserCode(core.results, kind, logic, pause, watch or CallWatch())
    if kind == "keyed":
        edges = core.topology.in_edges(task.name)
        keys = {number: core.ports.key_of(edge.key) for number, edge in edges if edge.key is not None}
        return KeyedTask(core, KeyedRows(code, core.ports.random64, keys.__getitem__))
    if kind == "hold":
        return WindowTask(core, WindowRows(code, core.ports.random64))
    return MapTask(code)
