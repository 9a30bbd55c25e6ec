"""Paper 0's micro topologies (Fig. 5) with its five tasks for real: linear, diamond and star.

    linear    source ── blob ── table ── pi ── xml ── file ── sink
    diamond   source ── {blob, xml, table, file} ── pi ── sink
    star      source ── {blob, table} ── pi ── {xml, file} ── sink

Give one to a command as `topology_runtime.tasks.representative:linear`. Blob and table need services:
`scripts/services start` (or `start --embedded` with HEADGATE_SERVICES=embedded). Elsewhere than at the usual
ports: HEADGATE_BLOB_SERVICE and HEADGATE_TABLE_SERVICE; other sizes: HEADGATE_BLOBS and HEADGATE_TABLE_ROWS.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from topology_runtime.errors import InvalidInput
from topology_runtime.services.contents import BLOBS, ROWS
from topology_runtime.topology import Edge, Static, Task, Topology

HERE = "topology_runtime.tasks"
RUNS = {
    "blob": f"{HERE}.blob_download:BlobDownload",
    "table": f"{HERE}.table_query:TableQuery",
    "pi": f"{HERE}.pi:Pi",
    "xml": f"{HERE}.parse_xml:ParseXml",
    "file": f"{HERE}.file_write:FileWrite",
}
SOURCE, SINK = Static(1, 0.10, 0.15), Static(1, 0.10, 0.20)  # what the paper reserves for them


def linear() -> Topology:
    names = ("source", "blob", "table", "pi", "xml", "file", "sink")
    return _topology("linear", list(zip(names, names[1:], strict=False)))


def diamond() -> Topology:
    branches = ("blob", "xml", "table", "file")
    pairs = [pair for name in branches for pair in (("source", name), (name, "pi"))]
    return _topology("diamond", [*pairs, ("pi", "sink")])


def star() -> Topology:
    before = [pair for name in ("blob", "table") for pair in (("source", name), (name, "pi"))]
    after = [pair for name in ("xml", "file") for pair in (("pi", name), (name, "sink"))]
    return _topology("star", [*before, *after])


def sink(row: Any) -> None:
    """Rows end here; the runtime counts them."""


def _topology(name: str, pairs: Sequence[tuple[str, str]]) -> Topology:
    params = _params()
    order = dict.fromkeys(end for pair in pairs for end in pair if end in RUNS)
    tasks = [Task(task, run=RUNS[task], params=params.get(task, {})) for task in order]
    source = Task("source", "source", f"{HERE}.counter:Counter", static=SOURCE)
    last = Task("sink", run=f"{HERE}.representative:sink", static=SINK)
    return Topology(name, (source, *tasks, last), tuple(Edge(*pair) for pair in pairs))


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
