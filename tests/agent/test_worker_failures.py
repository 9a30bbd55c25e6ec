"""Which row is to blame when workers are lost in user code, and what the agent does then."""

from __future__ import annotations

import faulthandler
import tempfile
import threading
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from agent_world import NS, Mind, begun, desired, only, sent, slot, thread
from msgspec.structs import replace

from headgate.agent.core import agent_events as e
from headgate.agent.core.worker_failures import (
    STRUCK_KEPT,
    TOLD_MOST,
    Call,
    HangReading,
    HangWatch,
    UnderWay,
    WorkerFailures,
    line_of,
    of_thread,
)
from headgate.agent.process import agent_files
from headgate.topology_runtime.wire.channels import encode
from headgate.topology_runtime.wire.dead_letter_messages import CallKind, Poisoned, Struck, VmStrikes


def row(position: int, thread: int = 1, task: str = "work") -> UnderWay:
    return UnderWay(thread, 99, task, "source", 0, position, 0, "row", "a stack", "own.py:3 in work")


def read(position: int, thread: int = 2) -> UnderWay:
    return UnderWay(thread, 99, "source", "source", 0, position, 0, "read")


def lost(
    failures: WorkerFailures, *calls: UnderWay, hung: int = -1, slot: int = 0, at_s: int = 0
) -> Struck | None:
    return failures.lost(slot, calls, hung, "why", at_s * NS)


def times(failures: WorkerFailures, *calls: UnderWay) -> int:
    """How often the row that was lost now had been lost in all."""
    struck = lost(failures, *calls)
    assert struck is not None
    return struck.times


def test_the_third_time_a_row_is_poison_and_the_first_time_it_was_not_known() -> None:
    failures = WorkerFailures()
    assert lost(failures) is None and not failures.poison
    assert times(failures, row(5)) == 2 and not failures.poison
    third = lost(failures, row(5))
    assert third is not None and failures.poison == (third,)
    assert third.error == "why (3 tries), in own.py:3 in work" and third.traceback == "a stack"


def test_what_was_not_known_counts_for_one_row_only() -> None:
    failures = WorkerFailures()
    lost(failures)
    assert (times(failures, row(5)), times(failures, row(6))) == (2, 1)


def test_no_number_of_unknown_losses_buries_a_row_the_first_time_it_is_seen() -> None:
    failures = WorkerFailures()
    for _ in range(9):
        lost(failures)
    assert times(failures, row(5)) == 2 and not failures.poison


def test_the_hung_thread_is_blamed_and_no_other() -> None:
    failures = WorkerFailures()
    assert lost(failures, row(5, thread=1), hung=3) is None
    struck = lost(failures, read(7, thread=2), row(5, thread=1), hung=2)
    assert struck is not None and (struck.kind, struck.position) == ("read", 7)


def test_a_death_is_the_named_rows_doing_and_a_reads_only_when_nothing_else_was_under_way() -> None:
    named = lost(WorkerFailures(), read(7), row(5))
    assert named is not None and named.position == 5
    assert lost(WorkerFailures(), read(7), read(8, thread=3)) is None
    alone = lost(WorkerFailures(), read(7))
    assert alone is not None and alone.kind == "read"


def test_after_a_loss_the_slot_is_careful_for_a_minute_and_longer_while_nothing_is_found() -> None:
    failures = WorkerFailures()
    assert not failures.careful(0, 0)
    lost(failures)
    assert failures.careful(0, 59 * NS) and not failures.careful(0, 60 * NS) and not failures.careful(1, 0)
    lost(failures, at_s=100)
    assert failures.careful(0, 219 * NS) and not failures.careful(0, 220 * NS)


def test_the_list_is_bounded() -> None:
    failures = WorkerFailures()
    for position in range(2 * STRUCK_KEPT):
        lost(failures, row(position))
    assert len(failures.struck) == STRUCK_KEPT


# ── several VMs ─────────────────────────────────────────────────────────────────────────────────


def exchange(*vms: WorkerFailures, at_s: int = 0) -> None:
    for vm in vms:
        vm.hear(tuple(other.counts for other in vms if other is not vm), at_s * NS)


