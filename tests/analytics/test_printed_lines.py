"""The table that `headgate analyze` prints: every finding that the analysis has, and no line that a terminal breaks."""

from __future__ import annotations

from typing import Any

import pytest

from headgate.dashboards.analytics.analyze_command import lines_of
from headgate.topology_runtime.commands.output import write_table

RUN = "traffic/20260101-120000-12345"
PLACE = {"run": RUN, "vm": "vm12", "slot": 3}
FIT = {"r2": -0.001671, "median_error": 3.74e-05, "p95_error": 0.00466, "worst_error": 0.02514}
TELLING: dict[str, list[dict[str, Any]]] = {
    "episodes": [
        PLACE | {"from_s": 389.6, "to_s": 481.9, "peak_s": 19.26, "task": "annotate"},
        PLACE | {"from_s": 12.0, "to_s": 20.4, "peak_s": 31.5, "task": None, "vm": None, "slot": None},
    ],
    "slow_slots": [PLACE | {"speed": 0.7, "low": 0.6852, "high": 0.7142}],
    "disturbing_pairs": [PLACE | {"task": "score", "beside": "annotate", "factor": 1.4, "low": 1.31, "high": 1.52}],
    "leaks": [PLACE | {"held": 0.31, "to_s": 1203.6, "full_in_s": 43_601.5}],
    "policies_tried": [
        {"run": RUN, "policy": "lsa+greedy-matching", "slot_hours": 0.234, "violated_tuples": 12_345.6, "why": None},
        {"run": RUN, "policy": "static", "slot_hours": 0.3, "violated_tuples": 0.0, "why": None},
        {"run": RUN, "policy": "lsa+rsm", "slot_hours": 0.0, "violated_tuples": 0.0, "why": "no plan came into force"},
    ],
    "skewed_threads": [PLACE | {"task": "annotate", "epoch": 14, "thread": 1260, "times": 3.004}],
}  # fmt: skip


def analysis(*runs: str, **more: Any) -> dict[str, Any]:
    return {
        "rows": 48_280_000,
        "runs": list(runs or (RUN,)),
        **dict.fromkeys(("rate", "cpu", "memory"), FIT),
        "stability": [{"stable": True}, {"stable": False}, {"stable": None}],
        "latency_ms": {"p50": 52.87, "p95": 5_680.1, "p99": 14_580.0, "max": 19_259.0},
        "replans": [{"reason": "rate_changed"}] * 12 + [{"reason": "over_provisioned"}] * 3,
        "bottlenecks": [PLACE | {"rank": 1, "epoch": 14, "task": "annotate", "load": 0.0943}],
        "cost": [{"run": RUN, "epoch": None, "slot_hours": 5.357, "usd": 0.1339}],
        "refitted": [],
        "left_out": [],
        **{key: [] for key in TELLING},
    } | more


def told(found: dict[str, Any]) -> list[tuple[str, Any, str]]:
    return [(line["what"], line["value"], line["remark"]) for line in lines_of(found)]


def test_every_finding_has_its_line() -> None:
    lines = told(analysis(**TELLING))
    at = lines.index(("episodes of overload", 2, "rows took up to 31.5 s"))
    assert lines[at : at + 11] == [
        ("episodes of overload", 2, "rows took up to 31.5 s"),
        ("  longest, s", 31.5, "12 to 20 s, due to nobody alone"),
        ("  longest, s", 19.26, "390 to 482 s, due to annotate in vm12/3"),
        ("slow slots", 1, ""),
        ("  speed, ×", 0.7, "that of others (0.685 to 0.714): vm12/3"),
        ("disturbing pairs", 1, ""),
        ("  a row costs, ×", 1.4, "(1.31 to 1.52) CPU: score beside annotate"),
        ("leaks", 1, ""),
        ("  held", 0.31, "of vm12/3 at 1,204 s; full 43,602 s later"),
        ("skewed threads", 1, ""),
        ("  thread 1260, ×", 3.004, "what annotate has planned: epoch 14, vm12/3"),
    ]


def test_a_vm_that_is_slow_as_a_whole_is_named_without_a_slot() -> None:
    slow = TELLING["slow_slots"][0] | {"slot": None}
    assert ("  speed, ×", 0.7, "that of others (0.685 to 0.714): VM vm12") in told(
        analysis(slow_slots=[slow])
    )


def test_policies_that_were_tried_stand_beside_the_hours_of_the_run() -> None:
    lines = told(analysis(**TELLING))
    at = next(n for n, (what, *_) in enumerate(lines) if what == "slot-hours")
    assert lines[at + 1 : at + 4] == [
        ("  by policy", 0.234, "lsa+greedy-matching: 12,346 rows short"),
        ("  by policy", 0.3, "static: never short"),
        ("  by policy", None, "lsa+rsm: no plan came into force"),
    ]


def test_that_nothing_was_found_is_said() -> None:
    lines = told(analysis())
    assert ("episodes of overload", 0, "rows never waited for long") in lines
    for what in ("slow slots", "disturbing pairs", "leaks", "skewed threads"):
        assert (what, 0, "none was found") in lines


@pytest.mark.parametrize(("name", "many"), [("episodes", 40), ("skewed_threads", 40), ("leaks", 40)])
def test_of_many_findings_the_count_and_the_worst_are_told(name: str, many: int) -> None:
    worst = {"episodes": {"peak_s": 99.0}, "skewed_threads": {"times": 99.0}, "leaks": {"full_in_s": 1.0}}[
        name
    ]
    rows = [*[TELLING[name][0]] * (many - 1), TELLING[name][0] | worst]
    lines = [line for line in told(analysis(**{name: rows}))]
    assert len(lines) == len(told(analysis())) + 5
    at = next(n for n, line in enumerate(lines) if line[1] == many)
    value = TELLING[name][0]["held"] if name == "leaks" else 99.0
    assert lines[at + 1][1] == value
    assert name != "leaks" or "full 1 s later" in lines[at + 1][2]


def test_of_several_runs_each_line_says_of_which_it_is_and_the_hours_name_it() -> None:
    cost = [{"run": run, "epoch": None, "slot_hours": 1.0, "usd": None} for run in ("demo/other", RUN)]
    lines = told(analysis("demo/other", RUN, cost=cost, **TELLING))
    assert ("slot-hours, run 2", 1.0, f"no price: {RUN}") in lines
    for start in (
        "  longest, s",
        "  speed, ×",
        "  a row costs, ×",
        "  held",
        "  thread 1260, ×",
        "load, epoch 14",
    ):
        assert next(what for what, *_ in lines if what.startswith(start)) == f"{start}, run 2"


@pytest.mark.parametrize("runs", [(RUN,), ("demo/other", RUN)])
def test_no_line_is_longer_than_a_terminal(
    runs: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)  # as wide as it takes
    write_table(lines_of(analysis(*runs, **TELLING)))
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) > 25
    assert max(len(line.rstrip()) for line in lines) <= 80, max(lines, key=len)


def test_an_analysis_of_nothing_defined_is_printed_without_inventing_numbers() -> None:
    none = dict.fromkeys(FIT)
    lines = told(analysis(rate=none, cpu=none, memory=none, latency_ms={"p50": None}, stability=[]))
    assert ("rate: R² predicted", None, "off by N/A, 95 % N/A, worst N/A") in lines
    assert ("latency p50, ms", None, "") in lines
