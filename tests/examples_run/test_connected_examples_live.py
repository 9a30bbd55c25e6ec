"""`scripts/example NAME`: what comes out at the other end is what plain Python makes of the rows that went in."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections import defaultdict
from math import exp, log
from pathlib import Path
from typing import Any

import psycopg
import pytest
from patience import PATIENCE_S

from connected_examples.city_demo import City
from connected_examples.run import Flow, result_of, running

pytestmark = pytest.mark.live

ROOT = Path(__file__).resolve().parents[2]
Row = dict[str, Any]


def example(folder: Path, name: str, rows: int) -> list[Row]:
    """What the command prints, from the command itself."""
    command = [str(ROOT / "scripts/example"), name, "--rows", str(rows), "--rate", "1000", "-o", "json"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=2 * PATIENCE_S)
    assert done.returncode == 0, done.stderr
    found: list[Row] = json.loads(done.stdout)["rows"]
    return found


def board_rows(database: Any) -> dict[str, list[Any]]:
    """What each panel of the Grafana board asks, with Grafana's macro for a time range filled in."""
    board = json.loads((ROOT / "examples/connected/city_board.json").read_text())
    found = {}
    for panel in board["panels"]:
        for target in panel["targets"]:
            query = re.sub(
                r"\$__timeFilter\((\w+)\)", r"\1 between '1970-01-01Z' and '1970-01-02Z'", target["rawSql"]
            )
            assert "$" not in query
            found[panel["title"]] = database.execute(query).fetchall()
    return found


def test_city_has_the_mean_of_each_district_and_minute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    count = 600
    groups: dict[tuple[str, str], list[float]] = defaultdict(list)
    for n in range(count):
        district = ("harbour", "market", "park", "station")[n % 12 % 4]
        groups[f"00:{int(n * 0.15 // 60):02}", district].append(15 + n * 7 % 90 / 10)
    with running("city") as (demo, flow):
        assert isinstance(demo, City) and isinstance(flow, Flow)
        found = result_of(demo, flow, count, 1000)
        service = demo.services["postgres"]
        assert service.login is not None
        with psycopg.connect(service.url, password=service.login.password) as database:
            shown = board_rows(database)
    means = {(row["minute"], row["district"]): (row["readings"], row["mean"]) for row in found}
    assert means == {key: (len(of), round(sum(of) / len(of), 2)) for key, of in groups.items()}
    assert len(shown["Mean of each district"]) == len(groups)
    assert sum(readings for _, readings in shown["Readings a minute"]) == count


def test_sessions_end_where_a_user_pauses(tmp_path: Path) -> None:
    count = 1_100
    times: dict[str, list[int]] = defaultdict(list)
    for n in range(count):
        times[f"u{n * 7 % 40}"].append(n * 10 + n // 500 * 3600)
    due = set()
    for user, of_user in times.items():
        cuts = [i for i in range(1, len(of_user)) if of_user[i] - of_user[i - 1] > 1800]
        for first, end in zip([0, *cuts], cuts, strict=False):
            due.add((user, of_user[first], of_user[end - 1], end - first))
    found = example(tmp_path, "sessions", count)
    assert {(row["user"], row["start"], row["end"], row["clicks"]) for row in found} == due


def test_webhooks_alert_for_high_scores_only(tmp_path: Path) -> None:
    due = {}
    for n in range(600):
        amount = round(5.0 + n * 37 % 1999 * 1.25, 2)
        z = -9.0 + 1.1 * log(1 + amount) + 2.5 * (n % 13 == 0) + 1.5 * (n % 24 < 6)
        if (score := 1 / (1 + exp(-z))) > 0.8:
            due[n] = score
    found = example(tmp_path, "webhooks", 600)
    assert {row["id"]: pytest.approx(row["score"], abs=1e-4) for row in found} == due


def test_changes_leave_the_orders_that_the_table_has(tmp_path: Path) -> None:
    if shutil.which("java") is None:
        pytest.skip("Spark needs Java")
    now: dict[str, tuple[int, int]] = {}
    for n in range(300):
        status, cents = ("paid" if n % 5 == 0 else "placed"), 100 + n * 37 % 9_900
        if n % 50 == 0:
            status, cents = "deleted", 0
        count, total = now.get(status, (0, 0))
        now[status] = count + 1, total + cents
    found = example(tmp_path, "changes", 300)
    assert {row["status"]: (row["orders"], row["cents"] or 0) for row in found} == now
