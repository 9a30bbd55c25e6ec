"""`headgate analyze` on made traces whose truth is known. One analysis for most of it."""

import gzip
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from headgate.controller.files.season_files import read_season
from headgate.dashboards.analytics.storage.result_tables import TABLES
from made_traces.generate_trace import BESIDE, COST_S, TASKS, USUAL, Wanted, generate

ROOT = Path(__file__).parents[3]

pytestmark = pytest.mark.live
LIMIT_S = 400
BEGIN_S = 1_800_000_000  # when a made run begins
EMPTY = {"policies_tried", "latency_foreseen"}  # asked for by an option; nothing was predicted of made runs
VIEWS = (
    {"now": "2027-01-15T08:00:01Z", "stage": "running", "tuples": {"offered": 50, "acked": 20, "duplicates": 3}},
    {"now": "2027-01-15T08:00:09Z", "patch": {"tuples": {"acked": 50}, "events": {
        "7": {"time": "2027-01-15T08:00:07Z", "kind": "vm_lost", "text": "vm2 is silent", "epoch": 1}}}},
)  # fmt: skip


def headgate(*arguments, env=None):
    command = [sys.executable, "-P", "-m", "headgate", *map(str, arguments)]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=LIMIT_S, cwd=ROOT, env={**os.environ, **(env or {})}
    )


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made") / "traces"
    planted = (*USUAL, "leak", "skew")
    wanted = Wanted(rows=120_000, threads=40, epochs=4, segment_rows=20_000, planted=planted)
    truth = generate(folder, wanted, bad=True)
    run = folder / "made" / "run-1"
    last = json.loads((run / "decisions.jsonl").read_text("utf-8").splitlines()[-1])
    came = {"epoch": 2, "decided": last["time"], "in_force": last["time"], "enacted_s": 1.5, "pause_ms": 40.0}
    later = last | {"action": "none", "plan": None, "enacted": came}
    with (run / "decisions.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps(later) + "\n")
    for name, epoch in (("inputs-000001.jsonl.gz", 2), ("inputs.jsonl", 3)):
        line = {"now_ns": [0, 0], "kind": "measured", "event": {"epoch": epoch, "seconds": epoch / 10}}
        text = json.dumps(line, separators=(",", ":")).encode() + b"\n"
        (run / name).write_bytes(gzip.compress(text) if name.endswith("gz") else text)
    steps = [{"from_s": BEGIN_S + n * 30, "to_s": BEGIN_S + n * 30 + 30, "offered_tps": 50.0} for n in (4, 5)]
    (run / "steps.json").write_text(json.dumps({"schema": "headgate/steps/v1", "steps": steps}), "utf-8")
    (run / "views.jsonl").write_text("".join(json.dumps(view) + "\n" for view in VIEWS), "utf-8")
    return folder, truth


@pytest.fixture(scope="module")
def analysed(made):
    """(the analysis, its folder, the process), where no Java is to be found."""
    output = made[0].parent / "out"
    nowhere = {"PATH": str(made[0]), "JAVA_HOME": ""}
    done = headgate("analyze", made[0], "--output", output, "-o", "json", env=nowhere)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), output, done


def of_run(rows):
    return [row for row in rows if row["run"] == "made/run-1"]


def test_predicted_against_actual_is_what_it_truly_is(made, analysed):
    truth = made[1]["runs"][0]["r2"]
    for of in ("cpu", "memory"):
        assert analysed[0][of]["r2"] == pytest.approx(truth[of], abs=1e-6)


def test_every_planted_file_is_listed_by_its_kind(made, analysed):
    listed = {(row["file"], row["kind"]) for row in analysed[0]["left_out"]}
    planted = {(str(made[0] / each["file"]), each["kind"]) for each in made[1]["planted"]}
    assert planted <= listed


def test_all_good_rows_are_there_once(made, analysed):
    without = next(part for part in made[1]["planted"] if part["kind"] == "duplicate")["rows"]
    assert (
        analysed[0]["rows"] == made[1]["rows"] + without
    )  # the run without models holds a copy of one segment
    assert analysed[0]["rows_by_table"]["rates"] == made[1]["runs"][0]["rows"]["rates"]


def test_stability_of_each_epoch_is_what_it_truly_is(made, analysed):
    found = {row["epoch"]: row["stable"] for row in of_run(analysed[0]["stability"])}
    assert found == {each["epoch"]: each["stable"] for each in made[1]["runs"][0]["epochs"]}


def test_interference_is_what_was_put_in(analysed):
    truth = dict(zip(TASKS, zip(COST_S, BESIDE, strict=True), strict=True))
    found = [row for row in of_run(analysed[0]["interference"]) if row["ratio"] is not None]
    assert found
    for row in found:
        cost_s, beside = truth[row["task"]]
        assert row["alone_s_per_tuple"] == pytest.approx(cost_s, rel=0.02)
        assert row["ratio"] == pytest.approx(beside, rel=0.04)


def test_what_grows_is_the_bottleneck(made, analysed):
    growing = [each["epoch"] for each in made[1]["runs"][0]["epochs"] if each["growing"]]
    first = {row["epoch"]: row["task"] for row in of_run(analysed[0]["bottlenecks"]) if row["rank"] == 1}
    assert [first[epoch] for epoch in growing] == ["score"] * len(growing)


def test_the_season_is_found(made, analysed):
    assert of_run(analysed[0]["seasons"])[0]["period_s"] == pytest.approx(
        made[1]["runs"][0]["season_s"], rel=0.05
    )
    learned = read_season(analysed[1] / "seasons" / "made-run-1.json", "made")  # as `up --season` reads it
    assert learned.period_s == pytest.approx(made[1]["runs"][0]["season_s"], rel=0.05)


