"""Waiting for what other processes do: until it is so. The limit is for what hangs; it measures nothing."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from queue import Empty, Queue
from typing import Any, TypeVar

import pytest

PATIENCE_S = 60.0
Found = TypeVar("Found")


def until(true: Callable[[], Found | None], what: str | Callable[[], str], every_s: float = 0.02) -> Found:
    """The first answer that is true; the test fails, and says what it waited for, when none comes."""
    end_s = time.monotonic() + PATIENCE_S
    while not (found := true()):
        if time.monotonic() > end_s:
            pytest.fail(
                f"waited {PATIENCE_S:g} s: {what if isinstance(what, str) else what()}", pytrace=False
            )
        time.sleep(every_s)
    return found


class OwnThread:
    """Calls in one thread, which is not the test's. `with OwnThread() as thread: thread.call(…)`."""

    def __init__(self) -> None:
        self._calls: Queue[Callable[[], Any] | None] = Queue()
        self._answers: Queue[tuple[Any, BaseException | None]] = Queue()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            try:
                self._answers.put((call(), None))
            except BaseException as error:  # handed over
                self._answers.put((None, error))

    def call(self, call: Callable[[], Found], what: str) -> Found:
        """What it returns or raises; the test fails when it does not come back."""
        self._calls.put(call)
        try:
            found, error = self._answers.get(timeout=PATIENCE_S)
        except Empty:
            pytest.fail(f"{what} has not come back after {PATIENCE_S:g} s", pytrace=False)
        if error is not None:
            raise error
        return found  # type: ignore[no-any-return]

    def __enter__(self) -> OwnThread:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._calls.put(None)
        self._thread.join(PATIENCE_S)
