"""Prometheus, which takes samples that are written to it (Debian's package)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode
from urllib.request import urlopen

from real_services.service import Service

LATE = "1d"  # so long after newer ones a sample of a series is still taken


class Prometheus(Service):
    """It writes down what it confirmed before it answers, and takes samples in any order: as it comes, it refuses
    what is older than the newest of its series, also what it has already."""

    name = "prometheus"
    debian = "prometheus"

    @property
    def url(self) -> str:
        """Where samples are written to."""
        return f"http://{self.address}/api/v1/write"

    @classmethod
    def check_installed(cls) -> None:
        cls.program("prometheus")

    def prepare(self) -> None:
        settings = {"storage": {"tsdb": {"out_of_order_time_window": LATE}}}
        self.write("prometheus.yml", json.dumps(settings))

    def commands(self) -> Mapping[str, list[str]]:
        return {
            "prometheus": [
                self.program("prometheus"),
                f"--config.file={self.folder}/prometheus.yml",
                f"--storage.tsdb.path={self.folder}/data",
                f"--web.listen-address={self.address}",
                "--web.enable-remote-write-receiver",
            ]
        }

    def answers(self) -> bool:
        with urlopen(f"http://{self.address}/-/ready", timeout=2) as reply:
            return bool(reply.status == 200)

    def samples(self, selector: str) -> list[dict[str, Any]]:
        """What it has: `values` of each series, by its labels in `metric`. selector: as `up{job="a"}[1d]`."""
        with urlopen(
            f"http://{self.address}/api/v1/query?{urlencode({'query': selector})}", timeout=10
        ) as reply:
            found: list[dict[str, Any]] = json.load(reply)["data"]["result"]
        return found