def test_a_row_that_goes_from_vm_to_vm_takes_three_workers_in_all() -> None:
    vms = WorkerFailures(), WorkerFailures(), WorkerFailures()
    for number, vm in enumerate(vms):
        assert not any(other.poison for other in vms)
        assert times(vm, row(5)) == number + 1
        exchange(*vms)
    assert [[(one.position, one.times) for one in vm.poison] for vm in vms] == [[(5, 3)]] * 3
    assert "3 tries" in vms[2].poison[0].error


def test_a_loss_that_was_not_known_counts_on_another_vm_for_one_row_and_has_all_be_careful() -> None:
    one, other = WorkerFailures(), WorkerFailures()
    lost(one)
    assert not other.careful(0, NS)
    exchange(one, other)
    assert other.careful(0, NS) and other.careful(1, NS) and not other.careful(0, 61 * NS)
    assert (times(other, row(5)), times(other, row(6))) == (2, 1)
    exchange(one, other)
    assert one.counts.unknown == 0, "it was that row's doing"
    assert times(one, row(7)) == 1


def test_what_is_heard_again_counts_once() -> None:
    one, other = WorkerFailures(), WorkerFailures()
    lost(one, row(5))
    for _ in range(5):
        exchange(one, other)
    assert [struck.times for struck in other.elsewhere.values()] == [1] and not other.poison
    assert not other.hear((one.counts,), 0), "nothing new"


def test_what_is_told_to_others_is_bounded() -> None:
    failures = WorkerFailures()
    for position in range(2 * TOLD_MOST):
        lost(failures, row(position))
    told = failures.counts.struck
    assert [one.position for one in told] == list(range(TOLD_MOST, 2 * TOLD_MOST))
    assert not any(one.traceback for one in told)


def test_workers_are_told_at_once_of_a_row_that_was_struck_on_other_vms() -> None:
    mind = begun()
    falls(mind, row(5))
    assert mind.told().strikes.struck[0].times == 1
    elsewhere = VmStrikes((Struck("work", "source", 0, 5, 0, "row", 2, "why", ""),))
    mine = "vm1", mind.told().strikes
    state = replace(desired(thread(1, 0), counter=2), strikes=(mine, ("vm2", elsewhere)))
    out = mind.tell(e.WantedArrived(state, encode(state)))
    (told,) = sent(out, Poisoned)
    assert [(one.position, one.times) for one in told.message.struck] == [(5, 3)]
    assert out.index(told) < out.index(sent(out, bytes)[0]), "before rows come by new routes"


# ── the agent ───────────────────────────────────────────────────────────────────────────────────


def falls(mind: Mind, *calls: UnderWay, by_itself: bool = True, after_s: float = 1.0) -> list[e.Instruction]:
    """The worker of slot 0 dies and the next one says hello; what was ordered."""
    died = e.WorkerExited(slot(0), mind.incarnation(), "signal 11 (SIGSEGV)", False, by_itself, calls)
    return mind.tell(died, after_s) + mind.up()


def test_a_row_that_kills_again_and_again_quarantines_nothing_and_is_told_to_the_workers() -> None:
    mind = begun()
    for _ in range(6):
        out = falls(mind, row(5))
    assert mind.state.slots[0].status == "running" and not mind.state.slots[0].crashed_ns
    (told,) = sent(out, Poisoned)
    assert [(one.position, one.times) for one in told.message.struck] == [(5, 6)]
    assert out.index(told) < out.index(sent(out, bytes)[0]), "before it may begin"
    assert only(out, e.SaveFailures)[0].struck == told.message.struck


def test_a_death_that_a_row_is_to_blame_for_is_told_to_the_controller_all_the_same() -> None:
    """Else nobody hears of a slot without enough memory: each time it is the row at hand that is charged."""
    mind = begun()
    for position in range(6):
        falls(mind, row(position))
    (now,) = mind.told().workers
    assert (now.state, now.crashes) == ("running", 6)


def test_a_worker_of_another_slot_is_told_at_once() -> None:
    mind = begun(thread(1, 0), thread(2, 1))
    told = [sent(falls(mind, row(5)), Poisoned) for _ in range(3)]
    assert [[one.slot.number for one in each] for each in told] == [[], [], [1, 0]]


