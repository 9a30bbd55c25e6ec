"""`headgate lab backtest` as people and scripts use it."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from headgate.lab.rate_policies.backtest_command import backtest
from headgate.topology_runtime.errors import HeadgateError, InvalidInput, UsageError

RATES = "0,100\n60,300\n120,100\n180,100\n"


@pytest.fixture
def rates(tmp_path: Path) -> str:
    path = tmp_path / "rates.csv"
    path.write_text(RATES)
    return str(path)


def told(*arguments: str) -> Any:
    result = CliRunner().invoke(backtest, [*arguments, "-o", "json"], standalone_mode=False)
    if result.exception is not None:
        raise result.exception
    return json.loads(result.stdout)


def test_json_has_a_schema_units_and_every_policy(rates: str) -> None:
    found = told(rates)
    assert found["schema"] == "headgate/backtest/v1"
    assert (found["topology"], found["may_wait_s"], found["headroom"]) == ("linear", 5.0, 1.15)
    (series,) = found["series"]
    assert (series["name"], series["seconds"], series["peak_tps"]) == ("rates", 240.0, 400.0)
    rows = {row["policy"]: row for row in series["policies"]}
    rules = {"foresight", "static", "bare", "ds2", "hpa", "flink", "daedalus", "phoebe", "conttune"}
    assert set(rows) == rules
    assert sorted(row["rank"] for row in rows.values()) == list(range(1, len(rules) + 1))
    assert rows["bare"]["of_bare"] == 1.0 == rows["static"]["of_static"]
    assert rows["bare"]["planned_of_offered"] == pytest.approx(400.0 / series["mean_tps"], rel=0.01)
    assert all(
        math.isfinite(value) for row in rows.values() for value in row.values() if isinstance(value, float)
    )
    assert [row["policy"] for row in found["ranked"]] == [
        row["policy"] for row in sorted(found["ranked"], key=lambda row: row["rank"])
    ]


def test_one_policy_several_speeds_and_a_scale_of_ones_own(rates: str) -> None:
    found = told(rates, "--policy", "foresight", "--set", "time-scale=1,2", "--set", "rate-scale=0.5")
    assert [(one["name"], one["seconds"], one["peak_tps"]) for one in found["series"]] == [
        ("rates", 240.0, 150.0),
        ("rates/2", 120.0, 150.0),
    ]
    assert [row["policy"] for one in found["series"] for row in one["policies"]] == ["foresight"] * 2


def test_several_parts_of_a_file_and_who_won_each(rates: str) -> None:
    found = told(rates, "--policy", "ds2,hpa", "--set", "skip=0,60", "--set", "take=60", "--set", "peak=300")
    first, second = found["series"]
    assert [(one["name"], one["seconds"], one["mean_tps"]) for one in found["series"]] == [
        ("rates", 60.0, 300.0),
        ("rates@60", 60.0, 300.0),
    ]
    assert all(row["of_oracle"] >= 1.0 for one in (first, second) for row in one["policies"])
    assert sum(row["wins"] for row in found["ranked"]) == 2
    assert {row["late_enough"] for row in found["ranked"]} == {2}


def test_rules_of_others_may_be_charged_for_their_restarts(rates: str) -> None:
    arguments = (rates, "--policy", "foresight,ds2", "--set", "peak=300")
    for free, charged in zip(
        *(told(*arguments, "--set", f"restart-s={long_s}")["series"][0]["policies"] for long_s in (0, 20)),
        strict=True,
    ):
        assert free["repeated"] == 0.0
        ours = free["policy"] == "foresight"
        assert (free == charged) == ours and (charged["repeated"] > 0.0) != ours


def test_the_same_question_has_the_same_answer(rates: str) -> None:
    assert told(rates, "--policy", "foresight,hpa") == told(rates, "--policy", "foresight,hpa")


def test_a_table_for_people_and_a_row_each_as_csv(rates: str) -> None:
    shown = CliRunner().invoke(backtest, [rates, "made:step-up", "--policy", "static"], standalone_mode=False)
    assert "of_static" in shown.stdout and "over 2 series" in shown.stdout
    rows = CliRunner().invoke(backtest, [rates, "--policy", "static", "-o", "csv"], standalone_mode=False)
    assert len(rows.stdout.strip().splitlines()) == 2


def test_a_curve_over_one_constant(rates: str) -> None:
    shares = told(rates, "--set", "vary=short_share=0.5")["curve"]
    assert shares[0]["value"] == 0.5 and shares[0]["short_share"] < 0.5, "what is varied and what came of it"
    found = told(rates, "--set", "vary=headroom=1,1.5")
    assert (found["schema"], found["constant"], found["series"]) == (
        "headgate/backtest-curve/v1",
        "headroom",
        1,
    )
    low, high = found["curve"]
    assert (low["value"], high["value"]) == (1.0, 1.5)
    assert low["of_bare"] < high["of_bare"]


def test_a_picture(rates: str, tmp_path: Path) -> None:
    picture = tmp_path / "backtest.svg"
    told(rates, "--policy", "foresight", "--plot", str(picture))
    assert picture.read_text().startswith("<?xml")


@pytest.mark.parametrize(
    ("arguments", "kind", "text"),
    [
        ((), UsageError, "missing rates"),
        (("made:sin-60s",), InvalidInput, "did you mean"),
        (("nowhere.csv",), InvalidInput, "nowhere.csv"),
        (("RATES", "--policy", "hpaa,foresite"), UsageError, "'hpaa'"),
        (("RATES", "--set", "peak=10", "--set", "rate-scale=2"), UsageError, "give one"),
        (("RATES", "--set", "headroom=0.5"), InvalidInput, "--headroom"),
        (("RATES", "--set", "cut=nan"), InvalidInput, "--cut"),
        (("RATES", "--set", "time-scale=fast"), UsageError, "--time-scale"),
        (("RATES", "--set", "skip=-1"), UsageError, "--skip"),
        (("RATES", "--set", "skip=240"), InvalidInput, "is skipped"),
        (("RATES", "--set", "restart-s=nan"), InvalidInput, "--restart-s"),
        (("RATES", "--set", "vary=wings=2"), UsageError, "no constant 'wings'"),
        (("RATES", "--set", "vary=quiet_s=soon"), UsageError, "no list of numbers"),
        (("RATES", "--plot", "x.gif"), UsageError, "x.gif"),
        (("100",), InvalidInput, "has no end"),
        (("RATES", "--topology", "nothing.yaml"), HeadgateError, "nothing.yaml"),
        (("RATES", "--set", "peak=90000"), HeadgateError, "no plan carries"),
    ],
)
def test_what_cannot_be_tried_says_what_and_why(
    rates: str, arguments: tuple[str, ...], kind: type[HeadgateError], text: str
) -> None:
    with pytest.raises(kind) as caught:
        told(*(rates if argument == "RATES" else argument for argument in arguments))
    assert text in "\n".join(caught.value.lines())


@pytest.mark.parametrize(
    "content", ["", "a,b,c\n", "0,100\n0,200\n", "0,-5\n", "0,nan\n", "0,0\n10,0\n", "x\n" * 10, "\x00\xff"]
)
def test_rates_files_that_are_none_are_refused(content: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.csv"
    path.write_text(content, "latin-1")
    with pytest.raises(InvalidInput):
        told(str(path))
