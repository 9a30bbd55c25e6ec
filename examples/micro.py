"""The micro topologies of the model-driven scheduling paper: linear, diamond and star, small enough for a
laptop.

    headgate up examples/micro.py:linear --rates 100 --seconds 6
    headgate plan examples/micro.py:diamond --models MODELS --rate 400

`blob` and `table` only wait, as the paper's services make one wait. In the diamond, `pi` sees each row three times,
once from each task before it; in the star, `xml` sees it twice. `headgate plan` shows what follows: a task's rate
decides how many threads it gets, and its model how many slots. linear.jsonl, diamond.jsonl and star.jsonl have the ids
of the rows.
"""

import os
from typing import Any

from headgate import Static, topology
from headgate.tasks import CollectToFile, Counter, ParseXml, Pi, Wait

ROWS = 300

Flow = Any  # what topology(…) gives


def begun(name: str) -> tuple[Flow, Any, Any]:
    """A flow with the paper's source and sink."""
    made = topology(name)
    sink = {"key": "id", "path": os.path.abspath(f"{name}.jsonl")}
    store = made.task("sink", CollectToFile, static=Static(), **sink)
    return made, made.source("source", Counter, limit=ROWS), store


def tasks_of(made: Flow) -> list[Any]:
    """Two that wait, two that compute."""
    return [
        made.task("blob", Wait, ms=4.0),
        made.task("table", Wait, ms=1.0),
        made.task("pi", Pi, repeats=20),
        made.task("xml", ParseXml, documents=1, document_bytes=600),
    ]


linear, source, sink = begun("linear")
blob, table, pi, xml = tasks_of(linear)
source >> blob >> table >> pi >> xml >> sink

diamond, source, sink = begun("diamond")
blob, table, pi, xml = tasks_of(diamond)
source >> [blob, table, xml] >> pi >> sink

star, source, sink = begun("star")
blob, table, pi, xml = tasks_of(star)
source >> [blob, table] >> xml >> pi >> sink