def test_losses_of_which_nothing_is_known_quarantine_the_slot() -> None:
    mind = begun()
    for _ in range(4):
        falls(mind)
    assert mind.state.slots[0].status == "quarantined"


def test_a_worker_that_somebody_killed_blames_no_row() -> None:
    mind = begun()
    falls(mind, row(5), by_itself=False)
    assert not mind.state.failures.struck and not mind.state.failures.careful(0, mind.now_ns)


def test_a_hung_call_is_told_with_its_limit() -> None:
    mind = begun()
    mind.tell(e.WorkerHung(slot(0), mind.incarnation(), "a call has taken 6 s of at most 5 s", 1))
    falls(mind, row(5), by_itself=False)
    (struck,) = mind.state.failures.struck.values()
    assert struck.error == "hung: no answer within max_call_s=5 (1 tries), in own.py:3 in work"


def test_an_agents_next_life_goes_on_counting(tmp_path: Path) -> None:
    struck = Struck("work", "source", 0, 5, 0, "row", 2, "why", "stack")
    agent_files.save_failures(str(tmp_path), "run", (struck,))
    assert agent_files.load_failures(str(tmp_path), "run") == (struck,)
    assert agent_files.load_failures(str(tmp_path), "another") == ()
    failures = WorkerFailures()
    failures.take_up((struck,))
    assert not failures.poison
    assert [one.times for one in failures.counts.struck] == [2]
    lost(failures, row(5))
    assert failures.poison
    (tmp_path / agent_files.STRUCK_FILE).write_text("{")
    assert agent_files.load_failures(str(tmp_path), "run") == ()


# ── When is a worker hung, and when is it only busy, starved or waiting (agent/core/worker_failures.py)? ───

LIMITS = {0: 10 * NS, 1: 5 * NS}
STEP_S = 0.5


def call(task: int, begun_s: float = 100, moved: int = 0, kind: CallKind = "row", thread: int = 7) -> Call:
    return Call(thread, task, kind, int(begun_s * NS), moved)


def watch(readings: Iterable[HangReading]) -> tuple[float, str]:
    """(after how many seconds, why) the worker counts as hung; (-1, "") if it never does."""
    watch = HangWatch()
    for reading in readings:
        hang = watch.look(reading, LIMITS)
        if hang is not None:
            assert (hang.thread == 7) == ("taken" in hang.why)
            return reading.now_ns / NS - 100, hang.why
    return -1.0, ""


def readings(seconds: float, make: Callable[[float], dict[str, object]]) -> list[HangReading]:
    """A reading each half second; by default of a worker that goes on, with rows waiting."""
    out = []
    for step in range(int(seconds / STEP_S) + 1):
        t = step * STEP_S
        given = {"state": "S", "progress": step, "ran_ns": 0, "queued": 5, "calls": (), **make(t)}
        out.append(HangReading(now_ns=int((100 + t) * NS), **given))  # type: ignore[arg-type]
    return out


TOO_LONG = "a call has taken 5.5 s of at most 5 s"


