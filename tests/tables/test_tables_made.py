"""What is put into a made trace is what the views find: overload, a skewed thread, slots that nobody holds."""

from __future__ import annotations

import gzip
import json
import shutil
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from headgate.dashboards import headgate_command as cli
from headgate.dashboards.analytics.analysis_pipeline import AnalysisSettings, run
from headgate.dashboards.tables import trace_files
from headgate.dashboards.tables.sql_queries import lines_of, plain
from headgate.dashboards.tables.table_catalogue import needed
from headgate.topology_runtime.traces.trace_tables import TABLES
from made_traces.generate_trace import Wanted, generate
from made_traces.made_runs import SLOT_CORES

pytest.importorskip("duckdb", reason="DuckDB is not installed: pip install 'headgate[sql]'")

EMPTY, EMPTY_BEFORE = ("vm1", 1), 3  # nobody is in this slot in the first two epochs
SLOTS = 8
PLANNED = {("vm1", 0): 5, ("vm1", 1): 1}  # threads in slots, by a plan of the first epoch that nobody kept to
TIMES = 3  # as many rows as before


class Made:
    """A trace and what is true of it."""

    def __init__(self, folder: Path) -> None:
        planted = ("growing", "beside", "faults")
        wanted = Wanted(rows=24_000, threads=20, slots=SLOTS, epochs=4, segment_rows=4_000, planted=planted)
        self.truth = generate(folder, wanted)
        self.run = folder / "made" / "run-1"
        for file in sorted((self.run / "samples").glob("*.parquet")):
            pq.write_table(self.spoiled(pq.read_table(file)), file)
        placement = [{"vm": vm, "slot": slot, "threads": {"score": n}} for (vm, slot), n in PLANNED.items()]
        line = {"time": "2027-01-15T08:00:00Z", "plan": {"id": "1-1", "placement": placement}}
        (self.run / "plans.jsonl").write_text(json.dumps(line) + "\n")
        self.folder = folder

    def spoiled(self, table: pa.Table) -> pa.Table:
        """The last thread of `score` gets more rows; of one slot the threads are missing."""
        many = pc.and_(pc.equal(table["task"], "score"), pc.equal(table["thread"], self.skewed(table)))
        rows = pc.multiply(table["tuples_in"], pc.if_else(many, TIMES, 1))
        table = table.set_column(table.column_names.index("tuples_in"), "tuples_in", rows)
        gone = pc.and_(pc.equal(table["vm"], EMPTY[0]), pc.equal(table["slot"], EMPTY[1]))
        return table.filter(pc.invert(pc.and_(gone, pc.less(table["epoch"], EMPTY_BEFORE))))

    @staticmethod
    def skewed(table: pa.Table) -> int:
        return int(pc.max(table.filter(pc.equal(table["task"], "score"))["thread"]).as_py())

    def rows(self, table: str) -> list[dict[str, Any]]:
        return [
            row for file in (self.run / table).glob("*.parquet") for row in pq.read_table(file).to_pylist()
        ]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return Made(tmp_path_factory.mktemp("truths") / "traces")


def asked(folder: Path, query: str) -> list[dict[str, Any]]:
    from headgate.dashboards.tables.duckdb_tables import connected
    from headgate.dashboards.tables.sql_queries import answer

    runs, left = trace_files.found(str(folder))
    connection = connected(runs, left, needed(query))
    names, batches = answer(connection, query)
    found = [dict(zip(names, map(plain, line), strict=True)) for line in lines_of(batches)]
    connection.close()
    return found


@pytest.fixture
def ask(made: Made) -> Callable[[str], list[dict[str, Any]]]:
    return partial(asked, made.folder)


Ask = Callable[[str], list[dict[str, Any]]]


def test_a_slot_without_threads_is_not_held_and_costs_nothing(made: Made, ask: Ask) -> None:
    windows = {
        (row["epoch"], row["time"], row["vm"], row["slot"]): row["window_s"] for row in made.rows("slots")
    }
    there = {
        (row["epoch"], row["time"], row["vm"], row["slot"]) for row in made.rows("samples")
    } & windows.keys()
    assert len(there) < len(windows), "else nothing is tried"
    costs = {row["epoch"]: row for row in ask("select * from mart_cost")}
    held_s: dict[int, float] = defaultdict(float)
    vm_s: dict[int, dict[Any, float]] = defaultdict(dict)
    for key in there:
        epoch, when, vm, _ = key
        held_s[epoch] += windows[key]
        vm_s[epoch][when, vm] = windows[key]
    for epoch in held_s:
        assert costs[epoch]["slot_hours"] == pytest.approx(held_s[epoch] / 3600, rel=1e-9)
        assert costs[epoch]["usd"] == pytest.approx(0.1 * sum(vm_s[epoch].values()) / 3600, rel=1e-9)
    assert costs[None]["slot_hours"] == pytest.approx(sum(held_s.values()) / 3600, rel=1e-9)
    plans = {row["epoch"]: row for row in ask("select * from fct_plans")}
    for epoch in held_s:
        all_s = sum(window_s for key, window_s in windows.items() if key[0] == epoch)
        assert plans[epoch]["slots_held"] == pytest.approx(
            held_s[epoch] / all_s * SLOTS, rel=1e-5
        )  # VMs differ so much
    free = ask("select * from fct_slot_seconds where threads = 0")
    assert {(row["vm"], row["slot"]) for row in free} == {EMPTY}
    assert all(row["unexplained_cpu"] == row["cpu"] for row in free)


