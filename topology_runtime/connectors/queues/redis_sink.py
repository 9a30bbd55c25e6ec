"""Streams and keys of Redis as sinks, each row once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from headgate.topology_runtime.api.logic import Context, RowId, Sink
from headgate.topology_runtime.connectors.messaging.message_params import PlaceOf, format_of
from headgate.topology_runtime.connectors.queues.redis_server import PORTS, RedisServer, explained
from headgate.topology_runtime.connectors.queues.server_address import ServerAddress
from headgate.topology_runtime.errors import BadRow, HeadgateError, InvalidInput

CALL_BYTES, CALL_ROWS = 2 << 20, 500  # of one script
REMEMBERED = 200_000  # names: 32 MB there
FIELDS_MOST = 1000
KEPT_S = 7 * 86400  # names, after the last row
NAMES = "headgate:rows"
KEEPS_SCRIPTS = [8, 6]  # redis/redis#14541
WRITE = """
local now, bad, i = redis.call('TIME'), {}, 3
now = now[1] * 1000 + math.floor(now[2] / 1000)
while i <= #ARGV do
    local name, words = ARGV[i], tonumber(ARGV[i + 1])
    if redis.call('ZADD', KEYS[1], 'NX', now, name) == 1 then
        local said = redis.pcall(unpack(ARGV, i + 2, i + 1 + words))
        if type(said) == 'table' and said.err then
            redis.call('ZREM', KEYS[1], name)
            bad[#bad + 1] = name
            bad[#bad + 1] = said.err
        end
    end
    i = i + 2 + words
end
redis.call('ZREMRANGEBYRANK', KEYS[1], 0, -1 - ARGV[1])
redis.call('EXPIRE', KEYS[1], ARGV[2])
return bad
"""


class RedisSink(Sink[Any]):
    """Rows into a stream, or each under a key, on a single server (Redis 7 or newer; no cluster, no Sentinel).

    url: redis://host:6379/0 or rediss://…. stream: XADD to it; maxlen: about so many entries are kept. key: the key of
    a row, such as `order:{id}`, and `as_hash` (HSET of its fields) or SET. A row is a dict of plain values, written as
    fields; with `field` it goes into this one field, and with SET into the key, encoded by `format`.

    Each row once: one script writes rows and notes their names in a sorted set, which keeps the newest `remembered` of
    all threads, for seven days. What is confirmed outlives a crash of the server as its `appendfsync` says: with
    `everysec`, Redis's default, the last second may be lost, and the rows in it.

    server: user, password, tls (see `Tls`). Raises InvalidInput; BadRow; ServiceAway while there is no answer, memory,
    disk or primary.

    >>> RedisSink("redis://localhost", stream="clicks", maxlen=100_000).stream
    'clicks'
    """

    reads_references = ("password",)
    remembered = REMEMBERED

    def __init__(
        self,
        url: str,
        *,
        stream: str | None = None,
        maxlen: int | None = None,
        key: str | None = None,
        as_hash: bool = False,
        field: str | None = None,
        format: str | Mapping[str, Any] = "json",
        **server: Any,
    ) -> None:
        given = {"stream": stream, "key": key, "field": field}
        faults = [f"{name}: a name is due" for name, value in given.items()
                  if value is not None and (not isinstance(value, str) or not value)]  # fmt: skip
        if (stream is None) == (key is None):
            faults.append("give either `stream` or `key`")
        if key is not None and (maxlen is not None or (field is not None and not as_hash)):
            faults.append("maxlen and field are of a stream; field of a hash, too")
        if type(as_hash) is not bool or (as_hash and key is None):
            faults.append("as_hash: true or false, with `key`")
        if maxlen is not None and (type(maxlen) is not int or maxlen < 1):
            faults.append("maxlen: a number of entries from 1 on")
        if faults:
            raise InvalidInput("invalid RedisSink", faults=faults)
        self.stream, self._hash, self._field = stream, as_hash, field
        self._key = PlaceOf(key, lambda part: True) if key is not None else None
        trim: list[Any] = ["MAXLEN", "~", maxlen] if maxlen is not None else []
        self._xadd = ["XADD", stream, *trim, "*"]
        self._format = format_of(format)
        self._server = RedisServer(ServerAddress.of(url, PORTS, server))

    def open(self, context: Context) -> None:
        self._task = context.task
        self._server.command("PING")
        self._check_restart()

    def _check_restart(self) -> None:
        """Servers before 8.6 read their append-only file as the default user, and leave out what scripts wrote and that
        user may not write: without a word, at the next start."""
        told = self._server.command("INFO")
        version = [int(part) for part in str(told["redis_version"]).split(".")[:2]]
        if not told["aof_enabled"] or version >= KEEPS_SCRIPTS:
            return
        try:
            may = self._server.command("ACL", "DRYRUN", "default", "ZADD", NAMES, 1, "name")
        except HeadgateError:  # we may not ask
            return
        if may != b"OK":
            raise InvalidInput(
                f"{self._server.address} would lose all rows of this sink at its next start",
                cause=f"Redis {told['redis_version']} reads its own file as the default user, who may not write",
                hint="leave that user on, with a password: user default on >… ~* +@all",
            )

    def close(self) -> None:
        self._server.close()
        self._format.close()

    def write(self, rows: Sequence[Any], ids: Sequence[RowId]) -> None:
        commands = [(str(name), self._command(row)) for row, name in zip(rows, ids, strict=True)]
        refused: list[bytes] = []
        for words in _calls(commands):
            names = f"{NAMES}:{ids[0].run}:{self._task}"
            refused += self._server.call(WRITE, [names], [self.remembered, KEPT_S, *words])
        if refused:
            name, said = refused[0].decode(), refused[1].decode(errors="replace")
            raise explained(f"{self._server.address} refuses row {name}", "", said)

    def _command(self, row: Any) -> list[Any]:
        if self._key is None:
            return [*self._xadd, *self._fields(row)]
        key = self._key(row)
        return ["HSET", key, *self._fields(row)] if self._hash else ["SET", key, self._format.encode(row)]

    def _fields(self, row: Any) -> list[Any]:
        if self._field is not None:
            return [self._field, self._format.encode(row)]
        if not isinstance(row, dict) or not row:
            raise BadRow("a row is no dict with fields", hint="give field= and format=")
        if len(row) > FIELDS_MOST:
            raise BadRow(f"a row has {len(row):,} fields, and may have {FIELDS_MOST:,}")
        for name, value in row.items():
            if type(value) not in (str, int, float, bytes) or type(name) is not str:
                cause = f"it is {value!r:.200}"
                raise BadRow(
                    f"$.{name}: text, a number or bytes are due", cause=cause, hint="give field= and format="
                )
        return [word for pair in row.items() for word in pair]


def _calls(commands: Sequence[tuple[str, list[Any]]]) -> Iterator[list[Any]]:
    """The words of each script's call."""
    words: list[Any] = []
    size = rows = 0
    for name, command in commands:
        more = sum(len(word) if isinstance(word, str | bytes) else 20 for word in command)
        if words and (size + more > CALL_BYTES or rows == CALL_ROWS):
            yield words
            words, size, rows = [], 0, 0
        words += [name, len(command), *command]
        size, rows = size + more, rows + 1
    if words:
        yield words
