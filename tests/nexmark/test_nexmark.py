"""Nexmark: the events have the shares and skews that the benchmark says, and are the same however they are read; every
query as a flow gives DuckDB's batch answer over the same events."""

from __future__ import annotations

import importlib
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from headgate import Exhausted, testing

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "nexmark"
MODULES = (
    "auction_events",
    "auction_tasks",
    "auction_windows",
    "auction_answers",
    "queries",
    "event_queries",
)
EVENTS, RATE = 2000, 40.0  # 50 s of event time
QUERIES = ("q0", "q1", "q2", "q3", "q4", "q5", "q7", "q8", "q9", "q11", "q12", "q13", "q15", "q16")
COLUMNS = ("q0", "q1", "q2", "q13")
WINDOWS = ("q4", "q5", "q7", "q8", "q9", "q11", "q12")


@pytest.fixture(scope="module")
def here() -> Iterator[None]:
    """The example's modules are found, and gone afterwards."""
    sys.path.insert(0, str(FOLDER))
    yield
    sys.path.remove(str(FOLDER))
    for name in MODULES:
        sys.modules.pop(name, None)


@pytest.fixture(scope="module")
def made(here: None) -> ModuleType:
    return importlib.import_module("auction_events")


def flow_of(name: str, disorder: int, out: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A flow of examples/nexmark, with these settings."""
    for setting, value in (("EVENTS", EVENTS), ("RATE", RATE), ("DISORDER", disorder), ("OUT", out)):
        monkeypatch.setenv(f"NEXMARK_{setting}", str(value))
    for module in ("queries", "event_queries"):
        sys.modules.pop(module, None)
    return getattr(importlib.import_module("event_queries" if "windows" in name else "queries"), name)


@pytest.fixture(scope="module")
def tables(made: ModuleType) -> Any:
    """The events in DuckDB, in order."""
    answers = importlib.import_module("auction_answers")
    return answers.database(made.Auctions(events=EVENTS, rate=RATE))


@pytest.mark.parametrize("disorder", [1, 24], ids=["in order", "out of order"])
@pytest.mark.parametrize(
    "name", [*QUERIES, *(f"{query}_columns" for query in COLUMNS), *(f"{query}_windows" for query in WINDOWS)]
)
def test_a_flow_answers_as_duckdb_does(
    name: str, disorder: int, tables: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers, query = importlib.import_module("auction_answers"), name.partition("_")[0]
    run = testing.run(flow_of(name, disorder, tmp_path, monkeypatch))
    want = answers.answer(tables, query)
    assert run.dead_letters == []
    assert want and answers.told(query, run.rows["store"]) == want


def test_the_queries_are_those_of_the_folder_of_sql(here: None) -> None:
    assert tuple(importlib.import_module("auction_answers").QUERIES) == QUERIES


@pytest.mark.parametrize("events", [0, 1, 4, 5, 49, 50, 51, 1234])
def test_of_fifty_events_one_is_a_person_and_three_are_auctions(made: ModuleType, events: int) -> None:
    kinds = Counter("person" if n % 50 == 0 else "auction" if n % 50 < 4 else "bid" for n in range(events))
    some = made.Auctions(events=events)
    assert {kind: some.count((kind,)) for kind in made.KINDS} == {kind: kinds[kind] for kind in made.KINDS}
    rows = some.rows(made.KINDS, 0, events + 9)
    assert Counter(row["kind"] for row in rows) == kinds


def test_events_are_the_same_from_any_position_in_any_form_and_end(made: ModuleType, here: None) -> None:
    tasks = importlib.import_module("auction_tasks")
    params = {"events": 700, "disorder": 10, "seed": 3}
    whole = made.Auctions(**params).rows(("bid",), 0, 10_000)
    source = tasks.Events(["bid"], **params)
    assert [*source.read(0, 7), *source.read(7, 500), *source.read(507, 500)] == whole
    with pytest.raises(Exhausted):
        source.read(len(whole), 1)
    columns = made.Auctions(**params).columns("bid", 30, 5)
    assert {name: column.tolist() for name, column in columns.items()} == {
        name: [row[name] for row in whole[30:35]] for name in whole[0]
    }
    assert made.Auctions(**{**params, "seed": 4}).rows(("bid",), 0, 10_000) != whole


def test_disorder_changes_the_order_within_groups_and_nothing_else(made: ModuleType) -> None:
    in_order = made.Auctions(events=5000).rows(("bid",), 0, 5000)
    shuffled = made.Auctions(events=5000, disorder=100).rows(("bid",), 0, 5000)
    assert shuffled != in_order
    for first in range(0, 4600, 100):
        group, same = (sorted(map(str, rows[first : first + 100])) for rows in (shuffled, in_order))
        assert group == same


@pytest.mark.parametrize(
    "kinds", [("bid",), ("person", "auction"), ("person", "auction", "bid")], ids="+".join
)
def test_rows_are_no_later_than_the_generator_says(made: ModuleType, kinds: tuple[str, ...]) -> None:
    some, newest, latest = made.Auctions(events=9000, rate=100.0, disorder=50), 0, 0
    for row in some.rows(kinds, 0, 9000):
        newest = max(newest, row["date_time"])
        latest = max(latest, newest - row["date_time"])
    assert 0 < latest / 1000 <= some.lateness_s(kinds)
    assert made.Auctions(events=9000).lateness_s(kinds) == 0


def test_threads_share_the_events(made: ModuleType) -> None:
    some = made.Auctions(events=300)
    parts = [some.rows(("bid",), first, 1000, 2) for first in (0, 1)]
    assert sorted(map(str, parts[0] + parts[1])) == sorted(map(str, some.rows(("bid",), 0, 1000)))


def test_shares_of_hot_ones_are_as_asked(made: ModuleType) -> None:
    bids = made.Auctions(events=50_000).rows(("bid",), 20_000, 20_000)
    auctions = made.Auctions(events=50_000).rows(("auction",), 0, 3000)
    hot = [(bid["auction"] - 1000) % 100 == 0 for bid in bids]
    assert 0.48 < sum(hot) / len(hot) < 0.53
    bidders = [(bid["bidder"] - 1000) % 100 == 1 for bid in bids]
    assert 0.73 < sum(bidders) / len(bidders) < 0.78
    assert 0.73 < sum((one["seller"] - 1000) % 100 == 0 for one in auctions) / len(auctions) < 0.78
    assert len({one["category"] for one in auctions}) == 5
    assert max(Counter(one["category"] for one in auctions).values()) < 700
    prices = sorted(bid["price"] for bid in bids)
    assert prices[0] >= 100 and prices[-1] <= 10**8
    assert 80_000 < prices[len(prices) // 2] < 125_000, "spread evenly by logarithm: the median is 1,000"


def test_people_and_auctions_are_there_before_others_speak_of_them(made: ModuleType) -> None:
    there: dict[str, set[int]] = {"person": set(), "auction": set()}
    for row in made.Auctions(events=20_000).rows(made.KINDS, 0, 20_000):
        if row["kind"] == "bid":
            assert row["bidder"] in there["person"]
            assert row["auction"] in there["auction"]
        else:
            assert row["kind"] == "person" or row["seller"] in there["person"]
            assert row["id"] not in there[row["kind"]]
            there[row["kind"]].add(row["id"])


@pytest.mark.parametrize(
    "wrong",
    [{"events": -1}, {"disorder": 0}, {"rate": 0.0}, {"rate": float("inf")}, {"hot_bidders": 1.5}],
    ids=str,
)
def test_bad_settings_are_refused(made: ModuleType, wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        made.Auctions(**{"events": 10, **wrong})


def test_unknown_kinds_are_refused(made: ModuleType) -> None:
    with pytest.raises(ValueError, match="kinds are some of person, auction, bid"):
        made.Auctions(events=10).count(("bids",))
