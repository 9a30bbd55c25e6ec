"""Which behaviour a thread of a task has. Pure but for the user's code"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headgate.topology_runtime.api.logic import Sink, kind_of
from headgate.topology_runtime.api.timed import Timed
from headgate.topology_runtime.api.topology import Task
from headgate.topology_runtime.worker.calls.attempts import CallWatch
from headgate.topology_runtime.worker.calls.user_code import UserCode
from headgate.topology_runtime.worker.keyed_state.keyed_rows import KeyedRows
from headgate.topology_runtime.worker.keyed_state.timed_rows import TimedRows
from headgate.topology_runtime.worker.keyed_state.timed_states import TimedLogic
from headgate.topology_runtime.worker.operators.keyed_task import KeyedTask
from headgate.topology_runtime.worker.operators.thread_core import Behaviour, MapTask, ThreadCore
from headgate.topology_runtime.worker.operators.timed_task import TimedTask
from headgate.topology_runtime.worker.operators.window_task import SinkPane, WindowRows, WindowTask


def kind_in(task: Task, logic: Any) -> str:
    """Of a task with this object; a file need not say it."""
    return task.kind if task.kind != "map" else kind_of(logic)


def behaviour_of(
    core: ThreadCore,
    logic: Any,
    pause: Callable[[float], None],
    watch: CallWatch | None = None,
) -> Behaviour:
    """Of a thread whose task takes in rows, round its object `logic`; of an async one, async_calls.py has it."""
    task = core.task
    kind = kind_in(task, logic)
    if task.state == "keyed":
        kind = "keyed"
    code = UserCode(core.results, kind, logic, pause, watch or CallWatch())
    if kind == "keyed" and isinstance(logic, Timed):
        feeders = {number: edge.source for number, edge in core.topology.in_edges(task.name)}
        places = {
            number: edge.key for number, edge in core.topology.in_edges(task.name) if edge.key is not None
        }
        code.logic = TimedLogic(logic, core.ports.key_of, core.ports.wall_ns, feeders, places)
    if kind == "keyed":
        edges = core.topology.in_edges(task.name)
        keys = {number: core.ports.key_of(edge.key) for number, edge in edges if edge.key is not None}
        exactly_once = core.ports.exactly_once
        if isinstance(code.logic, TimedLogic):
            home = core.post.slot, core.post.incarnation
            timed = TimedRows(code, core.ports.random64, keys.__getitem__, home, exactly_once)
            return TimedTask(core, timed)
        return KeyedTask(core, KeyedRows(code, core.ports.random64, keys.__getitem__, exactly_once))
    if kind == "hold" and isinstance(logic, Sink):
        code.logic = SinkPane(logic)
    if kind == "hold":
        return WindowTask(core, WindowRows(code, core.ports.random64))
    return MapTask(code)
