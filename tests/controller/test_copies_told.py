"""Rows that a sink got twice are told sink by sink: exactly, or as a lower bound and why."""

from __future__ import annotations

from headgate.controller.core.copies import copies_of, rebuilt_sinks
from headgate.controller.knowledge.config import ControllerSettings
from headgate.controller.knowledge.knowledge import Knowledge
from headgate.controller.knowledge.records import Durable, Submitted
from headgate.topology_runtime.messages import SourceStatus
from headgate.topology_runtime.topology import Edge, Task, Topology

TOPOLOGY = Topology(
    "two",
    (Task("source", kind="source"), Task("batch", kind="hold"), Task("tag"), Task("numbers"), Task("counts")),
    (Edge("source", "batch"), Edge("batch", "tag"), Edge("tag", "numbers"), Edge("source", "counts")),
)
BY_SINK = {"numbers": (110, 110), "counts": (130, 100)}


def known() -> Knowledge:
    return Knowledge(
        ControllerSettings("run"), Durable(run=Submitted(TOPOLOGY, (), ((0.0, 20.0),), 0.0, (), 1))
    )


def read(k: Knowledge, emitted: int, replayed: int = 0) -> None:
    k.counts.source("source", 0).hear(SourceStatus("source", 0, 1, emitted, 0, 0, emitted, replayed))


def test_without_rows_sent_again_all_is_exact() -> None:
    k = known()
    read(k, 5)
    read(k, 9)
    told = copies_of(k, BY_SINK)
    assert (told["duplicates"], told["duplicates_exact"], told["duplicates_why"]) == (30, True, [])
    assert told["sinks"]["counts"] == {"rows": 130, "duplicates": 30, "duplicates_exact": True}


def test_below_a_task_that_keeps_rows_copies_cannot_be_told_from_others() -> None:
    assert set(rebuilt_sinks(TOPOLOGY)) == {"numbers"}
    for emitted, replayed in ((9, 1), (3, 0)):  # sent again by its ledger; read again by the next worker
        k = known()
        read(k, 9)
        read(k, emitted, replayed)
        told = copies_of(k, BY_SINK)
        assert not told["duplicates_exact"] and "batch" in told["duplicates_why"][0]
        assert [told["sinks"][sink]["duplicates_exact"] for sink in ("numbers", "counts")] == [False, True]


def test_what_may_be_in_no_log_makes_every_sink_a_lower_bound() -> None:
    k = known()
    k.counts.unlogged = {("vm1", 1): 0, ("vm2", 1): 3}
    assert copies_of(k, BY_SINK)["duplicates_why"] == ["3 rows that may have reached a sink, in no log"]
    k.counts.unlogged = {("vm1", 1): 0, ("vm1", 2): 0}
    told = copies_of(k, BY_SINK)
    assert len(told["duplicates_why"]) == 1 and "vm1" in told["duplicates_why"][0]
    assert not told["sinks"]["counts"]["duplicates_exact"]


def test_another_life_of_the_controller_knows_it_too() -> None:
    k = known()
    read(k, 9)
    read(k, 3)
    k.counts.unlogged = {("vm2", 1): 3}
    again = known()
    again.counts.recall(k.counts.tallies(1))
    assert copies_of(again, BY_SINK)["duplicates_why"] == copies_of(k, BY_SINK)["duplicates_why"]
