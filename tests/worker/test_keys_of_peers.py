"""Whose tuples a worker lets in: those of workers that desired states named, by their newest keys."""

from __future__ import annotations

from test_worker_state import ME, THIRD, YOU, at, desired, thread

from headgate.topology_runtime.curve import new_pair
from headgate.topology_runtime.keys.pairs import keyed
from headgate.topology_runtime.worker.state import WorkerState

ONE, TWO = new_pair().public, new_pair().public
THREADS = [thread(1), thread(2, slot=YOU), thread(3, slot=THIRD)]


def endpoint(public: str) -> str:
    return keyed("tcp://127.0.0.1:1", public)


def told(state: WorkerState, counter: int, *workers: tuple[object, int, str]) -> set[str]:
    """Whose keys count after this desired state."""
    named = [at(slot, incarnation, where) for slot, incarnation, where in workers]  # type: ignore[arg-type]
    state.on_desired(desired(THREADS, [at(ME), *named], counter))
    state.validate()
    return {who.name for who in state.keys.values()}


def test_the_key_of_a_worker_that_was_replaced_counts_no_more() -> None:
    state = WorkerState(ME, 1)
    assert told(state, 1, (YOU, 5, endpoint(ONE))) == {"vm1/1#5"}
    assert told(state, 2, (YOU, 6, endpoint(TWO))) == {"vm1/1#6"}
    assert ONE not in state.keys


def test_of_a_worker_that_is_not_up_again_the_key_stays_until_it_is() -> None:
    """What it had written before it died may still arrive; its incarnation is fenced by the frames themselves."""
    state = WorkerState(ME, 1)
    told(state, 1, (YOU, 5, endpoint(ONE)))
    assert told(state, 2, (YOU, 6, "")) == {"vm1/1#5"}


def test_one_key_of_two_workers_as_a_lying_agent_may_tell_it_ends_nothing() -> None:
    state = WorkerState(ME, 1)
    told(state, 1, (YOU, 5, endpoint(ONE)), (THIRD, 5, endpoint(ONE)))
    assert told(state, 2, (YOU, 6, endpoint(TWO)), (THIRD, 6, endpoint(TWO))) <= {"vm1/1#6", "vm1/2#6"}


def test_an_endpoint_without_a_key_lets_nobody_in() -> None:
    state = WorkerState(ME, 1)
    assert told(state, 1, (YOU, 5, "tcp://127.0.0.1:1"), (THIRD, 5, "tcp://127.0.0.1:1#1700000000")) == set()
