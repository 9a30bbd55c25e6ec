"""Changes of tables of PostgreSQL as a source, by logical decoding: a slot keeps them until they are done."""

from __future__ import annotations

import re
import sys
import time
from collections import deque
from collections.abc import Sequence
from contextlib import closing
from typing import Any

from headgate.topology_runtime.api.logic import Context, OffsetSource
from headgate.topology_runtime.connectors.databases.change_offsets import ChangeOffsets, is_behind
from headgate.topology_runtime.connectors.databases.pgoutput import (
    Decoder,
    TransactionBegin,
    TransactionEnd,
    lsn_of,
    lsn_text,
)
from headgate.topology_runtime.connectors.databases.postgres_service import (
    PostgresAddress,
    connected,
)
from headgate.topology_runtime.connectors.databases.postgres_values import Values
from headgate.topology_runtime.connectors.databases.replication_stream import ReplicationStream, StreamEnded
from headgate.topology_runtime.errors import InvalidInput, ServiceAway

SLOT = re.compile(r"[a-z0-9_]{1,63}")
CALL_BYTES, CALL_S, LOOK_EVERY = 4 << 20, 0.5, 256  # of one call; messages between two looks at the clock
STATUS_S = 10.0  # the server ends streams that it has heard nothing of for 60
CHANGES = b"IUDT"
FOR_GOOD = (
    "42",
    "55000",
    "58",
)  # SQLSTATE: no such slot or publication, a slot that was given up, files that are gone
SLOT_NOW = """
select plugin, database, current_database(), confirmed_flush_lsn::text, pg_current_wal_lsn()::text,
  wal_status = 'lost' or coalesce(to_jsonb(s) ->> 'invalidation_reason', '') <> ''
  or coalesce((to_jsonb(s) ->> 'conflicting')::boolean, false)
from pg_replication_slots s where slot_name = %s
"""
NEWER = """
select p.pubname from pg_publication p, pg_replication_slots s
where p.pubname = any(%s) and s.slot_name = %s and age(p.xmin) < age(s.catalog_xmin)
"""


