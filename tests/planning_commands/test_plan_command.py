"""`headgate plan`: what it prints, which VMs it plans with, what it may cost, and what it refuses."""

from __future__ import annotations

import csv
import io
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scene import COUNT, FLOW, Scene

from headgate.controller.planning_commands import plan_request as asking
from headgate.topology_runtime.api.cluster import SLOT_CORES, SLOT_MEMORY_BYTES
from headgate.topology_runtime.measuring import model_store as store
from headgate.topology_runtime.tasks import demo
from headgate.topology_runtime.traces.trace_tables import TABLES

PLAN_KEYS = [
    "schema", "topology", "rate_tps", "allocator", "mapper", "routing", "id", "base_epoch", "topology_digest",
    "models_digest", "allocation", "slots", "vms", "placement", "prediction",
]  # fmt: skip


def sizes(plan):
    return [vm["slots"] for vm in plan["vms"]]


def test_the_plan_has_what_the_contract_names(scene):
    plan = scene.plan("--rate", "100")
    assert plan.keys() >= set(PLAN_KEYS)
    assert (plan["schema"], plan["topology"], plan["rate_tps"]) == ("headgate/plan/v1", "flow", 100.0)
    assert (plan["allocator"], plan["mapper"], plan["routing"]) == ("mba", "sam", "weighted")
    assert plan["base_epoch"] is None
    parse = next(task for task in plan["allocation"] if task["task"] == "parse")
    assert (parse["threads"], parse["rate_tps"], parse["cpu_slots"]) == (4, 100.0, 1.0)
    assert plan["slots"].keys() == {"estimated", "extra", "total", "used"}
    assert all(
        vm.keys() >= {"vm", "slots", "usd_per_hour", "rack", "speed", "slot_memory_bytes"}
        for vm in plan["vms"]
    )
    placed = [entry["threads"] for entry in plan["placement"]]
    assert {"parse": 4} in placed and sum(entry.get("count", 0) for entry in placed) == 1
    prediction = plan["prediction"]
    assert prediction["rate_tps"] >= 100.0 and prediction["limited_by"] == "parse"
    assert {"vm", "slot", "cpu", "memory"} <= prediction["slots"][0].keys()
    assert {"vm", "cpu", "memory"} <= prediction["vms"][0].keys()


def test_people_get_a_sentence_and_tables(scene):
    text = scene.run("plan", "--rate", "100")
    assert text.startswith(
        "flow at 100 rows/s (mba+sam, weighted): 2 slots on 1 VM (2 slots), $0.196 per hour; "
    )
    assert "limited by parse in slot vm1/" in text.splitlines()[0]
    for words in ("allocation", "slots at 100 rows/s", "parse 4 (full bundle)", "VMs", "fixed size"):
        assert words in text


def test_csv_and_json_lines_have_the_slots(scene):
    rows = list(csv.DictReader(io.StringIO(scene.run("plan", "--rate", "100", "-o", "csv"))))
    lines = [json.loads(line) for line in scene.run("plan", "--rate", "100", "-o", "jsonl").splitlines()]
    assert [row["slot"] for row in rows] == [str(line["slot"]) for line in lines] == ["0", "1"]


def test_vms_of_the_sizes_that_there_are(scene):
    assert sizes(scene.plan("--rate", "200")) == [4]
    assert sizes(scene.plan("--rate", "200", "--vm-sizes", "2,1")) == [2, 2]
    assert sizes(scene.plan("--rate", "400", "--vm-sizes", "8,4", "--mix", "covering")) == [8]
    assert sizes(scene.plan("--rate", "400")) == [4, 2, 1]
    assert scene.plan("--rate", "200")["usd_per_hour"] == 0.392


def test_fixed_vms_all_belong_to_the_plan(scene):
    plan = scene.plan("--rate", "100", "--vms", "2,4@west")
    assert sizes(plan) == [2, 4] and [vm["rack"] for vm in plan["vms"]] == ["r1", "west"]
    assert plan["slots"]["total"] == 6 and plan["slots"]["used"] == 2


