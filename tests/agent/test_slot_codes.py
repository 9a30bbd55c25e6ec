"""A worker runs one code: told of no other, and replaced where its slot is to run another."""

from __future__ import annotations

import msgspec
from agent_world import Mind, desired, only, sent, slot, thread
from msgspec.structs import replace

from headgate.agent.core import agent_events as e
from headgate.agent.core.package_state import codes_on, with_code
from headgate.topology_runtime.wire import messages as m
from headgate.topology_runtime.wire.channels import encode
from headgate.topology_runtime.wire.messages import TaskCode


def coded(number: int, in_slot: int, code: int) -> m.ThreadSpec:
    return replace(thread(number, in_slot), code=code)


def wanted(code: int, *threads: m.ThreadSpec, counter: int = 1) -> e.WantedArrived:
    """With the older codes that threads name."""
    state = desired(*threads, counter=counter)
    numbers = sorted({t.code for t in threads} - {code})
    state = replace(state, code=code, older=tuple(TaskCode(n, state.topology) for n in numbers))
    older = {one.number: encode(with_code(state, one)) for one in state.older}
    return e.WantedArrived(state, encode(state), older)


def told(out: list[e.Instruction]) -> dict[int, int]:
    """Slot → the code of what its worker is told."""
    forwarded = sent(out, bytes)
    return {
        one.slot.number: msgspec.msgpack.decode(one.message, type=m.DesiredState).code for one in forwarded
    }


def test_workers_are_told_of_their_own_code() -> None:
    mind = Mind()
    mind.tell(wanted(0, coded(1, 0, 0)))
    mind.up(0)
    out = mind.tell(wanted(1, coded(1, 0, 0), coded(2, 1, 1), counter=2))
    assert told(out) == {0: 0}
    assert [one.slot for one in only(out, e.SpawnWorker)] == [slot(1)]
    assert told(mind.up(1)) == {1: 1}


def test_a_worker_of_other_code_is_told_to_quit_and_a_new_one_is_started() -> None:
    mind = Mind()
    mind.tell(wanted(0, coded(1, 0, 0)))
    mind.up(0)
    out = mind.tell(wanted(1, coded(2, 0, 1), counter=2))
    assert [one.slot for one in sent(out, m.Quit)] == [slot(0)] and not told(out)
    assert not sent(mind.tell(wanted(1, coded(2, 0, 1), counter=3)), m.Quit), "it is told once"
    assert only(mind.tick(1.1), e.KillWorker), "one that does not quit is killed"
    assert [one.slot for one in only(mind.dies(0), e.SpawnWorker)] == [slot(0)]
    assert told(mind.up(0)) == {0: 1}
    assert mind.state.slots[0].crashes == 0


def test_it_hears_nothing_of_other_code_while_its_own_runs_elsewhere() -> None:
    """Its threads have ended, and the next plan comes before its end is known."""
    mind = Mind()
    mind.tell(wanted(0, coded(1, 0, 0), coded(2, 1, 0)))
    mind.up(0), mind.up(1)
    out = mind.tell(wanted(1, coded(2, 1, 0), coded(3, 0, 1), counter=2))
    assert [one.slot for one in sent(out, m.Quit)] == [slot(0)]
    assert told(out) == {1: 0}


def test_one_that_had_not_begun_yet_quits_too() -> None:
    mind = Mind()
    mind.tell(wanted(0, coded(1, 0, 0)))
    mind.tell(wanted(1, coded(2, 0, 1), counter=2))
    out = mind.up(0)
    assert sent(out, m.Quit) and not told(out)


def test_a_worker_whose_code_nobody_runs_any_more_ends() -> None:
    """It was cut off while its threads went elsewhere."""
    mind = Mind()
    mind.tell(wanted(0, coded(1, 0, 0)))
    mind.up(0)
    out = mind.tell(wanted(1, replace(coded(2, 0, 1), slot=m.Slot("vm2", 0)), counter=2))
    assert [one.slot for one in sent(out, m.Quit)] == [slot(0)]


def test_a_worker_that_dies_comes_back_with_its_own_code() -> None:
    mind = Mind()
    mind.tell(wanted(0, coded(1, 0, 0)))
    mind.up(0)
    mind.tell(wanted(1, coded(1, 0, 0), coded(2, 1, 1), counter=2))
    assert only(mind.dies(0, 1.0), e.SpawnWorker)
    assert told(mind.up(0)) == {0: 0}


def test_only_codes_that_run_on_a_vm_concern_it() -> None:
    state = wanted(2, coded(1, 0, 0), replace(coded(2, 0, 1), slot=m.Slot("vm2", 0))).desired
    assert [code.number for code in codes_on(state, "vm1")] == [2, 0]
    assert [code.number for code in codes_on(state, "vm2")] == [2, 1]
    assert [code.number for code in codes_on(state, "vm3")] == [2]
