"""An agent reads the logs of its slots as they grow, are cut and replaced, and tells a bounded part."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headgate.agent.slots import slot_output
from headgate.agent.slots.slot_output import SlotOutput
from headgate.topology_runtime.platform.disk import DiskTroubles
from headgate.topology_runtime.wire.channels import FROM_AGENT_MAX_BYTES, encode
from headgate.topology_runtime.wire.output_messages import SaidLine, record

NS = 1_000_000_000
WALL = 10**18


class Slots:
    """The logs of two slots. `look`: what is new, seconds later."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._now_ns = folder, 0
        self.living = {0, 1}
        self.open()

    def open(self) -> None:
        self.output = SlotOutput("vm1", 7, 2, lambda slot: str(self.path(slot)), DiskTroubles())

    def path(self, slot: int) -> Path:
        return self.folder / f"worker-{slot}.log"

    def write(self, slot: int, data: bytes) -> None:
        with self.path(slot).open("ab") as file:
            file.write(data)

    def look(self, seconds: float = 10.0) -> list[tuple[int, str]]:
        self._now_ns += int(seconds * NS)
        found = self.output.take(self._now_ns, WALL, self.living)
        if found is None:
            return []
        assert len(encode(found)) < FROM_AGENT_MAX_BYTES and len(found.lines) <= 4096
        return [(line.slot, line.text) for line in found.lines]


@pytest.fixture
def slots(tmp_path: Path) -> Iterator[Slots]:
    slots = Slots(tmp_path)
    yield slots
    slots.output.close()


def test_lines_come_once_whole_and_each_of_its_slot(slots: Slots) -> None:
    assert slots.look() == []
    slots.write(0, b"one\ntw")
    slots.write(1, record(SaidLine(WALL, "parse", 3, "out", "other")))
    assert sorted(slots.look()) == [(0, "one"), (1, "other")]
    slots.write(0, b"o\n")
    assert slots.look() == [(0, "two")]
    assert slots.look() == []


def test_half_a_line_of_a_worker_that_is_no_more_is_a_line(slots: Slots) -> None:
    slots.write(0, b"last words")
    assert slots.look() == []
    slots.living = {1}
    assert slots.look() == [(0, "last words")]


def test_a_log_that_is_cut_or_replaced_goes_on(slots: Slots) -> None:
    slots.write(0, b"before\n")
    slots.look()
    slots.path(0).write_bytes(b"cut\n")
    assert slots.look() == [(0, "cut")]
    slots.write(0, b"rest of the old one\n")
    slots.path(0).rename(slots.folder / "worker-0.log.1")
    slots.write(0, b"new one\n")
    assert [*slots.look(), *slots.look()] == [(0, "rest of the old one"), (0, "new one")]


def test_what_was_there_before_the_agent_is_not_told(slots: Slots) -> None:
    slots.write(0, b"of a life before\n")
    slots.output.close()
    slots.open()
    slots.write(0, b"of this one\n")
    assert slots.look() == [(0, "of this one")]


def test_more_than_the_budget_waits_in_the_log_and_comes_later(slots: Slots) -> None:
    lines = [b"%05d %s\n" % (number, b"x" * 90) for number in range(9_000)]
    slots.write(0, b"".join(lines))
    found: list[str] = []
    looks = 0
    while len(found) < len(lines):
        found += [text for _, text in slots.look(0.25)]
        looks += 1
        assert looks < 200
    assert found == [line.decode().rstrip() for line in lines]


def test_of_a_log_far_behind_the_newest_lines_are_told_and_how_much_is_left_out(slots: Slots) -> None:
    slots.look()
    slots.write(0, b"x" * 99 + b"\n")
    slots.look()
    for number in range(30_000):
        slots.write(0, b"%099d\n" % number) if number % 10_000 == 0 else None
    slots.write(0, b"".join(b"%099d\n" % number for number in range(30_000)))
    found = slots.look()
    assert found[0] == (0, f"… {30_003 * 100 - slot_output.READ_BYTES:,} bytes more")
    assert found[-1] == (0, f"{29_999:099}")


def test_a_flood_in_one_slot_does_not_silence_another(slots: Slots) -> None:
    slots.write(1, b"still heard\n")
    heard = []
    for _ in range(40):
        slots.write(0, b"flood of lines\n" * 5_000)
        heard += slots.look(0.25)
    assert (1, "still heard") in heard
