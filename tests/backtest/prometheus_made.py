"""Prometheus servers for tests: a made one that answers as asked (or as no server should), and the real one."""

from __future__ import annotations

import json
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.parse import parse_qs
from urllib.request import urlopen

from patience import PATIENCE_S, until

Samples = Sequence[tuple[float, str]]
Series = Mapping[str, Sequence[Samples]]  # metric → samples of each of its series


class MadeServer:
    """Answers `query_range` for a metric's name with the samples whose times are on the grid. answer: instead of
    that, all that goes out on the connection. asked: bodies of requests. taken: of a metric, when the sample behind the
    value of a time was taken; without it a time is its own, as of an expression."""

    def __init__(self, series: Series) -> None:
        self.series = dict(series)
        self.answer: Callable[[Any], None] | None = None
        self.taken: dict[str, Callable[[float], float]] = {}
        self.asked: list[dict[str, list[str]]] = []
        made = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"])).decode()
                made.asked.append(parse_qs(body) | {"authorization": [self.headers.get("Authorization", "")]})
                if made.answer is not None:
                    with suppress(OSError):  # whoever asked has gone
                        made.answer(self)
                    return
                status, found = made.found(parse_qs(body))
                made.write(self, status, json.dumps(found).encode())

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    @staticmethod
    def write(handler: Any, status: int, body: bytes, **headers: str) -> None:
        handler.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(body)

    def found(self, asked: dict[str, list[str]]) -> tuple[int, Any]:
        query, start, end = asked["query"][0], float(asked["start"][0]), float(asked["end"][0])
        of_times = query.startswith("timestamp(")
        query = query.removeprefix("timestamp(").removesuffix(")") if of_times else query
        if not query.isidentifier():
            return 400, {
                "status": "error",
                "errorType": "bad_data",
                "error": "parse error: unexpected end of input",
            }
        result = []
        for number, samples in enumerate(self.series.get(query, ())):
            values = [[at_s, value] for at_s, value in samples if start <= at_s <= end]
            if of_times:
                taken = self.taken.get(query, float)
                values = [[at_s, repr(taken(at_s))] for at_s, _ in values]
            if values:
                result.append({"metric": {"__name__": query, "job": f"j{number}"}, "values": values})
        return 200, {"status": "success", "data": {"resultType": "matrix", "result": result}}

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@contextmanager
def made_server(series: Series) -> Iterator[MadeServer]:
    server = MadeServer(series)
    try:
        yield server
    finally:
        server.close()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        port: int = found.getsockname()[1]
    return port


@contextmanager
def real_server(series: Series, folder: Path) -> Iterator[str]:
    """A real one on loopback, with these samples in its store. Its address."""
    lines = []
    for name, every in series.items():
        lines.append(f"# TYPE {name} gauge")
        for number, samples in enumerate(every):
            lines += [f'{name}{{job="j{number}"}} {value} {at_s:.3f}' for at_s, value in samples]
    text, data, config = folder / "samples.txt", folder / "data", folder / "prometheus.yml"
    text.write_text("\n".join([*lines, "# EOF\n"]))
    config.write_text("global: {}\n")
    words = ["promtool", "tsdb", "create-blocks-from", "openmetrics", str(text), str(data)]
    subprocess.run(words, check=True, capture_output=True)
    url = f"http://127.0.0.1:{free_port()}"
    command = ["prometheus", f"--config.file={config}", f"--storage.tsdb.path={data}"]
    command += [f"--web.listen-address={url.removeprefix('http://')}", "--storage.tsdb.retention.time=10y"]
    with open(folder / "log.txt", "wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
    try:
        _until_ready(url, process, folder / "log.txt")
        yield url
    finally:
        process.terminate()
        process.wait(PATIENCE_S)


def _until_ready(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    def ready() -> bool:
        try:
            with urlopen(f"{url}/-/ready", timeout=5) as answer:
                return bool(answer.status == 200)
        except (URLError, ConnectionError, TimeoutError):
            return False

    until(ready, log.read_text, process, every_s=0.1)
