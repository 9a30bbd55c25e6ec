"""Every fault of a topology, each with its place, so that one reading mends them all. Pure.

    faults/drafts.py   types: unknown keys, missing keys, values of the wrong type
    faults/tasks.py    names, numbers, state and params of tasks
    faults/edges.py    ends, selectivities, groupings and keys of edges; paths of latency constraints
    faults/graph.py    circles, pieces, rates that run away

A place is where it stands in the file: `edges[1].to 'skore': no such task; did you mean 'score'?`.
Time is linear in tasks and edges, so that a hostile file costs no more than a large one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from headgate.topology_runtime.errors import InvalidInput
from headgate.topology_runtime.faults.drafts import Draft, draft_of, topology_from
from headgate.topology_runtime.faults.edges import EdgeRules
from headgate.topology_runtime.faults.tasks import task_faults
from headgate.topology_runtime.faults.words import name_faults, shown
from headgate.topology_runtime.topology import SCHEMA, Topology

MAX_TASKS = 1_000  # what the planner is measured for
MAX_EDGES = 10_000
MAX_BYTES = 1 << 20  # of a topology's file, and of its JSON, which every desired state carries


def faults_of(topology: Topology) -> list[str]:
    """All faults of a topology, in file order; none for a valid one."""
    draft, faults = draft_of(topology)
    return faults + rule_faults(draft)


def topology_of(data: object, what: str) -> tuple[Topology, frozenset[int]]:
    """(topology, numbers of tasks whose kind the data gives) of a file's plain data, or of a Topology
    made by hand. Raises InvalidInput with all faults; `what` names the thing in its first line."""
    draft, faults = draft_of(data)
    faults += rule_faults(draft)
    raise_if_any(faults, what)
    return topology_from(draft), draft.kinds_given


def raise_if_any(faults: Sequence[str], what: str) -> None:
    """InvalidInput with all these faults, if there are any."""
    if faults:
        count = "a fault" if len(faults) == 1 else f"{len(faults)} faults"
        raise InvalidInput(f"{what} has {count}; nothing was applied", faults=faults)


def run_faults(topology: Topology) -> list[str]:
    """What keeps a valid topology from being *run*: a task without `run`, an inlet that is no source."""
    reached = {edge.target for edge in topology.edges}
    faults = []
    for number, task in enumerate(topology.tasks):
        if task.run is None:
            faults.append(f"tasks[{number}].run: missing; task {task.name!r} can be planned, not run")
        elif task.name not in reached and task.kind != "source":
            what = f"no edge leads to it, so it must be a source, not a {task.kind}"
            faults.append(f"tasks[{number}] {task.name!r}: {what}")
    return faults


def rule_faults(draft: Draft) -> list[str]:
    """Faults against the rules, of all that could be read."""
    return [*_top_faults(draft), *task_faults(draft), *EdgeRules(draft).faults(), *_size_faults(draft)]


def _top_faults(draft: Draft) -> Iterator[str]:
    if draft.schema is not None and draft.schema != SCHEMA:
        yield f"schema {shown(draft.schema)}: must be {SCHEMA!r}"
    if draft.name is not None:
        yield from name_faults("name", draft.name)
    if draft.whole and not draft.tasks:
        yield "tasks: there is none"
    for what, count, limit in (
        ("tasks", len(draft.tasks), MAX_TASKS),
        ("edges", len(draft.edges), MAX_EDGES),
    ):
        if count > limit:
            yield f"{what}: {count:,} are more than the {limit:,} allowed"


def _size_faults(draft: Draft) -> Iterator[str]:
    """The JSON that travels; a draft with other faults may not even have one."""
    try:
        size = len(msgspec.json.encode((draft.tasks, draft.edges)))
    except (TypeError, ValueError, OverflowError, RecursionError):
        return  # params that are not plain have faults of their own
    if size > MAX_BYTES:
        yield f"topology: {size:,} bytes as JSON are more than the {MAX_BYTES:,} allowed"
