"""`headgate plan --p95`: more slots where rows would take too long, and none where that does not help."""

from __future__ import annotations

import json

import pytest
from scene import Scene


def fails(scene: Scene, *words: str, code: int) -> str:
    """What it says on stderr."""
    scene.run(*words, code=code)
    return scene.err


def latency(scene: Scene, *words: str) -> tuple[dict[str, float], int]:
    """(the latency of the plan, slots that it uses)."""
    plan = scene.plan(*words)
    return plan["latency"], plan["slots"]["used"]


def test_a_plan_has_a_latency_in_words_and_as_data(scene: Scene) -> None:
    found, _ = latency(scene, "--rate", "120")
    assert found["rate_tps"] == 120.0 and 0 < found["p50_ms"] <= found["p95_ms"] <= found["p99_ms"]
    assert "p95_limit_ms" not in found and list(found["sinks"])
    text = scene.run("plan", "--rate", "120")
    assert "latency\nAt 120 rows/s p50 " in text and "from when a row is due until it is done." in text


def test_a_limit_that_holds_anyhow_takes_no_slot_more(scene: Scene) -> None:
    plain, slots = latency(scene, "--rate", "120")
    kept, with_limit = latency(scene, "--rate", "120", "--p95", "60s")
    assert slots == with_limit and kept == plain | {"p95_limit_ms": 60_000.0}


def test_a_tighter_limit_takes_a_slot_more(scene: Scene) -> None:
    """A thread of `parse` is full at 50 rows/s, so the two slots of the plain plan are full as well."""
    plain, slots = latency(scene, "--rate", "150")
    kept, more = latency(scene, "--rate", "150", "--p95", "50ms")
    assert kept["p95_ms"] <= 50 < plain["p95_ms"] and (slots, more) == (2, 3)
    assert "so that p95 keeps within 50 ms" in scene.run("plan", "--rate", "150", "--p95", "50ms")


def test_a_limit_that_nothing_meets_is_refused_with_the_nearest_that_is_met(scene: Scene) -> None:
    said = fails(scene, "plan", "--rate", "120", "--p95", "0.01ms", code=4)
    assert "no plan for 120 rows/s keeps a p95 of 0.01 ms" in said and "try: --p95 " in said
    nearest = said.split("try: --p95 ")[1].split(",")[0]
    kept, _ = latency(scene, "--rate", "120", "--p95", nearest)
    assert kept["p95_ms"] <= float(nearest.removesuffix("ms"))


@pytest.mark.parametrize("value", ["0", "-5ms", "5min", "nan", "inf", "fast", ""])
def test_what_is_no_duration_is_refused(scene: Scene, value: str) -> None:
    assert "no duration above 0: 50ms" in fails(scene, "plan", "--rate", "120", f"--p95={value}", code=2)


@pytest.mark.parametrize("words", [("--sure", "0.95"), ("--margin", "0.1")])
def test_it_chooses_the_margin_itself(scene: Scene, words: tuple[str, str]) -> None:
    assert "--p95 chooses how much more" in fails(
        scene, "plan", "--rate", "9", "--p95", "50ms", *words, code=2
    )


def test_a_placement_has_one_too_at_a_rate(scene: Scene) -> None:
    plan = scene.plan("--rate", "120")
    placed = scene.write("plan.json", plan)
    found = json.loads(scene.run("plan", "--placement", placed, "--rate", "120", "-o", "json"))
    assert found["latency"] == plan["latency"]
    assert "latency\nAt 60 rows/s p50 " in scene.run("plan", "--placement", placed, "--rate", "60")
    assert "latency" not in json.loads(scene.run("plan", "--placement", placed, "-o", "json"))
