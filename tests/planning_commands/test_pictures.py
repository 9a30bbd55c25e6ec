"""Pictures of plans and models: what they show, that they are the same every time, and what is refused."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
from msgspec.structs import replace

from headgate.controller.files.planning_inputs import read_models
from headgate.controller.models.task_models import Model, ModelSlot, Point, Spread
from headgate.controller.pictures import drawing
from headgate.controller.pictures.drawing import format_of
from headgate.controller.pictures.model_pictures import model_pairs_picture, model_picture
from headgate.controller.pictures.plan_picture import (
    EACH_SLOT,
    MAP_IN,
    MOST_KINDS,
    SMALL_PT,
    carried,
    headline,
    plan_picture,
    slot_map,
)
from headgate.controller.pictures.rate_pictures import (
    comparison_picture,
    pairs_headline,
    rates_headline,
    whatif_picture,
)
from headgate.controller.plan.planner import PlanRequest, best_plan, make_plan, plan_acquiring
from headgate.topology_runtime.api.cluster import Vm
from headgate.topology_runtime.api.loading import load
from headgate.topology_runtime.api.shipped_examples import MODELS as FOLDER
from headgate.topology_runtime.api.shipped_examples import example
from headgate.topology_runtime.api.topology import Edge, Static, Task, Topology
from headgate.topology_runtime.errors import InvalidInput, UsageError

MODELS = read_models(FOLDER)
LINEAR = load(str(example("linear"))).topology
SIZES = tuple(Vm(f"D{size}", size, usd_per_hour=0.098 * size) for size in (4, 2, 1))
FIVE = tuple(Vm(f"vm{number}", 4) for number in range(1, 6))


def acquired(rate_tps, **more):
    return plan_acquiring(PlanRequest(LINEAR, MODELS, rate_tps, (), **more), SIZES)


def drawn_text(path: Path) -> list[str]:
    """Every text of an SVG: matplotlib notes it beside the outlines of its letters."""
    return re.findall(r"<!-- (.*?) -->", path.read_text("utf-8"))


def cells_of(plan):
    return [cell for row in slot_map(plan).rows for block in row.blocks for cell in block.cells]


# ── files ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("name", "start"), [("plan.svg", b"<?xml"), ("plan.PNG", b"\x89PNG"), ("plan.pdf", b"%PDF")]
)
def test_the_suffix_tells_the_format(tmp_path, name, start):
    plan_picture(acquired(60.0), LINEAR, MODELS, tmp_path / name)
    assert (tmp_path / name).read_bytes().startswith(start)
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_the_same_plan_gives_the_same_bytes_whatever_the_users_settings(tmp_path):
    import matplotlib

    plan_picture(acquired(60.0), LINEAR, MODELS, tmp_path / "a.svg")
    with matplotlib.rc_context({"font.size": 30, "axes.facecolor": "red", "svg.hashsalt": "other"}):
        plan_picture(acquired(60.0), LINEAR, MODELS, tmp_path / "b.svg")
        assert matplotlib.rcParams["font.size"] == 30
    first = (tmp_path / "a.svg").read_bytes()
    assert first == (tmp_path / "b.svg").read_bytes()
    assert b"<dc:date>" not in first


@pytest.mark.parametrize("name", ["plan", "plan.jpg", "plan.svg.gz"])
def test_an_unknown_suffix_is_refused_with_those_there_are(tmp_path, name):
    with pytest.raises(UsageError) as error:
        model_picture([MODELS["blob"]], tmp_path / name)
    assert "svg, png, pdf" in error.value.cause
    assert list(tmp_path.iterdir()) == []


def test_without_matplotlib_the_error_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(UsageError) as error:
        format_of("plan.svg")
    assert "pip install 'headgate[plot]'" in error.value.hint


def test_a_picture_that_cannot_be_written_leaves_nothing_behind(tmp_path):
    (tmp_path / "plan.svg").mkdir()
    for place in (tmp_path / "plan.svg", tmp_path / "absent" / "plan.svg"):
        with pytest.raises(InvalidInput, match="cannot be written"):
            model_picture([MODELS["blob"]], place)
    assert [path.name for path in tmp_path.iterdir()] == ["plan.svg"]


def test_matplotlib_comes_when_a_picture_is_drawn_and_pyplot_never(tmp_path):
    code = f"""
