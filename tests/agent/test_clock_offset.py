"""How far a clock is off, by answers that took their time: never further from the truth than the error that is told."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from headgate.agent.clock_offset import KEPT_NS, ClockOffset

S, MS = 1_000_000_000, 1_000_000
BEGAN_NS = 1_700_000_000 * S


class Machines:
    """A controller's and a machine's clock; both drift by half of what is allowed for. `off_ns`: of the machine."""

    def __init__(self, off_ns: int, seed: int) -> None:
        self.now_ns, self.off_ns = 1000 * S, off_ns
        self.chance = random.Random(seed)
        self.clock, self.number = ClockOffset(), 0

    @property
    def wall_ns(self) -> int:
        """By the machine."""
        return BEGAN_NS + self.now_ns + int((self.now_ns - 1000 * S) * 50e-6) + self.off_ns

    @property
    def true_ns(self) -> int:
        """What is to be added to that."""
        return BEGAN_NS + self.now_ns - self.wall_ns

    def ask(self, there_ms: float, back_ms: float, heard: bool = True) -> None:
        """One report and its answer; a way takes at least so long."""
        self.number += 1
        self.clock.sent((1, self.number), self.now_ns)
        self.now_ns += int((there_ms + self.chance.expovariate(1.0)) * MS)
        controller_ns = BEGAN_NS + self.now_ns
        self.now_ns += int((back_ms + self.chance.expovariate(1.0)) * MS)
        if heard:
            self.clock.answered((1, self.number), controller_ns, self.now_ns)
        self.now_ns += S // 2

    def off(self) -> tuple[int, int]:
        return self.clock.offset_ns(self.now_ns, self.wall_ns)


@given(
    st.integers(-(10**13), 10**13), st.integers(0, 1 << 30),
    st.lists(st.tuples(st.floats(0, 80), st.floats(0, 80), st.booleans()), min_size=1, max_size=30),
)  # fmt: skip
def test_it_is_never_further_off_than_it_says(
    off_ns: int, seed: int, ways: list[tuple[float, float, bool]]
) -> None:
    machines = Machines(off_ns, seed)
    for there_ms, back_ms, heard in ways:
        machines.ask(there_ms, back_ms, heard)
        found, error_ns = machines.off()
        if error_ns:
            assert abs(found - machines.true_ns) <= (error_ns if found else error_ns + max(error_ns, MS))


def test_the_least_round_trip_counts() -> None:
    machines = Machines(5 * S, 7)
    machines.ask(400.0, 1.0)
    _, slow_ns = machines.off()
    machines.ask(0.1, 0.1)
    _, quick_ns = machines.off()
    machines.ask(400.0, 1.0)
    assert slow_ns > 150 * MS and quick_ns < 10 * MS and machines.off()[1] < 10 * MS


def test_a_clock_that_is_right_is_left_alone() -> None:
    machines = Machines(0, 7)
    for _ in range(10):
        machines.ask(0.2, 0.2)
    assert machines.off()[0] == 0 and machines.off()[1] > 0


def test_a_clock_that_is_set_is_followed_with_the_next_look_and_the_controllers_with_the_next_answer() -> (
    None
):
    machines = Machines(0, 7)
    machines.ask(0.2, 0.2)
    machines.off_ns = -3600 * S
    assert abs(machines.off()[0] - 3600 * S) < 50 * MS
    other = ClockOffset()
    for number, controller_s in ((1, 0), (2, 90)):
        other.sent((1, number), number * S)
        other.answered((1, number), BEGAN_NS + number * S + controller_s * S, number * S + MS)
    assert abs(other.offset_ns(2 * S, BEGAN_NS + 2 * S)[0] - 90 * S) < 2 * MS


def test_answers_to_nothing_that_was_asked_and_old_ones_count_for_nothing() -> None:
    clock = ClockOffset()
    clock.answered((1, 5), BEGAN_NS, S)
    assert clock.offset_ns(S, BEGAN_NS + S) == (0, 0)
    clock.sent((2, 5), S)
    clock.answered((1, 5), BEGAN_NS, S + 1)
    assert clock.offset_ns(S, BEGAN_NS + S) == (0, 0), "of another life of this agent"
    clock.answered((2, 5), BEGAN_NS, S + MS)
    before = clock.offset_ns(S, BEGAN_NS)[1]
    assert clock.offset_ns(S + KEPT_NS, BEGAN_NS)[1] > before > 0
