"""A key that most rows of a task have is said: an alarm that names it, in `status` and in `explain`."""

from __future__ import annotations

import pytest
from enactment_world import World, replace

from headgate.controller.knowledge.turn import Turn
from headgate.controller.knowledge.turns import Now
from headgate.controller.monitor import border, hot_keys
from headgate.controller.views.explanation import explain
from headgate.controller.views.status import status
from headgate.topology_runtime.errors import BadMessage
from headgate.topology_runtime.key_counts import KeyCount, KeysSeen

S = 1_000_000_000


class Told:
    """A run whose VMs tell of the keys that they saw, once a second."""

    def __init__(self) -> None:
        self.world = World().start().until("committed")
        self.knowledge = self.world.loop.knowledge
        topology = self.knowledge.topology
        assert topology is not None
        self.task = topology.edges[0].target
        self.now_ns = self.world.now.mono_ns

    def hear(self, *vms: tuple[KeysSeen, ...], seconds: int = 1) -> str:
        """The alarm after so many seconds of this."""
        for _ in range(seconds):
            self.now_ns += S
            for number, keys in enumerate(vms, 1):
                report = replace(self.world.vms[f"vm{number}"].report(), keys=keys)
                border.check(report)
                hot_keys.hear(Turn(self.knowledge, Now(self.now_ns, self.now_ns)), report)
        return self.knowledge.alarms.get(f"hot key {self.task}", "")

    def events(self) -> list[str]:
        return [e["kind"] for e in self.knowledge.events if e.get("what") == f"hot key {self.task}"]


def seen(rows: int, hot: int, looked_at: int = 0, key: str = "'X'", thread: int = 1) -> KeysSeen:
    top = (KeyCount(key, 17, hot),) if hot else ()
    return KeysSeen(0, thread, rows, looked_at or rows, top)


def test_the_hot_key_is_named_within_three_seconds_and_the_alarm_ends_with_it() -> None:
    told = Told()
    assert told.hear((seen(1000, 800),)) == "", "one second may be chance"
    alarm = told.hear((seen(1000, 800),), seconds=2)
    assert f"80% of the rows of {told.task} are of key 'X' (range 17)" in alarm
    view = told.world.loop.view(told.world.now)
    assert status(view)["hot_keys"] == [{"task": told.task, "key": "'X'", "key_range": 17, "share": 0.8}]
    assert explain(view, 1)["hot_keys"] == [f"80% of the rows of {told.task} are of key 'X' (range 17)"]
    assert "45% of the rows" in told.hear((seen(1000, 450),)), "it is not over before it is clearly less"
    assert told.hear((seen(1000, 300),)) == ""
    assert told.events() == ["alarm", "alarm_over"]


def test_what_threads_looked_at_stands_for_all_that_they_sent() -> None:
    told = Told()
    big, small = seen(9000, 90, looked_at=100, thread=1), seen(1000, 0, thread=2)
    assert "81% of the rows" in told.hear((big,), (small,), seconds=3)


def test_a_vm_that_tells_nothing_any_more_is_forgotten() -> None:
    told = Told()
    told.hear((seen(1000, 1000),), (seen(1000, 0, thread=2),), seconds=2)
    assert "100% of the rows" in told.hear((seen(1000, 1000),), seconds=5)
    assert "100% of the rows" not in told.hear((), seconds=5)


def test_another_key_is_named_anew_and_a_hidden_one_by_its_range() -> None:
    told = Told()
    told.hear((seen(1000, 800),), seconds=3)
    assert "key 'Y' (range 17)" in told.hear((seen(1000, 800, key="'Y'"),), seconds=3)
    assert "of a key of range 17" in told.hear((seen(1000, 800, key=""),), seconds=3)
    assert told.events() == ["alarm"], "told once"


def test_what_cannot_be_is_refused_or_passed_over() -> None:
    told = Told()
    assert told.hear((KeysSeen(99, 1, 1000, 1000, (KeyCount("'X'", 1, 1000),)),), seconds=3) == ""
    assert told.hear((KeysSeen(0, 1, 10, 1000, (KeyCount("'X'", 1, 1000),)),), seconds=3) == ""
    for bad in (seen(-1, 0, 1), seen(10, 5, key="x" * 1000), seen(10, 5, thread=-1)):
        with pytest.raises(BadMessage):
            told.hear((bad,))
