"""Rows that reached the sinks are counted exactly, whatever variants they have, in memory that does not grow."""

from __future__ import annotations

import random
import tracemalloc
from array import array
from collections import Counter

import pytest
from enactment_world import World

from headgate.controller.core.view_builder import copies_of
from headgate.controller.knowledge.knowledge import Turn
from headgate.controller.knowledge.loop_events import Now
from headgate.controller.knowledge.run_tallies import FinishedTally
from headgate.controller.monitor.sink_counts import (
    CHUNK,
    CHUNKS_MOST,
    LEAST_NS,
    MAX_RUN,
    ODD_IN_A_CHUNK,
    RUN_BYTES,
    VARIANTS_MOST,
    WHOLE_BYTES,
    Done,
    FinishedRows,
    Settling,
)
from headgate.topology_runtime.wire.messages import FinishedRuns, SampleBlock

Run = tuple[int, int, int, int, int]  # source, partition, position, count, variant


def told(runs: list[Run], offset: int = 0, thread: int = 1) -> tuple[FinishedRuns, ...]:
    words = array("q", [word for run in runs for word in run])
    return (FinishedRuns("sink", thread, 7, offset, words.tobytes()),)


def identities(runs: list[Run]) -> Counter[tuple[int, int, int]]:
    return Counter((p, first + i, v) for _, p, first, count, v in runs for i in range(count))


def random_runs(choose: random.Random, number: int, low: int = 0, high: int = 6000) -> list[Run]:
    variants = [0, 1, *(choose.randrange(1 << 40) for _ in range(300))]
    return [
        (0, choose.randrange(2), choose.randrange(low, high), choose.randint(1, 3), choose.choice(variants))
        for _ in range(number)
    ]


@pytest.mark.parametrize("seed", range(4))
def test_rows_and_distinct_rows_of_any_variants(seed: int) -> None:
    runs = random_runs(random.Random(seed), 3000)
    counted = FinishedRows()
    for at in range(0, len(runs), 50):
        counted.add(told(runs[at : at + 50], at * RUN_BYTES))
    rows = identities(runs)
    assert (counted.rows, counted.distinct) == (rows.total(), len(rows))
    assert counted.by_task == {"sink": (rows.total(), len(rows))}


def test_bytes_told_again_are_not_counted_again() -> None:
    counted = FinishedRows()
    runs = [(0, 0, i, 1, 1000 + i) for i in range(200)]
    for _ in range(3):
        counted.add(told(runs))
    assert (counted.rows, counted.duplicates) == (200, 0)
    counted.add(told(runs[150:], thread=2))  # the same rows at another thread of the sink
    assert (counted.rows, counted.duplicates) == (250, 50)


@pytest.mark.parametrize("seed", range(6))
def test_settling_changes_no_count_and_what_comes_late_is_a_copy(seed: int) -> None:
    """Rows come in windows of positions; below a window all has come once. Now and then the
    controller begins again, from the tally, and reads the logs from their beginning."""
    choose = random.Random(seed)
    counted, log, every = FinishedRows(), [], Counter[tuple[int, int, int]]()
    tally = FinishedTally()
    for window in range(8):
        low, high = window * 1500, (window + 1) * 1500
        fresh = random_runs(choose, 300, low, high - 3)
        fresh += choose.choices(log, k=20) if log else []  # copies, also of what is settled
        counted.add(told(fresh, len(log) * RUN_BYTES))
        log += fresh
        every.update(identities(fresh))
        if choose.random() < 0.4:
            counted = FinishedRows(tally)
            for at in range(0, len(log), 100):
                counted.add(told(log[at : at + 100], at * RUN_BYTES))
        assert (counted.rows, counted.distinct) == (every.total(), len(every)), f"seed {seed}, {window}"
        if counted.settle({(0, 0): high - 1500 * choose.randrange(2), (0, 1): high}):
            tally = counted.tally
        assert (counted.rows, counted.distinct) == (every.total(), len(every)), f"seed {seed}, {window}"
    assert tally.tasks and tally.tasks[0][1] > 0


