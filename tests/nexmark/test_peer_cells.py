"""The table of `scripts/bench nexmark`: which queries a peer is to answer, and how an answer is compared."""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS, NEXMARK = ROOT / "scripts", ROOT / "examples" / "nexmark"
PEERS = ("bytewax", "pathway", "spark", "flink-sql", "pyflink")


@pytest.fixture(scope="module")
def bench() -> Iterator[ModuleType]:
    before = set(sys.modules)
    sys.path[:0] = [str(SCRIPTS), str(NEXMARK)]
    yield import_module("benchmarks.bench_nexmark")
    for path in (str(SCRIPTS), str(NEXMARK)):
        sys.path.remove(path)
    for name in set(sys.modules) - before:
        if name.split(".")[0] in ("benchmarks", "nexmark_peers", "queries") or name.startswith("auction_"):
            del sys.modules[name]


@pytest.fixture(scope="module")
def cells(bench: ModuleType) -> ModuleType:
    return import_module("nexmark_peers.peer_cells")


@pytest.mark.parametrize("system", PEERS)
def test_a_peer_has_each_query_or_a_reason_why_not(system: str, bench: ModuleType, cells: ModuleType) -> None:
    tree = ast.parse((SCRIPTS / "nexmark_peers" / bench.SYSTEMS[system].file).read_text("utf-8"))
    texts = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)}
    asked = {query for query in bench.QUERIES if not cells.reason(system, query)}
    assert asked <= texts
    assert set(cells.WITHOUT.get(system, ())) <= set(bench.QUERIES)
    assert asked


def test_the_peers_are_those_of_the_table(bench: ModuleType, cells: ModuleType) -> None:
    assert tuple(bench.SYSTEMS) == PEERS
    assert set(cells.WITHOUT) <= set(PEERS)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ({"system": "bytewax", "query": "q0", "rows_per_core_s": 1.0}, True),
        ({"system": "bytewax", "query": "q0", "why": "another answer than DuckDB's"}, False),
        ({"system": "headgate", "query": "q0", "why": "not done after 1 s"}, False),
        ({"system": "bytewax", "query": "q0", "why": "cannot be installed: no network"}, True),
    ],
    ids=["an answer", "another answer", "no end", "not installed"],
)
def test_a_run_without_an_answer_fails_the_command(
    line: dict[str, Any], expected: bool, cells: ModuleType
) -> None:
    assert cells.unexpected(line) is not expected


def test_a_reason_is_no_failure_and_nothing_is_run(
    bench: ModuleType, cells: ModuleType, tmp_path: Path
) -> None:
    found = bench.row_of(bench.Job("q0", "pyflink", {"events": 1}, tmp_path), None, tmp_path, False)
    assert found == {"why": cells.reason("pyflink", "q0")}
    assert not cells.unexpected({"query": "q0", "system": "pyflink", **found})
    assert list(tmp_path.iterdir()) == []


def test_no_figure_comes_from_a_run_too_short_to_be_seen(bench: ModuleType) -> None:
    assert not bench.long(-0.03, -0.1), "the output was whole before rows were seen to come"
    assert not bench.long(0.2, 5.0)
    assert bench.long(0.6, 0.6)


def differs(query: str, rows: list[dict[str, Any]], bench: ModuleType, folder: Path) -> dict[str, int]:
    """Of three bids, what `rows` lack and have too often."""
    tables = import_module("auction_answers").database(bench.Auctions(events=7))
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    bench.answer(tables, query)
    found: dict[str, int] = bench.compared(tables, query, folder)
    return found


def test_rows_lost_twice_and_wrong_are_counted(bench: ModuleType, tmp_path: Path) -> None:
    bids = bench.Auctions(events=7).rows(("bid",), 0, 9)
    assert differs("q0", bids, bench, tmp_path) == {"lost": 0, "twice": 0, "wrong": 0}
    assert differs("q0", [*bids[1:], bids[1]], bench, tmp_path) == {"lost": 1, "twice": 1, "wrong": 0}
    assert differs("q0", [*bids, {**bids[0], "price": 1}], bench, tmp_path)["wrong"] == 1


def test_rows_that_were_taken_back_do_not_count(bench: ModuleType, tmp_path: Path) -> None:
    bids = bench.Auctions(events=7).rows(("bid",), 0, 9)
    changes = [{**bid, "diff": 1} for bid in [*bids, {**bids[0], "price": 1}]]
    changes.append({**bids[0], "price": 1, "diff": -1})
    assert differs("q0", changes, bench, tmp_path) == {"lost": 0, "twice": 0, "wrong": 0}


def test_counts_by_the_clock_that_grew_are_those_at_the_end(bench: ModuleType, tmp_path: Path) -> None:
    """q12: a window's count is taken back, and given anew."""
    bids = bench.Auctions(events=7).rows(("bid",), 0, 9)
    counts = {who: sum(bid["bidder"] == who for bid in bids) for who in {bid["bidder"] for bid in bids}}
    changes = [{"bidder": who, "bids": n, "diff": 1} for who, n in counts.items()]
    who = bids[0]["bidder"]
    changes += [{"bidder": who, "bids": 40, "diff": 1}, {"bidder": who, "bids": 40, "diff": -1}]
    assert differs("q12", changes, bench, tmp_path) == {"lost": 0, "twice": 0, "wrong": 0}
