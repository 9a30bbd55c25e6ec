"""Frames of nobody whom the plan names, sent to a real worker's port, never reach a task."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import msgspec
import pytest
from line_rigs import line, rig_of, started, stored
from patience import PATIENCE_S

from headgate.topology_runtime.keys.curve import new_pair
from headgate.topology_runtime.keys.key_pairs import KeyPair, contact_at
from headgate.topology_runtime.keys.worker_keys import WorkerKeys
from headgate.topology_runtime.wire import channels
from headgate.topology_runtime.wire import messages as m
from headgate.topology_runtime.worker.rig import Rig
from headgate.topology_runtime.worker.rows import row_values as wire

pytestmark = pytest.mark.live
FORGED = 999_999_999
FRAMES = 50


def forged(rig: Rig, incarnation: int, sequence: int) -> bytes:
    """A valid frame of one row to the thread of `store`, as if the thread of `left` had sent it."""
    source, sender, target = (
        next(t for t in rig.threads if t.task == task) for task in ("source", "left", "store")
    )
    edge = next(n for n, e in enumerate(rig.topology.edges) if e.target == "store")
    key = m.RootKey(source.thread, 1, sequence, 0)
    root = m.RootPart(key, source.slot, 0, 0, FORGED, time.time_ns(), 0, 0)
    now_ns, rows = time.monotonic_ns(), [{"id": FORGED}]
    frame = m.Frame(
        edge,
        sender.thread,
        sender.slot,
        incarnation,
        target.thread,
        [root],
        [(0, 0, 1, 0)],
        [],
        now_ns,
        now_ns,
    )
    shape = wire.shape_of(rows)
    return channels.encode(m.WireFrame(frame, shape, msgspec.Raw(wire.write(rows, shape))))


class KeptKeys(WorkerKeys):
    """Of whom one worker's secret was stolen."""

    def __init__(self) -> None:
        super().__init__()
        self.stolen: dict[int, KeyPair] = {}

    def make(self, vm: str, slot: int, incarnation: int) -> KeyPair:
        self.stolen[slot] = super().make(vm, slot, incarnation)
        return self.stolen[slot]


@pytest.mark.parametrize("stolen", [False, True])
@pytest.mark.parametrize("named", [False, True])
def test_a_frame_of_nobody_who_is_named_reaches_nobody(named: bool, stolen: bool, tmp_path: Path) -> None:
    """The frame is a good one: with the key and the number of the true worker it is taken."""
    keys = KeptKeys()
    rig = rig_of(line("left"), {"source": [0], "left": [1], "store": [0]}, tmp_path, keys=keys)
    with started(rig):
        assert rig.desired is not None
        at = {worker.slot.number: worker for worker in rig.desired.workers}
        pair = keys.stolen[1] if stolen else new_pair()
        stranger = channels.PushChannel(contact_at(at[0].endpoint, pair))
        channels.Waiter([stranger.watch]).wait(
            PATIENCE_S if stolen else 0.0
        )  # workers too ask first, then send
        for sequence in range(FRAMES):
            stranger.send_bytes(forged(rig, at[1].incarnation + (0 if named else 1), sequence))
        emitted = rig.emit(500.0, 1.0)
        stranger.close(linger_ms=0)
        stranger.watch.close(linger_ms=0)
    rows = stored(tmp_path)
    assert rows.pop(FORGED, 0) == (FRAMES if named and stolen else 0)
    assert rows == Counter(range(emitted))
