"""A schema registry on loopback for tests of formats, as Confluent's answers."""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Registry(ThreadingHTTPServer):
    """The three endpoints of Confluent's registry that are used. asked: each request."""

    daemon_threads = False  # they end with the server, when clients have closed

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answers)
        self.schemas: list[dict[str, Any]] = []
        self.subjects: dict[str, list[int]] = {}
        self.asked: list[str] = []
        self.logins: set[str | None] = set()
        self.url = f"http://127.0.0.1:{self.server_port}"

    def put(self, schema: Any, subject: str = "s", kind: str = "AVRO", references: Any = ()) -> int:
        """schema: its text, or JSON."""
        text = schema if kind == "PROTOBUF" else json.dumps(schema)
        sent = {"schema": text, "schemaType": kind, "references": list(references)}
        if sent not in self.schemas:
            self.schemas.append(sent)
        number = self.schemas.index(sent) + 1
        if number not in self.subjects.setdefault(subject, []):
            self.subjects[subject].append(number)
        return number


class _Answers(BaseHTTPRequestHandler):
    server: Registry
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        parts = self._note()
        if parts[0] == "schemas" and 0 < int(parts[2]) <= len(self.server.schemas):
            self._say(200, self._shown(int(parts[2])))
        elif parts[0] == "subjects" and parts[1] in self.server.subjects:
            number = self.server.subjects[parts[1]][-1]
            self._say(200, {"id": number, "version": 1, **self._shown(number)})
        else:
            self._say(404, {"error_code": 40403, "message": "not found"})

    def do_POST(self) -> None:
        parts = self._note()
        sent = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        kind = sent.get("schemaType", "AVRO")
        schema = sent["schema"] if kind == "PROTOBUF" else json.loads(sent["schema"])
        self._say(200, {"id": self.server.put(schema, parts[1], kind)})

    def _shown(self, number: int) -> dict[str, Any]:
        """Protobuf is shown as its text, unless the compiled form is asked for."""
        found = self.server.schemas[number - 1]
        if found["schemaType"] == "PROTOBUF" and not self.path.endswith("?format=serialized"):
            return {**found, "schema": 'syntax = "proto3";'}
        return found

    def _note(self) -> list[str]:
        self.server.asked.append(f"{self.command} {self.path}")
        self.server.logins.add(self.headers.get("Authorization"))
        return self.path.partition("?")[0].strip("/").split("/")

    def _say(self, status: int, what: Any) -> None:
        body = json.dumps(what).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass
