"""`headgate topology validate|show|dot`: look at a topology before anything runs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from headgate.topology_runtime.commands.number_options import Number
from headgate.topology_runtime.commands.output import Format, answer, emit, format_options, write_table
from headgate.topology_runtime.wording import counted

if TYPE_CHECKING:
    from headgate.topology_runtime.api.topology import Edge, Topology


@click.command()
@click.argument("topology", metavar="TOPOLOGY")
@format_options
@click.option("--runs", is_flag=True, help="Can it be run? Import every task's `run` and check it.")
def validate(topology: str, output: Format, runs: bool) -> None:
    """List every fault of a topology (exit code 3), or say that there is none."""
    from headgate.topology_runtime.api.event_time_rules import time_warnings
    from headgate.topology_runtime.api.loading import load
    from headgate.topology_runtime.connectors.secrets import unreadable_here

    found = load(topology, runs=runs).topology
    row: dict[str, Any] = {
        "topology": found.name,
        "valid": True,
        "tasks": len(found.tasks),
        "edges": len(found.edges),
        "sources": [task.name for task in found.sources],
        "sinks": [task.name for task in found.sinks],
        "digest": found.digest,
        "warnings": time_warnings(found),
        "unreadable_here": list(unreadable_here([task.params for task in found.tasks])),
    }
    words = f"{found.name}: valid, {counted(len(found.tasks), 'task')}, {counted(len(found.edges), 'edge')}"
    for text in row["warnings"]:
        words += f"\nwarning: {text}"
    for text in row["unreadable_here"]:
        words += f"\nhere, {text}; what counts is the VM where the task runs"
    answer(output, "headgate/validation/v1", row, words)


@click.command()
@click.argument("topology", metavar="TOPOLOGY")
@format_options
@click.option("--rate", type=Number(), default=1.0, help="Input rate in rows/s (default: 1).")
def show(topology: str, output: Format, rate: float) -> None:
    """Tasks and edges with their rates at an input rate (GetRate)."""
    from headgate.topology_runtime.api.loading import load

    if not (math.isfinite(rate) and rate > 0):
        raise click.BadParameter(f"{rate:g} is not a finite rate above 0", param_hint="--rate")
    found = load(topology).topology
    rates = found.rates(rate)
    tasks, edges = task_rows(found, rates), edge_rows(found, rates)
    document = {"schema": "headgate/topology-rates/v1", "topology": found.name, "rate_tps": rate}
    if output == "table":
        write_table(tasks, f"{found.name} at {rate:g} rows/s")
        write_table(edges, "edges")
    else:
        emit(output, {**document, "tasks": tasks, "edges": edges}, tasks)


@click.command()
@click.argument("topology", metavar="TOPOLOGY")
def dot(topology: str) -> None:
    """The topology as Graphviz text: `headgate topology dot T | dot -Tsvg > t.svg`."""
    from headgate.topology_runtime.api.loading import load

    click.echo(dot_text(load(topology).topology))


def task_rows(topology: Topology, rates: Mapping[str, float]) -> list[dict[str, Any]]:
    return [
        {
            "task": task.name,
            "kind": task.kind,
            "rate_tps": rates[task.name],
            "model": None if task.static else task.model_name,
            "static_threads": task.static.threads if task.static else None,
            "state": task.state,
            "exclusive": task.exclusive,
            "run": task.run,
        }
        for task in topology.breadth_first
    ]


def edge_rows(topology: Topology, rates: Mapping[str, float]) -> list[dict[str, Any]]:
    """One row per edge, in file order; `rate_tps`: rows that go along it."""
    return [
        {
            "from": edge.source,
            "to": edge.target,
            "selectivity": edge.selectivity,
            "grouping": edge.grouping,
            "key": edge.key,
            "rate_tps": rates[edge.source] * edge.selectivity,
        }
        for edge in topology.edges
    ]


def dot_text(topology: Topology) -> str:
    """Graphviz: sources and sinks as boxes, edges with grouping and selectivity unless they are plain."""
    ends = {task.name for task in (*topology.sources, *topology.sinks)}
    lines = [f"digraph {_quoted(topology.name)} {{", "  rankdir=LR;", "  node [shape=ellipse];"]
    for task in topology.tasks:
        shape = " [shape=box]" if task.name in ends else ""
        lines.append(f"  {_quoted(task.name)}{shape};")
    for edge in topology.edges:
        label = f" [label={_quoted(_label(edge))}]" if _label(edge) else ""
        lines.append(f"  {_quoted(edge.source)} -> {_quoted(edge.target)}{label};")
    return "\n".join([*lines, "}"])


def _label(edge: Edge) -> str:
    words = []
    if edge.grouping == "fields":
        words.append(f"fields {edge.key}")
    elif edge.grouping != "shuffle":
        words.append(edge.grouping)
    if edge.selectivity != 1.0:
        words.append(f"× {edge.selectivity:g}")
    return ", ".join(words)


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
