"""A user's function that raises costs its row, not its frame and not the thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from examples import searching
from hypothesis import given
from hypothesis import strategies as st

from headgate.topology_runtime.worker import attempts


class Patience(list[float]):
    """Notes the pauses instead of taking them."""

    def __call__(self, pause_s: float) -> None:
        self.append(pause_s)


def failing(times: dict[Any, int], error: Callable[[], BaseException]) -> Callable[[Any], Any]:
    """Doubles a row; a row of `times` fails so many times first."""
    left = dict(times)

    def call(row: Any) -> Any:
        if left.get(row, 0) > 0:
            left[row] -= 1
            raise error()
        return row * 2

    return call


class Rude(BaseException):
    """Not even an Exception."""


class Mute(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")


ERRORS: list[Callable[[], BaseException]] = [
    lambda: ValueError("no"),
    lambda: StopIteration("no"),
    lambda: SystemExit(3),
    lambda: GeneratorExit(),
    lambda: asyncio.CancelledError(),
    lambda: Rude("no"),
    lambda: Mute(),
    lambda: RecursionError("deep"),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error()).__name__)
def test_three_tries_then_the_row_fails_and_the_rest_is_done(error: Callable[[], BaseException]) -> None:
    pauses = Patience()
    out, failures = attempts.each(failing({0: 2, 3: 3, 4: 99, 7: 1}, error), range(8), pauses)
    assert out == [0, 2, 4, 10, 12, 14]
    assert [failed.place for failed in failures] == [3, 4]
    assert pauses == [0.01, 0.1, 0.01, 0.1, 0.01, 0.1, 0.01]
    name = type(error()).__name__
    assert all("Traceback" in f.traceback for f in failures)
    assert all((name if name != "StopIteration" else "StopIteration") in f.error for f in failures)


@searching(200)
@given(st.dictionaries(st.integers(0, 11), st.integers(1, 4)), st.integers(0, 12), st.sampled_from(ERRORS))
def test_every_row_is_done_or_failed_once(
    times: dict[int, int], rows: int, error: Callable[[], BaseException]
) -> None:
    out, failures = attempts.each(failing(times, error), list(range(rows)), Patience())
    bad = sorted(row for row in times if times[row] >= 3 and row < rows)
    assert [failed.place for failed in failures] == bad
    assert out == [2 * row for row in range(rows) if row not in bad]


def test_rows_done_before_a_failure_are_not_done_again() -> None:
    calls: list[int] = []

    def call(row: int) -> int:
        calls.append(row)
        if row == 2 and calls.count(2) == 1:
            raise ValueError
        return row

    attempts.each(call, range(4), Patience())
    assert calls == [0, 1, 2, 2, 3]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error()).__name__)
@pytest.mark.parametrize("fails", [0, 1, 2, 3])
def test_a_call_is_tried_three_times(error: Callable[[], BaseException], fails: int) -> None:
    call, pauses = failing({1: fails}, error), Patience()
    result, failed = attempts.once(lambda: call(1), pauses)
    assert len(pauses) == min(fails, 2)
    assert (result, failed is None) == ((2, True) if fails < 3 else (None, False))


@pytest.mark.parametrize("call", ["each", "once"])
def test_the_keyboard_still_works(call: str) -> None:
    def interrupt(_: Any = None) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        if call == "each":
            attempts.each(interrupt, [1], Patience())
        else:
            attempts.once(interrupt, Patience())


# ── what is told ────────────────────────────────────────────────────────────────────────────────────


class Broken:
    def __repr__(self) -> str:
        raise RuntimeError("no repr")


@pytest.mark.parametrize("value", [Broken(), "\ud800", {"a": "\ud800"}, b"\xff" * 9000, ValueError("\ud800")])
def test_any_value_can_be_shown_and_sent(value: Any) -> None:
    text = attempts.shown(value, 100)
    assert 0 < len(text) <= 100
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(text)) == text


def test_a_failure_can_be_sent_whatever_it_says() -> None:
    for error in (ValueError("half \ud800 a pair"), Mute(), ValueError("x" * 100_000)):
        failed = attempts.failure(0, error)
        assert msgspec.msgpack.encode((failed.error, failed.traceback))
        assert len(failed.error) <= attempts.LINE_MOST and len(failed.traceback) <= attempts.TRACEBACK_MOST
        assert failed.error.startswith(type(error).__name__)