import sys
from headgate.controller.pictures.rate_pictures import comparison_picture
assert "matplotlib" not in sys.modules
row = {{"pair": "mba+sam", "rate_tps": 5.0, "slots": {{"total": 2}}, "weighted_tps": 5.0, "shuffle_tps": 4.0}}
comparison_picture([row], {str(tmp_path / "p.svg")!r})
assert "matplotlib" in sys.modules and "matplotlib.pyplot" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)


# ── the plan ────────────────────────────────────────────────────────────────────────────────────


def test_a_plan_shows_its_threads_what_fills_a_slot_and_what_limits(tmp_path):
    plan = acquired(60.0)
    plan_picture(plan, LINEAR, MODELS, tmp_path / "plan.svg")
    text = Counter(drawn_text(tmp_path / "plan.svg"))
    assert text["blob 50"] == 2 and text["table 40"] == 1 and text["CPU 77 %"] == 2
    assert text["full"] == 2 and text["full, limits"] == 1  # slots
    assert text["60  limits"] == 1  # the task's row
    assert text[" asked 60 "] == text[" predicted 60 "] == 1


def test_the_headline_says_what_is_taken_carried_and_limiting():
    plan = make_plan(PlanRequest(LINEAR, MODELS, 60.0, FIVE, allocator="lsa", mapper="dsm", fixed=True))
    words = headline(plan)
    assert words.startswith("linear at 60 rows/s: 20 slots on 5 VMs, predicted ")
    assert words.endswith(f"limited by {plan.prediction.limited_by} in {plan.prediction.limited_by_slot}")


def test_free_slots_are_on_the_map_too():
    plan = make_plan(PlanRequest(LINEAR, MODELS, 60.0, FIVE, fixed=True))
    cells = cells_of(plan)
    assert len(cells) == 20
    assert sum(not cell.bundles for cell in cells) == 20 - plan.slots.used


@pytest.mark.parametrize("rate_tps", [10.0, 60.0, 200.0, 1400.0, 2700.0])
def test_up_to_two_hundred_slots_each_has_one_cell_and_rows_fit_the_page(rate_tps):
    plan = acquired(rate_tps)
    assert plan.slots.total <= EACH_SLOT
    layout = slot_map(plan)
    assert sorted(cell.name for cell in cells_of(plan)) == sorted(
        str(slot) for vm in plan.vms for slot in vm.all_slots()
    )
    assert all(row.cells * layout.pitch_in <= MAP_IN + 1e-9 for row in layout.rows)
    tops = [(row.top_in, row.top_in + row.height_in) for row in layout.rows]
    assert all(below[0] >= above[1] for above, below in pairwise(tops))


@pytest.mark.parametrize("pair", [("mba", "sam"), ("lsa", "dsm")])
def test_above_that_slots_that_hold_the_same_share_a_cell(pair):
    plan = acquired(5000.0, allocator=pair[0], mapper=pair[1])
    assert plan.slots.total > EACH_SLOT
    cells = cells_of(plan)
    assert len(cells) <= MOST_KINDS
    assert sum(cell.slots for cell in cells) == plan.slots.total
    assert cells[0].limits and cells[0].name == plan.prediction.limited_by_slot


def test_a_vm_with_many_slots_goes_over_several_rows(tmp_path):
    plan = make_plan(PlanRequest(LINEAR, MODELS, 300.0, (Vm("big", 64),)))
    names = [block.name for row in slot_map(plan).rows for block in row.blocks]
    assert names[0].startswith("big, slots 0 to 11") and names[-1] == "big, slots 60 to 63"
    plan_picture(plan, LINEAR, MODELS, tmp_path / "big.svg")


def test_the_task_that_limits_carries_what_is_predicted():
    plan = make_plan(PlanRequest(LINEAR, MODELS, 60.0, FIVE, interference="none", routing="shuffle"))
    rows = carried(plan, LINEAR, MODELS)
    assert [row.task for row in rows] == ["blob", "table", "pi", "xml", "file"]
    limiting = next(row for row in rows if row.limits)
    assert limiting.rate_tps == pytest.approx(plan.prediction.rate_tps)
    assert min(row.rate_tps for row in rows) == limiting.rate_tps


