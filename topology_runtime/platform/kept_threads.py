"""Threads that a process cannot do without: one that fails is started again, and said."""

from __future__ import annotations

import sys
import threading
import time
import traceback

AGAIN_S, AGAIN_MOST_S = 0.01, 1.0
TOLD_S = 60.0  # after the last failure


class KeptThread(threading.Thread):
    """Does `turn` until that says False. What it raises costs that turn."""

    def __init__(self, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self.failures = 0
        self._failed_s, self._why = 0.0, ""

    def turn(self) -> bool:
        """One round; False: it is over."""
        raise NotImplementedError

    def over(self) -> None:
        """Give back what the thread owns."""

    def run(self) -> None:
        while self._go_on():
            pass
        self.over()

    def _go_on(self) -> bool:
        try:
            return self.turn()
        except (
            Exception
        ) as error:  # whatever it is: without this thread nothing goes on, and nobody would know
            now_s = time.monotonic()
            fresh = now_s - self._failed_s > TOLD_S
            self.failures, self._failed_s = self.failures + 1, now_s
            self._why = f"{type(error).__name__}: {error}"
            if fresh:
                sys.stderr.write(f"thread {self.name} failed and goes on:\n{traceback.format_exc()}")
            time.sleep(min(AGAIN_S * self.failures, AGAIN_MOST_S))
            return True

    def trouble(self) -> str:
        """What failed within the last minute; "" when nothing did."""
        if not self.failures or time.monotonic() - self._failed_s > TOLD_S:
            return ""
        return f"thread {self.name} failed ({self.failures} times so far) and was started again: {self._why}"