def test_so_many_fixed_slots_are_cut_into_the_sizes(scene):
    assert sizes(scene.plan("--rate", "100", "--slots", "7")) == [4, 2, 1]
    assert sizes(scene.plan("--rate", "100", "--slots", "6", "--vm-sizes", "3")) == [3, 3]


def test_what_does_not_fit_fixed_vms_ends_4(scene):
    scene.run("plan", "--rate", "1000", "--vms", "1,1", code=4)
    assert "no plan for 1,000 rows/s fits into 2 slots" in scene.err


def nearest_told(scene: Scene) -> float:
    return float(scene.err.split("try: a plan for ")[1].split()[0].replace(",", ""))


@pytest.mark.parametrize("vms", ["--vms=1,1", "--vms=1x0.5,2x2", "--slots=3"])
@pytest.mark.parametrize(
    "how", [(), ("--mapper", "rsm"), ("--p95", "60s"), ("--sure", "0.9"), ("--planner", "optimal")]
)
def test_a_rate_that_does_not_fit_is_told_with_the_highest_that_does(
    scene: Scene, vms: str, how: tuple[str, ...]
):
    scene.run("plan", "--rate", "1234.5678", vms, *how, "-o", "json", code=4)
    nearest = nearest_told(scene)
    scene.plan("--rate", str(nearest), vms, *how)
    if how != ("--planner", "optimal"):  # it is searched for by a quick pair, so it may carry more
        scene.run("plan", "--rate", str(nearest * 1.01), vms, *how, code=4)


def test_a_task_of_one_thread_bounds_the_rate_whatever_is_acquired(scene: Scene):
    alone = [task | ({"exclusive": True} if task["name"] == "parse" else {}) for task in FLOW["tasks"]]
    scene.topology({**FLOW, "tasks": alone})
    scene.run("plan", "--rate", "77", code=4)
    assert "its one thread carries 50 rows/s, not 77" in scene.err
    nearest = nearest_told(scene)
    assert 49.7 <= nearest <= 50
    scene.plan("--rate", str(nearest))
    scene.run("plan", "--explain", "--rate", "77", code=4)
    assert nearest_told(scene) == nearest


def test_no_rate_is_told_where_none_fits(scene: Scene):
    """Of memory the nearest is a size of slots."""
    large = {"points": [{**COUNT[0], "memory": 1.5}], "measured_at": "2026-12-01T00:00:00Z"}
    scene.write("models/count.json", {"schema": "headgate/model/v1", "task": "count", **large})
    for vms in ((), ("--slots", "4")):
        scene.run("plan", "--rate", "10", *vms, code=4)
        assert "task 'count' holds 5,376 MiB in one thread, a slot has 3,584" in scene.err
        assert "try: larger slots: `up --set slot-memory=" in scene.err


def test_fixed_vms_have_a_speed(scene):
    line = "--rate", "100", "-o", "json"
    usual, fast = scene.plan(*line, "--vms", "8,8"), scene.plan(*line, "--vms", "8x2,8x0.5@r2:1000")
    assert [(vm["slots"], vm.get("speed", 1.0), vm["rack"]) for vm in fast["vms"]] == [
        (8, 2.0, "r1"),
        (8, 0.5, "r2"),
    ]
    assert fast["slots"]["used"] < usual["slots"]["used"]
    assert scene.plan("--rate", "100", "--vms", "1x100")["vms"][0]["speed"] == 100
    scene.run("plan", "--rate", "100", "--vms", "40x0.01", code=4)
    assert "no plan for 100 rows/s fits into 40 slots" in scene.err and "; no rate fits: " in scene.err
    scene.run("plan", "--max-rate", "--rate-step", "fine", "--vms", "4x0.01", code=4)
    assert "rows/s fits into 4 slots" in scene.err
    scene.run("plan", "--rate", "1", "--vms", "4x0,4x-1,4xnan,4xinf,4x1001,4xfast,4x,x2,0x1:no", code=2)
    for text in ("0", "-1", "nan", "inf", "1001"):
        assert f"'4x{text}': expected a speed above 0 and at most 1000, got {text}" in scene.err
    assert "'4xfast': 'fast' is not a speed, such as 0.5" in scene.err
    assert "'x2' is not SLOTS" in scene.err