@pytest.mark.parametrize(
    ("make", "after_s", "why"),
    [
        pytest.param(
            lambda t: {"progress": 7}, 3.0, "no progress for 3.0 s with an idle CPU and 5 rows waiting", id="frozen"
        ),
        pytest.param(
            lambda t: {"progress": min(t, 8.0)}, 11.0, "no progress for 3.0 s with an idle CPU and 5 rows waiting",
            id="frozen later",
        ),
        pytest.param(
            lambda t: {"state": "T", "progress": 7, "calls": (call(0),)}, 3.0, "it has been stopped for 3.0 s",
            id="stopped in a call",
        ),
        pytest.param(lambda t: {"calls": (call(1),), "progress": t}, 5.5, TOO_LONG, id="a call, idle"),
        pytest.param(
            lambda t: {"calls": (call(1),), "progress": t, "ran_ns": 1}, 5.5, TOO_LONG, id="a call, busy"
        ),
        pytest.param(
            lambda t: {"calls": (call(1, moved=min(int(t), 3)),)}, 8.5, TOO_LONG, id="the third row of a frame"
        ),
        pytest.param(
            lambda t: {"calls": (call(0),)}, 10.5, "a call has taken 10.5 s of at most 10 s", id="another limit"
        ),
        *(
            pytest.param(
                lambda t, kind=kind: {"calls": (call(1, kind=kind),), "progress": 7}, after_s,
                f"{kind}() has taken {after_s} s of at most {after_s - 0.5:g} s", id=kind,
            )
            for kind, after_s in (("read", 5.5), ("close", 5.5), ("open", 60.5))
        ),
    ],
)  # fmt: skip
def test_this_is_a_hang(make: Callable[[float], dict[str, object]], after_s: float, why: str) -> None:
    assert watch(readings(90, make)) == (after_s, why)


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda t: {}, id="it goes on"),
        pytest.param(lambda t: {"progress": 7, "queued": 0}, id="nothing waits"),
        pytest.param(lambda t: {"progress": 7, "ran_ns": int(t * NS)}, id="a C call holds the interpreter"),
        pytest.param(lambda t: {"progress": 7, "ran_ns": int(0.2 * t * NS)}, id="starved or throttled"),
        pytest.param(
            lambda t: {"progress": 7, "calls": (call(1, 100 + t - t % 4.5),)}, id="a legal call, idle"
        ),
        pytest.param(
            lambda t: {"state": "T" if 2 < t < 4.5 else "S", "progress": t}, id="stopped for a moment"
        ),
        pytest.param(lambda t: {"calls": (call(1, moved=int(t / 4.5)),)}, id="row after row of one frame"),
        pytest.param(lambda t: {"calls": (call(9),)}, id="a task that is not known"),
        pytest.param(lambda t: {"calls": (call(1, kind="open"),)}, id="the worker itself tells of an open"),
        pytest.param(
            lambda t: {"calls": (call(1, kind="open"),), "progress": 7}, id="an open has a minute in any case"
        ),
    ],
)
def test_this_is_no_hang(make: Callable[[float], dict[str, object]]) -> None:
    assert watch(readings(30, make)) == (-1.0, "")


def test_an_agent_that_was_stalled_itself_gives_no_verdict() -> None:
    hang = HangWatch()
    frozen = HangReading(100 * NS, "S", 7, 0, 5, (call(1, 90),))
    for gap_s in (0, 2, 4, 6):
        assert hang.look(frozen._replace(now_ns=(100 + gap_s) * NS), LIMITS) is None
    assert hang.look(frozen._replace(now_ns=int(106.5 * NS)), LIMITS) is None
    for half in range(11):
        found = hang.look(frozen._replace(now_ns=int((106.5 + half / 2) * NS)), LIMITS)
    assert found is not None


# ── Stacks read out of a worker's log (agent/core/worker_failures.py); the log is faulthandler's own ────


def dumped() -> tuple[str, int]:
    """A dump of all threads, and the ident of one that sleeps in `slow`."""
    began, done = threading.Event(), threading.Event()

    def slow() -> None:
        began.set()
        done.wait()

    sleeper = threading.Thread(target=slow)
    sleeper.start()
    began.wait()
    with tempfile.TemporaryFile("w+") as file:
        file.write("words of the task\n")
        faulthandler.dump_traceback(file)
        file.seek(0)
        text = file.read()
    done.set()
    sleeper.join()
    assert sleeper.ident is not None
    return text, sleeper.ident


def test_the_stack_of_one_thread_and_the_users_line_in_it() -> None:
    text, ident = dumped()
    stack = of_thread(text + "more words\n", ident)
    assert "in slow" in stack and "in dumped" not in stack
    assert line_of(stack).startswith(__file__) and line_of(stack).endswith("in slow")


def test_the_last_stack_counts_and_only_this_threads() -> None:
    head = "Thread 0x00000000000000ff (most recent call first):\n"
    log = f'{head}  File "old.py", line 1 in old\n\nFatal\n\nCurrent {head.lower()}'
    log += '  File "new.py", line 2 in new\n  File "/x/topology_runtime/worker/flow.py", line 3 in take\n'
    assert of_thread(log, 255).startswith('  File "new.py"')
    assert of_thread(log, 254) == ""
    assert line_of(of_thread(log, 255)) == "new.py:2 in new"
    assert line_of('  File "/x/topology_runtime/worker/flow.py", line 3 in take') == ""
