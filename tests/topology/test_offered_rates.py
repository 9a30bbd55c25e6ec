"""`--rates FILE|R`: what is read, what is refused, and that nothing offered changes on the way."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.topology_runtime.errors import InvalidInput
from headgate.topology_runtime.rates import offered_rates as rates
from headgate.topology_runtime.rates.offered_rates import MAX_BYTES, MAX_FAULTS, Rates, parse, read
from headgate.topology_runtime.rates.schedule import NS, Schedule
from headgate.topology_runtime.tasks import demo
from headgate.topology_runtime.wording import utc_iso


def faults_of(text: str) -> tuple[str, ...]:
    with pytest.raises(InvalidInput) as caught:
        parse(text, "x")
    return caught.value.faults


def test_lines_of_seconds_and_rate() -> None:
    got = parse("# a ramp\n10,5\n\n12, 7.5\n16,1e1\n", "x")
    assert got.steps == ((0.0, 5.0), (2.0, 7.5), (6.0, 10.0))
    assert got.period_s == 10.0  # the last step is as long as the one before it


def test_one_line_goes_on_for_ever() -> None:
    assert parse("0,5", "x") == Rates(((0.0, 5.0),), 0.0)


def test_csv_with_timestamps_in_any_column_order_and_scaled() -> None:
    text = "value,place,timestamp\n100,a,2014-07-01 00:00:00\n300,b,2014-07-01T00:30:00\n"
    got = parse(text, "x", rate_scale=0.1, time_scale=180.0)
    assert got.steps == ((0.0, 10.0), (10.0, 30.0))
    assert got.period_s == 20.0


def test_timestamps_with_zones_are_instants() -> None:
    got = parse("timestamp,value\n2014-07-01 00:00:00+00:00,1\n2014-07-01 02:30:00+02:00,2\n", "x")
    assert got.steps[1][0] == 1800.0


def test_header_of_seconds_and_rate() -> None:
    assert parse("seconds,rate_tps\n0,1\n1,2\n", "x").steps == ((0.0, 1.0), (1.0, 2.0))


NOON = 1_795_867_200  # 2026-11-28 12:00:00 UTC
DAY = "2026-11-28 12:0"
EXPORTS = {
    "prometheus": f"timestamp,value\n{NOON},100\n{NOON + 60}.0,120.5\n",
    "epoch milliseconds": f"timestamp,value\n{NOON}000,100\n{NOON + 60}000,120.5\n",
    "grafana": f'"Time","rate"\n"{DAY}0:00","100"\n{DAY}1:00,120.5\n',
    "grafana, ISO": '"Time","{job=""a""}"\n2026-11-28T12:00:00.000Z,100\n2026-11-28T13:01:00+01:00,120.5\n',
    "grafana, milliseconds": f"Time,rate\n{NOON}000,100\n{NOON + 60}000,120.5\n",
    "grafana, units": f'"Time","rate"\n"{DAY}0:00","100 req/s"\n"{DAY}1:00","120.5 req/s"\n',
    "grafana, for Excel": f'sep=,\n"Time","rate"\n"{DAY}0:00","100 ops/s"\n"{DAY}1:00","120.5 /s"\n',
}


@pytest.mark.parametrize("kind", EXPORTS)
def test_exports_of_others_are_understood(kind: str) -> None:
    assert parse(EXPORTS[kind], "x").steps == ((0.0, 100.0), (60.0, 120.5))


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("0,5\n1,5,100", "3 columns, not 2; decimals have a point"),
        ("0,5,", "3 columns, not 2"),
        ("timestamp,value\n2014-07-01,1,2", "3 columns, not 2"),
        ("timestamp,value,place\n2014-07-01,1", "2 columns, not 3"),
        ("0;5", "separated by commas"),
        ("0\t5", "separated by commas"),
        ('0,"1,5"', "decimals have a point"),
        ('timestamp,value\n"1,5",3', "decimals have a point"),
        ("0,1_000", "invalid rate"),
        ("0,\u0661", "invalid rate"),
        ("timestamp,value\n01/02/2014,5", "which is the month"),
        ("timestamp,value\n1.2.2014 00:00,5", "which is the month"),
        ("timestamp,value\n20140701,5", "may be a date"),
        ("timestamp,value\n20140701003000,5", "may be a date"),
        ("20140701,5", "may be a date"),
        (f"{NOON}000,5", "milliseconds"),
        (f"timestamp,value\n{NOON}000000,5", "within"),
        ("0,5 K", "unit"),
        ("0,5 req/min", "unit"),
        ("Time,a,b\n0,1,2", "columns"),
        ("timestamp,value,value\n0,1,2", "columns"),
        ("0,5 %", "unit"),
    ],
)
def test_what_may_mean_something_else_is_refused(text: str, word: str) -> None:
    (fault,) = faults_of(text)
    assert word in fault


def test_a_day_of_rates_by_the_second_is_read(tmp_path: Path) -> None:
    path = tmp_path / "day"
    lines = [f'"{utc_iso((NOON + n) * 1_000_000_000)}","{1000 + n % 7} req/s"' for n in range(86_401)]
    path.write_text("\n".join(['"Time","rate"', *lines]))
    day = read(str(path))
    assert len(day.steps) == day.period_s == 86_401 and day.max_tps == 1006
    short = day.steps_for(None)
    assert len(short.steps) <= rates.MAX_STEPS and short.averaged > 1


def test_every_fault_is_listed_with_its_line() -> None:
    text = "0,1\n1,-2\n2,nan\nthree,4\n4\n1,inf\n0,5\n6,many\n"
    faults = faults_of(text)
    assert [fault.split(":")[0] for fault in faults] == [f"line {n}" for n in (2, 3, 4, 5, 6, 8, 7)]
    assert "negative" in faults[0] and "nan" in faults[1] and "three" in faults[2]
    assert "column" in faults[3] and "inf" in faults[4] and "many" in faults[5]
    assert "0 s after 0 s of line 1" in faults[6]


def test_a_gigantic_number_of_faults_is_counted() -> None:
    faults = faults_of("\n".join(f"{i},-1" for i in range(500)))
    assert len(faults) == MAX_FAULTS + 1
    assert faults[-1] == "and 400 more"


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("", "no line"),
        ("# nothing\n\n", "no line"),
        ("timestamp,value\n", "no line"),
        ("time,count\n0,1\n", "columns"),
        ("0,0\n1,0\n", "above 0"),
        ("0,1\n0,2\n", "rise"),
        ("timestamp,value\nyesterday,5\n", "timestamp"),
        ("0,2e9\n", "above"),
        ("1e300,1\n", "within"),
        ('0,"' + "9" * 200_000, "column"),
    ],
)
def test_what_is_no_rates_file(text: str, word: str) -> None:
    assert any(word in fault for fault in faults_of(text))


@pytest.mark.parametrize("scale", [0.0, -1.0, float("nan"), float("inf")])
def test_scales_are_finite_and_positive(scale: float) -> None:
    with pytest.raises(InvalidInput):
        parse("0,1\n1,2\n", "x", rate_scale=scale)
    with pytest.raises(InvalidInput):
        parse("0,1\n1,2\n", "x", time_scale=scale)


def test_scaling_beyond_all_bounds_is_a_fault_with_its_line() -> None:
    with pytest.raises(InvalidInput) as caught:
        parse("0,1\n1,500\n", "x", rate_scale=1e8)
    assert caught.value.faults[0].startswith("line 2: scaled")
    with pytest.raises(InvalidInput, match="invalid") as caught:
        parse("0,1\n1e-300,2\n2,3\n", "x", time_scale=1e300)
    assert "same instant" in caught.value.faults[-1]


def test_auto_scale_asks_for_the_capacity_only_then() -> None:
    assert parse("0,50\n1,200\n", "x", "auto", 1.0, lambda: 100.0).max_tps == pytest.approx(80.0)

    def never() -> float:
        raise AssertionError("asked")

    assert parse("0,50\n1,200\n", "x", 1.0, 1.0, never).max_tps == 200.0
    with pytest.raises(InvalidInput, match="auto"):
        parse("0,1", "x", "auto")


@pytest.mark.parametrize("rate", ["100", "12.5"])
def test_a_number_is_a_constant_rate(rate: str) -> None:
    assert read(rate) == Rates(((0.0, float(rate)),))


@pytest.mark.parametrize("rate", ["0", "-3", "nan", "inf", "1e10"])
def test_numbers_that_are_no_rate(rate: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        read(rate)
    assert caught.value.faults


class TestFilesThatCannotBeRead:
    def test_absent(self) -> None:
        with pytest.raises(InvalidInput, match="no-such-file"):
            read("no-such-file.csv")

    def test_folder(self, tmp_path: Path) -> None:
        with pytest.raises(InvalidInput):
            read(str(tmp_path))

    def test_fifo_is_refused_and_not_waited_for(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "pipe")
        with pytest.raises(InvalidInput) as caught:
            read(str(tmp_path / "pipe"))
        assert caught.value.cause == "it is no plain file"

    def test_too_large(self, tmp_path: Path) -> None:
        (tmp_path / "large").write_text("0,1\n" + "#" * MAX_BYTES)
        with pytest.raises(InvalidInput, match="too large"):
            read(str(tmp_path / "large"))

    def test_no_text(self, tmp_path: Path) -> None:
        (tmp_path / "bytes").write_bytes(b"0,1\n\xff\xfe")
        with pytest.raises(InvalidInput) as caught:
            read(str(tmp_path / "bytes"))
        assert "UTF-8" in (caught.value.cause or "")


@given(st.text(alphabet="0123456789.,-+e#\n\"' :Tnaifvluetmsp", max_size=200))
def test_any_text_is_rates_or_faults(text: str) -> None:
    try:
        got = parse(text, "x")
    except InvalidInput as error:
        assert error.faults
    else:
        assert got.steps[0][0] == 0.0 and got.max_tps > 0


steps = st.lists(
    st.tuples(st.floats(0.1, 50.0), st.sampled_from([0.0, 1.0, 2.5, 7.0])), min_size=2, max_size=30
)


@given(steps, st.floats(0.5, 400.0), st.integers(2, 40))
def test_a_run_is_offered_the_same_with_its_own_steps_only(
    gaps: list[tuple[float, float]], seconds: float, most: int
) -> None:
    at_s, all_steps = 0.0, []
    for gap_s, rate in gaps:
        all_steps.append((at_s, rate))
        at_s += gap_s
    whole = Rates(tuple(all_steps), at_s)
    cut = whole.steps_for(seconds, most)
    assert len(cut.steps) <= most
    before, after = (Schedule(0, r.steps, r.period_s) for r in (whole, cut))
    if cut.averaged == 1:
        for share in (0.0, 0.1, 0.5, 0.999):
            now_ns = int(share * seconds * NS)
            assert after.rate_at(now_ns) == before.rate_at(now_ns)
            assert after.offered(now_ns) == pytest.approx(before.offered(now_ns))
    elif seconds >= at_s:  # averaged: what a whole period offers stays
        assert after.offered(int(at_s * NS)) == pytest.approx(before.offered(int(at_s * NS)), abs=1e-3)


def test_too_many_steps_for_an_endless_run_are_averaged_and_said_so() -> None:
    whole = Rates(tuple((float(i), float(i % 7)) for i in range(10_000)), 10_000.0)
    cut = whole.steps_for(None)
    assert cut.averaged == 3 and len(cut.steps) == 3334
    assert whole.steps_for(500.0).averaged == 1
    assert len(whole.steps_for(500.0).steps) == 500


def test_the_shipped_day_is_a_whole_day_of_new_york() -> None:
    file = Path(demo.RATES_FILE).with_name("taxi_day.csv")
    assert "Taxi" in file.read_text("utf-8").splitlines()[1]
    day = rates.read(str(file), 0.006, 720.0)
    assert len(day.steps) == 48
    assert day.period_s == pytest.approx(120.0)
    assert 150 < day.max_tps < 160 and 10 < day.min_tps < 20


# ── `--rates TRACE`: what a recorded run offered is offered again ───────────────────────────────────────

T0_US = 1_790_000_000_000_000


def segment(folder: Path, name: str, *rows: tuple[float, str, float]) -> Path:
    """A segment of `rates`: (seconds, source, offered_tps)."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder.mkdir(parents=True, exist_ok=True)
    columns = {
        "time": pa.array([T0_US + int(at_s * 1e6) for at_s, _, _ in rows], pa.timestamp("us", tz="UTC")),
        "source": pa.array([source for _, source, _ in rows], pa.string()),
        "offered_tps": pa.array([rate for _, _, rate in rows], pa.float64()),
        "planned_tps": pa.array([0.0] * len(rows), pa.float64()),
    }
    pq.write_table(pa.table(columns), folder / name)
    return folder


