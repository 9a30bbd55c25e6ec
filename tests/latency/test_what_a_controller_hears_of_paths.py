"""What workers tell of latency constraints becomes one standing each, events, and an alarm where nothing helps."""

from __future__ import annotations

import pytest
from enactment_world import MODELS, TOPOLOGY, FakeVm, FakeWorker, World
from msgspec.structs import asdict, replace

from headgate.controller.analyze.paths import standings
from headgate.controller.core.loop import Loop
from headgate.controller.plan.latency_floor import floor_ms, refuse_below_floor
from headgate.dashboards.terminal.status import path_words
from headgate.topology_runtime import messages as m
from headgate.topology_runtime.cluster import Slot
from headgate.topology_runtime.errors import InvalidInput
from headgate.topology_runtime.latency.words import PathNow
from headgate.topology_runtime.topology import LatencyConstraint

PATH = ("source", "work", "sink")
LIMITED = replace(TOPOLOGY, latency_constraints=(LatencyConstraint(PATH, 300.0),))
ADAPTING = PathNow(0, "adapting", 900.0, 800.0, 1000.0, 4, 4)
HELPLESS = PathNow(0, "helpless", 900.0, 800.0, 1000.0, 4, 4, text="1000 ms on the slowest way")
HELD = PathNow(0, "held", 90.0, 80.0, 100.0, 4, 4)


class TellingVm(FakeVm):
    """Its workers manage parts of a constraint."""

    path: PathNow | None = None

    def _worker_now(self, slot: Slot, worker: FakeWorker, marks: dict[str, int]) -> m.WorkerStatus:
        told = super()._worker_now(slot, worker, marks)
        return replace(told, paths=(self.path,)) if self.path is not None else told


class TellingWorld(World):
    vm_kind = TellingVm

    def begin(self) -> TellingWorld:
        self.submitted = replace(self.submitted, topology=LIMITED)
        self.loop = Loop(self.settings, self.submitted)
        self.start()
        self.until("committed").run(15)
        return self

    def tell(self, path: PathNow, seconds: float) -> list[str]:
        """All workers say this for so long: texts of the events meanwhile."""
        before = len(self.loop.knowledge.events)
        for one in self.vms.values():
            assert isinstance(one, TellingVm)
            one.path = path
        self.run(seconds)
        events = list(self.loop.knowledge.events)[before:]
        return [event["text"] for event in events if event["kind"] in ("latency", "alarm", "alarm_over")]


def test_what_is_tried_is_told_once_and_what_nothing_helps_is_an_alarm() -> None:
    world = TellingWorld(rate_tps=100.0).begin()
    said = world.tell(ADAPTING, 5)
    assert said == [
        "source → work → sink within 300 ms: 1000 ms on the slowest way, "
        f"{4 * workers_of(world)} of {4 * workers_of(world)} buffers leave earlier"
    ]
    (alarm,) = world.tell(HELPLESS, 15)
    assert "1000 ms on the slowest way; neither buffers nor chains can help" in alarm
    assert "latency" in world.loop.knowledge.alarms
    said = world.tell(HELD, 5)
    assert any("it holds" in text for text in said) and "latency" not in world.loop.knowledge.alarms


def workers_of(world: World) -> int:
    result = world.loop.view(world.now).result
    assert result is not None
    return result.paths[0].managers


def part(number: int, standing: str, most_ms: float, channels: int = 1) -> m.WorkerStatus:
    path = PathNow(0, standing, most_ms / 2, most_ms / 4, most_ms, channels, text=f"part {number}")  # type: ignore[arg-type]
    return m.WorkerStatus(Slot("vm", number), 1, "running", paths=(path,))


def test_a_constraint_stands_as_where_it_stands_worst() -> None:
    (found,) = standings(
        LIMITED, [part(0, "held", 900.0), part(1, "helpless", 400.0), part(2, "adapting", 600.0)]
    )
    assert (found.standing, found.text, found.managers, found.channels) == ("helpless", "part 1", 3, 3)
    assert (found.least_ms, found.most_ms) == (100.0, 900.0)
    assert found.mean_ms == pytest.approx((450 + 200 + 300) / 3)


def test_without_rows_nothing_is_known() -> None:
    for workers in ([], [part(0, "held", 0.0, channels=0)]):
        (found,) = standings(LIMITED, workers)
        assert found.standing == "unknown" and found.most_ms is None


def test_a_limit_below_what_the_models_allow_is_refused_with_the_floor() -> None:
    """One thread of `work` does 50 rows/s: 20 ms a row; two hops of 0.05 ms; source and sink have no model."""
    models = {model.task: model for model in MODELS}
    (constraint,) = LIMITED.latency_constraints
    assert floor_ms(constraint, LIMITED, models) == pytest.approx(20.1)
    refuse_below_floor(LIMITED, models)
    tight = replace(LIMITED, latency_constraints=(LatencyConstraint(PATH, 20.0),))
    with pytest.raises(InvalidInput) as refused:
        refuse_below_floor(tight, models)
    assert refused.value.exit_code == 3 and "a row takes 20.1 ms" in refused.value.faults[0]


def test_status_says_it_in_a_line() -> None:
    (found,) = standings(LIMITED, [part(0, "held", 100.0), part(1, "helpless", 400.0)])
    assert path_words(asdict(found)) == (
        "source → … → sink within 300 ms: 400.0 ms on the slowest way, 25.0 on the quickest\nnothing helps: part 1"
    )
    (found,) = standings(LIMITED, [m.WorkerStatus(Slot("vm", 0), 1, "running", paths=(HELD,))])
    assert path_words(asdict(found)).endswith("80.0 on the quickest; 4 buffers leave earlier")
    (found,) = standings(LIMITED, [])
    assert path_words(asdict(found)) == "source → … → sink within 300 ms: no rows yet"
