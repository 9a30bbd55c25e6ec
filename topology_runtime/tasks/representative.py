"""Paper 0's topologies with its five tasks for real: linear, diamond and star (Fig. 5), and, as in section 8.3,
the five in place of the tasks of three applications: finance, traffic and smart_grid, in the shapes of the examples.

    linear    source ── blob ── table ── pi ── xml ── file ── sink
    diamond   source ── {blob, xml, table, file} ── pi ── sink
    star      source ── {blob, table} ── xml ── {pi, file} ── sink

Give one to a command as `headgate.topology_runtime.tasks.representative:linear`. Blob and table need services:
`scripts/services start` (or `start --embedded` with HEADGATE_SERVICES=embedded). Elsewhere than at the usual
ports: HEADGATE_BLOB_SERVICE and HEADGATE_TABLE_SERVICE; other sizes: HEADGATE_BLOBS and HEADGATE_TABLE_ROWS.
"""

from __future__ import annotations

import os
from functools import partial
from typing import Any

from msgspec.structs import replace

from headgate.topology_runtime.api.shipped_examples import NAMES, example
from headgate.topology_runtime.api.topology import Topology
from headgate.topology_runtime.errors import InvalidInput
from headgate.topology_runtime.tasks.ready_made import BLOBS, HERE, READY_MADE, ROWS

RUNS = {**READY_MADE, "source": f"{HERE}.row_sources:Counter", "sink": f"{HERE}.representative:sink"}


def sink(row: Any) -> None:
    """Rows end here; the runtime counts them."""


def _with_code(name: str) -> Topology:
    """The shipped example with code: each task runs the one whose model it has."""
    from headgate.topology_runtime.api.loading import load

    planned, params = load(str(example(name))).topology, _params()
    tasks = tuple(
        replace(task, run=RUNS[task.model_name], params=params.get(task.model_name, {}))
        for task in planned.tasks
    )
    return replace(planned, tasks=tasks)


def _params() -> dict[str, dict[str, Any]]:
    """Of the tasks that need a service, from the environment."""
    service = os.environ.get("HEADGATE_SERVICES", "azurite")
    return {
        "blob": {
            "service": os.environ.get("HEADGATE_BLOB_SERVICE", service),
            "blobs": _count("HEADGATE_BLOBS", BLOBS),
        },
        "table": {
            "service": os.environ.get("HEADGATE_TABLE_SERVICE", service),
            "rows": _count("HEADGATE_TABLE_ROWS", ROWS),
        },
    }


def _count(name: str, default: int) -> int:
    text = os.environ.get(name, str(default))
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise InvalidInput(f"{name}={text!r} is not a whole number above 0")
    return int(text)


linear, diamond, star, finance, traffic, smart_grid = (partial(_with_code, name) for name in NAMES)