def with_one_task(name: str, cpu: float = 0.1) -> Topology:
    """source → name → sink; source and sink reserve `cpu` of a slot each."""
    ends = Static(1, cpu, 0.1)
    tasks = (Task("source", kind="source", static=ends), Task(name), Task("sink", static=ends))
    return Topology("one", tasks, (Edge("source", name), Edge(name, "sink")))


def test_a_task_limited_by_its_neighbours_is_said_to_share(tmp_path):
    request = PlanRequest(LINEAR, MODELS, 100.0, FIVE, allocator="lsa", mapper="dsm")
    models = {**MODELS, "blob": Model("blob", ModelSlot(), (Point(1, 1000.0, 0.9, 0.1),))}
    models |= {"table": Model("table", ModelSlot(), (Point(1, 1000.0, 0.9, 0.1),))}
    plan = make_plan(replace(request, models=models, rate_tps=300.0, vms=(Vm("vm1", 5),)))
    limiting = next(row for row in carried(plan, LINEAR, models) if row.limits)
    assert limiting.rate_tps > plan.prediction.rate_tps
    plan_picture(plan, LINEAR, models, tmp_path / "shared.svg")
    words = f"limits: shares the CPU of {plan.prediction.limited_by_slot}"
    assert any(words in text for text in drawn_text(tmp_path / "shared.svg"))


def test_long_names_become_numbers_that_are_explained(tmp_path):
    name = "a_name_that_no_cell_has_room_for"
    topology, models = with_one_task(name), {name: Model(name, ModelSlot(), MODELS["blob"].points)}
    plan = plan_acquiring(PlanRequest(topology, models, 400.0, ()), SIZES)
    plan_picture(plan, topology, models, tmp_path / "long.svg")
    text = drawn_text(tmp_path / "long.svg")
    assert "(1) 50" in text
    assert any(f"(1)\u00a0{name}" in line for line in text)


def test_a_slot_over_its_capacity_is_said_in_full(tmp_path):
    topology = with_one_task("blob", cpu=0.8)
    plan = best_plan(PlanRequest(topology, MODELS, 60.0, (Vm("vm1", 1),)))
    used = plan.prediction.slots[0]
    assert used.cpu >= 1.6
    plan_picture(plan, topology, MODELS, tmp_path / "over.svg")
    assert f"CPU {drawing.percent(used.cpu)}" in drawn_text(tmp_path / "over.svg")


# ── models ──────────────────────────────────────────────────────────────────────────────────────


def test_model_curves_name_peak_rate_and_threads(tmp_path):
    model_picture(list(MODELS.values()), tmp_path / "models.svg")
    text = drawn_text(tmp_path / "models.svg")
    for task, peak in (("blob", "ω̂ 30 at τ̂ 50"), ("file", "ω̂ 60,000 at τ̂ 1"), ("pi", "ω̂ 110 at τ̂ 2")):
        assert task in text and peak in text


def test_a_spread_shows_as_a_band(tmp_path):
    points = (Point(1, 10.0, 0.2, 0.1), Point(4, 30.0, 0.8, 0.2))
    sure = Model("t", ModelSlot(), points)
    unsure = Model(
        "t",
        ModelSlot(),
        tuple(Point(p.threads, p.rate_tps, p.cpu, p.memory, spread=Spread(rate_tps=3.0)) for p in points),
    )
    bands = []
    for model in (sure, unsure):
        model_picture([model], tmp_path / "m.svg")
        bands.append((tmp_path / "m.svg").read_text("utf-8").count("FillBetweenPolyCollection"))
    assert bands[0] == 0 and bands[1] > 0
    assert any("Bands" in line for line in drawn_text(tmp_path / "m.svg"))


def test_two_models_of_a_task_stand_in_one_panel(tmp_path):
    blob = MODELS["blob"]
    faster = Model("blob", blob.slot, tuple(Point(p.threads, 2 * p.rate_tps, 0.1, 0.1) for p in blob.points))
    model_pairs_picture([(blob, faster)], ("published", "mine"), tmp_path / "both.svg")
    text = drawn_text(tmp_path / "both.svg")
    assert {"ω̂ 30 at τ̂ 50", "ω̂ 60 at τ̂ 50"} <= set(text)
    assert "published (solid) against mine (dashed, hollow)" in text