def test_the_highest_rate_that_plans_on_fixed_vms(scene):
    plan = scene.plan("--max-rate", "--rate-step", "50", "--slots", "4")
    assert plan["rate_tps"] % 50 == 0
    scene.run("plan", "--rate", str(plan["rate_tps"] + 50), "--slots", "4", code=4)


def test_other_allocators_mappers_and_routings(scene):
    plan = scene.plan("--rate", "100", "--allocator", "lsa", "--mapper", "rsm", "--routing", "shuffle",
                      "--interference", "none", "--rsm-weights", "1,2,0.5")  # fmt: skip
    assert (plan["allocator"], plan["mapper"]) == ("lsa", "rsm")
    assert (plan["routing"], plan["interference"]) == ("shuffle", "none")


def test_greedy_matching_takes_what_the_paper_leaves_to_the_user(scene):
    line = "--rate", "100", "--mapper", "greedy-matching", "--slots", "20"
    evenly = scene.plan(*line)
    assert scene.plan(*line, "--set", "greedy-bounds=1,inf,deviation")["placement"] == evenly["placement"]
    for bounds in ("0.4", "1,0.5", "1,inf,utilization", "1,inf,deviation,0"):
        assert scene.plan(*line, "--set", f"greedy-bounds={bounds}")["placement"] != evenly["placement"]


def test_lsa_reserves_no_bundles_so_sam_cannot_map_them(scene):
    assert scene.plan("--rate", "100", "--allocator", "lsa")["mapper"] == "rsm"
    scene.run("plan", "--rate", "100", "--allocator", "lsa", "--mapper", "sam", code=3)
    assert "sam maps the bundles that mba reserves" in scene.err


def test_too_dear_ends_4_and_says_what_fits(scene):
    scene.run("plan", "--rate", "400", "--max-usd-per-hour", "0.2", code=4)
    assert "more than the $0.2 allowed" in scene.err
    assert "2 slots for $0.196 carry about" in scene.err
    said = float(scene.err.split("carry about ")[1].split()[0])
    assert scene.plan("--rate", str(said), "--max-usd-per-hour", "0.2")["usd_per_hour"] <= 0.2


def test_a_cap_that_buys_nothing_says_so(scene):
    scene.run("plan", "--rate", "400", "--max-usd-per-hour", "0.01", code=4)
    assert "no rate fits the cap, one VM costs $0.098" in scene.err


def test_fixed_vms_that_are_too_dear(scene):
    scene.run("plan", "--rate", "100", "--vms", "2,2,2", "--max-usd-per-hour", "0.4", code=4)
    assert "4 slots for $0.392 carry about 100" in scene.err


def test_a_broken_plan_is_never_printed(scene, monkeypatch):
    monkeypatch.setattr("headgate.controller.plan.verifier.faults_of", lambda *_: ["slot vm1/0: is wrong"])
    scene.run("plan", "--rate", "100", "-o", "json", code=1)
    assert "  - slot vm1/0: is wrong" in scene.err and "breaks rules" in scene.err
    assert asking.check.__doc__


def test_a_shipped_example_has_models_of_its_own(scene):
    plan = json.loads(scene.headgate("plan", "linear", "--rate", "100", "-o", "json"))
    assert plan["slots"]["estimated"] == 7
    assert "models: the published ones" in scene.err


def test_a_price_list_by_its_word(scene):
    plan = scene.plan("--rate", "200", "--prices", "azure-d")
    assert plan["usd_per_hour"] == 0.392
    scene.run("plan", "--rate", "200", "--prices", "azure-e", code=3)
    assert "did you mean 'azure-d'" in scene.err


