"""Checkpoints as files: whole, damaged in every file, half written, of another topology, not there."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from headgate.controller.files import journal, run_checkpoints
from headgate.controller.files.run_checkpoints import JOURNAL, StateMoves
from headgate.controller.knowledge.journal_records import BegunFrom
from headgate.topology_runtime.api.topology import KEY_RANGES, Edge, Static, Task, Topology
from headgate.topology_runtime.connectors.object_folder import object_folder
from headgate.topology_runtime.errors import Conflict, HeadgateError, InvalidInput
from headgate.topology_runtime.wire.messages import Keepers
from headgate.topology_runtime.wire.state_moves import RangeCopy
from headgate.topology_runtime.worker.keyed_state import checkpoints
from headgate.topology_runtime.worker.keyed_state import state_snapshots as form
from headgate.topology_runtime.worker.keyed_state.checkpoints import Checkpoint, CheckpointRun, SourcePosition
from headgate.topology_runtime.worker.keyed_state.state_snapshots import KeyedSnapshot

HALF = KEY_RANGES // 2
FILES = ("topology", "positions", "run", "state/count~3", "state/count~4")


def topology(partitions: int = 2, keyed: str = "count") -> Topology:
    tasks = (
        Task("source", kind="source", static=Static(partitions, 0.1, 0.1)),
        Task(keyed, kind="keyed", state="keyed"),
    )
    return Topology("counted", tasks, (Edge("source", keyed, grouping="fields", key=0),))


def made(second_begins: int = HALF) -> Checkpoint:
    """One keyed task, of two threads with half of the ranges each."""
    copies = [RangeCopy(n, 1) for n in range(KEY_RANGES)]
    parts = {3: copies[:HALF], 4: copies[second_begins:]}
    states = {("count", n): form.whole(KeyedSnapshot(tuple(part))) for n, part in parts.items()}
    keepers = Keepers("count", 1, ((3, HALF), (4, KEY_RANGES - HALF)), True)
    run = CheckpointRun("run-1", "run-0", 1, False, 5, 2, (keepers,))
    positions = (SourcePosition("source", 0, 70), SourcePosition("source", 1, 71, 900, 3))
    return Checkpoint("", checkpoints.shape_of(topology()), positions, run, states)


@pytest.fixture
def url(tmp_path: Path) -> str:
    checkpoints.write(object_folder(str(tmp_path)), "one", made())
    return f"{tmp_path}/one"


def refused(url: str) -> HeadgateError:
    with pytest.raises(InvalidInput) as error:
        checkpoints.begin_with(url)
    assert error.value.cause and error.value.hint
    return error.value


def test_what_was_written_is_read(url: str, tmp_path: Path) -> None:
    found, expected = checkpoints.begin_with(url), made()
    assert (found.topology, found.positions, found.run) == (
        expected.topology,
        expected.positions,
        expected.run,
    )
    assert found.states == expected.states
    assert checkpoints.names(object_folder(str(tmp_path))) == ["one"]
    checkpoints.check_fits(found, topology(), exactly_once=False)


def test_it_is_found_by_its_folder_too(url: str) -> None:
    place, _, name = url.rpartition("/")
    assert checkpoints.parts_of(f"{place}/checkpoints/{name}") == checkpoints.parts_of(url) == (place, name)


def test_its_snapshots_are_read_by_plain_msgpack(url: str, tmp_path: Path) -> None:
    data = (tmp_path / "checkpoints" / "one" / "state" / "count~3").read_bytes()
    copies, *_ = msgspec.msgpack.decode(data[len(form.MAGIC) + 8 :])
    assert [copy[0] for copy in copies] == list(range(HALF))


@pytest.mark.parametrize("file", [*FILES, "complete"])
@pytest.mark.parametrize("how", ["cut", "changed", "gone"])
def test_damage_is_refused(url: str, tmp_path: Path, file: str, how: str) -> None:
    path = tmp_path / "checkpoints" / "one" / file
    data = path.read_bytes()
    if how == "gone":
        path.unlink()
    else:
        path.write_bytes(data[:-1] if how == "cut" else data[:-1] + bytes([data[-1] ^ 1]))
    assert "damaged" in refused(url).what


def test_one_without_all_key_ranges_is_refused(tmp_path: Path) -> None:
    checkpoints.write(object_folder(str(tmp_path)), "short", made(second_begins=HALF + 7))
    assert "7 of 1,024 key ranges of count" in str(refused(f"{tmp_path}/short").cause)


def test_one_that_is_not_there_is_refused(url: str) -> None:
    assert "there is no checkpoint two" in refused(url.replace("one", "two")).what


def test_a_name_is_given_once_and_free_when_it_is_deleted(url: str, tmp_path: Path) -> None:
    place = object_folder(str(tmp_path))
    with pytest.raises(Conflict):
        checkpoints.write(place, "one", made())
    checkpoints.remove(place, "one")
    assert checkpoints.names(place) == []
    checkpoints.write(place, "one", made())
    with pytest.raises(InvalidInput):
        checkpoints.remove(place, "two")


@pytest.mark.parametrize(
    ("other", "fault"),
    [
        (topology(keyed="sum"), "the keyed task count of the checkpoint is not in the topology"),
        (topology(partitions=3), "source source: 3 partitions, in the checkpoint 2"),
        (replace(topology(), edges=(Edge("source", "count", grouping="all"),)), "its edges"),
    ],
)
def test_one_of_another_topology_is_refused(url: str, other: Topology, fault: str) -> None:
    with pytest.raises(InvalidInput) as error:
        checkpoints.check_fits(checkpoints.begin_with(url), other, exactly_once=False)
    assert any(fault in one for one in error.value.faults), error.value.faults


def test_one_that_knows_rows_in_another_way_is_refused(url: str) -> None:
    with pytest.raises(InvalidInput, match="without exactly-once"):
        checkpoints.check_fits(checkpoints.begin_with(url), topology(), exactly_once=True)


def test_it_waits_while_a_plan_is_brought_into_force(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_checkpoints, "STILL_POLL_S", 0.0)
    tries, said = iter([True, True, False]), list[str]()

    def make() -> Checkpoint:
        if next(tries):
            raise StateMoves("key ranges are on their way")
        return made()

    assert run_checkpoints.once_still(make, said.append) == made()
    assert len(said) == 1 and "waiting until a plan is in force" in said[0]
    tries = iter([True])
    with pytest.raises(StateMoves) as moves:
        run_checkpoints.once_still(make, said.append, 0.0)
    assert moves.value.exit_code == Conflict.exit_code and moves.value.hint


def test_states_of_another_version_are_no_other_topology(tmp_path: Path, url: str) -> None:
    other = topology()
    other = replace(other, tasks=(other.tasks[0], replace(other.tasks[1], state_version=3)))
    found = checkpoints.begin_with(url)
    checkpoints.check_fits(found, other, exactly_once=False)
    assert checkpoints.other_versions(found, other) == {"count": (1, 3)}
    assert checkpoints.other_versions(found, topology()) == {}


def test_a_checkpoint_from_before_versions_is_of_the_first(url: str, tmp_path: Path) -> None:
    said = msgspec.json.decode((tmp_path / "checkpoints" / "one" / "topology").read_bytes())
    for task in said["tasks"]:
        del task["state_version"]
    before = msgspec.json.decode(msgspec.json.encode(said), type=checkpoints.CheckpointTopology)
    assert before == checkpoints.shape_of(topology())


@pytest.mark.parametrize(("wall_s", "routes"), [(run_checkpoints.ROUTES_FROM_S + 500.0, 500), (0.0, 2)])
def test_runs_from_one_checkpoint_number_their_routes_apart(
    url: str, tmp_path: Path, wall_s: float, routes: int
) -> None:
    """Rows of timers have them in their names. A clock that is years behind takes nothing back."""
    (state := tmp_path / "state").mkdir()
    run_checkpoints.begin(state, "run-2", str(tmp_path), checkpoints.begin_with(url), topology(), wall_s)
    records, *_ = journal.read(state / JOURNAL)
    assert [record.next_routes for record in records if isinstance(record, BegunFrom)] == [routes]
