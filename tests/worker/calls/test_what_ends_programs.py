"""What ends programs elsewhere ends a row in a worker, and nothing else; where a debugger may sit it ends the run."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from typing import Any

import pytest

from headgate.topology_runtime.connectors.http.ports import listen
from headgate.topology_runtime.errors import ServiceAway
from headgate.topology_runtime.worker.calls import attempts
from headgate.topology_runtime.worker.calls.attempts import CallWatch
from headgate.topology_runtime.worker.meters import meter as mt
from headgate.topology_runtime.worker.meters.meter import Meter, MeterWatch

ENDS = [KeyboardInterrupt, SystemExit, GeneratorExit]


def worker_watch() -> MeterWatch:
    meter = Meter(mt.create())
    return MeterWatch(meter.words, meter.thread_record(), 1, threading.Lock())


def failing_at(row: int, error: type[BaseException]) -> Callable[[int], int]:
    def call(value: int) -> int:
        if value == row:
            raise error
        return value

    return call


@pytest.mark.parametrize("error", ENDS)
def test_in_a_worker_it_is_the_row_that_ends(error: type[BaseException]) -> None:
    call = failing_at(2, error)
    try:
        out, failed = attempts.each(call, range(4), lambda _: None, worker_watch())
        calls, of_calls = attempts.together(
            lambda rows: list(map(call, rows)), range(4), lambda _: None, worker_watch()
        )
        once = attempts.once(lambda: call(2), lambda _: None, worker_watch())[1]
    except BaseException as found:
        pytest.fail(f"{found!r} got out")
    assert out == [row for rows in calls for row in rows] == [0, 1, 3] and once is not None
    assert [one.place for one in failed] == [one.place for one in of_calls] == [2]


def test_ctrl_c_ends_a_run_in_the_process_of_its_test() -> None:
    call = failing_at(2, KeyboardInterrupt)
    tried: list[Callable[[], Any]] = [
        lambda: attempts.each(call, range(4), lambda _: None, CallWatch()),
        lambda: attempts.together(lambda rows: list(map(call, rows)), range(4), lambda _: None),
        lambda: attempts.once(lambda: call(2), lambda _: None),
    ]
    for one in tried:
        with pytest.raises(KeyboardInterrupt):
            one()


def test_the_line_of_the_users_own_code_is_told() -> None:
    def needs() -> None:
        int("no number")

    with pytest.raises(ValueError) as caught:
        needs()
    line = needs.__code__.co_firstlineno + 1
    assert attempts.users_line(caught.value) == f" ({__file__}:{line} in needs)"
    assert attempts.users_line(ValueError()) == ""


def test_what_a_connector_says_has_no_line_of_a_library() -> None:
    """Nobody can mend a line of a library; a line of the user's own task is told whatever it raises."""

    def away() -> None:
        try:
            socket.create_connection(("127.0.0.1", 1), timeout=0.1)
        except OSError as error:
            raise ServiceAway("no broker", cause=str(error)) from error

    with pytest.raises(ServiceAway) as caught:
        away()
    line = away.__code__.co_firstlineno + 4
    assert attempts.users_line(caught.value) == f" ({__file__}:{line} in away)"
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(ServiceAway) as refused:
        listen("127.0.0.1", taken.getsockname()[1])
    error = refused.value
    assert error.__cause__ is not None and error.__traceback__ is not None
    assert attempts.users_line(error.with_traceback(error.__traceback__.tb_next)) == ""
