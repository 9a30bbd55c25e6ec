"""No run is taken for another: each has an id of its own, and what is left of one is no other's."""

from __future__ import annotations

from pathlib import Path

from headgate.agent.process.agent_files import keep_states_of, load_failures, save_failures
from headgate.controller.monitor.admission import AdmissionGate
from headgate.dashboards.runs.run_places import places_of
from headgate.dashboards.runs.up_settings import UpSettings
from headgate.topology_runtime.platform.run_ids import is_run_id, new_run_id, run_of
from headgate.topology_runtime.wire.dead_letter_messages import Struck
from headgate.topology_runtime.wire.messages import DeadLetters, Report, SampleBlock, Token
from headgate.topology_runtime.worker.keyed_state.snapshot_files import FOLDER

STRUCK = (Struck("work", "source", 0, 7, 0, "row", 2, "hung", ""),)


def test_ids_are_of_version_7_and_sort_by_time() -> None:
    ids = [new_run_id() for _ in range(100)]
    assert len(set(ids)) == 100 and all(map(is_run_id, ids))
    assert sorted(one[:13] for one in ids) == [one[:13] for one in ids]
    assert not is_run_id("20261128-221046-4711") and not is_run_id(f"{ids[0][:14]}4{ids[0][15:]}")


def test_each_up_has_an_id() -> None:
    first, second = places_of(UpSettings()), places_of(UpSettings())
    assert is_run_id(first.run) and first.run != second.run and first.state.name == first.run


def test_a_state_directory_keeps_its_runs_id_whatever_the_run_is_called(tmp_path: Path) -> None:
    first = run_of(tmp_path / "one", "local")
    assert is_run_id(first) and run_of(tmp_path / "one", "local") == first
    assert run_of(tmp_path / "two", "local") != first
    assert run_of(tmp_path / "one", told := new_run_id()) == told


def test_a_run_that_began_before_there_were_ids_keeps_its_name(tmp_path: Path) -> None:
    (tmp_path / "controller").mkdir()
    assert run_of(tmp_path, "plant") == "plant"


def test_a_run_does_not_count_the_failures_of_the_one_before(tmp_path: Path) -> None:
    save_failures(str(tmp_path), "monday", STRUCK)
    assert load_failures(str(tmp_path), "monday") == STRUCK
    assert load_failures(str(tmp_path), "tuesday") == ()


def test_a_run_does_not_restore_the_snapshots_of_the_one_before(tmp_path: Path) -> None:
    snapshot = tmp_path / FOLDER / "count~5"
    keep_states_of(str(tmp_path), "monday")
    snapshot.write_bytes(b"state")
    keep_states_of(str(tmp_path), "monday")
    assert snapshot.exists(), "another life of the agent"
    keep_states_of(str(tmp_path), "tuesday")
    assert not snapshot.exists()


def test_what_is_of_another_run_is_not_counted() -> None:
    gate = AdmissionGate()
    gate.know({"vm1"}, 1, "tuesday")
    for run, let_in in (("tuesday", True), ("", True), ("monday", False)):
        block = SampleBlock("vm1", 1, 1, 0, 1, 1, (), {}, {}, {}, run=run)
        for message in (block, Report("vm1", 1, 1, Token(), run=run), DeadLetters("vm1", (), run=run)):
            assert gate.admits(message, 0) is let_in
    assert gate.ignored == 3
