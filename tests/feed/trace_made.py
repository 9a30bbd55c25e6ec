"""Traces for tests of whoever shows them: a real loop among ideal machines, whose real publisher is recorded."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
from keys_made import MadeKeys
from recorded_runs import settings, submitted

from headgate.controller.core.loop import Loop
from headgate.controller.core.tracing import run_of
from headgate.controller.knowledge import turns as t
from headgate.controller.publisher import Publisher
from headgate.controller.replaying.ideal_account import IdealAccount
from headgate.controller.replaying.world import IdealWorld

BEGAN_S = 1_790_000_001
SECONDS = 150.0
STEPS = ((0.0, 30.0), (60.0, 90.0))

Document = dict[str, Any]


def loop() -> Loop:
    """Of a topology of three tasks whose rate is tripled after a minute."""
    return Loop(settings(), submitted(STEPS))


def recorded(folder: Path, lives: int = 1, asked: bool = True) -> list[Document]:
    """A trace of `SECONDS` in `folder`, in two parts, the first compressed; what who asks was told each second.

    asked: does anybody ask? lives: of the publisher; each but the first begins with a document that knows nothing
    of those before."""
    run, told, lines = loop(), list[Document](), list[bytes]()
    world = IdealWorld(run, IdealAccount(), wall_ns=BEGAN_S * 1_000_000_000)
    moments = iter(world.moments(SECONDS))
    for life in range(1, lives + 1):
        with closing(Publisher(MadeKeys().guard)) as publisher:
            publisher.record(lines.append)
            for moment in moments:
                for instruction in moment.instructions:
                    if isinstance(instruction, t.Show):
                        publisher.show(instruction.view)
                if asked and (not told or (moment.now.wall_ns - (BEGAN_S + len(told)) * 1_000_000_000) >= 0):
                    told.append(json.loads(json.dumps(publisher.snapshot()["snapshot"])))
                if moment.now.wall_ns > (BEGAN_S + SECONDS / lives * life) * 1_000_000_000:
                    break
    assert run.knowledge.durable.run is not None
    write(folder, run_of(run.knowledge, run.knowledge.durable.run), lines)
    return told


def write(folder: Path, run: Document, lines: Sequence[bytes]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "run.json").write_bytes(msgspec.json.encode(run) + b"\n")
    half = len(lines) // 2
    with gzip.open(folder / "views-000001.jsonl.gz", "wb") as part:
        part.writelines(line + b"\n" for line in lines[:half])
    (folder / "views.jsonl").write_bytes(b"".join(line + b"\n" for line in lines[half:]))
