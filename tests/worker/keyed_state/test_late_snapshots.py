"""Snapshots elsewhere that become durable when the worker that gave them is dead, and others have begun from less."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from keyed_family import Family, Member, S, all_of
from test_timers import SOURCE, TENS, US, Bench, Last

from headgate.topology_runtime.wire.messages import Frame
from headgate.topology_runtime.wire.state_moves import RangeWatermarks, Watermark
from headgate.topology_runtime.worker.keyed_state.far_snapshots import FarPlace, FarSnapshots, note_run
from headgate.topology_runtime.worker.operators.thread_core import Ports

ONE, TWO = 10, 11


def lands(member: Member, them: Family) -> None:
    """What this dead one gave last is durable."""
    them.now_ns += them.far_ns
    assert not member.keyed.store.under_way


def test_ranges_that_came_are_not_let_go_elsewhere_before_this_life_has_saved_them() -> None:
    """The first life's snapshot with them came before the third one read, the second life's without them after it."""
    them = Family({ONE: "vm1", TWO: "vm2"}, far=True)
    them.plan(all_of(ONE, TWO))
    them.settle()
    them.offer(400)
    them.run(3.0)
    them.far_ns = 4 * S
    them.plan(all_of(TWO))
    first = them.members[TWO]
    while first.rows.ranges.missing or not first.keyed.store.under_way:
        them.run(0.05)
    them.kill(TWO)
    them.restart(TWO)
    second = them.members[TWO]
    them.offer(100)
    them.run(0.05)
    assert second.rows.ranges.missing and second.keyed.store.under_way
    second.alive = False
    lands(first, them)
    them.restart(TWO)
    them.run(0.5)
    them.members[TWO].alive = False
    lands(second, them)
    them.far_ns = S // 4
    them.restart(TWO)
    them.all_done()
    assert not them.lost
    assert them.counts() == them.expected()


class Elsewhere(Bench):
    """Its snapshots are objects in a folder. begun: whose were there when it sent, or told of its ranges."""

    def __init__(self, folder: Path, incarnation: int) -> None:
        self.objects, self.begun = folder / "run/state/tens~2", list[set[int]]()
        super().__init__(folder, incarnation, logic=Last)

    def ports(self, folder: Path | str = "", exactly_once: bool = False) -> Ports:
        note_run(str(folder), "run")
        place = FarPlace(str(folder), "run", self.incarnation)
        return replace(super().ports(folder, exactly_once), snapshots=partial(FarSnapshots, place))

    @property
    def lives(self) -> set[int]:
        return {int(path.name.split(".")[0]) for path in self.objects.iterdir()}

    def deliver(self, frames: Iterable[Frame]) -> None:
        self.begun.append(self.lives)
        super().deliver(frames)

    def send_word(self, word: Any) -> None:
        if isinstance(word, RangeWatermarks):
            self.begun.append(self.lives)
        super().send_word(word)


def put(folder: Path, objects: dict[Path, bytes]) -> None:
    """These, and no others."""
    for path in folder.iterdir():
        path.unlink()
    for path, data in objects.items():
        path.write_bytes(data)


def test_what_timers_gave_goes_on_once_this_life_has_saved_it(tmp_path: Path) -> None:
    """The first life's snapshot with it came late. Had the second one's, from before it, come after the third had
    sent it, the next would have sent other rows under its names."""
    bench = Elsewhere(tmp_path, 1)
    bench.give(0, ("a", 5))
    bench.look(0.3)
    before = {path: path.read_bytes() for path in bench.objects.iterdir()}
    bench.hear(Watermark(SOURCE, TENS, 15 * US))
    bench.look(0.3)
    ((_, position, row),) = bench.sent()
    late = {path: path.read_bytes() for path in bench.objects.iterdir()}
    put(bench.objects, before)
    second = Elsewhere(tmp_path, 2)
    assert second.sent() == []
    begun = {path: path.read_bytes() for path in bench.objects.iterdir() if path.name.startswith(f"{2:010}")}
    put(bench.objects, late)
    third = Elsewhere(tmp_path, 3)
    third.look(0.0)
    assert [sent[1:] for sent in third.sent()] == [(position, row)]
    assert third.begun and all(3 in lives for lives in third.begun)
    put(bench.objects, begun | {path: path.read_bytes() for path in bench.objects.iterdir()})
    fourth = Elsewhere(tmp_path, 4)
    assert [sent[1:] for sent in fourth.sent()] == [(position, row)]
