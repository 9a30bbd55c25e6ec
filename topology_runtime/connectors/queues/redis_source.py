"""A stream of Redis as a source, from offsets that are kept with the run."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from headgate.topology_runtime.api.logic import Context, OffsetSource
from headgate.topology_runtime.connectors.formats.format import MOST_BYTES, utf8
from headgate.topology_runtime.connectors.messaging.message_params import format_of
from headgate.topology_runtime.connectors.queues.redis_server import PORTS, RedisServer
from headgate.topology_runtime.connectors.queues.server_address import ServerAddress
from headgate.topology_runtime.connectors.queues.stream_place import (
    BEGIN,
    NO_STREAM,
    Id,
    StreamPlace,
    StreamState,
    id_at,
    id_of,
    offset_of,
    text_of_id,
)
from headgate.topology_runtime.errors import BadRow, InvalidInput, ServiceAway

CALL_BYTES, CALL_ROWS = 4 << 20, 2000  # of one answer, about
LOOK = """
if redis.call('EXISTS', KEYS[1]) == 0 then return {} end
local found, said = redis.call('XINFO', 'STREAM', KEYS[1]), {}
for i = 1, #found, 2 do said[found[i]] = found[i + 1] end
local first = said['first-entry']
local rows, size, at, most = {}, 0, ARGV[1], tonumber(ARGV[2])
while #rows < most and size < tonumber(ARGV[3]) do
    local some = redis.call('XREAD', 'COUNT', math.min(8, most - #rows), 'STREAMS', KEYS[1], at)
    if not some then break end
    for _, entry in ipairs(some[1][2]) do
        rows[#rows + 1], at = entry, entry[1]
        for _, word in ipairs(entry[2]) do size = size + #word end
    end
end
return {said['length'], said['entries-added'] or -1, said['last-generated-id'], said['max-deleted-entry-id'] or '',
        first and first[1] or '0-0', rows}
"""  # at one moment: what the stream is, and entries behind an id


class RedisSource(OffsetSource[Any]):
    """Entries of one stream of a single server (Redis 7 or newer; no cluster, no Sentinel), read by one thread.

    url: redis://host:6379/0 or rediss://…. start: where to begin when the run has read nothing yet: `earliest`,
    `latest`, or the id of an entry: with what comes behind it. A row is a dict of the entry's fields as text; with
    `field` what this one field holds, decoded by `format`.
    group: what is done is noted for this group, which is this source's own, for tools that show lag.
    on_gap: when entries were trimmed before they were read, or it cannot be told, `fail` until they are there again;
    `skip`: say it, count it (metric `gaps`) and go on.

    Ids need milliseconds below 2**43 and sequences below 2**20. Raises InvalidInput, or ServiceAway while there is no
    answer.

    >>> RedisSource("redis://localhost", "clicks", start="latest").stream
    'clicks'
    """

    reads_references = ("password",)

    def __init__(
        self,
        url: str,
        stream: str,
        *,
        start: str = "earliest",
        group: str | None = None,
        field: str | None = None,
        format: str | Mapping[str, Any] = "json",
        on_gap: str = "fail",
        **server: Any,
    ) -> None:
        faults = [
            f"{name}: a name is due"
            for name, value in (("stream", stream), ("group", group), ("field", field))
            if not isinstance(value, str if name == "stream" else str | None) or value == ""
        ]
        if start not in ("earliest", "latest") and not _is_id(start):
            faults.append("start: earliest, latest, or the id of an entry")
        if on_gap not in ("fail", "skip"):
            faults.append("on_gap: fail or skip")
        if faults:
            raise InvalidInput("invalid RedisSource", faults=faults)
        self.stream, self._start, self._group, self._field = stream, start, group, field
        self._skips = on_gap == "skip"
        self._format = format_of(format)
        self._server = RedisServer(ServerAddress.of(url, PORTS, server))
        self._place: StreamPlace | None = None  # none: another thread reads the stream
        self._begin: Id | None = None
        self._told = ""

    def open(self, context: Context) -> None:
        self._reads = context.partition == 0
        self._gaps = context.metrics.counter("gaps")

    def close(self) -> None:
        self._server.close()
        self._format.close()

    def seek(self, offset: int | None) -> None:
        if not self._reads:
            return
        if offset is None and self._begin is None:
            self._begin = self._first()
        at = self._begin if offset is None else id_at(offset - 1)
        assert at is not None
        if self._place is None or self._place.at != at:
            self._place = StreamPlace(at)

    def _first(self) -> Id:
        """Behind which a run begins that has read nothing."""
        now, _ = self._look(BEGIN, 0)
        at = id_of(self._start) if _is_id(self._start) else now.last if self._start == "latest" else BEGIN
        offset_of(at)
        self._place = StreamPlace(at)
        if now.first > at:
            self._place.accept(now)
        return at

    def poll(self, limit: int) -> Sequence[tuple[int, Any]]:
        place = self._place
        if place is None:
            return []
        now, entries = self._look(place.at, max(1, min(limit, CALL_ROWS)))
        why = place.missing(now)
        if why is not None:
            self._gap(why, place, now)
        found: list[tuple[int, Any]] = []
        last = place.at
        for name, fields in entries:
            at = id_of(name)
            try:
                offset = offset_of(at)
                row = self._row(fields)
            except (InvalidInput, ServiceAway):
                if found:
                    break  # the next call says so
                raise
            found.append((offset, row))
            last = at
        if found:
            place.read(last, [offset for offset, _ in found], now)
        return found

    def done(self, offset: int) -> None:
        if self._group is None or self._place is None:
            return
        read = self._place.done(offset)
        more = ["ENTRIESREAD", read] if read is not None else []
        words = [self.stream, self._group, text_of_id(id_at(offset - 1)), *more]
        try:
            self._server.command("XGROUP", "SETID", *words)
        except InvalidInput as error:
            if "NOGROUP" not in (error.cause or ""):
                raise
            self._server.command("XGROUP", "CREATE", *words)

    def lag(self) -> int | None:
        if self._place is None:
            return None
        now, _ = self._look(self._place.at, 0)
        return self._place.left(now)

    # ── the stream ──────────────────────────────────────────────────────────────────────────────

    def _look(self, at: Id, rows: int) -> tuple[StreamState, list[tuple[bytes, list[bytes]]]]:
        found = self._server.call(LOOK, [self.stream], [text_of_id(at), rows, CALL_BYTES])
        if not found:
            return NO_STREAM, []
        length, added, last, deleted, first, entries = found
        if added < 0:
            raise InvalidInput(f"{self._server.address} is older than Redis 7", hint="update it")
        return StreamState(length, added, id_of(last), id_of(deleted), id_of(first)), entries

    def _gap(self, why: str, place: StreamPlace, now: StreamState) -> None:
        what = f"stream {self.stream} at {self._server.address} does not go on behind {text_of_id(place.at)}"
        if not self._skips:
            hint = "keep more entries there (MAXLEN, MINID); on_gap='skip' goes on without them"
            raise InvalidInput(what, cause=why, hint=hint)
        if why != self._told:
            self._told = why
            self._gaps.add()
            print(f"{what}: {why}; going on without them", file=sys.stderr, flush=True)
        place.accept(now)

    def _row(self, fields: Sequence[bytes]) -> Any:
        """A row, or why it is none."""
        try:
            return self._value(fields)
        except BadRow as bad:
            return bad

    def _value(self, fields: Sequence[bytes]) -> Any:
        if self._field is None:
            if (size := sum(map(len, fields))) > MOST_BYTES:
                raise BadRow(f"$: {size:,} bytes are more than a row may have, {MOST_BYTES:,}")
            return {utf8(key): utf8(value) for key, value in zip(fields[::2], fields[1::2], strict=True)}
        wanted = self._field.encode()
        for key, value in zip(fields[::2], fields[1::2], strict=True):
            if key == wanted:
                return self._format.decode(value)
        raise BadRow(f"$: the entry has no field {self._field!r}")


def _is_id(text: Any) -> bool:
    try:
        id_of(text)
    except (ValueError, AttributeError):
        return False
    return True