# ── moving little ───────────────────────────────────────────────────────────────────────────────


def test_a_plan_over_its_own_base_moves_nothing(scene):
    base = scene.write("base.json", scene.plan("--rate", "200"))
    plan = scene.plan("--rate", "200", "--base", base)
    assert plan["changes"]["changed"] is False
    assert plan["placement"] == json.loads((scene.folder / "base.json").read_text())["placement"]


def test_a_plan_over_a_base_keeps_threads_and_names(scene):
    base = scene.plan("--rate", "200")
    text = scene.run("plan", "--rate", "400", "--base", scene.write("base.json", base))
    assert "changes" in text and "+ vm2" in text
    plan = scene.plan("--rate", "400", "--base", str(scene.folder / "base.json"))
    assert plan["changes"]["threads"]["stop"] == 0
    assert plan["changes"]["threads"]["move"] <= 1
    assert plan["vms"][0] == base["vms"][0]


def test_fewer_slots_keep_the_vm_whose_threads_are_desired(scene):
    """Acquired anew, vm1 would carry what vm2 carries now."""
    base = scene.plan("--rate", "200", "--vm-sizes", "4")
    base["vms"].insert(0, {**base["vms"][0], "vm": "vm0"})
    base["slots"]["total"] += 4
    plan = scene.plan("--rate", "200", "--vm-sizes", "4", "--base", scene.write("base.json", base))
    assert [vm["vm"] for vm in plan["vms"]] == ["vm1"]
    assert plan["changes"]["threads"]["move"] == 0


def test_a_base_of_another_topology_is_refused(scene):
    base = scene.plan("--rate", "200") | {"topology": "other"}
    scene.run("plan", "--rate", "200", "--base", scene.write("base.json", base), code=3)
    assert "is a plan of 'other', not of 'flow'" in scene.err


# ── what is refused ─────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("rate", ["0", "-5", "nan", "inf", "-inf"])
def test_a_rate_that_is_none(scene, rate):
    finite = rate in ("0", "-5")
    scene.run("plan", f"--rate={rate}", code=3 if finite else 2)
    said = "--rate: expected 1e-06 to 1e+12 rows/s, got" if finite else f"{rate} is not a finite number"
    assert said in scene.err
    scene.run("plan", "--max-rate", "--slots", "4", f"--rate-step={rate}", code=3)
    assert "--rate-step: expected" in scene.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "no input rate given"),
        (["--rate", "x"], "not a valid float"),
        (["--rate", "1", "--max-rate"], "exclude each other"),
        (["--rate", "1", "--rate-step", "5"], "--rate-step needs --max-rate"),
        (["--max-rate"], "--max-rate needs fixed VMs"),
        (["--rate", "1", "--vms", "4", "--slots", "4"], "--vms and --slots exclude each other"),
        (["--rate", "1", "--vms", "4", "--vm-sizes", "4"], "--vms and --vm-sizes exclude each other"),
        (["--rate", "1", "--vms", "4", "--prices", "azure-d"], "--vms and --prices exclude each other"),
        (["--rate", "1", "--vm-sizes", "4", "--prices", "azure-d"], "exclude each other"),
        (["--rate", "1", "--vms", "4,x,0,2@@"], "'x' is not SLOTS or SLOTS@RACK"),
        (["--rate", "1", "--vms", ""], "'' is not SLOTS"),
        (["--rate", "1", "--vms", "4", "--mix", "exact"], "--mix and --vms exclude each other"),
        (["--rate", "1", "--vm-sizes", "4,-1"], "'-1' is not a number of slots"),
        (["--rate", "1", "--slots", "0"], "0 is not in the range"),
        (["--rate", "1", "--rsm-weights", "1,2"], "is not three numbers"),
        (["--rate", "1", "--rsm-weights", "1,2,nan"], "not finite and at least 0"),
        (
            ["--rate", "1", "--set", "greedy-bounds=0.9,1,evenly"],
            "no 'evenly', there are deviation, utilization",
        ),
        (["--rate", "1", "--set", "greedy-bounds=1.5,nan"], "from 0 to 1, got 1.5"),
        (["--rate", "1", "--set", "greedy-bounds=1,1,deviation,1,1"], "is not CPU,BANDWIDTH"),
    ],
)
def test_a_line_that_makes_no_sense_ends_2(scene, words, said):
    scene.run("plan", *words, code=2)
    assert said in scene.err


