"""A real Prometheus reads a real run of `headgate up`."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest
import yaml
from patience import PATIENCE_S, until
from scraped_metrics import CONTRACT, ROOT
from test_prometheus_files import BOARDS, expressions

from watched_runs.trials import trial

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(not shutil.which("prometheus"), reason="Debian's package prometheus has it"),
]
RUN_S = 600.0


def free_ports(count: int) -> int:
    """The first of so many ports on end that nobody listens on."""
    for first in range(19400, 30000, count):
        try:
            for port in range(first, first + count):
                socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            continue
        return first
    raise AssertionError("no ports are free")


class Prometheus:
    """One that scrapes every second what `targets` names."""

    def __init__(self, folder: Path, targets: Path, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        config = yaml.safe_load((ROOT / "dashboards" / "prometheus" / "prometheus.yml").read_text())
        config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
        config["scrape_configs"][0]["file_sd_configs"] = [{"files": [str(targets)], "refresh_interval": "1s"}]
        folder.mkdir()
        shutil.copy(ROOT / "dashboards" / "prometheus" / "alerts.yml", folder)
        (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
        command = [
            "prometheus",
            f"--config.file={folder}/prometheus.yml",
            f"--storage.tsdb.path={folder}/data",
        ]
        command += [f"--web.listen-address=127.0.0.1:{port}"]
        with open(folder / "log.txt", "wb") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)

    def get(self, path: str, **query: str) -> Any:
        with urlopen(f"{self.url}/api/v1/{path}?{urlencode(query)}", timeout=PATIENCE_S) as answer:
            found = json.load(answer)
        assert found["status"] == "success", found
        return found["data"]

    def value(self, expression: str) -> float | None:
        rows = self.get("query", query=expression)["result"]
        return float(rows[0]["value"][1]) if rows else None

    def until(self, condition: Callable[[], object]) -> None:
        def so() -> object:
            try:
                return condition()
            except URLError:
                return False  # it has not begun to listen

        until(so, str, self.process, every_s=0.2)


@contextmanager
def prometheus(folder: Path, targets: Path, port: int) -> Iterator[Prometheus]:
    running = Prometheus(folder, targets, port)
    try:
        yield running
    finally:
        running.process.terminate()
        running.process.wait(PATIENCE_S)


def test_prometheus_answers_what_the_boards_ask_of_a_run(tmp_path: Path) -> None:
    first = free_ports(4)
    rates = tmp_path / "rates.csv"
    rates.write_text("seconds,rate_tps\n0,40\n6,100\n1000,100\n")
    options = ["--vms", "4,4", "--metrics-port", str(first)]
    targets = tmp_path / "run" / "state.targets.json"
    with (
        trial(tmp_path / "run", str(rates), RUN_S, options) as run,
        prometheus(tmp_path / "prometheus", targets, first + 3) as prom,
    ):
        run.wait_for_tuples()
        prom.until(lambda: prom.value('sum(up{job="headgate"})') == 3)
        prom.until(lambda: (prom.value("sum(headgate_replans_total)") or 0) >= 1)
        prom.until(lambda: prom.value("headgate_replan_seconds") is not None)  # in force, not only begun
        prom.until(lambda: prom.value("headgate_stable") is not None)
        stored = set(prom.get("label/__name__/values"))
        for name in CONTRACT.keys() - {"headgate_link_delay_seconds"}:  # all threads are on one VM
            assert name in stored or f"{name}_bucket" in stored
        for text in [text for board in BOARDS.values() for text in expressions(board)]:
            if (
                "changes(" not in text and "link_delay" not in text
            ):  # a figure of a new plan may not be known at once
                prom.until(lambda text=text: bool(prom.get("query", query=text)["result"]))
        input_tps, room_tps = prom.value("headgate_input_rate_tps"), prom.value("headgate_headroom_tps")
        assert input_tps == 100 and room_tps is not None and room_tps > 0
        assert prom.value("headgate_tuples_lost_total") == 0
        assert prom.value("sum(headgate_slots)") == 8
        p50_s = prom.value(
            "histogram_quantile(0.5, sum by (le) (headgate_task_latency_seconds_bucket{task='wait'}))"
        )
        assert p50_s is not None and 0.01 < p50_s < 10.0
        rules = prom.get("rules")["groups"][0]["rules"]
        assert rules and {rule["health"] for rule in rules} == {"ok"}
        assert {target["health"] for target in prom.get("targets")["activeTargets"]} == {"up"}
        run.end()
        assert not targets.exists()
