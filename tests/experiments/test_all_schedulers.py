"""docs/experiments/all-schedulers.md: made from its data alone, with the figures of the commands, losses too."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from headgate.dashboards import headgate_command as cli
from headgate.lab.reproduction import all_schedulers as a
from headgate.lab.reproduction.all_schedulers import OURS, USUAL, page

DOCS = Path(__file__).resolve().parents[2] / "docs"
Data = dict[str, Any]


def plan(topology: str, pair: str, **more: Any) -> Data:
    row = {
        "topology": topology, "rate_tps": 100.0, "pair": pair, "seconds": 0.001, "reason": None, "slots": 7,
        "usd_per_hour": 0.686, "weighted_tps": 100.0, "shuffle_tps": 80.0, "rows_tps": 600.0,
        "between_slots_tps": 300.0, "between_vms_tps": 150.0,
    }  # fmt: skip
    return {**row, **more}


def graph(what: str, **more: Any) -> Data:
    return {"what": what, "of_optimum": 1.0, "worst": 1.0, "incomplete": 0, "seconds": 0.001, **more}


def run(pair: str, actual_tps: float | None, planned_tps: float = 100.0) -> Data:
    return {
        "shape": "linear", "pair": pair, "slots": 6, "planned_tps": planned_tps, "predicted_tps": planned_tps,
        "actual_tps": actual_tps, "bounded": True, "lowest_tps": 0.97 * planned_tps,
    }  # fmt: skip


@pytest.fixture
def data() -> Data:
    return {
        "command": "scripts/reproduce --planners all", "machine": "2 × X", "when": "2026-01-01", "load": "a load of 1",
        "turns": 3, "rates": [100.0], "graphs_n": 5, "graphs_from": 1,
        "plans": [plan("linear", USUAL), plan("linear", "lsa+rsm", weighted_tps=60.0, slots=3),
                  plan("linear", OURS, slots=5, seconds=0.5, between_slots_tps=200.0, between_vms_tps=100.0)],
        "graphs": [graph("top-down", of_optimum=0.97), graph("refined", seconds=0.01)],
        "runs": [],
    }  # fmt: skip


def line(text: str, beginning: str) -> str:
    """An item of a list, which may go on in the lines below."""
    [found] = [one for one in text.replace("\n  ", " ").splitlines() if one.startswith(beginning)]
    return found


def test_the_page_is_what_the_data_give() -> None:
    kept = json.loads((DOCS / "experiments" / "all-schedulers.json").read_text("utf-8"))
    assert (DOCS / "experiments" / "all-schedulers.md").read_text("utf-8") == page(kept)


def test_the_page_has_every_pair_and_every_topology() -> None:
    kept = json.loads((DOCS / "experiments" / "all-schedulers.json").read_text("utf-8"))
    assert {row["pair"] for row in kept["plans"]} == set(a.shown_pairs())
    assert {row["topology"] for row in kept["plans"]} == set(a.SHAPES)
    assert {row["what"] for row in kept["graphs"]} == {"optimal", *a.PLACERS}
    assert {row["pair"] for row in kept["runs"]} == {USUAL, OURS}


def test_plans_have_the_figures_of_compare(capsys: pytest.CaptureFixture[str]) -> None:
    rows = {
        row["pair"]: row for row in a.plans("linear", (USUAL, "mba+traffic"), 1) if row["rate_tps"] == 100.0
    }
    capsys.readouterr()
    words = ["plan", "linear", "--rates", "100", "--compare", f"{USUAL},mba+traffic", "-o", "json"]
    assert cli.main(words) == 0
    for told in json.loads(capsys.readouterr().out)["rows"]:
        row = rows[told["pair"]]
        assert row["slots"] == told["slots"]["total"]
        for name in ("usd_per_hour", "weighted_tps", "shuffle_tps", "between_slots_tps", "between_vms_tps"):
            assert row[name] == pytest.approx(told[name])


def test_placers_are_held_to_the_optimum_of_each_graph() -> None:
    rows = {row["what"]: row for row in a.graphs(1, 3)}
    assert rows["optimal"]["of_optimum"] == rows["optimal"]["worst"] == 1.0
    assert all(0 < row["worst"] <= row["of_optimum"] <= 1 + 1e-9 for row in rows.values())


def test_tables_tell_slots_and_rates(data: Data) -> None:
    text = page(data)
    assert "|`mba+sam`|7|0.69|" in text and "|`lsa+rsm`|60/80|" in text
    assert "|`top-down`|97.0%|" in text and "## Run" not in text


def test_losses_are_told_where_there_are_any(data: Data) -> None:
    text = page(data)
    for what in ("Slots", "Rows between slots", "Rows between VMs", "Shuffle routing"):
        assert line(text, f"- **{what}**").endswith("nowhere.")
    assert "500 × as long as by `mba+sam`" in line(text, "- **Time**")
    assert "leaves 0.00% of the optimum (top-down 3.00%)" in line(text, "- **Paper 2's graphs**")
    worse = copy.deepcopy(data)
    worse["plans"][0].update(slots=4, between_slots_tps=150.0, between_vms_tps=60.0, shuffle_tps=90.0)
    text = page(worse)
    assert "linear: `mba+sam` takes 4." in line(text, "- **Slots**")
    assert "linear 33% (`mba+sam` 25%)" in line(text, "- **Rows between slots**")
    assert "linear 17% (`mba+sam` 10%)" in line(text, "- **Rows between VMs**")
    assert "linear 80 % (`mba+sam` 90 %)" in line(text, "- **Shuffle routing**")


def test_what_does_not_carry_its_rate_wins_nothing(data: Data) -> None:
    data["plans"][1].update(between_slots_tps=0.0, between_vms_tps=0.0, shuffle_tps=100.0)
    text = page(data)
    assert all(line(text, f"- **{what}**").endswith("nowhere.") for what in ("Slots", "Rows between VMs"))


def test_runs_are_told_each_and_by_their_median(data: Data) -> None:
    data["runs"] = [run(USUAL, 100.0), run(OURS, 60.0), run(USUAL, 90.0), run(OURS, None), run(OURS, 80.0)]
    for row in data["runs"]:
        row["predicted_tps"] *= 1.2 if row["pair"] == OURS else 1
    text = page(data)
    assert "|linear|`mba+sam`|6|100|1.00|1.00, 0.90|0.95|" in text
    assert f"|linear|`{OURS}`|6|100|1.20|0.60, < 0.97, 0.80|0.70|" in text
    assert line(text, "- **Run**").endswith("linear 0.70 (`mba+sam` 0.95).")
    data["runs"] = [run(USUAL, 90.0), run(OURS, 95.0)]
    assert "- **Run**" not in page(data)
    data["runs"] = [run(USUAL, 90.0), run(OURS, None)]
    text = page(data)
    assert f"|linear|`{OURS}`|6|100|1.00|< 0.97|–|" in text
    assert line(text, "- **Run**").endswith("linear – (`mba+sam` 0.90).")


def test_a_pair_without_a_plan_is_a_dash(data: Data) -> None:
    data["plans"][1] = {
        "topology": "linear",
        "rate_tps": 100.0,
        "pair": "lsa+rsm",
        "seconds": 0.1,
        "reason": "no",
    }
    assert "|`lsa+rsm`|–|–|" in page(data)
    data["plans"] = data["plans"][:1]
    assert "Where ours loses" not in page(data)


def test_runs_stay_with_their_day_where_only_plans_are_made_anew(data: Data, tmp_path: Path) -> None:
    data["runs"] = [run(USUAL, 90.0), run(OURS, 95.0)]
    a.written(data, tmp_path)
    kept = a.earlier_runs(tmp_path)
    assert kept["runs"] == data["runs"] and data["when"] in kept["runs_of"]
    a.written({**data, **kept, "when": "2030-01-01"}, tmp_path)
    assert a.earlier_runs(tmp_path) == kept, "not the day of the plans"
    text = (tmp_path / "experiments" / "all-schedulers.md").read_text()
    assert "; of an earlier day: " in " ".join(text.split())
    assert a.earlier_runs(tmp_path / "nowhere") == {"runs": []}


def test_runs_come_from_cells_on_fixed_slots() -> None:
    kept = json.loads((DOCS / "experiments" / "reproduction.json").read_text("utf-8"))
    rows = a.run_rows(kept)
    fixed = [cell for cell in kept["cells"] if cell["section"] == "8.5" and not cell.get("failed")]
    assert len(rows) == len(fixed) > 10
    assert rows[0]["planned_tps"] == fixed[0]["planned_tps"]


def test_what_is_asked_wrongly_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert a.main(["--planners", "mba+sem"]) == 2
    assert "did you mean 'sam'" in capsys.readouterr().err
    assert a.without_places(["--planners", "all", "--work", "/x", "--output=/y", "--turns", "3", "--models", "/z"]) == [
        "--planners", "all", "--turns", "3", "--models", "DIR",
    ]  # fmt: skip
