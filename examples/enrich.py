"""Enriches orders with what a web service knows of their customers: a task that waits instead of computing.

    python examples/enrich.py &                  # the service, on port 8765 (ENRICH_PORT: another one)
    headgate up examples/enrich.py:flow --rates 100 --seconds 8

One sees enrich.jsonl: each order with its customer's `segment`. `headgate top` shows that the task has several threads:
each waits 5 ms for an answer, and the plan has as many as the rate needs.
"""

import http.client
import json
import os
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from headgate import Exhausted, Source, Static, no_side_effects, topology
from headgate.tasks import CollectToFile

PORT = int(os.environ.get("ENRICH_PORT", "8765"))
ORDERS, WAIT_S = 200, 0.005
SEGMENTS = ("new", "regular", "vip")


class Orders(Source):
    def read(self, position: int, limit: int) -> list[dict[str, Any]]:
        if position >= ORDERS:
            raise Exhausted
        return [{"order": n, "customer": n * 3 % 50} for n in range(position, min(position + limit, ORDERS))]


@no_side_effects
class Segment:
    """One connection for each thread, kept open. An error is raised: the runtime tries the row again."""

    def __init__(self, port: int) -> None:
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        try:
            self.connection.request("GET", f"/customers/{row['customer']}")
            return {**row, **json.loads(self.connection.getresponse().read())}
        except (OSError, http.client.HTTPException):
            self.connection.close()
            raise


class Service(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # an answer leaves at once, as one piece

    def do_GET(self) -> None:
        time.sleep(WAIT_S)
        answer = json.dumps({"segment": SEGMENTS[int(self.path.rpartition("/")[2]) % 3]}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)


flow = topology("enrich")
orders = flow.source("orders", Orders)
segment = flow.task("segment", Segment, port=PORT)
store = flow.task("store", CollectToFile, static=Static(), path=os.path.abspath("enrich.jsonl"))
orders >> segment >> store

if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", PORT), Service).serve_forever()
