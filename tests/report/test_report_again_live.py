"""What a reader of the page is told, against what was planted into the run and what its files add up to. It shares no
code with the report or the analysis: the page is read as text."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from made_traces.generate_trace import Wanted, generate

ROOT = Path(__file__).parents[2]
LIMIT_S = 400
PLANTED = ("overload", "slow_slot", "pair", "leak", "skew")
COUNTED = {"offered": 900, "emitted": 890, "acked": 850, "in_flight": 40, "lost": 0, "dead_lettered": 0, "replayed": 12,
           "duplicates": 3}  # fmt: skip

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(shutil.which("java") is None, reason="Spark needs Java"),
]


def before(folder: Path, run: Path) -> None:
    """A run an hour earlier, at another rate, in which all was well."""
    generate(folder / "before", Wanted(rows=60_000, threads=50, seed=2, planted=()))
    (folder / "before" / "made" / "run-1").rename(run)
    head = json.loads((run / "run.json").read_text("utf-8"))
    (run / "run.json").write_text(
        json.dumps(head | {"run": "run-0", "started": "2027-01-15T07:00:00Z"}), "utf-8"
    )


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any], dict[str, str], str]:
    """(the run, what was planted, question → answer on the page, all words of the page)."""
    pytest.importorskip("duckdb")
    folder = tmp_path_factory.mktemp("told")
    truth = generate(folder / "traces", Wanted(rows=60_000, threads=50, planted=PLANTED))
    run = folder / "traces" / "made" / "run-1"
    before(folder, run.parent / "run-0")
    view = {"now": "2027-01-15T08:00:09Z", "stage": "running", "tuples": COUNTED}
    (run / "views.jsonl").write_text(json.dumps(view) + "\n", "utf-8")
    command = [
        sys.executable,
        "-P",
        "-m",
        "headgate",
        "analyze",
        str(run),
        "--output",
        str(folder / "out"),
    ]
    subprocess.run(command, cwd=ROOT, timeout=LIMIT_S, check=True, capture_output=True)
    page = (folder / "out" / "report.html").read_text("utf-8")
    page = re.sub(r"<script.*?</script>|<style.*?</style>", " ", page, flags=re.DOTALL)
    pairs = re.findall(r"<dt>([^<]*\?)</dt>((?:<dd>[^<]*</dd>)+)", page)
    plain = {question: html.unescape(re.sub("<[^>]*>", " ", answer)) for question, answer in pairs}
    return run, truth["runs"][0]["planted"], plain, html.unescape(re.sub("<[^>]*>", " ", page))


def number(pattern: str, text: str) -> list[float]:
    found = re.search(pattern, text)
    assert found, f"{pattern} is not in: {text[:2000]}"
    return [float(group.replace(",", "")) for group in found.groups()]


def column(run: Path, table: str, name: str) -> list[Any]:
    files = sorted((run / table).glob("*.parquet"))
    return [value for file in files for value in pq.read_table(file, columns=[name])[name].to_pylist()]


def test_when_it_hurt_and_who_it_was_is_what_was_planted(told: Any) -> None:
    _, planted, answers, _ = told
    overload, words = planted["overload"], answers["Where did it hurt?"]
    from_s, to_s, peak_s = number(r"From ([\d.]+) s to ([\d.]+) s rows took up to ([\d.]+) s", words)
    assert from_s == pytest.approx(overload["from_s"], abs=2) and to_s == pytest.approx(
        overload["to_s"], abs=2
    )
    assert peak_s == pytest.approx(overload["waited_s"], rel=0.1)
    assert f": {overload['task']} in slot" in words
    assert answers["Did it keep up?"].strip().startswith("No")


def test_what_would_have_helped_names_what_was_planted(told: Any) -> None:
    _, planted, answers, words = told
    slow, leak, helping = planted["slow_slot"], planted["leak"], answers["What would have helped?"]
    assert number(rf"Slot {slow['vm']}/{slow['slot']} is slow: it does ([\d.]+) %", helping)[
        0
    ] == pytest.approx(100 * slow["speed"], abs=5)
    assert re.search(
        rf"A row of ({'|'.join(planted['pair'])}) costs × [\d.]+ .* with ({'|'.join(planted['pair'])})",
        helping,
    )
    pace = number(
        rf"The memory of slot {leak['vm']}/{leak['slot']} \([^)]*\) only grew by ([\d.]+) KiB/s", words
    )[0]
    assert 1024 * pace == pytest.approx(leak["bytes_per_s"], rel=0.2)
    times = number(r"A thread of \w+ took in ([\d.]+) times what its plan gives it", words)[0]
    assert times == pytest.approx(max(planted["skew"]["of_plan"]), rel=0.05)


def test_what_became_of_the_tuples_is_what_the_controller_said_last(told: Any) -> None:
    words = told[2]["Was anything lost?"].strip()
    assert words == (
        "Of 890 rows that were read, 850 were processed whole; 12 were sent once more and at least 3 reached a sink "
        "more than once. None was counted as lost. 40 were still on their way when its record ended."
    )


def test_rates_and_price_are_what_the_files_add_up_to(told: Any) -> None:
    run, _, answers, words = told
    finished = number(r"; ([\d,]+) rows were finished", words)[0]
    assert finished == sum(column(run, "rates", "acked"))
    places = list(zip(column(run, "slots", "vm"), column(run, "slots", "slot"), strict=True))
    times = column(run, "samples", "time")
    hours = (max(times) - min(times)).total_seconds() / 3600
    slot_hours, usd = number(r"It used ([\d.]+) slot-hours.* ([\d.]+) USD \(", answers["What did it cost?"])
    assert slot_hours == pytest.approx(len(set(places)) * hours, rel=0.02)
    head = json.loads((run / "run.json").read_text("utf-8"))
    prices = {vm["vm"]: vm["usd_per_hour"] for vm in head["vms"]}
    assert usd == pytest.approx(sum(prices[vm] for vm in {vm for vm, _ in places}) * hours, rel=0.02)


def test_what_changed_since_the_run_before_is_what_the_files_of_both_say(told: Any) -> None:
    run, planted, answers, _ = told
    words = answers["What changed since the last run?"]
    assert words.strip().startswith("Against made/run-0 (the other ")
    overload = planted["overload"]
    waited_s = number(r"Rows waited for long for: ([\d.]+) s, was not at all\.", words)[0]
    assert waited_s == pytest.approx(overload["to_s"] - overload["from_s"], abs=4)
    slowest_s, _, before_ms = number(r"99 % of the rows took at most: ([\d.]+) s, was (([\d.]+)) ms", words)
    assert slowest_s == pytest.approx(p99_s(run), rel=0.05)
    assert before_ms == pytest.approx(1000 * p99_s(run.parent / "run-0"), rel=0.05)
    rates = [sum(column(each, "rates", "offered")) / 1200 for each in (run, run.parent / "run-0")]
    assert number(r"Offered: ([\d,]+) rows/s, was ([\d,]+) rows/s", words) == pytest.approx(rates, rel=0.01)


def p99_s(run: Path) -> float:
    tuples, latency_s = (column(run, "latency", name) for name in ("tuples", "latency_s"))
    reached, whole = 0.0, 0.99 * sum(tuples)
    for late_s, many in sorted(zip(latency_s, tuples, strict=True)):
        reached += many
        if reached >= whole:
            return float(late_s)
    raise AssertionError("no latency was recorded")
