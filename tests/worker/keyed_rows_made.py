"""The rows of a keyed task whose thread holds all keys, beside a router that takes all that comes of them."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from headgate.topology_runtime.api.cluster import Slot
from headgate.topology_runtime.api.logic import Keyed
from headgate.topology_runtime.api.topology import KEY_RANGES, Edge
from headgate.topology_runtime.wire.messages import Route
from headgate.topology_runtime.worker.calls.dead_lettering import Around
from headgate.topology_runtime.worker.calls.output_buffers import Outputs
from headgate.topology_runtime.worker.calls.router import Router
from headgate.topology_runtime.worker.calls.user_code import Results, UserCode
from headgate.topology_runtime.worker.keyed_state.key_ranges import Standing
from headgate.topology_runtime.worker.keyed_state.keyed_rows import KeyedRows

HERE = Slot("vm", 0)


def keyed_rows(
    logic: Keyed, key: Callable[[Any], Any], exactly_once: bool = False, owns: bool = True
) -> KeyedRows:
    """Thread 5 of task t, which thread 9 hears and thread 3 sends to. owns: all ranges."""
    numbers = random.Random(1)
    around = Around("t", 5, ("source",), {3: "before"}, False, 2)
    out = Outputs(5, HERE, 1, lambda: numbers.getrandbits(64), 0)
    out.route_by([(0, Router(Edge("t", "u"), Route(0, ((9, 1.0),)), frozenset(), None, lambda _: 10_000, 5))])
    code = UserCode(Results(around, out), "keyed", logic, lambda _: None)
    keyed = KeyedRows(code, lambda: numbers.getrandbits(64), lambda _: key, exactly_once)
    if owns:
        keyed.ranges.stand(Standing(1, (5,) * KEY_RANGES, (), frozenset({5}), {}))
        keyed.claim(0)
    return keyed


def sent(task: KeyedRows) -> list[Any]:
    """The rows that came of frames since it was asked last."""
    return [row for one in task.results.outputs.flush(0, everything=True) for row in one.rows]
