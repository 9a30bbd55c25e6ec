"""When rows need not be remembered any more: every VM has told its logs to their ends since they were done."""

from __future__ import annotations

from headgate.controller.monitor.settling import LEAST_NS, WHOLE_BYTES, Done, Settling
from headgate.topology_runtime.messages import FinishedRuns, SampleBlock

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
