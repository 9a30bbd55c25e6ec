"""Plans that take long, made beside the loop: a thread for each, which gives back what came of it as an event.

There are one or two at a time: the loop asks for another one only when one is there, or when something urgent happened.
The solver lets go of the interpreter while it searches, and what is Python in it gives way every few milliseconds.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from queue import Empty, SimpleQueue

from msgspec.structs import replace

from headgate.controller.knowledge.turns import MakePlan, PlanMade
from headgate.topology_runtime.channels import Waker
from headgate.topology_runtime.clock import monotonic_ns
from headgate.topology_runtime.patience import clocked

NS = 1_000_000_000


class PlansBeside:
    """wake: what wakes the controller when one is made."""

    def __init__(self, wake: Waker) -> None:
        self._wake = wake
        self._made: SimpleQueue[PlanMade] = SimpleQueue()

    def make(self, order: MakePlan) -> None:
        """What comes of it will be among those `made`."""
        name = f"plan {order.number}"
        threading.Thread(target=self._make, args=(order,), name=name, daemon=True).start()

    def made(self) -> Iterator[PlanMade]:
        """Those made since."""
        while True:
            try:
                yield self._made.get_nowait()
            except Empty:
                return

    def _make(self, order: MakePlan) -> None:
        began_ns = monotonic_ns()
        with clocked(lambda: monotonic_ns() / NS):
            made = order.made()
        self._made.put(replace(made, seconds=(monotonic_ns() - began_ns) / NS))
        self._wake.set()
