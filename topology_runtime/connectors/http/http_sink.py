"""Rows that are posted to an address."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from typing import Any

from headgate.topology_runtime.api.logic import RowId, Sink
from headgate.topology_runtime.connectors.formats.json_format import JsonFormat
from headgate.topology_runtime.connectors.http.post_address import PostAddress, waited
from headgate.topology_runtime.connectors.secrets import SecretText
from headgate.topology_runtime.errors import ServiceAway
from headgate.topology_runtime.wording import shown

ARRAY, LINES, ROW = "array", "lines", "row"
KINDS = {ARRAY: "application/json", LINES: "application/x-ndjson", ROW: "application/json"}
CALL_S = 5.0  # after which no more rows of a call are sent: it may take ten seconds
CONCURRENT_MOST = 100


class HttpSink(Sink[Any]):
    """POST rows as JSON. send: `array` (the rows of a call together), `lines` (likewise, as application/x-ndjson) or
    `row` (one a request, `concurrency` at once). Each has an Idempotency-Key, the same when the same rows come again:
    of a row its RowId, of many the hash of them. headers: more of them; token: a bearer token.

    2xx is done. 400, 413, 422 and other 4xx are the rows' fault; other answers, redirects too, are waited for.

    >>> sink = HttpSink("https://127.0.0.1:8443/orders", send="row", token="${FILE:/run/secrets/token}")
    """

    reads_references = ("token",)

    def __init__(self, url: str, *, send: str = ARRAY, token: str | SecretText | None = None,
                 headers: Mapping[str, str] | None = None, concurrency: int = 8,
                 tls: Mapping[str, Any] | None = None) -> None:  # fmt: skip
        faults = []
        if send not in KINDS:
            faults.append(f"send is {shown(send)}: one of {', '.join(KINDS)}")
        if (
            isinstance(concurrency, bool)
            or not isinstance(concurrency, int)
            or not 0 < concurrency <= CONCURRENT_MOST
        ):
            faults.append(f"concurrency is {shown(concurrency)}, and should be 1 to {CONCURRENT_MOST}")
        self._to = PostAddress("HttpSink", url, token, headers, tls, faults)
        self.send, self.concurrency = send, concurrency if send == ROW else 1
        self._format = JsonFormat()
        self._pool: ThreadPoolExecutor | None = None
        self._done: set[str] = set()  # of a call that failed: rows that need not be sent again

    def write(self, rows: Sequence[Any], ids: Sequence[RowId]) -> None:
        with waited():
            self._write(rows, ids)

    def _write(self, rows: Sequence[Any], ids: Sequence[RowId]) -> None:
        texts = self._format.encode_all(rows)
        headers = self._to.headers(KINDS[self.send])
        if self.send != ROW:
            names = "\n".join(map(str, ids)).encode()
            body = (
                b"[" + b",".join(texts) + b"]" if self.send == ARRAY else b"".join(t + b"\n" for t in texts)
            )
            self._post(body, hashlib.sha256(names).hexdigest(), headers)
            return
        self._post_each(texts, [str(one) for one in ids], headers)

    def _post_each(self, texts: Sequence[bytes], names: Sequence[str], headers: Mapping[str, str]) -> None:
        """What was done before one fails, or before the call takes too long, is not sent again when the rest comes."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self.concurrency, "post")
        left = [(t, name) for t, name in zip(texts, names, strict=True) if name not in self._done]
        calls = {self._pool.submit(self._post, t, name, headers): name for t, name in left}
        wait(calls, CALL_S, FIRST_EXCEPTION)
        begun = [call for call in calls if not call.cancel()]
        errors = [(call, call.exception()) for call in begun]
        self._done.update(calls[call] for call, error in errors if error is None)
        failed = [error for _, error in errors if error is not None]
        if of_rows := [one for one in failed if not isinstance(one, ServiceAway)]:
            raise of_rows[0]
        if failed:
            raise failed[0]
        if len(begun) < len(calls):
            raise ServiceAway(
                f"{self._to.where} is slow",
                cause=f"it took {len(begun):,} of {len(calls):,} rows in {CALL_S:g} s",
            )
        self._done.difference_update(names)

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
        self._to.close()

    def _post(self, body: bytes, key: str, headers: Mapping[str, str]) -> None:
        self._to.post(body, {**headers, "Idempotency-Key": key})
