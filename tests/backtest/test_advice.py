"""`headgate lab advise`: on a recorded series it plans what `headgate lab backtest` plans then, whoever tells it the
rate; of what is not known it says nothing, and goes on."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result
from enactment_world import World
from prometheus_made import MadeServer, made_server, real_server

from headgate.controller.core.decisions import run_of
from headgate.lab.rate_policies.advise_command import advise
from headgate.lab.rate_policies.advisor import KEPT_S, Advice, Advisor
from headgate.lab.rate_policies.backtest_command import BacktestTrial
from headgate.lab.rate_policies.backtest_inputs import RateSeries, made, of_rates, question_of
from headgate.lab.rate_policies.backtest_world import BacktestQuestion
from headgate.lab.rate_policies.prometheus_rates import PrometheusServer, RateAsked, ServerFollower
from headgate.lab.rate_policies.rate_options import HEADROOM
from headgate.topology_runtime.errors import InvalidInput, Unreachable, UsageError
from headgate.topology_runtime.rates.offered_rates import read
from headgate.topology_runtime.wording import utc_iso

QUESTION: BacktestQuestion = question_of(
    {"topology": "linear", "models": None, "paths": (), "enact_s": 1.0, "machine_s": 2.0}
)
T0 = 1_790_000_000.0
LONG_S = 600


def short(name: str, seconds: int = LONG_S) -> RateSeries:
    whole = made(name)
    return RateSeries(name, tuple(step for step in whole.steps if step[0] < seconds), float(seconds))


def rate_at(series: RateSeries, at_s: float) -> float:
    return next(tps for start_s, tps in reversed(series.steps) if start_s <= at_s)


def planned_by_backtest(series: RateSeries) -> list[tuple[float, float]]:
    trial = BacktestTrial(series, "foresight", QUESTION, HEADROOM)
    for _ in trial.rounds:
        trial.go_on()
    return trial.world.plans


def plans(found: list[Advice]) -> list[tuple[float, float]]:
    return [(one.at_s, one.plan.rate_tps) for one in found if one.action == "plan" and one.reason != "start"]


def assert_same(found: list[Advice], series: RateSeries) -> None:
    expected = planned_by_backtest(series)
    assert len(expected) > 1, "a series on which something is planned"
    assert [at_s for at_s, _ in plans(found)] == [at_s for at_s, _ in expected]
    assert [tps for _, tps in plans(found)] == pytest.approx([tps for _, tps in expected])


@pytest.mark.parametrize("name", ["sine-120s", "noise-30", "square-120s"])
def test_it_advises_what_a_backtest_plans_at_those_seconds(name: str) -> None:
    series = short(name)
    advisor = Advisor(QUESTION, HEADROOM)
    found = []
    for second in range(int(series.seconds)):
        found += advisor.hear(second + 1.0, rate_at(series, second))
    assert_same(found, series)
    assert found[0].reason == "start" and all(one.text for one in found)
    assert len(advisor.offer.spans) <= KEPT_S + 2, "what is past is forgotten"


def test_nothing_is_advised_of_a_time_of_which_nothing_is_known() -> None:
    advisor = Advisor(QUESTION, HEADROOM)
    found = []
    for second in range(60):
        found += advisor.hear(second + 1.0, 100.0)
    for second in range(60, 160):
        found += advisor.hear(second + 1.0, None)
    assert [one.reason for one in found] == ["start"]
    for second in range(160, 260):
        found += advisor.hear(second + 1.0, 300.0)
    later = found[1:]
    assert later and all(one.at_s > 160 for one in later) and later[-1].plan.rate_tps > 300


def test_a_rate_that_stands_in_for_what_is_not_known_is_no_evidence() -> None:
    """It fell three seconds before nothing was known any more: that it stayed low nobody saw."""
    advisor = Advisor(QUESTION, HEADROOM)
    found = []
    for second in range(200):
        found += advisor.hear(
            second + 1.0, 300.0 if second < 60 else 50.0 if second < 63 or second >= 150 else None
        )
    lowered = [one.at_s for one in found[1:]]
    assert lowered and lowered[0] > 150


def test_what_no_vms_carry_is_said_once() -> None:
    few = BacktestQuestion(QUESTION.topology, QUESTION.models, QUESTION.vms[:3], QUESTION.delays)
    advisor = Advisor(few, HEADROOM)
    found = []
    for second in range(200):
        found += advisor.hear(second + 1.0, 50.0 if second < 60 else 5000.0)
    assert [one.reason for one in found if one.action == "none"] == ["rate_changed"]
    assert "nothing better fits" in found[-1].text and found[-1].plan.slots.used <= 12


# ── from a server ───────────────────────────────────────────────────────────────────────────────


class Told:
    """A made server that knows a series up to `now_s`, and who follows it."""

    def __init__(self, server: MadeServer, series: RateSeries) -> None:
        self.server, self.series, self.said = server, series, list[str]()
        self.advisor = Advisor(QUESTION, HEADROOM)
        client = PrometheusServer(server.url, silent_s=5.0)
        self.follower = ServerFollower(
            client, RateAsked("rate", 1.0, 1.0, 5.0), self.advisor, T0, self.said.append
        )

    def know(self, from_s: int, to_s: int) -> None:
        """The value at a time is of the second before it."""
        rows = [(T0 + n + 1, str(rate_at(self.series, n))) for n in range(from_s, to_s)]
        before = list(self.server.series.get("rate", [[]])[0])
        self.server.series["rate"] = [[*before, *rows]]


@pytest.fixture
def told() -> Iterator[Told]:
    with made_server({}) as server:
        yield Told(server, short("sine-120s"))


def test_a_server_that_is_followed_gives_what_a_backtest_plans(told: Told) -> None:
    """The past at once, then every five seconds, with an outage, and values that come late."""
    told.know(0, 200)
    found = told.follower.ask(T0 + 200.4)
    for now_s in range(205, LONG_S + 1, 5):
        told.know(now_s - 5, now_s - 2)  # two seconds are late …
        if 300 <= now_s < 330:
            told.server.answer = lambda handler: MadeServer.write(handler, 502, b"bad gateway")
        else:
            told.server.answer = None
        found += told.follower.go_on(T0 + now_s)
        told.know(now_s - 2, now_s)  # … and there when it is asked again
    found += told.follower.go_on(T0 + LONG_S + 1)
    assert_same(found, told.series)
    assert told.follower.began_s == T0
    assert [text.split(" gives")[0].split(" answers")[0] for text in told.said] == [told.server.url] * 2
    assert "status 502" in told.said[0] and "answers again" in told.said[1]


def test_waiting_grows_while_it_fails(told: Told) -> None:
    told.server.answer = lambda handler: handler.connection.close()
    waits = []
    for now_s in (10, 20, 40, 80, 160, 320):
        told.follower.go_on(T0 + now_s)
        waits.append(told.follower.wait_s)
    assert waits == [10.0, 20.0, 40.0, 60.0, 60.0, 60.0] and len(told.said) == 1
    with pytest.raises(Unreachable):
        told.follower.ask(T0 + 400)


def test_values_that_stop_are_named_and_taken_up_again(told: Told) -> None:
    told.know(0, 100)
    told.follower.ask(T0 + 100)
    quiet = [told.follower.go_on(T0 + now_s) for now_s in range(105, 300, 5)]
    assert not any(quiet) and len(told.said) == 1 and "no value comes" in told.said[0]
    told.know(300, LONG_S)
    found = told.follower.go_on(T0 + LONG_S)
    assert told.advisor.offer.until_s == LONG_S and all(one.at_s > 300 for one in found)


def test_a_value_that_the_server_repeats_is_not_acted_on(told: Told) -> None:
    """It repeats the last sample for five minutes; when that was taken it says."""
    told.know(0, 100)
    last = [(T0 + n, str(rate_at(told.series, 99))) for n in range(101, 400)]
    told.server.series["rate"] = [[*told.server.series["rate"][0], *last]]
    told.server.taken["rate"] = lambda at_s: min(at_s, T0 + 100)
    told.follower.ask(T0 + 100)
    quiet = [told.follower.go_on(T0 + now_s) for now_s in range(105, 400, 5)]
    assert not any(quiet) and told.advisor.offer.until_s > 100
    assert "repeats a sample" in told.said[0] and told.follower.stale(T0 + 200)
    assert told.follower.age_s(T0 + 399) >= 290


def test_a_value_is_as_old_as_its_sample_and_no_older_than_samples_come(told: Told) -> None:
    """One every fifteen seconds is repeated for fourteen; that is no reason to stop."""
    told.know(0, LONG_S)
    told.server.taken["rate"] = lambda at_s: T0 + (at_s - T0) // 15 * 15
    told.follower.ask(T0 + 300)
    found = [told.follower.go_on(T0 + now_s) for now_s in range(305, LONG_S, 5)]
    assert any(found) and not told.said
    assert told.follower.age_s(T0 + LONG_S) == pytest.approx(10 + 5, abs=1.0) and not told.follower.stale(
        T0 + LONG_S
    )


def test_a_deployment_that_begins_later(told: Told) -> None:
    assert told.follower.ask(T0 + 100) == [] and told.advisor.plan is None
    told.server.series["rate"] = [[(T0 + 140 + n, "50") for n in range(20)]]
    found = told.follower.go_on(T0 + 160)
    assert found[0].reason == "start" and told.follower.began_s == T0 + 139


# ── the command ─────────────────────────────────────────────────────────────────────────────────


def asked(*words: str) -> Result:
    return CliRunner().invoke(advise, list(words))


def test_once_says_what_would_run_now() -> None:
    now_s = int(time.time())
    series: Any = {"rate": [[(now_s - 200 + n, "50" if n < 100 else "150") for n in range(205)]]}
    with made_server(series) as server:
        words = ["linear", "--prometheus", server.url, "--query", "rate", "--set", "past=150"]
        done = asked(*words, "--once", "-o", "json")
        told = json.loads(done.stdout)
        assert told["schema"] == "headgate/advised/v1" and told["topology"] == "linear"
        assert [row["reason"] for row in told["advice"]][:2] == ["start", "rate_changed"]
        assert told["now"]["rate_tps"] > 150 and told["advice"][0]["time"].endswith("Z")
        table = asked(*words, "--once").stdout
        assert "rate_changed → plan" in table and "now: plan" in table and "blob" in table
        lines = asked(*words, "--seconds", "0.5", "--set", "every=0.2", "-o", "jsonl").stdout.splitlines()
        assert json.loads(lines[0])["schema"] == "headgate/advice/v1"
        assert isinstance(asked(*words, "-o", "json").exception, UsageError)
        server.series.clear()
        assert isinstance(asked(*words, "--once").exception, InvalidInput)


def test_the_age_of_the_value_is_told_and_an_old_one_is_not_acted_on() -> None:
    now_s = int(time.time())
    fresh: Any = {"rate": [[(now_s - 200 + n, "50") for n in range(500)]]}
    with made_server(fresh) as server:
        words = ["linear", "--prometheus", server.url, "--query", "rate", "--set", "past=250"]
        told = json.loads(asked(*words, "--once", "-o", "json").stdout)
        assert 0 <= told["value_age_s"] <= 4
        line = json.loads(
            asked(*words, "--seconds", "0.3", "--set", "every=0.2", "-o", "jsonl").stdout.splitlines()[0]
        )
        assert 190 <= line["value_age_s"] < 260
        server.series["rate"] = [[(now_s - 200 + n, "50") for n in range(100)]]
        refused = asked(*words, "--once").exception
    assert isinstance(refused, InvalidInput) and "the last value is 1" in refused.what


def test_of_an_expression_it_is_told_for_how_long_its_value_is_the_same() -> None:
    now_s = int(time.time())
    same: Any = {"rate": [[(now_s - 200 + n, "50" if n > 80 else str(n)) for n in range(500)]]}
    with made_server(same) as server:
        words = ["linear", "--prometheus", server.url, "--query", "rate", "--set", "past=250", "--once"]
        told = json.loads(asked(*words, "-o", "json").stdout)
        assert 115 <= told["value_unchanged_s"] <= 125 and not told["sample_times_known"]
        assert "the same for 1" in asked(*words).stdout
        server.taken["rate"] = lambda at_s: at_s - 0.5
        told = json.loads(asked(*words, "-o", "json").stdout)
        assert told["sample_times_known"] and told["value_age_s"] >= 0.5
        assert "the same for" not in asked(*words).stdout


REAL = pytest.mark.skipif(
    not (shutil.which("prometheus") and shutil.which("promtool")), reason="Debian's package prometheus has it"
)


@pytest.mark.live
@REAL
def test_a_real_server_says_of_a_gauge_when_its_sample_was_taken_and_not_of_a_sum(tmp_path: Path) -> None:
    ended_s = int(time.time()) - 120
    samples = [(float(ended_s - 300 + n), str(50 + n % 7)) for n in range(301)]
    with real_server({"requests": [samples]}, tmp_path) as url:
        words = ["linear", "--prometheus", url, "--set", "past=300", "--once", "-o", "json", "--query"]
        refused = asked(*words, "requests").exception
        told = json.loads(asked(*words, "sum(requests)").stdout)
    assert isinstance(refused, InvalidInput) and "s old: nothing is advised" in refused.what
    assert told["value_unchanged_s"] >= 100 and told["value_age_s"] < 60 and not told["sample_times_known"]


@pytest.mark.live
@REAL
def test_a_real_server_gives_what_a_backtest_plans(tmp_path: Path) -> None:
    """After the last value the server repeats it for five minutes: what is advised then is nobody's series."""
    series, began_s = short("sine-120s"), int(time.time()) - LONG_S
    samples = [(float(began_s + n + 1), repr(rate_at(series, n))) for n in range(LONG_S)]
    with real_server({"requests": [samples]}, tmp_path) as url:
        past_s = str(time.time() - began_s + 5)
        words = [
            "linear",
            "--prometheus",
            url,
            "--query",
            "sum(requests)",
            "--set",
            f"past={past_s}",
            "--once",
        ]
        done = asked(*words, "-o", "json")
        assert done.exit_code == 0, done.exception
        told = json.loads(done.stdout)
    found = [row for row in told["advice"] if row["reason"] != "start" and row["at_s"] <= LONG_S]
    expected = planned_by_backtest(series)
    assert [(row["at_s"], row["rate_tps"]) for row in found] == [
        (at_s, round(tps, 3)) for at_s, tps in expected
    ]
    assert told["advice"][0]["time"][:19] == utc_iso(began_s * 10**9)[:19]


