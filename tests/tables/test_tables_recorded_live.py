"""Views on real runs: what they say is what the run itself has said and what a recount from its files gives, which
shares no SQL and no module with them; the page's questions are answered."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import defaultdict
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import psutil
import pyarrow.parquet as pq
import pytest
from patience import PATIENCE_S
from runs_to_ask import HEADGATE, recorded

pytest.importorskip("duckdb", reason="DuckDB is not installed: pip install 'headgate[sql]'")
pytestmark = pytest.mark.live

ROOT = Path(__file__).parents[2]
Row = dict[str, Any]


class Recorded:
    """The two runs: their folder, their summaries, and the rows of their Parquet files as they are."""

    def __init__(self, folder: Path) -> None:
        self.summaries = recorded(folder)
        self.traces = folder / "traces"
        self.keys = [f"doubles/{summary['run']}" for summary in self.summaries]

    def folder(self, key: str) -> Path:
        return self.traces / key

    def rows(self, key: str, table: str) -> list[Row]:
        return [
            row for file in sorted((self.folder(key) / table).glob("[0-9]*.parquet"))
            for row in pq.read_table(file).to_pylist()
        ]  # fmt: skip

    def lines(self, key: str, name: str) -> list[Row]:
        return [json.loads(line) for line in (self.folder(key) / name).read_text().splitlines()]

    def asked(self, query: str) -> list[Row]:
        done = subprocess.run(
            [*HEADGATE, "sql", str(self.traces), query, "-o", "json"],
            capture_output=True, text=True, timeout=PATIENCE_S,
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
        found: list[Row] = json.loads(done.stdout)
        return found

    def of_run(self, query: str) -> dict[str, list[Row]]:
        found: dict[str, list[Row]] = defaultdict(list)
        for row in self.asked(query):
            found[row["run"]].append(row)
        assert sorted(found) == sorted(self.keys)
        return found


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    return Recorded(tmp_path_factory.mktemp("recorded"))


def test_what_became_of_tuples_is_what_the_run_says_and_its_files_add_up_to(runs: Recorded) -> None:
    found = runs.of_run("select * from mart_tuples")
    for key, summary in zip(runs.keys, runs.summaries, strict=True):
        (row,), told = found[key], summary["tuples"]
        names = (
            "offered",
            "emitted",
            "acked",
            "in_flight",
            "lost",
            "dead_lettered",
            "replayed",
            "duplicates",
        )
        assert {name: row[name] for name in names} == {name: told[name] for name in names}
        rates, late = runs.rows(key, "rates"), runs.rows(key, "latency")
        assert row["counted_emitted"] == sum(rate["emitted"] for rate in rates)
        assert (
            row["counted_done"]
            == sum(rate["acked"] for rate in rates)
            == told["acked"] + told["dead_lettered"]
        )
        assert row["finished"] == pytest.approx(sum(one["tuples"] for one in late), rel=1e-9)
        assert row["finished"] == pytest.approx(told["sinks"]["store"]["rows"], abs=1e-6)
    first = runs.summaries[0]["tuples"]
    assert first["replayed"] > 0 and first["duplicates"] > 0 and first["dead_lettered"] == 1, (
        "else nothing is tried"
    )


def test_plans_are_those_of_the_run_with_the_slots_of_their_files(runs: Recorded) -> None:
    found = runs.of_run("select * from fct_plans order by epoch")
    for key, summary in zip(runs.keys, runs.summaries, strict=True):
        plans = {line["plan"]["id"]: line["plan"] for line in runs.lines(key, "plans.jsonl")}
        assert [row["epoch"] for row in found[key]] == [plan["epoch"] for plan in summary["plans"]]
        for row, told in zip(found[key], summary["plans"], strict=True):
            assert (row["reason"], row["slots_planned"]) == (told["reason"], told["slots"])
            assert row["slots_planned"] == len(
                [slot for slot in plans[row["plan"]]["placement"] if slot["threads"]]
            )
            assert row["rate_tps"] == pytest.approx(told["rate_tps"], abs=1e-3)
            assert row["enacted_s"] == told["enacted_s"] and row["pause_ms"] == told["pause_ms"]


def test_slots_are_held_as_the_samples_say(runs: Recorded) -> None:
    """Slots with threads over time, and what they cost."""
    costs = runs.of_run("select * from mart_cost")
    plans = runs.of_run("select * from fct_plans")
    for key in runs.keys:
        windows = {(row["epoch"], row["vm"], row["time"]): row["window_s"] for row in runs.rows(key, "slots")}
        there = {(row["epoch"], row["vm"], row["time"], row["slot"]) for row in runs.rows(key, "samples")}
        held_s: dict[int, float] = defaultdict(float)
        lengths_s: dict[int, float] = defaultdict(float)
        for epoch, vm, when, _ in there:
            held_s[epoch] += windows.get((epoch, vm, when), 0.0)  # of a last moment there are samples alone
        for (epoch, _, _), window_s in windows.items():  # there is one VM
            lengths_s[epoch] += window_s
        for row in plans[key]:
            expected = held_s[row["epoch"]] / lengths_s[row["epoch"]]
            assert row["slots_held"] == pytest.approx(expected, rel=1e-9)
        for row in costs[key]:
            hours = sum(held_s.values()) if row["epoch"] is None else held_s[row["epoch"]]
            assert row["slot_hours"] == pytest.approx(hours / 3600, rel=1e-9)
        acked = {row["epoch"]: row["acked"] for row in costs[key]}
        assert acked.pop(None) == sum(acked.values())


def test_every_slot_second_is_planned_and_explained_as_its_files_say(runs: Recorded) -> None:
    found = runs.of_run("select * from fct_slot_seconds")
    for key in runs.keys:
        head = json.loads((runs.folder(key) / "run.json").read_text())
        cores = {vm["vm"]: vm["slot_cores"] for vm in head["vms"]}
        plans = {line["plan"]["id"]: line["plan"] for line in runs.lines(key, "plans.jsonl")}
        of_epoch = {
            line["epoch"]: plans[line["plan"]["id"]]
            for line in runs.lines(key, "decisions.jsonl")
            if line["plan"]
        }
        planned = {
            (epoch, slot["vm"], slot["slot"]): sum(slot["threads"].values())
            for epoch, plan in of_epoch.items() for slot in plan["placement"]
        }  # fmt: skip
        threads: dict[Any, list[float]] = defaultdict(list)
        for row in runs.rows(key, "samples"):
            threads[row["vm"], row["slot"], row["time"]].append(row["cpu_s"])
        slots = {(row["vm"], row["slot"], row["time"]): row for row in runs.rows(key, "slots")}
        assert len(found[key]) == len(slots)
        for row in found[key]:
            when = datetime.fromisoformat(row["time"])
            raw, mine = slots[row["vm"], row["slot"], when], threads[row["vm"], row["slot"], when]
            assert row["threads"] == len(mine)
            assert row["planned_threads"] == planned.get((row["epoch"], row["vm"], row["slot"]), 0)
            if raw["window_s"] < 0.1 or row["cpu"] is None:  # too short, or its process ended
                assert row["unexplained_cpu"] is None
                continue
            explained = sum(mine) / raw["window_s"] / cores[row["vm"]]
            assert row["unexplained_cpu"] == pytest.approx(raw["cpu"] - explained, rel=1e-9, abs=1e-12)


def quantile(pairs: list[tuple[float, float]], share: float) -> float:
    """Of values with weights."""
    total, upto = sum(weight for _, weight in pairs), 0.0
    for value, weight in sorted(pairs):
        upto += weight
        if upto >= share * total - 1e-6:
            return value
    raise AssertionError("there is nothing")


def test_latency_of_epochs_and_runs(runs: Recorded) -> None:
    epochs = runs.of_run("select * from mart_epochs")
    whole = runs.of_run("select * from mart_runs")
    for key in runs.keys:
        late = runs.rows(key, "latency")
        for row in epochs[key]:
            here = [(one["latency_s"], one["tuples"]) for one in late if one["epoch"] == row["epoch"]]
            assert row["p95_s"] == quantile(here, 0.95) and row["max_s"] == max(here)[0]
            rates = [one for one in runs.rows(key, "rates") if one["epoch"] == row["epoch"]]
            assert row["fell_behind"] == sum(one["offered"] - one["acked"] for one in rates)
        every = [(one["latency_s"], one["tuples"]) for one in late]
        assert [whole[key][0][f"p{n}_s"] for n in (50, 95, 99)] == [
            quantile(every, n / 100) for n in (50, 95, 99)
        ]


def test_hops_and_skew(runs: Recorded) -> None:
    hops = runs.of_run("select * from fct_hops")
    skew = runs.of_run("select * from mart_skew")
    for key in runs.keys:
        links, samples = runs.rows(key, "links"), runs.rows(key, "samples")
        names = {(row["epoch"], row["from_task"], row["to_task"]) for row in links}
        assert {(row["epoch"], row["from_task"], row["to_task"]) for row in hops[key]} == names
        for row in hops[key]:
            here = [
                one for one in links
                if all(one[name] == row[name] for name in ("epoch", "from_task", "to_task"))
            ]  # fmt: skip
            assert row["tuples"] == sum(one["tuples"] for one in here)
            frames = sum(one["frames"] for one in here)
            buffered = (
                sum(one["buffer_latency_s"] * one["frames"] for one in here) / frames if frames else None
            )
            assert row["buffer_s"] == pytest.approx(buffered, rel=1e-9)
        settled = [one for one in samples if in_force(runs.lines(key, "decisions.jsonl"), samples, one)]
        of: dict[tuple[int, str, int], tuple[int, float]] = defaultdict(lambda: (0, 0.0))
        for one in settled:
            tuples, seconds = of[one["epoch"], one["task"], one["thread"]]
            of[one["epoch"], one["task"], one["thread"]] = (
                tuples + one["tuples_in"],
                seconds + one["window_s"],
            )
        assert {(row["epoch"], row["task"], row["thread"]) for row in skew[key]} == of.keys() and of
        shares = planned_shares(runs, key)
        for row in skew[key]:
            tuples, seconds = of[row["epoch"], row["task"], row["thread"]]
            assert (row["tuples_in"], row["seconds"]) == (tuples, pytest.approx(seconds, rel=1e-9))
            its = [
                n / s
                for (epoch, task, _), (n, s) in of.items()
                if (epoch, task) == (row["epoch"], row["task"])
            ]
            assert row["planned_share"] == pytest.approx(
                shares[row["epoch"], row["task"], row["slot"]], rel=1e-9
            )
            expected = tuples / seconds / sum(its) / row["planned_share"] if sum(its) else None
            assert row["skew"] == (None if expected is None else pytest.approx(expected, rel=1e-9))


def planned_shares(runs: Recorded, key: str) -> dict[tuple[int, str, int], float]:
    """(epoch, task, slot of the one VM) → share of each of its threads there."""
    plans = {line["plan"]["id"]: line["plan"] for line in runs.lines(key, "plans.jsonl")}
    found = {}
    for line in runs.lines(key, "decisions.jsonl"):
        if not line["plan"]:
            continue
        plan = plans[line["plan"]["id"]]
        threads = {
            (slot["slot"], task): n for slot in plan["placement"] for task, n in slot["threads"].items()
        }
        for one in plan["prediction"]["shares"]:
            slot, task = one["slot"], one["task"]
            found[line["epoch"], task, slot] = one["share"] / threads[slot, task]
    return found


def in_force(decisions: list[Row], samples: list[Row], one: Row) -> bool:
    """Of a plan that has been in force for a second, of a thread that is neither new nor gone, and not too short."""
    begin = one["time"] - timedelta(seconds=one["window_s"])
    epoch = [row["time"] for row in samples if row["epoch"] == one["epoch"]]
    mine = [row["time"] for row in samples if (row["epoch"], row["thread"]) == (one["epoch"], one["thread"])]
    later = [row["time"] for row in samples if row["epoch"] > one["epoch"]]
    told = [
        line["enacted"]["in_force"]
        for line in decisions
        if (line["enacted"] or {}).get("epoch") == one["epoch"]
    ]
    since = max([min(epoch), *(datetime.fromisoformat(at) for at in told)]) + timedelta(seconds=1)
    over = bool(later) and one["time"] >= min(later)
    return (
        begin >= since
        and one["time"] > min(mine)
        and not over
        and one["window_s"] >= 0.1
        and one["memory_bytes"] > 0
    )


def test_what_changed_is_the_difference_of_both_runs(runs: Recorded) -> None:
    both = runs.of_run("select * from mart_runs")
    first, second = (both[key][0] for key in runs.keys)
    changes = [row for row in runs.asked("select * from mart_changes") if row["run"] == runs.keys[1]]
    assert changes and all(row["latest"] and row["previous_run"] == runs.keys[0] for row in changes)
    assert {row["metric"] for row in changes} <= first.keys()
    for row in changes:
        before, now = first[row["metric"]], second[row["metric"]]
        assert (row["previous"], row["value"]) == (pytest.approx(before), pytest.approx(now))
        if before is not None and now is not None:
            assert row["change"] == pytest.approx(now - before)
    assert next(row for row in changes if row["metric"] == "duplicates")["change"] < 0


def questions() -> dict[str, str]:
    """Those of the page, each with its line of SQL."""
    text = (
        (ROOT / "docs" / "reference" / "tables.md")
        .read_text("utf-8")
        .partition("## Five questions")[2]
        .partition("<!--")[0]
    )
    found = re.findall(r"\*\*([^*]+\?)\*\*[^`]*```sql\n(.*)\n```", text)
    assert len(found) == 5
    return dict(found)


def test_the_five_questions_have_an_answer(runs: Recorded) -> None:
    answers = {question: runs.asked(query) for question, query in questions().items()}
    hurt, who, helped, cost, changed = answers.values()
    late = {
        (key, epoch): quantile([(r["latency_s"], r["tuples"]) for r in rows if r["epoch"] == epoch], 0.95)
        for key in runs.keys for rows in [runs.rows(key, "latency")] for epoch in {row["epoch"] for row in rows}
    }  # fmt: skip
    worst = max(late, key=lambda one: late[one])
    assert [(row["run"], row["epoch"], row["p95_s"]) for row in hurt] == [(*worst, late[worst])]
    assert [(row["run"], row["epoch"]) for row in who] == [worst]
    assert who[0]["task"] in {"numbers", "double", "more", "store"}
    assert {row["task"] for row in helped} == {"numbers", "double", "more", "store"}
    assert [row["run"] for row in cost] == runs.keys and all(row["usd"] == 0 for row in cost)
    assert {row["run"] for row in changed} == {runs.keys[1]} and "offered_tps" in {
        row["metric"] for row in changed
    }


def test_ctrl_c_ends_a_query_that_works(runs: Recorded) -> None:
    query = "select count(*) as n from range(1000000) a, range(10000000) b where (a.range * b.range) % 7 = 3"
    with subprocess.Popen(
        [*HEADGATE, "sql", str(runs.traces), query], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as asked:
        cpu, deadline_s = psutil.Process(asked.pid), time.monotonic() + PATIENCE_S
        while cpu.cpu_times().user < 3.0:  # it started long ago and works
            assert time.monotonic() < deadline_s
            time.sleep(0.1)
        asked.send_signal(signal.SIGINT)
        out, err = asked.communicate(timeout=10)
    assert (asked.returncode, out, err.strip()) == (130, b"", b"")


def test_the_notebook_runs(runs: Recorded, tmp_path: Path) -> None:
    """In a kernel of its own; every answer has rows, and the chart is drawn."""
    notebook = ROOT / "docs" / "notebooks" / "runs.ipynb"
    code = "import sys, nbformat\nfrom nbclient import NotebookClient\nbook = nbformat.read(sys.argv[1], 4)\n"
    code += "NotebookClient(book, timeout=120, kernel_name='python3').execute()\nnbformat.write(book, sys.argv[2])"
    done = subprocess.run(
        [sys.executable, "-P", "-c", code, str(notebook), str(tmp_path / "run.ipynb")],
        capture_output=True, text=True, timeout=PATIENCE_S, env={**os.environ, "HEADGATE_TRACES": str(runs.traces)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    cells = [
        cell
        for cell in json.loads((tmp_path / "run.ipynb").read_text())["cells"]
        if cell["cell_type"] == "code"
    ]
    for cell in cells:
        data = next(out["data"] for out in cell["outputs"] if "data" in out)
        drawn = "".join(data.get("text/html", ""))
        assert drawn.count("<tr>") > 1 or "application/vnd.plotly.v1+json" in data, cell["source"]
    assert not any(cell["outputs"] for cell in json.loads(notebook.read_text())["cells"] if "outputs" in cell)
