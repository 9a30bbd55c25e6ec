"""UTC of a run (topology_runtime/platform/clock.py) while somebody sets the machine's clock."""

from __future__ import annotations

from pathlib import Path

import pytest

from headgate.topology_runtime.platform.clock import RunClock

S = 1_000_000_000
BEGAN_NS = 1_700_000_000 * S
HOUR_NS = 3600 * S


class Machine:
    """`set_ns`: by so much somebody has set its clock."""

    def __init__(self) -> None:
        self.now_ns, self.set_ns = 5 * S, 0

    def clock(self) -> RunClock:
        return RunClock(lambda: self.now_ns, lambda: BEGAN_NS + self.now_ns + self.set_ns)


@pytest.mark.parametrize("step_ns", [HOUR_NS, -2 * HOUR_NS])
def test_a_clock_that_is_set_changes_no_time_of_a_run(tmp_path: Path, step_ns: int) -> None:
    machine = Machine()
    first = machine.clock()
    first.carry_on(tmp_path / "clock", fresh=True)
    machine.now_ns, machine.set_ns = 15 * S, step_ns
    assert first.wall_ns() == BEGAN_NS + 15 * S
    after = machine.clock()  # a process that starts now, with the run of the one before
    after.carry_on(tmp_path / "clock", fresh=False)
    machine.now_ns += S
    assert after.wall_ns() == BEGAN_NS + 16 * S


def test_a_new_run_begins_with_what_the_machine_says_now(tmp_path: Path) -> None:
    machine = Machine()
    machine.clock().carry_on(tmp_path / "clock", fresh=True)
    machine.set_ns = HOUR_NS
    for _ in range(2):
        new = machine.clock()
        new.carry_on(tmp_path / "clock", fresh=True)
        assert new.wall_ns() == BEGAN_NS + machine.now_ns + HOUR_NS
    new = machine.clock()
    new.carry_on(tmp_path / "clock", fresh=False)
    assert new.wall_ns() == BEGAN_NS + machine.now_ns + HOUR_NS


@pytest.mark.parametrize("kept", ["", "another boot\n17", "torn"])
def test_what_another_start_of_the_machine_kept_says_nothing(tmp_path: Path, kept: str) -> None:
    (tmp_path / "clock").write_text(kept)
    clock = Machine().clock()
    clock.carry_on(tmp_path / "clock", fresh=False)
    assert clock.wall_ns() == BEGAN_NS + 5 * S


def test_time_that_was_recorded_is_over() -> None:
    clock = Machine().clock()
    clock.not_before(BEGAN_NS)
    assert clock.wall_ns() == BEGAN_NS + 5 * S
    clock.not_before(BEGAN_NS + HOUR_NS)
    assert clock.wall_ns() == BEGAN_NS + HOUR_NS
