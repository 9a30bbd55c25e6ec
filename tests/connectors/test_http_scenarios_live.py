"""A service that takes posted rows: the scenarios of every sink."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from patience import until

from headgate.testing import SinkUnderTest, scenarios
from headgate.topology_runtime.testing.conformance.under_test import MISSING, WRONG_SECRET, NumberedRow

pytestmark = pytest.mark.live
TOKEN = "r1ght-secret-9264"
SERVER = """
import http.server, json, os, sys
port, path, token = int(sys.argv[1]), sys.argv[2], sys.argv[3]
class Taker(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_POST(self):
        rows = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.headers["Authorization"] != "Bearer " + token:
            return self.answer(401, "wrong token")
        if self.path != "/rows":
            return self.answer(404, "no such place")
        if any(row["n"] < 0 for row in rows):
            return self.answer(422, "a number below zero")
        with open(path, "ab") as file:
            file.write(b"".join(json.dumps(row).encode() + b"\\n" for row in rows))
            file.flush()
            os.fsync(file.fileno())
        self.answer(200, "")
    def answer(self, status, text):
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())
    def log_message(self, *said):
        pass
http.server.ThreadingHTTPServer(("127.0.0.1", port), Taker).serve_forever()
"""


class HttpSink(SinkUnderTest):
    connector = "headgate.topology_runtime.connectors.http.http_sink:HttpSink"

    def start(self) -> None:
        self.taken = Path(self.folder) / "taken.jsonl"
        self.taken.touch()
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.start_again()

    def start_again(self) -> None:
        words = [str(self.port), str(self.taken), TOKEN]
        self.server = subprocess.Popen([sys.executable, "-c", SERVER, *words])
        until(self.answers, str, self.server)

    def answers(self) -> bool:
        with socket.socket() as one:
            return one.connect_ex(("127.0.0.1", self.port)) == 0

    def kill(self) -> None:
        self.server.kill()
        self.server.wait()

    def stop(self) -> None:
        if hasattr(self, "server"):
            self.kill()

    def params(self) -> dict[str, Any]:
        return {"url": f"http://127.0.0.1:{self.port}/rows", "token": TOKEN}

    def wrong_secret(self) -> dict[str, Any]:
        return self.params() | {"token": WRONG_SECRET}

    def missing(self) -> dict[str, Any]:
        return self.params() | {"url": f"http://127.0.0.1:{self.port}/{MISSING}"}

    def bad_row(self) -> NumberedRow:
        return {"n": -1, "text": "refused"}

    def stored(self) -> list[int]:
        return [json.loads(line)["n"] for line in self.taken.read_text().splitlines()]


TestHttpSink = scenarios(HttpSink)
