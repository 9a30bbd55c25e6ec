"""One folder for each run, held by one analysis, whose results are replaced as a whole."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from headgate.dashboards.analytics.curation import unchanged_inputs as unchanged
from headgate.dashboards.analytics.curation.trace_segments import Segment
from headgate.dashboards.analytics.storage import output_folder
from headgate.dashboards.analytics.storage.data_folders import DataPlace, place
from headgate.dashboards.analytics.storage.output_folder import default_output, disk_told, drafted, held
from headgate.dashboards.analytics.storage.result_tables import SCHEMA, TABLES, LeftOut
from headgate.dashboards.analytics.storage.trace_runs import TraceRun, run_of
from headgate.dashboards.tables.trace_files import RunFiles
from headgate.topology_runtime.errors import Conflict, HeadgateError

HOLDS = """
import sys
from headgate.dashboards.analytics.storage.data_folders import place
from headgate.dashboards.analytics.storage.output_folder import held
with held(place(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds tmp_path/out."""
    words = [sys.executable, "-c", HOLDS, str(tmp_path / "out")]
    root = Path(__file__).parents[2]
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=root
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == "held\n"
        yield process
        process.kill()


def published(folder: Path) -> dict[str, str]:
    names = (output_folder.ANALYSIS, *output_folder.PUBLISHED)
    files = [folder / name for name in names] + [f for name in names for f in (folder / name).rglob("*")]
    return {str(file.relative_to(folder)): file.read_text() for file in files if file.is_file()}


def write(draft: DataPlace, word: str, *names: str) -> None:
    for name in (*names, "analysis.json"):
        (draft / name if "/" not in name else draft / name.split("/")[0] / name.split("/")[1]).write(
            word.encode()
        )


def test_each_run_has_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert default_output(["traces/demo/one"]) == str(tmp_path / "traces/demo/analysis/one")
    assert default_output(["traces/demo/two/"]) == str(tmp_path / "traces/demo/analysis/two")
    several = {default_output(traces) for traces in (["a", "b"], ["x/a", "b"], ["s3a://k/a"], ["s3a://l/a"])}
    assert len(several) == 4 and all(Path(folder).parent == tmp_path / "analysis" for folder in several)
    assert default_output(["b", "a"]) == default_output(["a", "b"])


def test_a_second_analysis_is_refused_and_told_whose_the_first_is(
    tmp_path: Path, holder: subprocess.Popen[str]
) -> None:
    with pytest.raises(Conflict) as refused, held(place(tmp_path / "out")):
        raise AssertionError("it is not ours")
    assert refused.value.exit_code == 6
    assert f"process {holder.pid} on " in (refused.value.cause or "") and str(tmp_path) in refused.value.what
    assert refused.value.hint


def test_the_lock_of_a_dead_process_is_taken_over(tmp_path: Path, holder: subprocess.Popen[str]) -> None:
    os.kill(holder.pid, signal.SIGKILL)
    holder.wait(10)
    assert (tmp_path / "out" / output_folder.LOCK).exists()
    with held(place(tmp_path / "out")):
        assert str(os.getpid()) in (tmp_path / "out" / output_folder.LOCK).read_text()


def test_whoever_held_it_leaves_nothing(tmp_path: Path) -> None:
    with suppress(KeyboardInterrupt), held(place(tmp_path / "a" / "out")):
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []
    with held(place(tmp_path / "a" / "out")):
        (tmp_path / "a" / "out" / "kept").touch()
    assert [file.name for file in (tmp_path / "a" / "out").iterdir()] == ["kept"]


def test_results_take_the_place_of_all_earlier_ones(tmp_path: Path) -> None:
    with drafted(place(tmp_path)) as draft:
        write(draft, "old", "results/cost.json", "models/parse.json", "report.html", "plots/a.html")
    with drafted(place(tmp_path)) as draft:
        write(draft, "new", "results/cost.json")
    assert published(tmp_path) == {"analysis.json": "new", "results/cost.json": "new"}
    assert not (tmp_path / output_folder.DRAFT).exists()


def test_an_analysis_that_was_cut_off_leaves_the_earlier_one(tmp_path: Path) -> None:
    with drafted(place(tmp_path)) as draft:
        write(draft, "old", "results/cost.json")
    before = published(tmp_path)
    with suppress(KeyboardInterrupt), drafted(place(tmp_path)) as draft:
        write(draft, "new", "results/cost.json", "models/parse.json")
        raise KeyboardInterrupt
    assert published(tmp_path) == before and not (tmp_path / output_folder.DRAFT).exists()


@pytest.mark.parametrize("after", range(7))
def test_one_killed_while_it_publishes_leaves_an_earlier_one_or_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    """At every step of it: either all is old, or there is no analysis, or all is new."""
    with drafted(place(tmp_path)) as draft:
        write(draft, "old", "results/cost.json", "models/parse.json")
    draft = output_folder.draft_of(place(tmp_path))
    write(draft, "new", "results/cost.json", "report.html")
    steps = 0
    move = DataPlace.move_to

    def killed(self: DataPlace, other: DataPlace) -> None:
        nonlocal steps
        steps += 1
        if steps > after:
            raise KeyboardInterrupt
        move(self, other)

    monkeypatch.setattr(DataPlace, "move_to", killed)
    with suppress(KeyboardInterrupt):
        output_folder.publish(place(tmp_path), draft)
    found = published(tmp_path)
    assert "analysis.json" not in found or set(found.values()) == {"new"}
    monkeypatch.undo()
    with drafted(place(tmp_path)) as again:
        assert not again.is_folder(), "what a killed one left is gone"
        write(again, "newer")
    assert set(published(tmp_path).values()) == {"newer"}


def test_a_full_disk_is_named(tmp_path: Path) -> None:
    with pytest.raises(HeadgateError) as told, disk_told(place(tmp_path)):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert str(tmp_path) in told.value.what and "No space left" in (told.value.cause or "")
    assert "make room" in (told.value.hint or "")
    with pytest.raises(FileNotFoundError), disk_told(place(tmp_path)):
        raise FileNotFoundError(errno.ENOENT, "else")


# ── What has not changed is told again ──────────────────────────────────────────────────────────────────


@pytest.fixture
def run(tmp_path: Path) -> TraceRun:
    folder = tmp_path / "demo" / "one"
    folder.mkdir(parents=True)
    (folder / "run.json").write_text("{}")
    (folder / "decisions.jsonl").write_text("")
    return run_of(place(folder), {})


def segment(name: str, digest: str = "d") -> Segment:
    return Segment(place(f"/x/{name}"), "rates", 1, 0, 1, digest)


def test_whatever_counts_changes_the_mark(run: TraceRun, monkeypatch: pytest.MonkeyPatch) -> None:
    def mark(*segments: Segment, left: tuple[LeftOut, ...] = ()) -> str:
        return unchanged.mark_of([RunFiles(run, segments)], left)

    first = mark(segment("1"))
    assert mark(segment("1")) == first
    marks = {first, mark(segment("1"), segment("2")), mark(segment("1", "e")), mark(segment("2"))}
    marks.add(mark(segment("1"), left=(LeftOut("f", "empty", "why", 0),)))
    lines = Path(run.place.path, "decisions.jsonl")
    lines.write_text("a line\n")
    marks.add(mark(segment("1")))
    os.utime(lines, (0, 0))
    marks.add(mark(segment("1")))
    monkeypatch.setattr(unchanged, "code_mark", lambda: "other code")
    marks.add(mark(segment("1")))
    assert len(marks) == 8


def test_only_a_whole_analysis_of_the_same_is_told(tmp_path: Path) -> None:
    to = place(tmp_path)
    assert unchanged.reused_analysis(to, "m", False) is None
    (tmp_path / "results").mkdir()
    for name in TABLES:
        (tmp_path / "results" / f"{name}.json").write_text("[]")
    analysis = {"schema": SCHEMA, unchanged.MARK: "m", "left_out": [{"file": "f"}]}
    (tmp_path / "analysis.json").write_text(json.dumps(analysis))
    assert unchanged.reused_analysis(to, "m", False) == analysis
    assert unchanged.reused_analysis(to, "other", False) is None
    assert unchanged.reused_analysis(to, "m", True) is None, "--strict says what was left out"
    (tmp_path / "results" / "cost.json").unlink()
    assert unchanged.reused_analysis(to, "m", False) is None
    (tmp_path / "analysis.json").write_text("torn")
    assert unchanged.reused_analysis(to, "m", False) is None