def test_segments_are_put_in_order_of_time(tmp_path: Path) -> None:
    segment(tmp_path / "rates", "b.parquet", (12.0, "in", 30.0), (13.0, "in", 40.0))
    segment(tmp_path / "rates", "a.parquet", (14.0, "in", 50.0), (11.0, "in", 20.0))
    segment(tmp_path / "rates", "_c.parquet", (15.0, "in", 99.0))
    got = read(str(tmp_path))
    assert got.steps == ((0.0, 20.0), (1.0, 30.0), (2.0, 40.0), (3.0, 50.0))
    assert got.period_s == 4.0
    assert read(str(tmp_path / "rates")) == got


def decision(at_s: float, rate_tps: float | None) -> str:
    demand = {} if rate_tps is None else {"offered_tps": rate_tps, "rise_tps": 0.0}
    time = utc_iso(T0_US * 1000 + int(at_s * 1e9))
    return json.dumps({"schema": "headgate/decision/v1", "time": time, "evidence": {"demand": demand}})


def test_the_rate_of_the_last_second_counts_where_a_decision_tells_it(tmp_path: Path) -> None:
    rows = [(at_s, "in", 10.0 + at_s) for at_s in (0.123456, 1.2, 2.3, 3.4, 4.5)]
    segment(tmp_path / "rates", "a.parquet", *rows)
    lines = [decision(0.123456, None), "{}", decision(1.2, 10.0), decision(2.3, 90.0), decision(3.4, -1.0)]
    (tmp_path / "decisions.jsonl").write_text("\n".join([*lines, decision(9.9, 7.0), '{"half']))
    got = [rate for _, rate in read(str(tmp_path)).steps]
    assert got == pytest.approx([10.123456, 10.0, 90.0, 13.4, 14.5])
    assert read(str(tmp_path / "rates")) == read(str(tmp_path))


