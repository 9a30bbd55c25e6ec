"""What each query answers by `sql/`, in DuckDB, over the same events; and how rows are compared, whoever gave them.

python examples/nexmark/auction_answers.py q5
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from auction_events import KINDS, Auctions
from auction_tasks import side_input

SQL = Path(__file__).with_name("sql")
QUERIES = sorted((path.stem for path in SQL.glob("*.sql")), key=lambda name: int(name[1:]))


def database(events: Auctions) -> Any:
    """DuckDB with the tables person, auction, bid and side_input."""
    import duckdb
    import pyarrow as pa

    found = duckdb.connect()
    for kind in KINDS:
        found.register("rows", pa.table(events.columns(kind, 0, events.count((kind,)))))
        found.execute(f"create table {kind} as from rows")
    found.register("pairs", pa.table({"key": range(len(side_input())), "value": side_input()}))
    found.execute("create table side_input as from pairs")
    return found


def answer(tables: Any, query: str) -> Counter[tuple[Any, ...]]:
    """The rows of a query, by how often each is there."""
    result = tables.execute((SQL / f"{query}.sql").read_text("utf-8"))
    names = [column[0] for column in result.description]
    order = sorted(range(len(names)), key=names.__getitem__)
    return Counter(tuple(row[at] for at in order) for row in result.fetchall())


def told(query: str, rows: Iterable[Mapping[str, Any]]) -> Counter[tuple[Any, ...]]:
    """Rows that some system gave, in the form of `answer`: values in the order of their names."""
    if query == "q12":
        bids: Counter[int] = Counter()
        for row in rows:
            bids[row["bidder"]] += row["bids"]
        return Counter({(bidder, n): 1 for bidder, n in bids.items()})
    return Counter(tuple(row[name] for name in sorted(row)) for row in rows)


if __name__ == "__main__":
    print(database(Auctions(events=100_000, rate=1000)).sql((SQL / f"{sys.argv[1]}.sql").read_text("utf-8")))