def test_a_file_of_rates_is_no_trace(tmp_path: Path) -> None:
    assert isinstance(asked("--trace", str(tmp_path)).exception, InvalidInput)


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["linear"],
        ["--prometheus", "http://localhost:1", "--query", "x"],
        ["linear", "--prometheus", "http://localhost:1"],
        ["linear", "--prometheus", "http://localhost:1", "--query", "x", "--trace", "t"],
        ["linear", "--prometheus", "nonsense", "--query", "x", "--once"],
    ],
)
def test_what_is_missing_is_a_fault_of_usage(words: list[str]) -> None:
    assert isinstance(asked(*words).exception, UsageError)


@pytest.mark.parametrize("word", ["step=0.1", "past=90000", "headroom=nan", "max-vms=0"])
def test_numbers_have_limits(word: str) -> None:
    given = ["linear", "--prometheus", "http://localhost:1", "--query", "x", "--set", word]
    assert isinstance(asked(*given).exception, InvalidInput)


# ── of a trace ──────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """Rates as a run records them, a row a second, and what ran: one task `work`."""
    series = short("square-120s", 400)
    rows = [(round((T0 + n) * 1e6), rate_at(series, n)) for n in range(400)]
    times = pa.array([at_us for at_us, _ in rows], pa.timestamp("us", tz="UTC"))
    columns = {"time": times, "source": ["source"] * 400, "offered_tps": [float(tps) for _, tps in rows]}
    (tmp_path / "rates").mkdir()
    pq.write_table(pa.table(columns), tmp_path / "rates" / "1.parquet")
    world = World()
    run = run_of(world.loop.knowledge, world.submitted)
    (tmp_path / "run.json").write_bytes(msgspec.json.encode(run))
    return tmp_path


@pytest.mark.parametrize("topology", ["linear", None])
def test_a_recorded_run_gives_what_a_backtest_of_it_plans(
    trace: Path, topology: str | None, tmp_path: Path
) -> None:
    words = [topology] if topology else []
    done = asked(*words, "--trace", str(trace), "-o", "json")
    told = json.loads(done.stdout)
    assert told["topology"] == (topology or "line") and told["seconds"] == 400
    if topology is None:
        assert {task["task"] for task in told["now"]["allocation"]} == {"source", "work", "sink"}
        return
    series = of_rates("run", read(str(trace)), None)
    expected = planned_by_backtest(series)
    found = [(row["at_s"], row["rate_tps"]) for row in told["advice"] if row["reason"] != "start"]
    assert len(found) == len(expected) > 2
    assert found == [(at_s, round(tps, 3)) for at_s, tps in expected]
    said = asked(*words, "--trace", str(trace)).stdout
    assert "rate_changed → plan" in said and "now: plan" in said


def test_a_trace_without_rates_is_told(trace: Path) -> None:
    (trace / "rates" / "1.parquet").unlink()
    assert isinstance(asked("--trace", str(trace)).exception, InvalidInput)