def test_what_was_before_the_first_tuple_is_left_out(tmp_path: Path) -> None:
    segment(tmp_path, "a.parquet", (0.0, "in", 0.0), (1.0, "in", 8.0), (2.0, "in", 0.0))
    assert read(str(tmp_path)).steps == ((0.0, 8.0), (1.0, 0.0))


def test_of_several_sources_one_tells_and_doubled_segments_count_once(tmp_path: Path) -> None:
    rows = ((1.0, "a", 5.0), (1.0, "b", 5.0), (2.0, "a", 6.0), (2.0, "b", 6.0))
    segment(tmp_path, "a.parquet", *rows)
    segment(tmp_path, "b.parquet", *rows)
    assert read(str(tmp_path)).steps == ((0.0, 5.0), (1.0, 6.0))


def test_scales_count_for_recorded_rates_too(tmp_path: Path) -> None:
    segment(tmp_path, "a.parquet", (0.0, "in", 10.0), (4.0, "in", 20.0))
    assert read(str(tmp_path), 3.0, 2.0).steps == ((0.0, 30.0), (2.0, 60.0))
    assert read(str(tmp_path), "auto", capacity_tps=lambda: 100.0).max_tps == pytest.approx(80.0)


def refusal(folder: Path) -> str:
    with pytest.raises(InvalidInput) as caught:
        read(str(folder))
    return "\n".join(caught.value.lines())


def test_every_segment_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    segment(tmp_path, "a.parquet", (0.0, "in", 1.0))
    segment(tmp_path, "b.parquet", (0.0, "in", -1.0))
    (tmp_path / "c.parquet").write_bytes(b"PAR1 torn")
    pq.write_table(pa.table({"time": [1]}), tmp_path / "d.parquet")
    text = refusal(tmp_path)
    assert "b.parquet: row 0" in text and "c.parquet: " in text and "d.parquet: " in text
    assert "a.parquet" not in text


def test_a_folder_without_rates_and_a_run_that_offered_nothing_are_refused(tmp_path: Path) -> None:
    assert "no recorded rates" in refusal(tmp_path)
    segment(tmp_path, "a.parquet", (0.0, "in", 0.0))
    assert "nothing was offered" in refusal(tmp_path)