def test_planned_is_what_the_plan_says_whoever_is_there(ask: Ask) -> None:
    for row in ask("select distinct epoch, vm, slot, planned_threads from fct_slot_seconds"):
        expected = PLANNED.get((row["vm"], row["slot"]), 0) if row["epoch"] == 1 else None
        assert row["planned_threads"] == expected, row


def test_an_overload_is_where_it_hurt_and_its_task_is_who_it_was(made: Made, ask: Ask) -> None:
    growing = {epoch["epoch"] for epoch in made.truth["runs"][0]["epochs"] if epoch["growing"]}
    assert growing, "else nothing is tried"
    worst = ask("select epoch, bottleneck, fell_behind from mart_epochs order by p95_s desc limit 1")[0]
    assert worst["epoch"] in growing and worst["bottleneck"] == "score" and worst["fell_behind"] > 0
    grows = ask("select distinct epoch from mart_bottlenecks where rank = 1 and grows")
    assert {row["epoch"] for row in grows} == growing


LOADS = """
select b.*, b.tuples_in / e.seconds / m.rate_tps as part, s.cpu as planned
from mart_bottlenecks b
join (select epoch, vm, slot, task, count(distinct time) as seconds from samples group by epoch, vm, slot, task) e
  on e.epoch = b.epoch and e.vm = b.vm and e.slot = b.slot and e.task = b.task
join (select vm, slot, epoch, avg(predicted_cpu) as cpu from slots group by vm, slot, epoch) s
  on s.vm = b.vm and s.slot = b.slot and s.epoch = b.epoch
left join (select task, max(rate_tps) as rate_tps from models group by task) m on m.task = b.task
"""


def test_a_load_is_a_part_of_what_saturates(ask: Ask) -> None:
    """What only reserves has none, however busy it is."""
    found = ask(LOADS)
    fixed = [row for row in found if row["part"] is None]
    assert fixed and {row["load"] for row in fixed} == {0.0}
    assert any((row["busy_share"] or row["cpu_share"]) > 0 for row in fixed)
    others = [row for row in found if row["part"] is not None]
    assert others
    for row in others:
        place = row["epoch"], row["vm"], row["slot"]
        here = [one for one in fixed if (one["epoch"], one["vm"], one["slot"]) == place]
        reserved = 0.1 * sum(one["threads"] for one in here)
        most = max(row["part"], (row["planned"] - reserved) / (1 - reserved))
        assert row["load"] == pytest.approx(most, rel=0.1), row


def test_only_threads_of_the_plan_in_force_are_bottlenecks(made: Made, tmp_path: Path) -> None:
    """Those that leave are sampled for a while under the new plan's number."""
    shutil.copytree(made.folder, tmp_path / "traces")
    there = asked(tmp_path / "traces", "select distinct epoch, task, vm, slot from mart_bottlenecks")
    kept = next(row for row in there if row["epoch"] == 1 and row["task"] == "score")
    placement = [{"vm": kept["vm"], "slot": kept["slot"], "threads": {"score": 1}}]
    line = {"time": "2027-01-15T08:00:00Z", "plan": {"id": "1-1", "placement": placement}}
    (tmp_path / "traces" / "made" / "run-1" / "plans.jsonl").write_text(json.dumps(line) + "\n")
    found = asked(tmp_path / "traces", "select distinct epoch, task, vm, slot from mart_bottlenecks")
    assert [row for row in found if row["epoch"] == 1] == [kept]
    assert len([row for row in found if row["epoch"] == 2]) == len([r for r in there if r["epoch"] == 2]) > 1