def test_choices_that_there_are_not_are_all_named(scene):
    scene.run("plan", "--rate", "1", "--allocator", "mbaa", "--mapper", "same", "--routing", "wieghted",
              "--interference", "ram", code=3)  # fmt: skip
    for near in (
        "did you mean 'mba'",
        "did you mean 'sam'",
        "did you mean 'weighted'",
        "--interference: no 'ram'",
    ):
        assert near in scene.err


def test_a_price_that_is_none(scene):
    scene.run("plan", "--rate", "1", "--max-usd-per-hour=-1", code=2)
    assert "-1.0 is not in the range x>=0" in scene.err
    scene.run("plan", "--rate", "1", "--max-usd-per-hour", "nan", code=2)
    assert "nan is not a finite number" in scene.err


def test_without_models_only_examples_are_planned(scene):
    scene.headgate("plan", str(scene.folder / "flow.json"), "--rate", "1", code=2)
    assert "no models are known of this topology" in scene.err


def test_prices_of_a_file_of_ones_own(scene):
    path = scene.folder / "prices.toml"
    path.write_text(
        'schema = "headgate/prices/v1"\n'
        '[[size]]\nname = "big"\nslots = 16\nusd_per_hour = 0.3\n'
        '[[size]]\nname = "small"\nslots = 1\nusd_per_hour = 0.1\n'
    )
    plan = scene.plan("--rate", "200", "--prices", str(path))
    assert (sizes(plan), plan["usd_per_hour"]) == ([16], 0.3)
    assert sizes(scene.plan("--rate", "200", "--prices", str(path), "--mix", "exact")) == [1, 1, 1, 1]
    path.write_text(path.read_text() + "slot_memory_bytes = 33554432\n")
    scene.run("plan", "--rate", "200", "--prices", str(path), code=4)
    assert "a slot has 32 MiB of memory, a worker without tasks takes 34" in scene.err
    assert "`slot_memory_bytes` in a price list" in scene.err
    path.write_text('schema = "headgate/prices/v1"\n[[size]]\nname = "big"\nslots = 0\nusd_per_hour = nan\n')
    scene.run("plan", "--rate", "200", "--prices", str(path), code=3)
    assert "size[0].slots" in scene.err and "size[0].usd_per_hour" in scene.err


