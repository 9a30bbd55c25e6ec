"""A topic of Kafka as a source: each thread reads one partition, from offsets that are kept with the run."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from headgate.topology_runtime.api.logic import Context, OffsetSource
from headgate.topology_runtime.connectors.messaging import kafka_client as kafka
from headgate.topology_runtime.connectors.messaging.message_params import format_of
from headgate.topology_runtime.connectors.tls import Tls
from headgate.topology_runtime.errors import BadRow, InvalidInput
from headgate.topology_runtime.wording import counted, one_line

STARTS = ("earliest", "latest", "committed")
OWN = {
    "bootstrap.servers": "`servers`",
    "auto.offset.reset": "`start`",
    "enable.auto.commit": "this source",
    "enable.auto.offset.store": "this source",
    "enable.partition.eof": "this source",
}
CLOSE_S = 2.0  # for the last commit
LOOK_S = 5.0  # between two looks at the topic's partitions
NO_GROUP = "headgate"  # the client wants one, though nothing is committed
BOUNDS = {  # memory of a thread; a row has room for 768 KiB
    "queued.max.messages.kbytes": 16384,
    "fetch.queue.backoff.ms": 10,  # once that is full, it would rest for a second
    "fetch.max.bytes": 8388608,
    "fetch.wait.max.ms": 100,
}


class KafkaSource(OffsetSource[Any]):
    """Rows of one topic: thread k reads partition k, so it has as many threads as the topic has partitions.

    servers: "host:9092,…". start: where to begin when the run has read nothing yet: `earliest`, `latest`, `committed`
    (of group.id), or a time ("2026-11-28T00:00:00Z"). format: json, … or its options. with_metadata: each row is a dict
    of value, key, headers, timestamp (UTC, seconds), partition and offset. tls: see `Tls`. options: of librdkafka, such
    as sasl.username; with a group.id, what is done is committed for it, for tools that show lag.

    A message without value is None. Raises InvalidInput, or ServiceAway while no broker answers.

    >>> KafkaSource("localhost:9092", "clicks", start="latest").start
    'latest'
    """

    def __init__(
        self,
        servers: str,
        topic: str,
        *,
        start: str = "earliest",
        format: str | Mapping[str, Any] = "json",
        with_metadata: bool = False,
        tls: Mapping[str, Any] | bool | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        faults = kafka.faults_of(servers, topic, options or {}, OWN)
        if start not in STARTS and _millis(start) is None:
            faults.append(f"start: {', '.join(STARTS)}, or a time such as 2026-11-28T00:00:00Z")
        if start == "committed" and "group.id" not in (options or {}):
            faults.append("start: 'committed' needs the option group.id")
        if faults:
            raise InvalidInput("invalid KafkaSource", faults=faults)
        self.start = start
        self._servers, self._topic, self._options = servers, topic, dict(options or {})
        self._group = self._options.get("group.id")
        self._format, self._with_metadata, self._tls = format_of(format), with_metadata, Tls.of(tls)
        self._consumer: Any = None
        self._next: int | None = None  # offset; None: there is no such partition
        self._began: int | None = None  # where, if the run had read nothing
        self._error: Exception | None = None  # behind rows that were given
        self._commits = 0  # that are not answered yet
        self._kept: list[Any] = []  # messages that came when the client was to call back
        self._full = False  # more waits in the client

    # ── life ────────────────────────────────────────────────────────────────────────────────────

    def open(self, context: Context) -> None:
        self._kafka = kafka.confluent()
        self._partition, self._threads = context.partition, context.partitions
        self._where = f"topic {self._topic} at {self._servers}"
        self._said = kafka.ClientErrors()
        self._unread = context.metrics.gauge("partitions_unread")
        self._refused = context.metrics.counter("commits_refused")
        self._refusal_told = False
        own = {
            "auto.offset.reset": "error",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "enable.partition.eof": True,
            "allow.auto.create.topics": False,
            "error_cb": self._said,
            "on_commit": self._committed,
        }
        config = BOUNDS | {"group.id": NO_GROUP, "isolation.level": "read_committed"} | self._options | own
        self._consumer = kafka.made(self._kafka.Consumer, kafka.settings(self._servers, self._tls, config))
        self._partitions = self._count()
        if self._partitions > self._threads:
            threads = counted(self._threads, "thread")
            raise InvalidInput(
                f"topic {self._topic} has {self._partitions} partitions and the source {threads}",
                hint=f"threads={self._partitions}",
            )
        self._look_at = time.monotonic() + LOOK_S

    def close(self) -> None:
        consumer, self._consumer = self._consumer, None
        if consumer is None:
            return
        end = time.monotonic() + CLOSE_S
        while self._commits and not self._said.down and time.monotonic() < end:
            consumer.consume(1, 0.05)
        consumer.unassign()  # and no `close()`: with a broker that hangs it does not return; without a group's
        # partitions there is nothing to leave, and the client ends with its object

    def _count(self) -> int:
        """Partitions of the topic. Raises what is wrong with it."""
        found = kafka.topics(self._consumer, self._said, self._serve, self._where, self._topic)[self._topic]
        if found.error is not None and found.error.name() in kafka.MISSING:
            raise kafka.no_topic(self._where)
        if found.error is not None:
            raise InvalidInput(f"{self._where} cannot be read", cause=one_line(found.error.str()))
        self._said.served()
        return len(found.partitions)

    def _trouble(self, raised: Any) -> Exception:
        self._serve()
        return self._said.trouble(self._where, kafka.error_of(raised))

    def _serve(self) -> None:
        """Have the client call back."""
        self._kept += self._consumer.consume(1, 0)

    # ── rows ────────────────────────────────────────────────────────────────────────────────────

    def seek(self, offset: int | None) -> None:
        self._error, self._full, self._next = None, False, None
        if self._partition < self._partitions:
            self._begin(offset, self.start)

    def _begin(self, offset: int | None, start: str) -> None:
        here = self._at()
        try:
            low, high = self._consumer.get_watermark_offsets(here, timeout=kafka.ANSWER_S)
            first = offset if offset is not None else self._began
            if first is None:
                first = self._began = self._first(start, low, high)
            if not low <= first <= high:
                raise self._gone(first, f"it keeps offsets {low} to {high}")
            self._consumer.assign([self._at(first)])
            self._kept = []  # of what was assigned before
            self._consumer.resume([here])  # a pause would outlive the assignment
        except self._kafka.KafkaException as raised:
            raise self._trouble(raised) from raised
        self._said.served()
        self._next = first

    def _at(self, offset: int = -1001) -> Any:
        return self._kafka.TopicPartition(self._topic, self._partition, offset)

    def _first(self, start: str, low: int, high: int) -> int:
        """Where a run begins that has read nothing."""
        if start in ("earliest", "latest"):
            return low if start == "earliest" else high
        if start == "committed":
            found = self._consumer.committed([self._at()], timeout=kafka.ANSWER_S)[0].offset
            return found if found >= 0 else low
        wanted = self._at(_millis(start) or 0)
        found = self._consumer.offsets_for_times([wanted], timeout=kafka.ANSWER_S)[0].offset
        return found if found >= 0 else high

    def _gone(self, offset: int, cause: str) -> InvalidInput:
        return InvalidInput(
            f"topic {self._topic}, partition {self._partition}: no rows from offset {offset} on",
            cause=f"{cause}; what is between was deleted, or the topic was made again",
            hint="keep rows for longer there; to go on without them, begin a new run",
        )

    def poll(self, limit: int) -> Sequence[tuple[int, Any]]:
        error, self._error = self._error, None
        if error is not None:
            raise error
        if time.monotonic() >= self._look_at:
            self._look()
        kept, self._kept = self._kept[:limit], self._kept[limit:]
        messages = kept + self._consumer.consume(limit - len(kept), 0) if len(kept) < limit else kept
        self._full = len(messages) == limit
        if self._said.down and not messages:
            self._count()  # or raises; one connection of several may come and go
        found = self._rows(messages)
        if found:
            self._next = max(self._next or 0, found[-1][0] + 1)
        elif self._error is not None:
            return self.poll(limit)
        return found

    def _rows(self, messages: Sequence[Any]) -> list[tuple[int, Any]]:
        """What comes before the first error, which the next call is to raise."""
        found: list[tuple[int, Any]] = []
        decode, row_of = self._format.decode, self._with_key if self._with_metadata else None
        for message in messages:
            error = message.error()
            if error is not None and error.name() == "_PARTITION_EOF":
                self._next = message.offset()  # offsets between are ends of transactions, or were taken back
                continue
            if error is not None:
                self._error = self._what(error)
                break
            data = message.value()
            try:
                value = None if data is None else decode(data)
            except BadRow as bad:
                found.append((message.offset(), bad))
                continue
            found.append((message.offset(), value if row_of is None else row_of(message, value)))
        return found

    def _with_key(self, message: Any, value: Any) -> dict[str, Any]:
        kind, at_ms = message.timestamp()
        return {
            "value": value,
            "key": _text(message.key()),
            "headers": [[name, _text(data)] for name, data in message.headers() or ()],
            "timestamp": at_ms / 1000 if kind and at_ms >= 0 else None,
            "partition": message.partition(),
            "offset": message.offset(),
        }

    def _what(self, error: Any) -> Exception:
        if error.name() == "_AUTO_OFFSET_RESET":
            return self._gone(self._next or 0, one_line(error.str()))
        if error.name() in kafka.MISSING:
            return kafka.no_topic(self._where)
        if error.retriable() or error.name() in ("_TRANSPORT", "_ALL_BROKERS_DOWN", "_TIMED_OUT"):
            return self._said.trouble(self._where, error)
        return InvalidInput(f"{self._where} cannot be read", cause=one_line(error.str()))

    def _look(self) -> None:
        """Is the topic still there, and has it more partitions? Those that nobody reads are told once."""
        self._look_at = time.monotonic() + LOOK_S
        count = self._count()
        if count <= self._partition < self._partitions:
            raise kafka.no_topic(f"{self._where}, partition {self._partition}")
        if self._partitions != count:
            self._partitions = count
            if self._next is None and self._partition < count:
                self._begin(None, "earliest")  # it is new: all of it
            if self._partition == 0 and count > self._threads:
                text = f"{count - self._threads} of its {count} partitions are not read"
                print(f"{self._where}: {text}; try: threads={count}", file=sys.stderr, flush=True)
        self._unread.set(max(0, count - self._threads) if self._partition == 0 else 0)

    # ── what is done, what waits ────────────────────────────────────────────────────────────────

    def done(self, offset: int) -> None:
        if self._group is not None and self._consumer is not None:
            self._commits += 1
            self._consumer.commit(offsets=[self._at(offset)], asynchronous=True)

    def _committed(self, error: Any, partitions: Any) -> None:
        """Called by the client, in the thread of the source."""
        self._commits -= 1
        failed = error or next((one.error for one in partitions if one.error), None)
        if failed is None:
            return
        self._refused.add()
        if not self._refusal_told:
            self._refusal_told = True
            text = f"{self._where}: what is done cannot be committed for group {self._group}"
            print(f"{text}: {one_line(failed.str())}", file=sys.stderr, flush=True)

    def lag(self) -> int | None:
        if self._next is None:
            return 0
        try:
            here, known = self._at(), None
            if not self._full:  # it fetches, so what it knows is new
                known = self._consumer.get_watermark_offsets(here, cached=True)
            if known is None or known[1] < 0:
                known = self._consumer.get_watermark_offsets(here, timeout=kafka.ANSWER_S)
        except self._kafka.KafkaException as raised:
            raise self._trouble(raised) from raised
        return max(0, int(known[1]) - self._next)


def _text(data: bytes | None) -> str | bytes | None:
    """Text where it is UTF-8."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data


def _millis(text: Any) -> int | None:
    """Of a time in words, since 1970; without a zone it is UTC."""
    try:
        at = datetime.fromisoformat(text)
    except (TypeError, ValueError):
        return None
    return int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)
