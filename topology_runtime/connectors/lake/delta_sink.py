"""A table of Delta Lake as a sink, each row once.

A commit adds files, the transaction `headgate/TASK/RUN` and, in its commitInfo, the names of its rows (`Names`). Delta
lets nobody commit a transaction whose id another one has committed since the state that it is based on. So a writer
reads what was committed up to the state that it has, appends, and where it was too late, does both again. Delta does
not compare a transaction's version: ours is the version that the table is to get, where a reader looks for the commit.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec

from headgate.topology_runtime.api.logic import Context, RowId, Sink
from headgate.topology_runtime.connectors.formats.extras import needed
from headgate.topology_runtime.connectors.lake.arrow_rows import table_of
from headgate.topology_runtime.connectors.lake.id_ranges import Range, WrittenIds, ranges_of
from headgate.topology_runtime.connectors.remote_files import is_remote
from headgate.topology_runtime.errors import BadRow, HeadgateError, InvalidInput, ServiceAway

NAMES = "headgate"  # where the names stand in a commitInfo
RANGES_MOST = 1000  # of one commit, where it takes those of earlier ones along
READ_S = 4.0  # of names, in one call
TRIES = 20  # of a commit, when others are faster
TIMES = {"timeout": "5s", "connect_timeout": "2s", "max_retries": "1", "retry_timeout": "4s"}


class Names(msgspec.Struct, frozen=True):
    """Names of the rows of so many commits of a run, up to the one that has them. since: the version of the table with
    those before; -1: there are none."""

    since: int
    commits: int
    rows: list[Range]


class DeltaSink(Sink[Any]):
    """Rows (dicts) into a Delta table, here (all VMs of the sink see the folder) or elsewhere (`s3://…`; options: of
    deltalake, such as AWS_REGION). batch_rows, batch_age_s: so many rows make a commit, or what is so old. A table that
    is not there is made, with the columns of the first rows and partition_by; a row with others is a dead letter, and
    so is a value that would be changed to fit.

    Checkpoints come as the table's settings say; `vacuum` and `optimize` are yours.

    >>> sink = DeltaSink("/data/readings", partition_by=["day"])
    """

    batch_rows = 10_000
    batch_age_s = 10.0

    def __init__(
        self,
        table: str,
        *,
        partition_by: Sequence[str] = (),
        batch_rows: int = 10_000,
        batch_age_s: float = 10.0,
        options: Mapping[str, str] | None = None,
    ) -> None:
        if not isinstance(table, str) or not table:
            raise InvalidInput(
                "invalid DeltaSink", cause="table= is a folder, or a URL such as s3://bucket/table"
            )
        if batch_rows < 1 or not 0 < batch_age_s <= 3600:
            raise InvalidInput("a commit takes 1 row or more, and waits for up to 3600 s")
        self.table = table
        self.partition_by = [partition_by] if isinstance(partition_by, str) else list(partition_by)
        self.batch_rows, self.batch_age_s = batch_rows, batch_age_s
        self._options = (TIMES if is_remote(table) else {}) | dict(options or {})
        self._open: Any = None  # deltalake's table
        self._was_there = False
        self._runs: dict[str, RunNames] = {}
        self._task = ""

    def open(self, context: Context) -> None:
        self._task = context.task
        needed("deltalake", "delta")  # it takes a while

    def write(self, rows: Sequence[Any], ids: Sequence[RowId]) -> None:
        if odd := next((row for row in rows if not isinstance(row, dict)), None):
            raise BadRow(f"a row for {self.table} is no dict", cause=f"it is a {type(odd).__name__}")
        by_run: dict[str, dict[RowId, Any]] = {}
        for name, row in zip(ids, rows, strict=True):  # a call may have a row and its copy
            by_run.setdefault(name.run, {})[name] = row
        for run, row_of in by_run.items():
            self._write(run, row_of)

    def _write(self, run: str, row_of: Mapping[RowId, Any]) -> None:
        names = self._runs.setdefault(run, RunNames(f"headgate/{self._task}/{run}"))
        for _ in range(TRIES):
            table = self._now(list(row_of.values()))
            with self._told():
                names.catch_up(table, self.commit_info)
            fresh = {name: row for name, row in row_of.items() if name not in names.ids}
            if not fresh or self._append(table, names, fresh):
                return
        raise ServiceAway(f"{self.table} takes no commit", cause=f"others were faster {TRIES} times")

    # ── the table ───────────────────────────────────────────────────────────────────────────────

    def _now(self, rows: Sequence[dict[str, Any]]) -> Any:
        """The table as it is now; made with the columns of these rows when there is none."""
        from deltalake import DeltaTable
        from deltalake.exceptions import TableNotFoundError

        with self._told():
            if self._open is not None:
                self._open.update_incremental()
                return self._open
            try:
                self._open = DeltaTable(self.table, storage_options=self._options)
            except TableNotFoundError:
                if self._was_there:  # it may come back: another one in its place would hide it
                    raise
                schema = table_of(rows, self.table).schema
                by = [name for name in self.partition_by if name in schema.names]
                DeltaTable.create(
                    self.table, schema, mode="ignore", partition_by=by, storage_options=self._options
                )
                self._open = DeltaTable(self.table, storage_options=self._options)
            self._was_there = True
            return self._open

    def _append(self, table: Any, names: RunNames, fresh: Mapping[RowId, Any]) -> bool:
        """False when another was faster."""
        import pyarrow as pa
        from deltalake import CommitProperties, Transaction, write_deltalake
        from deltalake.exceptions import CommitFailedError, SchemaMismatchError

        data = table_of(list(fresh.values()), self.table, pa.schema(table.schema().to_arrow()))
        said = names.next(ranges_of(fresh))
        properties = CommitProperties(
            custom_metadata={NAMES: msgspec.json.encode(said).decode()},
            app_transactions=[Transaction(names.app_id, table.version() + 1)],
        )
        try:
            with self._told(of_rows=True):
                write_deltalake(table, data, mode="append", commit_properties=properties)
        except (CommitFailedError, SchemaMismatchError):
            return False
        return True

    def commit_info(self, version: int) -> list[dict[str, Any]]:
        """The actions of a version; none where the log has it no more."""
        from deltalake.fs import DeltaStorageHandler

        try:
            file = DeltaStorageHandler(self.table, self._options).open_input_file(
                f"_delta_log/{version:020}.json"
            )
            data = file.read(file.size())
        except FileNotFoundError:
            return []
        return [json.loads(line) for line in bytes(data).splitlines() if line]

    @contextmanager
    def _told(self, of_rows: bool = False) -> Iterator[None]:
        """What deltalake raises, which says by no class of its own whether it is the store or the rows."""
        from deltalake.exceptions import CommitFailedError, SchemaMismatchError, TableNotFoundError

        try:
            yield
        except (HeadgateError, CommitFailedError, SchemaMismatchError, TableNotFoundError) as error:
            if isinstance(error, TableNotFoundError):  # it was there
                self._open = None
                raise ServiceAway(f"{self.table} is no Delta table now", cause=_text(error)) from error
            raise
        except Exception as error:
            if of_rows and self._answers():
                raise BadRow(f"{self.table} does not take these rows", cause=_text(error)) from error
            self._open = None
            raise ServiceAway(f"{self.table} does not answer", cause=_text(error)) from error

    def _answers(self) -> bool:
        from deltalake import DeltaTable

        try:
            DeltaTable(self.table, storage_options=self._options)
        except Exception:  # whatever it is
            return False
        return True


class RunNames:
    """Names of a run's rows that are in the table, as its commits say."""

    def __init__(self, app_id: str) -> None:
        self.app_id, self.ids = app_id, WrittenIds()
        self._transaction = 0  # of the last commit that was read
        self._seen = -1  # all commits up to this version were read
        self._behind = -1  # where to read on for older names
        self._last: list[
            tuple[int, Names]
        ] = []  # version, what its commit says: the newest ones, of falling size

    def catch_up(self, table: Any, commit: Any) -> None:
        """Read what was committed up to the state of the table. Raises ServiceAway when there is more to read."""
        until_s, version = time.monotonic() + READ_S, table.version()
        transaction = table.transaction_version(self.app_id) or 0
        if transaction > self._transaction:
            if self._transaction == 0:
                self._seen = transaction - 1
            for number in range(self._seen + 1, version + 1):
                found = _names_in(commit(number), self.app_id)
                if found is not None:
                    self._take(number, found, newest=True)
                    if self._last[0][0] == number:
                        self._behind = found.since
            self._transaction = transaction
        self._seen = version
        while self._behind >= 0:
            if time.monotonic() > until_s:
                raise ServiceAway(
                    "the names of rows are being read", cause=f"down to version {self._behind:,}"
                )
            found = _names_in(commit(self._behind), self.app_id)
            if found is not None:
                self._take(self._behind, found, newest=False)
            self._behind = -1 if found is None else found.since

    def _take(self, version: int, names: Names, newest: bool) -> None:
        self.ids.add(names.rows)
        if not newest:
            self._last.insert(0, (version, names))
            return
        while self._last and self._last[-1][0] > names.since:
            self._last.pop()
        self._last.append((version, names))

    def next(self, rows: list[Range]) -> Names:
        """Of the next commit, with these rows: it takes the names of smaller commits before it along, so that few have
        to be read again."""
        commits, last = 1, list(self._last)
        while last and last[-1][1].commits <= commits and len(last[-1][1].rows) + len(rows) <= RANGES_MOST:
            _, before = last.pop()
            both = WrittenIds()
            both.add(before.rows)
            both.add(rows)
            rows, commits = both.ranges, commits + before.commits
        return Names(last[-1][0] if last else -1, commits, rows)


def _names_in(actions: Sequence[dict[str, Any]], app_id: str) -> Names | None:
    if not any(action.get("txn", {}).get("appId") == app_id for action in actions):
        return None
    said = next((info[NAMES] for action in actions if NAMES in (info := action.get("commitInfo", {}))), None)
    return msgspec.json.decode(said, type=Names) if said is not None else None


def _text(error: Exception) -> str:
    return " ".join(str(error).split())[:300]
