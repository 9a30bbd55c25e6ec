"""What the examples' functions do, as plain Python on a few rows; how they run is in `test_examples_live`."""

from __future__ import annotations

import ast
import importlib.util
import json
import re
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from headgate import Exhausted, testing

FOLDER = Path(__file__).resolve().parents[2] / "examples"
FILES = sorted(FOLDER.glob("*.py"))
SOURCES = {
    "chain": "Frames", "clicks": "Clicks", "dedup": "Events", "enrich": "Orders", "fraud": "Payments",
    "alerts": "Readings", "latency": "Frames", "lookup": "Orders", "minutes": "Requests",
    "orders": "Orders", "sensors": "Packs", "smooth": "Positions",
    "topk": "Sales",
}  # fmt: skip


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{name}", FOLDER / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_an_example_uses_only_what_users_import_and_says_how_it_is_run(path: Path) -> None:
    tree = ast.parse(path.read_text("utf-8"))
    ours = [node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module]
    assert {module for module in ours if module.startswith("headgate")} <= {"headgate", "headgate.tasks"}
    assert f"headgate up examples/{path.name}:" in (ast.get_docstring(tree) or "")
    assert path.read_text("utf-8").count("\n") <= 70


def test_every_example_is_in_the_table() -> None:
    table = (FOLDER / "README.md").read_text("utf-8")
    assert len(FILES) >= 12
    assert set(re.findall(r"\]\((\w+)\.py\)", table)) == {path.stem for path in FILES}


@pytest.mark.parametrize("name", SOURCES)
def test_a_source_gives_the_same_rows_from_any_position_and_ends(name: str) -> None:
    source = getattr(example(name), SOURCES[name])()
    assert [*source.read(0, 3), *source.read(3, 4)] == list(source.read(0, 7))
    with pytest.raises(Exhausted):
        source.read(10**6, 1)


def test_words_are_split() -> None:
    assert example("words").split("To be, or NOT to be") == ["to", "be", "or", "not", "to", "be"]


def test_packs_are_senml() -> None:
    from headgate.tasks import parse_senml

    rows = parse_senml(example("sensors").pack(12))
    assert [(row["name"], row["value"]) for row in rows] == [("room2/celsius", 25), ("room2/humidity", 41)]


def test_a_session_ends_with_a_click_after_the_break() -> None:
    sessions = example("clicks").Sessions()
    state, out = sessions.process("u", {"time_s": 0}, sessions.new("u"))
    assert out == []
    state, out = sessions.process("u", {"time_s": 1800}, state)
    assert out == [] and state["clicks"] == 2
    state, out = sessions.process("u", {"time_s": 3601}, state)
    assert out == [{"user": "u", "start_s": 0, "end_s": 1800, "clicks": 2}] and state["clicks"] == 1


def test_a_large_payment_abroad_at_night_is_suspicious() -> None:
    fraud = example("fraud")
    rows = {"amount": np.array([10.0, 2000.0]), "abroad": np.array([0, 1]), "hour": np.array([12, 3])}
    scored = fraud.score(rows)
    assert scored["score"][0] < 0.01 and 0.96 < scored["score"][1] < 0.98
    assert fraud.suspicious(scored).tolist() == [False, True]


def test_an_event_passes_once() -> None:
    first = example("dedup").FirstOnly()
    state, out = first.process(7, {"id": 7}, first.new(7))
    assert out == [{"id": 7}]
    assert first.process(7, {"id": 7}, state) == (True, [])


def test_the_list_of_the_best_changes_only_when_it_does() -> None:
    top = example("topk").Top()
    best = top.new("all")
    for row in (("a", 1), ("b", 2), ("c", 1), ("d", 1)):
        best, out = top.process("all", row, best)
    assert best == [["b", 2], ["a", 1], ["c", 1]] and out == []
    assert top.process("all", ("d", 3), best)[1] == [[["d", 3], ["b", 2], ["a", 1]]]


def test_each_order_is_paid_once() -> None:
    orders = example("orders")
    assert sorted(orders.payment(n)["order"] for n in range(orders.ORDERS)) == list(range(orders.ORDERS))


def test_an_alert_does_not_flutter() -> None:
    alerts = example("alerts").Alerts()
    state, told = alerts.new("m"), []
    for degrees in (79, 81, 79, 81, 71, 70, 79):
        state, out = alerts.process("m", {"degrees": degrees}, state)
        told += [row["alert"] for row in out]
    assert told == ["on", "off"]


def test_parts_of_a_frame_become_short_again() -> None:
    chain = example("chain")
    parts = chain.unpack({"frame": 1, "camera": "c1"})
    assert len(parts) == chain.PARTS and len(parts[3]["pixels"]) == 1024
    assert chain.brief(parts[3]) == {"camera": "c1", "light": 3}


def test_frames_are_dark_or_bright() -> None:
    latency = example("latency")
    rows = [latency.level(latency.decode({"id": n, "light": light})) for n, light in enumerate((20, 200))]
    assert [row["level"] for row in rows] == ["dark", "bright"]


def test_a_micro_topology_has_the_rates_of_the_paper() -> None:
    micro = example("micro")
    rates = {name: getattr(micro, name).build().rates(100.0) for name in ("linear", "diamond", "star")}
    assert set(rates["linear"].values()) == {100.0}
    assert rates["diamond"]["pi"] == 300.0 and rates["star"]["xml"] == 200.0


def test_the_service_of_the_enrichment_knows_every_customer() -> None:
    enrich = example("enrich")
    assert {json.dumps(row) for row in enrich.Orders().read(0, 2)} == {
        '{"order": 0, "customer": 0}',
        '{"order": 1, "customer": 3}',
    }
    assert len(enrich.SEGMENTS) == 3


def test_minutes_are_whole_and_those_with_a_late_request_are_given_again(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    minutes = example("minutes")
    testing.run(minutes.flow)
    last: dict[tuple[str, float], dict[str, object]] = {}
    for line in (tmp_path / "minutes.jsonl").read_text("utf-8").splitlines():
        row = json.loads(line)
        last[row["key"], row["start"]] = row
    asked: dict[tuple[str, float], list[int]] = {}
    for row in map(minutes.request, range(minutes.REQUESTS)):
        asked.setdefault((row["service"], row["made_s"] // 60 * 60), []).append(row["ms"])
    assert {place: (row["value"]["requests"], row["value"]["slowest"]) for place, row in last.items()} == {
        place: (len(each), max(each)) for place, each in asked.items()
    }
    assert {row["timing"] for row in last.values()} == {"on time", "late"}