def test_cost_follows_from_hours_and_prices(made, analysed):
    whole = next(row for row in of_run(analysed[0]["cost"]) if row["epoch"] is None)
    hours = made[1]["runs"][0]["seconds"] / 3600
    assert whole["slot_hours"] == pytest.approx(16 * hours, rel=0.02)
    assert whole["usd"] == pytest.approx(4 * hours * 0.1, rel=0.02)


def test_every_plan_after_the_first_is_a_replan(made, analysed):
    assert [row["epoch"] for row in analysed[0]["replans"]] == [2, 3, 4]


def test_what_came_of_a_plan_is_what_later_decisions_and_all_inputs_say(analysed):
    found = {row["epoch"]: row for row in analysed[0]["replans"]}
    assert [(found[n]["enacted_s"], found[n]["pause_ms"]) for n in (2, 3)] == [(1.5, 40.0), (None, None)]
    assert [found[n]["decided_s"] for n in (2, 3, 4)] == [0.2, 0.3, None]


def test_every_result_table_is_written_and_holds_its_rows(analysed):
    for name, kind in TABLES.items():
        rows = json.loads((analysed[1] / "results" / f"{name}.json").read_text())
        assert bool(rows) == (name not in EMPTY), name
        assert all(set(row) == set(kind.__struct_fields__) for row in rows), name
        assert len(rows) <= 2_500
    printed = dict(analysed[0])
    assert Path(printed.pop("report")).is_file()
    assert json.loads((analysed[1] / "analysis.json").read_text()) == printed


def test_what_the_controller_told_is_told(analysed):
    read = {
        name: of_run(json.loads((analysed[1] / "results" / f"{name}.json").read_text()))
        for name in ("tuples_told", "run_notes")
    }
    names = ("at_s", "offered", "acked", "duplicates", "lost", "over")
    assert [[row[name] for name in names] for row in read["tuples_told"]] == [[8.0, 50, 50, 3, None, False]]
    assert [(note["at_s"], note["kind"], note["text"]) for note in read["run_notes"]] == [
        (6.0, "vm_lost", "vm2 is silent")
    ]


def test_the_steps_that_a_run_was_led_up_are_taken_apart(analysed):
    read = {
        name: json.loads((analysed[1] / "results" / f"{name}.json").read_text())
        for name in ("steps", "step_slots", "rate_windows")
    }
    assert [(row["step"], row["at_s"], row["seconds"]) for row in read["steps"]] == [
        (0, 119, 30),
        (1, 149, 30),
    ]
    for row in read["steps"]:
        inside = [
            w["acked_tps"] for w in of_run(read["rate_windows"]) if row["at_s"] < w["at_s"] < row["at_s"] + 20
        ]
        assert row["achieved_tps"] == pytest.approx(sum(inside) / len(inside), rel=0.1)
        assert row["p50_s"] < row["p99_s"] and row["stable"] is not None
        assert sum(part["tuples"] for part in row["histogram"]) > 0
    slots = {(row["vm"], row["slot"]) for row in read["step_slots"]}
    assert len(read["step_slots"]) == 2 * len(slots) and all(
        0 < row["cpu"] < 1.2 for row in read["step_slots"]
    )


def test_only_the_data_is_on_stdout(analysed):
    lines = analysed[2].stderr.splitlines()
    assert all(line.startswith("analyze: ") for line in lines), lines


def test_strict_stops_with_3_and_lists_everything(made, tmp_path):
    done = headgate("analyze", made[0], "--output", tmp_path / "out", "--set", "strict=yes")
    assert done.returncode == 3
    assert done.stderr.count("\n  - ") >= len(made[1]["planted"])
    assert not (tmp_path / "out").exists()


def test_spark_without_java_says_what_to_install(spark, made, tmp_path):
    nowhere = {"PATH": str(tmp_path), "JAVA_HOME": ""}
    done = headgate("analyze", made[0], "--output", tmp_path / "out", "--master", "local[2]", env=nowhere)
    assert done.returncode == 1
    assert "Java is not installed" in done.stderr
    assert "openjdk" in done.stderr


def test_a_run_is_analysed_and_reported_at_once_and_a_report_alone_needs_an_analysis(tmp_path):
    truth = generate(tmp_path / "traces", Wanted(12_000, threads=20, slots=8))["runs"][0]
    run = tmp_path / "traces" / "made" / "run-1"
    refused = headgate("analyze", run, "--report-only", "--report", tmp_path / "run.html")
    assert refused.returncode == 3 and f"run `headgate analyze {run}`" in refused.stderr
    assert not (tmp_path / "run.html").exists()
    done = headgate("analyze", run, "--report", tmp_path / "run.html")
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "run.html").read_text("utf-8")
    found = re.search(r'<script type="application/json" id="summary">(.*?)</script>', page)
    assert found is not None
    summary = json.loads(found[1])
    assert summary["runs"] == ["made/run-1"] and summary["analysis"]["rows"] == truth["rows"]["samples"]
    assert summary["analysis"]["cpu"]["r2"] == pytest.approx(truth["r2"]["cpu"], abs=0.1)
    kinds = [sentence["kind"] for sentence in summary["story"][0]["sentences"]]
    assert kinds.count("replan") == 5 and "broke" in kinds
    assert (tmp_path / "run-plots" / "timeline.html").exists()