def test_a_slots_cpu_counts_for_as_long_as_its_window_lasts(made: Made, tmp_path: Path) -> None:
    shutil.copytree(made.folder, tmp_path / "traces")
    for file in (tmp_path / "traces" / "made" / "run-1" / "slots").glob("*.parquet"):
        table = pq.read_table(file)
        short = pc.equal(pc.bit_wise_and(pc.cast(table["time"], pa.int64()), 1 << 20), 0)
        for name, value in {"window_s": 0.1, "cpu": 1.0, "predicted_cpu": 1.0}.items():
            column = pc.if_else(short, value, 1.0 if name == "window_s" else 0.5)
            table = table.set_column(table.column_names.index(name), name, column)
        pq.write_table(table, file)
    query = "select cpu_share, load from mart_bottlenecks where load > 0"
    loads = [row["load"] for row in asked(tmp_path / "traces", query)]
    assert loads and all(row["cpu_share"] < 0.6 for row in asked(tmp_path / "traces", query))
    assert min(loads) < 0.6, "half a slot, but for a tenth of the time at most"


def test_a_thread_with_three_times_the_rows_is_named(made: Made, ask: Ask) -> None:
    found = ask(
        "select epoch, thread, skew, threads from mart_skew where task = 'score' order by epoch, skew desc"
    )
    first = {}
    for row in found:
        first.setdefault(row["epoch"], row)
    planted: dict[int, int] = {}
    for row in made.rows("samples"):
        if row["task"] == "score":
            planted[row["epoch"]] = max(row["thread"], planted.get(row["epoch"], 0))
    assert {epoch: row["thread"] for epoch, row in first.items()} == planted
    for row in first.values():
        others = row["threads"] - 1
        assert row["skew"] == pytest.approx(TIMES * (others + 1) / (TIMES + others), rel=0.05)
    none = ask("select max(skew) as most from mart_skew where task <> 'score' and threads > 1")
    assert none[0]["most"] < 1.1


def test_counts_are_those_of_the_truth(made: Made, ask: Ask) -> None:
    run = made.truth["runs"][0]
    (row,) = ask("select * from mart_runs")
    assert row["offered_tps"] == pytest.approx(run["mean_offered_tps"], abs=1)
    assert row["acked_tps"] == pytest.approx(run["mean_acked_tps"], abs=1)
    assert row["plans"] == len(run["epochs"])
    assert min(run["tuples"][name] for name in ("lost", "replayed", "duplicates")) > 0, (
        "else nothing is tried"
    )
    assert all(
        row[name] == run["tuples"][name] for name in ("lost", "replayed", "duplicates", "dead_lettered")
    )
    (tuples,) = ask("select * from mart_tuples")
    assert all(tuples[name] == many for name, many in run["tuples"].items())
    assert tuples["counted_done"] == sum(rate["acked"] for rate in made.rows("rates"))


def test_counts_are_read_of_every_part_of_the_record(made: Made, ask: Ask) -> None:
    """What is older is kept compressed; a line that is torn is passed over, and said."""
    whole, before = made.run / "views.jsonl", ask("select * from counts order by number")
    lines = whole.read_bytes().splitlines(keepends=True)
    assert len(before) == len(lines) > 50, "else nothing is tried"
    older = made.run / "views-000001.jsonl.gz"
    older.write_bytes(gzip.compress(b"".join(lines[:30])))
    whole.write_bytes(b"".join(lines[30:]) + lines[-1][:40])
    try:
        assert ask("select * from counts order by number") == before
        [left] = ask("select l.*, (select count(*) from counts) as n from left_out l")
        assert (left["kind"], left["rows"]) == ("truncated", 1) and left["file"].endswith("views.jsonl")
    finally:
        older.unlink()
        whole.write_bytes(b"".join(lines))


def test_latencies_of_a_run_are_those_of_its_rows_in_order(made: Made, ask: Ask) -> None:
    (row,) = ask("select * from mart_runs")
    rows = sorted((late["latency_s"], late["tuples"]) for late in made.rows("latency"))
    total, reached, found = sum(tuples for _, tuples in rows), 0.0, {}
    for latency_s, tuples in rows:
        reached += tuples
        for name, share in (("p50_s", 0.50), ("p95_s", 0.95), ("p99_s", 0.99)):
            if reached >= share * total - 1e-6:
                found.setdefault(name, latency_s)
    assert {name: row[name] for name in found} == found and len(found) == 3
    assert row["max_s"] == rows[-1][0]


def weighted(pairs: list[tuple[float, float]]) -> float:
    return sum(value * weight for value, weight in pairs) / sum(weight for _, weight in pairs)