class PostgresChanges(OffsetSource[Any]):
    """Inserts, updates, deletes and truncates of the tables of a publication, in the order of their commits, each once;
    one thread reads a slot. What rows are says `pgoutput`, what values are `postgres_values`.

    url, password, tls: as of PostgresSink; the user has the right REPLICATION, and the server `wal_level = logical`.
    publication: made before, one or a list. slot: made if there is none when the run begins, and then it has what
    changes from then on; a run that goes on without its slot is refused. Whoever ends with it drops it
    (`pg_drop_replication_slot`): until then the server keeps its log. A new run on a slot begins with what is not
    confirmed.

    Raises InvalidInput, or ServiceAway while the database does not answer or another reads the slot.

    >>> PostgresChanges("postgresql://app@127.0.0.1/shop", slot="clicks", publication="clicks").slot
    'clicks'
    """

    reads_references = ("password",)

    def __init__(
        self,
        url: str,
        *,
        slot: str,
        publication: str | Sequence[str],
        **server: Any,
    ) -> None:
        names = [publication] if isinstance(publication, str) else list(publication)
        faults = []
        if not isinstance(slot, str) or not SLOT.fullmatch(slot):
            faults.append("slot: a name of small letters, digits and _")
        if not names or not all(isinstance(name, str) and name and "\x00" not in name for name in names):
            faults.append("publication: the name of one, or a list of names")
        if odd := sorted(server.keys() - {"password", "tls"}):
            faults.append(f"there is no param {odd[0]!r}")
        if faults:
            raise InvalidInput("invalid PostgresChanges", faults=faults)
        self.slot, self._publications = slot, names
        self._address = PostgresAddress(url, **server)
        self._where = f"slot {slot} at {self._address}"
        self._stream: ReplicationStream | None = None
        self._values: Values | None = None
        self._error: Exception | None = None  # behind rows that were given
        self._begin(0)

    def _begin(self, wanted: int) -> None:
        self._wanted = wanted  # rows below are done
        self._offsets = ChangeOffsets()
        self._decoder = Decoder(self._values) if self._values is not None else None
        self._open: TransactionBegin | None = None  # the transaction that is coming
        self._came: deque[tuple[int, Any]] = deque()
        self._received = self._confirmed = 0
        self._said_s = 0.0
        self._done = wanted
        self._again, self._end = 0, 0  # a row that must come again, before this place

    # ── life ────────────────────────────────────────────────────────────────────────────────────

    def open(self, context: Context) -> None:
        self._idle = context.partition > 0
        if not self._idle:
            with closing(connected(self._address, autocommit=True)):
                self._values = Values()

    def close(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()

    # ── where to go on ──────────────────────────────────────────────────────────────────────────

    def seek(self, offset: int | None) -> None:
        if self._idle:
            return
        self.close()
        self._error = None
        self._begin(offset or 0)
        confirmed, end = self._slot_now(offset is None)
        if offset is not None:
            self._again, self._end = offset - 1, end
            if is_behind(confirmed, offset - 1):
                self._again, self._offsets.last = 0, offset - 1
            elif confirmed >= offset:
                self._check_again()
        try:
            self._stream = ReplicationStream(self._address, self.slot, self._publications)
        except StreamEnded as ended:
            raise self._trouble(ended) from ended

    def _slot_now(self, make: bool) -> tuple[int, int]:
        """Up to where it was confirmed, and where the server's log ends. Raises what is wrong with it."""
        import psycopg

        with closing(connected(self._address, autocommit=True)) as connection:
            try:
                asked = "select pubname from pg_publication where pubname = any(%s)"
                known = {name for (name,) in connection.execute(asked, [self._publications])}
                if lacking := sorted(set(self._publications) - known):
                    raise InvalidInput(
                        f"{self._address} has no publication {lacking[0]}",
                        hint=f"create publication {lacking[0]} for table …, and drop a slot that is older",
                    )
                found = connection.execute(SLOT_NOW, [self.slot]).fetchone()
                if found is None and make:
                    connection.execute(
                        "select pg_create_logical_replication_slot(%s, 'pgoutput')", [self.slot]
                    )
                    found = connection.execute(SLOT_NOW, [self.slot]).fetchone()
                elif make:
                    self._tell_newer(connection.execute(NEWER, [self._publications, self.slot]).fetchall())
            except psycopg.Error as error:
                state = error.sqlstate or ""
                if state == "57014":
                    cause = "it has to wait until transactions that are open now have ended"
                    raise ServiceAway(f"{self._where} cannot be made yet", cause=cause) from error
                raise self._trouble(StreamEnded(str(error), state)) from error
        return self._checked(found)

    def _tell_newer(self, found: Sequence[tuple[str]]) -> None:
        """Servers from 18 on leave out what was changed before there was a publication; earlier ones fail."""
        for (name,) in found:
            text = f"publication {name} was made or altered when the slot was there already"
            print(f"{self._where}: {text}: changes before that may be left out", file=sys.stderr, flush=True)

    def _checked(self, found: tuple[Any, ...] | None) -> tuple[int, int]:
        if found is None:
            raise InvalidInput(
                f"{self._where} is gone, and with it the changes since the run read last",
                hint="start a new run, which makes a new slot, and read the tables anew",
            )
        plugin, database, ours, confirmed, end, lost = found
        if plugin != "pgoutput" or database != ours:
            cause = f"it is of plugin {plugin}, database {database}"
            raise InvalidInput(f"{self._where} is of another kind", cause=cause, hint="choose another name")
        if lost:
            raise InvalidInput(
                f"{self._where} was given up by the server, and with it the changes since the run read last",
                cause="it kept more of the log than max_slot_wal_keep_size, or was invalidated otherwise",
                hint="drop it, start a new run, and read the tables anew",
            )
        return lsn_of(confirmed), lsn_of(end)

    def _trouble(self, ended: StreamEnded) -> InvalidInput | ServiceAway:
        said = self._address.said(ended)
        if ended.state.startswith(FOR_GOOD) and ended.state not in ("42501", "55006"):
            hint = None
            if "publication" in said:  # what a slot has is read with the catalog of its time
                hint = "a slot that is older than its publication cannot read it: drop it, start a new run"
            return InvalidInput(f"{self._where} cannot be read", cause=said, hint=hint)
        return ServiceAway(f"{self._where} cannot be read now", cause=said)

    # ── rows ────────────────────────────────────────────────────────────────────────────────────

    def poll(self, limit: int) -> Sequence[tuple[int, Any]]:
        if self._idle:
            return []
        if not self._came:
            if self._error is not None:
                raise self._error
            try:
                self._fetch(limit)
                self._confirm()
            except StreamEnded as ended:
                self._error = self._trouble(ended)
            except InvalidInput as error:
                self._error = error
            if self._error is not None:
                self.close()
                if not self._came:
                    raise self._error
        return [self._came.popleft() for _ in range(min(limit, len(self._came)))]

    def _fetch(self, limit: int) -> None:
        assert self._stream is not None
        size, messages, end_s = 0, 0, time.monotonic() + CALL_S
        while len(self._came) < limit and size < CALL_BYTES and (came := self._stream.next()) is not None:
            self._received = max(self._received, came.lsn)
            if came.data is None:
                if self._open is None:
                    self._passed(came.lsn)
                if came.asks:
                    self._said_s = 0.0
            else:
                size += self._take(came.data)
            messages += 1
            if messages % LOOK_EVERY == 0 and time.monotonic() > end_s:
                break

    def _take(self, data: bytes) -> int:
        """A message; how many bytes of rows it brought."""
        assert self._decoder is not None
        commit = self._open.lsn if self._open is not None else 0
        if data[0] in CHANGES:
            first = max(commit, self._offsets.last + 1)
            last = first + self._decoder.count(data) - 1
            if last < self._wanted:
                self._offsets.last = last
                if first <= self._again <= last:
                    self._again = 0
                return 0
        try:
            item = self._decoder.take(data)
        except ValueError as error:
            raise InvalidInput(f"{self._where} cannot be read", cause=str(error)) from error
        if isinstance(item, TransactionBegin):
            self._open = item
        elif isinstance(item, TransactionEnd):
            self._open = None
            self._passed(item.end)
        else:
            for row in item:
                offset = self._offsets.offset(commit)
                if offset in (self._again, self._wanted):
                    self._again = 0
                if offset >= self._wanted:
                    self._check_again()
                    if type(row) is dict:
                        row["offset"] = offset
                    self._came.append((offset, row))
            return len(data) if item else 0
        return 0

    def _passed(self, lsn: int) -> None:
        self._offsets.passed(lsn)
        if lsn >= self._end:
            self._check_again()

    def _check_again(self) -> None:
        """Has the row come again that the run had last? Its slot has it still."""
        if self._again:
            raise InvalidInput(
                f"{self._where} does not have what the run read last, at {lsn_text(self._again)}",
                cause="the slot or the database was made anew, or the publication has other tables",
                hint="start a new run",
            )

    # ── what is done ────────────────────────────────────────────────────────────────────────────

    def done(self, offset: int) -> None:
        self._done = offset
        if self._stream is not None and not self._error:
            try:
                self._confirm()
            except StreamEnded as ended:
                self._error = self._trouble(ended)  # the next call says so

    def _confirm(self) -> None:
        """Tell the server what it may forget, and that we are here."""
        now_s = time.monotonic()
        done = self._offsets.confirmed(self._done)
        if self._stream is not None and (done > self._confirmed or now_s >= self._said_s + STATUS_S):
            self._stream.confirm(self._received, done)
            self._confirmed, self._said_s = done, now_s