def test_logs_whose_beginning_is_thrown_away_go_on_from_the_tally() -> None:
    first, second = [(0, 0, i, 1, 0) for i in range(CHUNK)], [(0, 0, CHUNK + i, 1, 0) for i in range(50)]
    before = FinishedRows()
    before.add(told(first))
    assert before.settle({(0, 0): CHUNK})
    after = FinishedRows(before.tally)
    after.add(told(second, CHUNK * RUN_BYTES))
    assert (after.rows, after.distinct, after.missed_bytes) == (CHUNK + 50, CHUNK + 50, 0)


def test_nothing_is_settled_while_bytes_are_missing() -> None:
    counted = FinishedRows()
    counted.add(told([(0, 0, i, 1, 0) for i in range(5)], 10 * RUN_BYTES))
    assert counted.missed_bytes == 10 * RUN_BYTES
    assert not counted.settle({(0, 0): 10 * CHUNK})


def test_a_long_run_takes_no_more_memory_than_a_short_one() -> None:
    """Each row has a variant of its own, as what comes of buckets has."""
    choose, counted, used = random.Random(1), FinishedRows(), []
    tracemalloc.start()
    for second in range(60):
        runs = [(0, 0, second * 500 + i, 1, choose.randrange(1 << 31)) for i in range(500)]
        counted.add(told(runs, second * 500 * RUN_BYTES))
        counted.settle({(0, 0): second * 500 - 1000})
        used.append(tracemalloc.get_traced_memory()[0])
    tracemalloc.stop()
    assert (counted.rows, counted.duplicates) == (30_000, 0)
    assert used[-1] < 1.5 * max(used[5:15])


# ── When rows need not be remembered any more: every VM has told its logs to their ends since they were
# done

S = 1_000_000_000
DONE: Done = {(0, 0): 500}
VMS = {"vm1", "vm2"}


def block(vm: str, number: int, size: int = 40) -> SampleBlock:
    runs = (FinishedRuns("sink", 1, 7, 0, bytes(size)),)
    return SampleBlock(vm, 1, number, 0, S, 1, (), {}, {}, {}, finished=runs)


def settled_after(blocks: list[list[SampleBlock]], silent: tuple[int, ...] = ()) -> int | None:
    """The second in which what was done at first is settled; None: not within these seconds."""
    settling = Settling()
    settling.look(0, DONE, VMS, False)
    for second, of_second in enumerate(blocks, 1):
        for one in of_second:
            settling.block(one)
        later: Done = {(0, 0): 500 + second}
        if settled := settling.look(second * S, later, VMS, second in silent):
            assert settled[0, 0] <= 500 + max(silent, default=0)
            return second
    return None


def usual(seconds: int) -> list[list[SampleBlock]]:
    return [[block("vm1", n), block("vm2", n)] for n in range(1, seconds + 1)]


def test_it_takes_some_blocks_of_every_vm() -> None:
    assert settled_after(usual(20)) == LEAST_NS // S
    one_only = [[block("vm1", n)] for n in range(1, 20)]
    assert settled_after(one_only) is None


def test_a_vm_that_has_more_to_tell_is_waited_for() -> None:
    behind = [[block("vm1", n), block("vm2", n, WHOLE_BYTES if n < 9 else 40)] for n in range(1, 20)]
    assert settled_after(behind) == 11


def test_a_lost_block_is_waited_for_until_it_came_again() -> None:
    gap = [[block("vm1", n), *([block("vm2", n)] if n != 3 else [])] for n in range(1, 30)]
    after = settled_after(gap)
    assert after is not None and after > 12


def test_while_a_vm_is_silent_nothing_is_settled_that_was_done_before() -> None:
    assert settled_after(usual(20), silent=(5,)) == 5 + LEAST_NS // S


# ── VMs that are away: what their sinks had before they rested is in logs that come later