def test_what_no_thread_explains_is_the_mean_over_held_slots(made: Made, ask: Ask) -> None:
    (run,) = ask("select * from mart_runs")
    threads: dict[Any, float] = defaultdict(float)
    for sample in made.rows("samples"):
        threads[sample["time"], sample["vm"], sample["slot"]] += sample["cpu_s"]
    rest: dict[int, list[tuple[float, float]]] = defaultdict(list)
    errors: list[tuple[float, float]] = []
    for slot in made.rows("slots"):
        place = slot["time"], slot["vm"], slot["slot"]
        long_s = slot["window_s"]
        if place in threads:
            rest[slot["epoch"]].append((slot["cpu"] - threads[place] / long_s / SLOT_CORES, long_s))
        if slot["predicted_cpu"] is not None:
            errors.append((abs(slot["cpu"] - slot["predicted_cpu"]), long_s))
    every = [pair for pairs in rest.values() for pair in pairs]
    assert run["unexplained_cpu"] == pytest.approx(weighted(every), rel=1e-9)
    assert run["cpu_error"] == pytest.approx(weighted(errors), rel=1e-9)
    costs = {row["epoch"]: row["unexplained_cpu"] for row in ask("select * from mart_cost")}
    expected = {epoch: weighted(pairs) for epoch, pairs in rest.items()} | {None: weighted(every)}
    assert costs == pytest.approx(expected, rel=1e-9)


# ── The folder of an analysis is asked like the traces that it was made of ──────────────────────────────

pytest.importorskip("duckdb", reason="DuckDB is not installed: pip install 'headgate[sql]'")

DAY = "2027-01-15"
QUESTIONS = (
    "select run, count(*) as n, sum(tuples_in) as tuples from samples group by run order by run",
    "select run, source, second, at_s, acked, behind from fct_rates_per_second order by run, second",
    "select run, seconds, acked, p95_s, round(slot_hours, 9) as slot_hours from mart_runs order by run",
)


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    """Traces, and what an analysis has curated of them."""
    generate(
        tmp_path / "traces", Wanted(rows=4_000, threads=20, slots=8, epochs=2, runs=2, segment_rows=1_000)
    )
    older = next((tmp_path / "traces" / "made" / "run-1" / "latency").glob("*.parquet"))
    pq.write_table(pq.read_table(older).drop_columns(["tuples"]), older)
    run([tmp_path / "traces"], tmp_path / "out", AnalysisSettings(memory="1g"))
    return tmp_path / "traces", tmp_path / "out"


@pytest.mark.parametrize("question", QUESTIONS)
def test_it_answers_as_its_traces_do(
    folders: tuple[Path, Path], capsys: pytest.CaptureFixture[str], question: str
) -> None:
    answers = []
    for folder in folders:
        assert cli.main(["sql", str(folder), question, "-o", "json"]) == 0
        answers.append(json.loads(capsys.readouterr().out))
    assert answers[0] == answers[1] and answers[0]


def test_what_it_does_not_know_is_said(
    folders: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["sql", str(folders[1]), "select count(*) as n from models", "-o", "csv"]) == 0
    said = capsys.readouterr()
    assert said.out == "n\n0\n" and said.err.count("an analysis keeps no heads of runs") == 2


def test_curated_tables_are_files_by_topology_run_and_date(folders: tuple[Path, Path]) -> None:
    curated = folders[1] / "curated"
    files = sorted(curated.rglob("*.parquet"))
    for table in ("samples", "slots", "rates", "latency", "links"):
        mine = [file for file in files if file.is_relative_to(curated / table)]
        days = {str(file.parent.relative_to(curated / table)) for file in mine}
        assert days == {f"topology=made/run=run-{n}/date={DAY}" for n in (1, 2)}, table
        rows = sum(
            pq.read_metadata(file).num_rows for file in (folders[0] / "made").glob(f"*/{table}/*.parquet")
        )
        found = [pq.read_metadata(file) for file in mine]
        assert sum(one.num_rows for one in found) == rows
        assert all(one.schema.names == list(TABLES[table]) for one in found)
        assert sum(file.name.startswith("data_") for file in mine) == (table == "latency"), (
            "the others are linked"
        )


def test_a_folder_without_curated_rows_is_no_analysis(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "curated" / "samples").mkdir(parents=True)
    assert cli.main(["sql", str(tmp_path), "select 1"]) == 3
    (tmp_path / "curated" / "samples" / "topology=a" / "run=b" / "date=c").mkdir(parents=True)
    (tmp_path / "curated" / "samples" / "topology=a" / "run=b" / "date=c" / "x.parquet").write_text("{")
    assert cli.main(["sql", str(tmp_path), "select 1"]) == 3
    assert "holds no run" in capsys.readouterr().err
