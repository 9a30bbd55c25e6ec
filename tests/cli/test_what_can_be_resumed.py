"""What `up --resume` goes on with, and what it refuses."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from headgate.dashboards.up.places import Places
from headgate.dashboards.up.preparation import Work
from headgate.dashboards.up.resuming import keep, latest, options_again, places_again, resumable, settings_now
from headgate.dashboards.up.settings import UpSettings
from headgate.topology_runtime.errors import Conflict, HeadgateError, InvalidInput
from headgate.topology_runtime.topology import Static, Task, Topology

WORK = Work(Topology("flow", (Task("in", kind="source", static=Static()),), ()), ("/code",))
OPTIONS = ["--port", "1", "--command-port", "2", "--rate", "5"]


def kept(state: Path, **settings: object) -> UpSettings:
    state.mkdir(parents=True, exist_ok=True)
    made = UpSettings(
        topology="flow.py:flow", models=Path("models"), rate_scale="auto", slots=(4, 2), **settings
    )  # type: ignore[arg-type]
    keep(Places("run", state, Path("traces"), 1, 2, 3), made, OPTIONS, WORK)
    return made


def test_what_is_kept_reads_back(tmp_path: Path) -> None:
    made = kept(tmp_path / "state", state_dir=tmp_path / "state")
    found = resumable(tmp_path / "state")
    assert found.settings == made and (found.topology, found.user_paths) == ("flow", ("/code",))
    places = places_again(found, tmp_path / "state")
    words = options_again(found, places)
    assert words[:4] == ["--port", str(places.control_port), "--command-port", str(places.command_port)]


def test_only_how_it_is_looked_at_may_differ(tmp_path: Path) -> None:
    kept(tmp_path)
    found = resumable(tmp_path)
    assert settings_now(found, {"dashboard": True, "metrics": 9100, "state_dir": tmp_path}).dashboard
    with pytest.raises(HeadgateError) as refused:
        settings_now(found, {"slots": "4", "topology": "other.py:flow"})
    assert "--slots, TOPOLOGY cannot be given" in refused.value.what


def test_the_latest_unfinished_one_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidInput, match="no run to resume"):
        latest()
    for name in ("a", "b", "c"):
        kept(Path(".headgate") / name)
    (Path(".headgate") / "c" / "summary.json").touch()
    for at, name in enumerate("ab"):
        os.utime(Path(".headgate") / name / "up.json", (1000 - at, 1000 - at))
    assert latest() == Path(".headgate") / "a"


@pytest.mark.parametrize("damage", [b"", b"{", b'{"schema": 3}', b"\xff\xfe", b"[]"])
def test_a_damaged_note_is_told(tmp_path: Path, damage: bytes) -> None:
    kept(tmp_path)
    (tmp_path / "up.json").write_bytes(damage)
    with pytest.raises(InvalidInput, match="damaged"):
        resumable(tmp_path)


def test_of_another_version_or_over(tmp_path: Path) -> None:
    kept(tmp_path)
    note = json.loads((tmp_path / "up.json").read_text())
    (tmp_path / "up.json").write_text(json.dumps(note | {"schema": "headgate/up/v9"}))
    with pytest.raises(InvalidInput, match="another version"):
        resumable(tmp_path)
    kept(tmp_path)
    (tmp_path / "summary.json").touch()
    with pytest.raises(Conflict, match="has ended"):
        resumable(tmp_path)