class Counted:
    """A run on two VMs whose rows are done: `vm1` tells its logs every second, `vm2` when it is here."""

    def __init__(self) -> None:
        self.world = World().start().until("committed")
        self.knowledge, self.finished, self.settling = self.world.loop.knowledge, FinishedRows(), Settling()
        self.now_ns = self.world.now.mono_ns
        self.source = self.knowledge.counts.source(self.knowledge.topology.sources[0].name, 0)
        self.told = {"vm1": 0, "vm2": 0}

    def tell(self, vm: str, runs: list[Run]) -> None:
        self.finished.add(told(runs, self.told[vm] * RUN_BYTES, thread=int(vm[2:])), vm)
        self.told[vm] += len(runs)

    def seconds(self, number: int, vms: tuple[str, ...], done: int) -> None:
        """All is done below that position. The VMs that are here tell of themselves."""
        self.source.main = done
        for vm in ("vm1", "vm2"):
            self.knowledge.members.members[vm].state = "joined" if vm in vms else "lost"
        for _ in range(number):
            self.now_ns += S
            for vm in vms:
                self.settling.block(block(vm, self.now_ns // S, 0))
            self.settling.go_on(Turn(self.knowledge, Now(self.now_ns, self.now_ns)), self.finished)


def test_what_a_vm_did_before_it_was_lost_is_no_copy_when_its_logs_are_read_at_last() -> None:
    run = Counted()
    run.seconds(20, ("vm1", "vm2"), 0)
    run.tell("vm1", [(0, 0, 0, CHUNK, 0)])
    run.seconds(60, ("vm1",), 2 * CHUNK)  # the second half went to vm2, which acked it
    run.tell("vm2", [(0, 0, CHUNK, CHUNK, 0)])
    assert (run.finished.rows, run.finished.duplicates) == (2 * CHUNK, 0)
    run.seconds(30, ("vm1", "vm2"), 2 * CHUNK)
    assert run.finished.tally.floors == ((0, 0, 2 * CHUNK),), "what was told is settled"
    assert (run.finished.rows, run.finished.duplicates) == (2 * CHUNK, 0)


def test_what_is_remembered_for_a_lost_vm_is_bounded_and_then_nothing_of_it_counts_as_a_copy() -> None:
    run = Counted()
    run.seconds(20, ("vm1", "vm2"), 0)
    size = MAX_RUN // CHUNK
    for number in range(CHUNKS_MOST // size):
        run.tell("vm1", [(0, 0, 2 * number * MAX_RUN, MAX_RUN, 0)])
    assert run.finished.full
    end = 2 * (CHUNKS_MOST // size) * MAX_RUN
    run.seconds(30, ("vm1",), end)
    assert run.finished.tally.floors == ((0, 0, end),) and not run.finished.full
    run.tell("vm2", [(0, 0, MAX_RUN, 1000, 0)])
    assert run.finished.duplicates == 0
    run.tell("vm1", [(0, 0, 0, 10, 0)])
    assert run.finished.duplicates == 10, "what is settled is known of those that were heard"
    copies = copies_of(run.knowledge, run.finished.by_task)
    assert copies["duplicates"] == 10 and not copies["duplicates_exact"]
    assert any("vm2: it was away for so long" in why for why in copies["duplicates_why"])
    again = FinishedRows(run.finished.tally)
    again.add(told([(0, 0, 3 * MAX_RUN, 5, 0)], (run.told["vm2"]) * RUN_BYTES, thread=2), "vm2")
    assert again.duplicates == run.finished.tally.tasks[0][1] - run.finished.tally.tasks[0][2]


def test_rows_with_variants_of_their_own_take_more_of_what_may_be_remembered() -> None:
    usual, odd = FinishedRows(), FinishedRows()
    number = CHUNKS_MOST * ODD_IN_A_CHUNK + 100 * VARIANTS_MOST
    usual.add(told([(0, 0, 0, number, 0)]))
    odd.add(told([(0, 0, n % CHUNK, 1, n) for n in range(number)]))
    assert odd.full and not usual.full
