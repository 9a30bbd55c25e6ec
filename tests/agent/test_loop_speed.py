"""The loop by which an agent says how fast its VM is: when it runs, and what of it counts."""

from __future__ import annotations

from headgate.agent.reports.loop_speed import AT_A_TIME, AT_START, KEPT, NS, ROUNDS, LoopSpeed, host_name


class Clocked:
    """A loop that takes what it is to take, and how often it ran."""

    def __init__(self, round_ns: float) -> None:
        self.round_ns, self.runs = round_ns, 0

    def __call__(self, rounds: int) -> int:
        self.runs += 1
        return round(self.round_ns * rounds)


def test_it_is_known_at_the_start_and_the_best_counts() -> None:
    loop = Clocked(100.0)
    speed = LoopSpeed(loop, "host")
    assert (speed.seen.round_ns, speed.seen.seconds, speed.seen.host) == (100.0, 0, "host")
    assert loop.runs == AT_START
    for second, loop.round_ns in enumerate((150.0, 90.0, 170.0), 1):
        speed.look(second * NS, idle=True)
    assert (speed.seen.round_ns, speed.seen.seconds) == (90.0, 3)


def test_it_runs_once_a_second_and_only_while_no_worker_does() -> None:
    loop = Clocked(100.0)
    speed = LoopSpeed(loop, "host")
    for quarter in range(4 * 5):
        speed.look(quarter * NS // 4, idle=True)
    assert loop.runs == AT_START + 5 * AT_A_TIME
    for quarter in range(4 * 5, 4 * 10):
        speed.look(quarter * NS // 4, idle=False)
    speed.look(10 * NS, idle=True)
    assert loop.runs == AT_START + 5 * AT_A_TIME, "what ended leaves work behind for a second"


def test_a_vm_that_turned_slow_shows_after_a_minute_of_rest() -> None:
    loop = Clocked(100.0)
    speed = LoopSpeed(loop, "host")
    loop.round_ns = 200.0
    for second in range(1, KEPT):
        speed.look(second * NS, idle=True)
    assert speed.seen.round_ns == 100.0
    speed.look(KEPT * NS, idle=True)
    assert speed.seen.round_ns == 200.0


def test_the_loop_itself_takes_time_and_agents_of_one_machine_agree_which_it_is() -> None:
    assert LoopSpeed().seen.round_ns > 0 and ROUNDS > 0
    assert host_name() == host_name()