def test_the_demo_is_planned_by_its_name_with_what_up_measured(scene, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    scene.headgate("plan", "demo", "--rate", "50")
    assert str(demo.MODELS) in scene.err, "those that came with headgate, before the first run"
    ran = demo.topology("127.0.0.1:4711", None, str(tmp_path / "archive"))  # as `headgate up` runs it
    shelf = store.Shelf(ran, (), SLOT_CORES, SLOT_MEMORY_BYTES)
    for task in ("parse", "mean", "sample", "score", "lookup"):
        shelf.keep({"schema": "headgate/model/v1", "task": task, "slot": {"cores": 0.25},
                            "points": [{"threads": 1, "rate_tps": 100.0, "cpu": 0.5, "memory": 0.1}]})  # fmt: skip
    found = json.loads(scene.headgate("plan", "demo", "--rate", "50", "-o", "json"))
    assert found["topology"] == "demo" and found["rate_tps"] == 50
    assert str(shelf.folder) in scene.err


@pytest.mark.parametrize("where", [("--vms", "1"), ()], ids=["fixed VMs", "VMs to acquire"])
def test_a_model_of_few_or_disturbed_rows_refuses_no_rate(scene, where):
    """It is planned for as much as fits, and said that the model may be wrong."""
    lone = [dict(task, exclusive=task["name"] == "count") for task in FLOW["tasks"]]
    scene.topology({**FLOW, "tasks": lone})
    scene.run("plan", "--rate", "900", *where, code=4)
    few = {"schema": "headgate/model/v1", "task": "count", "points": COUNT, "tentative": ["few rows"]}
    scene.write("models/count.json", few)
    found = scene.plan("--rate", "900", *where)
    assert 0 < found["rate_tps"] < 900 and found["tentative"] == ["count"] and "count" in found["degraded"]
    assert "warning: what rows cost is known by few or disturbed ones of count" in scene.err
    assert "the plan is for less than was asked for" in scene.err
    assert "less than was asked for" in scene.run("plan", "--rate", "900", *where, "--explain") + scene.err
    scene.plan("--rate", "10", *where)
    assert "known by few or disturbed ones of count" in scene.err and "less than" not in scene.err


def test_a_task_that_nothing_is_known_of_has_no_figure(scene):
    stand_in = store.stand_in("count", {"cores": 1.0, "memory_bytes": 1 << 30, "machine": ""})
    scene.write("models/count.json", stand_in)
    scene.write("models/parse.json", {**stand_in, "task": "parse"})
    found = scene.plan("--rate", "100", "--vms", "2")
    assert found["prediction"]["rate_tps"] is None and found["unmeasured"] == ["parse", "count"]
    for words in ((), ("--explain",)):
        text = scene.run("plan", "--rate", "100", "--vms", "2", *words)
        assert "what it carries is not known yet" in text and "000,000" not in text
    assert "what rows cost is not known yet of parse, count" in scene.err


# ── `--from-trace`: a plan by what a recorded run measured, of a trace whose rows are known ─────────────

KINDS = {
    "time": pa.timestamp("us", tz="UTC"),
    "text": pa.string(),
    "count": pa.int64(),
    "number": pa.float64(),
}
BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
SECONDS = 20


def table(trace: Path, name: str, rows: list[dict[str, Any]], without: str = "") -> None:
    """One finished segment; what a row does not name is null."""
    kinds = {column: KINDS[kind] for column, kind in TABLES[name].items() if column != without}
    (trace / name).mkdir(parents=True, exist_ok=True)
    schema = pa.schema(kinds)
    pq.write_table(
        pa.Table.from_pylist([{c: row.get(c) for c in kinds} for row in rows], schema),
        trace / name / "1.parquet",
    )


def recorded(
    folder: Path,
    vms: tuple[dict[str, Any], ...] = ({"vm": "vm1", "slots": 2}, {"vm": "vm2", "slots": 2, "speed": 0.5}),
) -> Path:
    """100 rows/s; two parse threads, one beside the source; a row of parse becomes three of 250 bytes at count."""
    trace = folder / "trace"
    trace.mkdir()
    (trace / "run.json").write_text(json.dumps({"schema": "headgate/trace/v1", "vms": vms}))
    links, rates, samples = [], [], []
    for k in range(SECONDS + 1):
        at = {"time": BEGAN + timedelta(seconds=k), "window_s": 1.0, "epoch": 1}
        rates.append({**at, "source": "source", "emitted": 100})
        for of, to, one, other, tuples, size in (
            ("source", "parse", 1, 2, 60, 0),
            ("source", "parse", 1, 3, 40, 4000),
            ("parse", "count", 2, 4, 180, 45_000),
            ("parse", "count", 3, 4, 120, 30_000),
        ):
            link = {"from_task": of, "from_thread": one, "to_task": to, "to_thread": other}
            links.append({**at, **link, "tuples": tuples, "bytes": size, "frames": 1})
        samples.append({**at, "vm": "vm1", "slot": 0, "task": "parse", "thread": 2, "cpu_s": 0.30})
        samples.append({**at, "vm": "vm2", "slot": 0, "task": "parse", "thread": 3, "cpu_s": 0.40})
    for name, rows in (("links", links), ("rates", rates), ("samples", samples)):
        table(trace, name, rows)
    return trace


def test_selectivities_sizes_and_traffic_are_those_of_the_run(scene: Scene, tmp_path: Path):
    trace = recorded(tmp_path)
    told = json.loads(
        scene.run("plan", "--rate", "200", "--from-trace", str(trace), "--mapper", "traffic", "-o", "json")
    )
    traffic = told["traffic"]
    assert traffic["measured"] and traffic["rows_tps"] == pytest.approx(200 + 600)
    first, second = traffic["edges"]
    assert (first["selectivity"], first["row_bytes"], first["rows_tps"]) == pytest.approx((1.0, 100.0, 200))
    assert (second["selectivity"], second["row_bytes"], second["rows_tps"]) == pytest.approx(
        (3.0, 250.0, 600)
    )
    (count,) = [task for task in told["allocation"] if task["task"] == "count"]
    assert count["rate_tps"] == pytest.approx(600), "threads too are counted for what is really said"
    said = scene.run("plan", "--rate", "200")
    assert "Of 600 rows/s on 2 edges" in said, "the file of the topology says two rows for each"


def test_people_and_explain_are_told_what_was_measured(scene: Scene, tmp_path: Path):
    trace = recorded(tmp_path)
    for explained in ((), ("--explain",)):
        text = scene.run(
            "plan", *explained, "--rate", "200", "--from-trace", str(trace), "--mapper", "traffic"
        )
        assert "Measured, parse → count: 3 rows for each, 250 bytes" in text
        assert "Of 800 rows/s on 2 edges" in text


def test_crossing_bytes_are_those_of_the_shares(scene: Scene, tmp_path: Path):
    """Counted here from the plan's own shares."""
    trace = recorded(tmp_path)
    words = ("--rate", "200", "--from-trace", str(trace), "--mapper", "dsm", "--vms", "1,1,1,1,1,1,1,1")
    told = json.loads(scene.run("plan", *words, "-o", "json"))
    share = {(s["task"], s["vm"]): s["share"] for s in told["prediction"]["shares"]}
    vms = {vm for _, vm in share}
    crossing = 0.0
    for source, target, rows, size in (("source", "parse", 200, 100), ("parse", "count", 600, 250)):
        stays = sum(share.get((source, vm), 0) * share.get((target, vm), 0) for vm in vms)
        crossing += rows * size * (1 - stays)
    assert told["traffic"]["between_vms_bytes_per_s"] == pytest.approx(crossing)


def test_cpu_is_counted_by_the_speed_of_its_vm(tmp_path: Path):
    """0.3 s on vm1 and half of 0.4 s on vm2, for 100 tuples."""
    from headgate.controller.planning_commands.past_runs import recorded_traffic

    found = recorded_traffic(recorded(tmp_path)).traffic()
    assert found.work["parse"] == pytest.approx(0.005)
    assert found.seconds == SECONDS


def refused(scene: Scene, trace: Path, *parts: str) -> None:
    scene.run("plan", "--rate", "10", "--from-trace", str(trace), code=3)
    for part in parts:
        assert part in scene.err, scene.err


def test_a_trace_without_links_is_refused_with_what_to_do(scene: Scene, tmp_path: Path):
    trace = recorded(tmp_path)
    (trace / "links" / "1.parquet").unlink()
    refused(scene, trace, "no links in", "--trace-dir")


def test_no_trace_another_topology_or_too_few_rows_are_refused(scene: Scene, tmp_path: Path):
    refused(scene, tmp_path / "nowhere", "invalid trace", "run.json")
    trace = recorded(tmp_path)
    table(trace, "rates", [{"time": BEGAN, "source": "source", "emitted": 7}])
    refused(scene, trace, "7 rows say nothing of selectivities", "record a longer run")
    other = FLOW | {
        "tasks": [{"name": "source", "kind": "source"}, {"name": "a"}],
        "edges": [{"from": "source", "to": "a"}],
    }
    scene.topology(other)
    scene.model("a", [{"threads": 1, "rate_tps": 50.0, "cpu": 0.3, "memory": 0.1}])
    (tmp_path / "again").mkdir()
    refused(scene, recorded(tmp_path / "again"), "of another topology", "'source' → 'parse'")


def test_a_segment_that_is_spoiled_or_of_an_older_headgate_is_refused(scene: Scene, tmp_path: Path):
    trace = recorded(tmp_path)
    table(trace, "rates", [{"time": BEGAN, "source": "source"}], without="emitted")
    refused(scene, trace, "emitted")
    (trace / "rates" / "1.parquet").write_bytes(b"no parquet")
    refused(scene, trace, "cannot read")


# ── Links of VMs on the command line: told, refused with the nearest that fits, and every bad one by its
# place

SIZED = {**FLOW, "edges": [{**edge, "row_bytes": 1000} for edge in FLOW["edges"]]}


@pytest.fixture
def sized(scene: Scene) -> Scene:
    scene.topology(SIZED)
    return scene


def test_a_plan_tells_what_its_links_carry(sized: Scene):
    told = sized.run("plan", "--rate", "100", "--vms", "1:10,1:10,1,1", "--mapper", "dsm")
    assert "vm1 sends " in told and "of the 10 of its link." in told and "vm3 sends" not in told
    assert "of the 10 of its link." in sized.run(
        "plan", "--explain", "--rate", "100", "--vms", "1:10,1:10,1,1", "--mapper", "dsm"
    )


def test_what_links_do_not_hold_ends_4_with_the_nearest_that_fits(sized: Scene):
    sized.run("plan", "--rate", "100", "--vms", "2:0.5,4:0.5", "--mapper", "dsm", code=4)
    assert "Mbit/s and its link has 0.5" in sized.err and "Mbit/s too few" in sized.err
    nearest = float(sized.err.split("a plan for ")[1].split()[0])
    assert 0 < nearest < 100
    sized.run("plan", "--rate", str(nearest * 0.999), "--vms", "2:0.5,4:0.5", "--mapper", "dsm")
    if "--mapper " in sized.err:
        other = sized.err.split("--mapper ")[1].split()[0]
        sized.run("plan", "--rate", "100", "--vms", "2:0.5,4:0.5", "--mapper", other)


def test_sizes_of_rows_that_nobody_knows_refuse_nothing(scene: Scene):
    assert "of its link" not in scene.run(
        "plan", "--rate", "100", "--vms", "2:0.001,4:0.001", "--mapper", "dsm"
    )


@pytest.mark.parametrize("link", ["0", "-1", "nan", "inf", "wide", "", "1e8"])
def test_a_link_that_cannot_be_ends_2_and_is_named(scene: Scene, link: str):
    scene.run("plan", "--rate", "100", "--vms", f"4,4:{link}", code=2)
    assert f"'4:{link}'" in scene.err and "Mbit/s" in scene.err


@pytest.mark.parametrize("link", ["0", "-1", "nan", "inf", '"wide"', "true", "1e8"])
def test_a_price_list_with_such_a_link_ends_3_and_names_it(scene: Scene, link: str):
    path = scene.folder / "prices.toml"
    size = f'[[size]]\nname = "D"\nslots = 4\nusd_per_hour = 0.1\nbandwidth_mbps = {link}\n'
    path.write_text(f'schema = "headgate/prices/v1"\n{size}')
    scene.run("plan", "--rate", "100", "--prices", str(path), code=3)
    assert "size[0].bandwidth_mbps: expected a number above 0" in scene.err


def test_a_price_list_may_tell_links(sized: Scene):
    path = sized.folder / "prices.toml"
    size = '[[size]]\nname = "D"\nslots = 1\nusd_per_hour = 0.1\nbandwidth_mbps = 0.01\n'
    path.write_text(f'schema = "headgate/prices/v1"\n{size}')
    sized.run("plan", "--rate", "100", "--prices", str(path), "--mapper", "dsm", code=4)
    assert "its link has 0.01" in sized.err
