"""Payments that a shop posts, and who is alerted."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import socket
import threading
import urllib.request
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import nats

from connected_examples.demo import Demo, Row
from real_services import Nats, Service

SECRET = "only-for-this-example"
MOST = 100  # payments a request


def payment(number: int) -> Row:
    amount = round(5.0 + number * 37 % 1999 * 1.25, 2)
    country = ("de", "fr", "it")[number % 3]
    return {
        "id": number,
        "country": country,
        "amount": amount,
        "abroad": int(number % 13 == 0),
        "hour": number % 24,
    }


class Webhooks(Demo):
    needs = (Nats,)
    about = "alerts that were posted"

    def __init__(self, folder: Path, services: Mapping[str, Service]) -> None:
        super().__init__(folder, services)
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port: int = free.getsockname()[1]
        self.alerts: dict[int, Row] = {}
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._taker())
        threading.Thread(target=self._server.serve_forever, name="alerts").start()

    def _taker(self) -> type[BaseHTTPRequestHandler]:
        alerts = self.alerts

        class Taker(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                for row in json.loads(self.rfile.read(int(self.headers["Content-Length"]))):
                    alerts[row["id"]] = row
                self.send_response(204)
                self.end_headers()

            def log_message(self, *said: Any) -> None:
                return None

        return Taker

    def environment(self) -> Mapping[str, str]:
        alerts = f"http://127.0.0.1:{self._server.server_port}/alerts"
        return {
            "PORT": str(self.port),
            "SECRET": SECRET,
            "NATS_URL": self.services["nats"].url,
            "ALERT_URL": alerts,
        }

    def prepare(self) -> None:
        asyncio.run(self._make_stream())

    async def _make_stream(self) -> None:
        client = await nats.connect(self.services["nats"].url)
        await client.jetstream().add_stream(name="payments", subjects=["payments.>"])
        await client.close()

    def send(self, first: int, count: int) -> None:
        for start in range(first, first + count, MOST):
            rows = [payment(number) for number in range(start, min(start + MOST, first + count))]
            body = json.dumps(rows).encode()
            signature = hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()
            headers = {"Content-Type": "application/json", "X-Hub-Signature-256": f"sha256={signature}"}
            request = urllib.request.Request(f"http://127.0.0.1:{self.port}/", body, headers)
            with urllib.request.urlopen(request, timeout=30) as answer:
                assert answer.status == 202

    def results(self, sent: int) -> list[Row] | None:
        """Alerts, once the scores of all payments are in NATS and those that are high were posted."""
        scores = asyncio.run(self._scores())
        high = {row["id"] for row in scores if row["score"] > 0.8}
        done = len({row["id"] for row in scores}) >= sent and high <= set(self.alerts)
        return [self.alerts[key] for key in sorted(self.alerts)] if done else None

    async def _scores(self) -> list[Row]:
        client = await nats.connect(self.services["nats"].url)
        stream = client.jetstream()
        count = (await stream.stream_info("payments")).state.messages
        found = [json.loads((await stream.get_msg("payments", n + 1)).data) for n in range(count)]
        await client.close()
        return found

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