# ── compare and whatif ──────────────────────────────────────────────────────────────────────────


def compared(pair, rate_tps, slots, weighted_tps):
    return {
        "pair": pair,
        "rate_tps": rate_tps,
        "slots": slots and {"total": slots},
        "weighted_tps": weighted_tps,
        "shuffle_tps": weighted_tps and 0.9 * weighted_tps,
    }


def test_a_comparison_prefers_what_carries_most_and_says_what_does_not_fit(tmp_path):
    rows = [
        compared("lsa+rsm", 100.0, 13, 50.0),
        compared("mba+dsm", 100.0, 7, 91.0),
        compared("mba+sam", 100.0, 8, 100.0),
        compared("mba+sam", 200.0, None, None),
    ]
    words = pairs_headline(rows)
    assert words == (
        "At 100 rows/s mba+sam takes 8 slots and carries 100 %, lsa+rsm takes 13 slots and carries 50 %"
    )
    comparison_picture(rows, tmp_path / "c.svg")
    text = drawn_text(tmp_path / "c.svg")
    assert {"lsa+rsm", "mba+dsm", "mba+sam", "13"} <= set(text) and " no plan" in text
    assert pairs_headline(rows[-1:]) == "No pair has a plan that fits"


def test_a_pair_without_a_row_at_a_rate_is_not_said_to_have_no_plan(tmp_path):
    comparison_picture(
        [compared("lsa+rsm", 80.0, 20, 60.0), compared("mba+sam", 190.0, 20, 190.0)], tmp_path / "c.svg"
    )
    assert " no plan" not in drawn_text(tmp_path / "c.svg")


def asked(rate_tps, slots, usd, predicted_tps, other=None):
    return {
        "rate_tps": rate_tps,
        "slots": slots and {"total": slots},
        "usd_per_hour": usd,
        "predicted_tps": predicted_tps,
        "baseline": other and {"pair": "lsa+rsm", "slots": other},
    }


def test_whatif_tells_slots_and_cost_over_rates(tmp_path):
    rows = [asked(100.0, 7, 0.7, 100.0, 13), asked(50.0, 4, 0.4, 50.0, 7), asked(200.0, 15, 1.5, 180.0)]
    ordered = sorted(rows, key=lambda row: row["rate_tps"])
    assert rates_headline(ordered) == ("From 50 to 200 rows/s it takes 4 to 15 slots, $0.4 to $1.5 per hour")
    assert rates_headline(ordered[:1]) == "At 50 rows/s it takes 4 slots, $0.4 per hour"
    whatif_picture(rows, tmp_path / "w.svg")
    assert {"$ per hour", "lsa+rsm", "falls short"} <= set(drawn_text(tmp_path / "w.svg"))


def test_whatif_without_prices_or_plans_still_draws(tmp_path):
    whatif_picture([asked(50.0, 4, None, 50.0), asked(60.0, None, None, None)], tmp_path / "w.svg")
    text = drawn_text(tmp_path / "w.svg")
    assert "$ per hour" not in text and any("From 60 rows/s no plan fits" in line for line in text)
    whatif_picture([asked(50.0, None, None, None)], tmp_path / "none.svg")
    assert "No plan fits at any of these rates" in drawn_text(tmp_path / "none.svg")


# ── words ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("value", "words"), [(103.24, "103.2"), (12400.4, "12,400"), (0.5, "0.5"), (float("inf"), "any")]
)
def test_numbers_have_four_digits_at_most_and_are_never_nan(value, words):
    assert drawing.number(value) == words


def test_names_are_cut_in_the_middle():
    assert drawing.shortened("preprocess_sensor_reading_13", 12) == "prepro…ng_13"
    assert len(drawing.shortened("x" * 64, 22)) == 22 and drawing.shortened("blob", 22) == "blob"


def test_text_takes_the_room_that_matplotlib_draws_it_in():
    assert drawing.text_in("table 60", SMALL_PT) == pytest.approx(0.41, abs=0.03)
    assert drawing.text_in("wwww", SMALL_PT) > 2 * drawing.text_in("iiii", SMALL_PT)
