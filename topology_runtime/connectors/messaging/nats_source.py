"""A stream of NATS as a source: read by its sequence numbers, which are kept with the run."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections import deque
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, TypeVar

from headgate.topology_runtime.api.logic import Context, OffsetSource
from headgate.topology_runtime.connectors.messaging import nats_client as nats
from headgate.topology_runtime.connectors.messaging.message_params import format_of
from headgate.topology_runtime.errors import BadRow, InvalidInput, ServiceAway

T = TypeVar("T")
STARTS, GAPS = ("first", "new"), ("fail", "skip")
INACTIVE_S = 60.0  # the server forgets a consumer that asks for nothing for so long: another one is made then
PULL_BYTES = 8 * 1024 * 1024  # of one answer, at least a message
PULL_S = 2.0  # for it
NOT_FOUND, NO_CONSUMER = 10059, ("503", "409")


class NatsSource(OffsetSource[Any]):
    """Rows of one stream of JetStream, by one thread; the sequence to go on from is kept with the run, and nothing is
    acknowledged. Messages that were deleted are left out.

    url: nats://host:4222 or tls://…. subject: only these of the stream. start: where to begin when the run has read
    nothing yet: `first` or `new`. on_gap: when the stream no longer has rows that were not read yet: `fail`, or `skip`
    (said, and counted in metric `rows_gone`). format: json, … or its options.
    with_metadata: each row is a dict of value, subject, headers, sequence and timestamp (UTC, seconds).
    connection: user, password, credentials (path of a .creds file), tls (see `Tls`).

    Raises InvalidInput (also for streams whose rows go when they are read), or ServiceAway while NATS does not answer.

    >>> NatsSource("nats://localhost:4222", "ORDERS", start="new").start
    'new'
    """

    reads_references = ("password",)

    def __init__(
        self,
        url: str,
        stream: str,
        *,
        subject: str | None = None,
        start: str = "first",
        on_gap: str = "fail",
        format: str | Mapping[str, Any] = "json",
        with_metadata: bool = False,
        **connection: Any,
    ) -> None:
        faults = nats.faults_of(url, connection)
        if subject is not None and not isinstance(subject, str):
            faults.append("subject: a filter such as 'plant.*.state'")
        if not isinstance(stream, str) or not stream or set(stream) & set(".*> \t\n"):
            faults.append("stream: the name of one stream")
        faults += [
            f"{name}: one of {', '.join(known)}"
            for name, value, known in (("start", start, STARTS), ("on_gap", on_gap, GAPS))
            if value not in known
        ]
        if faults:
            raise InvalidInput("invalid NatsSource", faults=faults)
        self.start, self._stream, self._subject, self._skips = start, stream, subject, on_gap == "skip"
        self._format, self._with_metadata = format_of(format), with_metadata
        self._link = nats.NatsLink(url, **connection)
        self._where = f"stream {stream} of {self._link.where}"
        self._next = 0  # the sequence wanted next
        self._begin: int | None = None  # of a run that has read nothing yet
        self._made_at: Any = None  # when the stream was created
        self._came: deque[Any] = deque()
        self._ended = False  # the answer to the last request
        self._status = ""
        self._behind = 0
        self._consumer, self._number = "", 0  # its name, and how many it has given
        self._inbox = ""

    # ── life ────────────────────────────────────────────────────────────────────────────────────

    def open(self, context: Context) -> None:
        self._idle = context.partition > 0  # a stream is one row of sequences
        self._gone = context.metrics.counter("rows_gone")
        if not self._idle:
            self._ready()

    def close(self) -> None:
        self._link.close()

    def _ready(self) -> Any:
        """A connection, and the stream's state. Raises what is wrong with it."""
        if not self._link.up:
            self._inbox = ""
            self._link.connect()
        info = self._asked(self._link.streams.stream_info(self._stream))
        retention = getattr(info.config.retention, "value", info.config.retention)
        if retention not in (None, "limits"):
            raise InvalidInput(
                f"{self._where} cannot be read",
                cause=f"its retention is {retention}: what was read once is not there again",
                hint="use a stream with retention by limits, which may take its rows from this one",
            )
        taken = [] if info.config.sources or info.config.mirror else info.config.subjects or []
        if self._subject and taken and not any(overlap(self._subject, one) for one in taken):
            what = f"{self._where} has nothing of subject {self._subject}"
            raise InvalidInput(what, cause=f"it takes {', '.join(taken)}", hint="look at `subject`")
        if self._made_at not in (None, info.created):
            cause = "its rows are others than those of before, under the same numbers"
            hint = "start a new run, which reads it from its beginning"
            raise InvalidInput(f"{self._where} was made again while it was read", cause=cause, hint=hint)
        self._made_at = info.created
        return info.state

    def _asked(self, what: Coroutine[Any, Any, T]) -> T:
        from nats.js.errors import APIError, ServiceUnavailableError

        try:
            return self._link.run(what)
        except APIError as error:
            if error.err_code == NOT_FOUND:
                hint = "create it, or look at its name"
                raise InvalidInput(f"{self._where}: there is no such stream", hint=hint) from error
            if isinstance(error, ServiceUnavailableError):
                raise ServiceAway(f"{self._where} cannot be read now", cause=error.description) from error
            raise InvalidInput(f"{self._where} cannot be read", cause=error.description) from error
        except Exception as error:
            found = self._link.trouble(error)
            self._link.drop()
            raise found from error

    # ── where to go on ──────────────────────────────────────────────────────────────────────────

    def seek(self, offset: int | None) -> None:
        if self._idle:
            return
        state = self._ready()
        if offset is None:
            if self._begin is None:
                self._begin = max(1, state.first_seq) if self.start == "first" else state.last_seq + 1
            offset = self._begin
        self._next = self._kept(offset, state)
        self._consume()

    def _kept(self, offset: int, state: Any) -> int:
        """The first of those from `offset` on that the stream has or will have. Raises if that leaves rows out."""
        if offset > state.last_seq + 1:
            raise InvalidInput(
                f"{self._where} ends at {state.last_seq:,}, and the run has read up to {offset - 1:,}",
                cause="it was made again, or lost its last rows",
                hint="start a new run, which reads it from its beginning",
            )
        first: int = max(1, state.first_seq)
        if offset >= first:
            return offset
        what = f"{first - offset:,} rows of {self._where} are gone before they were read"
        if not self._skips:
            raise InvalidInput(
                what,
                cause=f"{offset:,} is due, and it begins at {first:,}",
                hint="on_gap='skip' goes on there; give the stream more room",
            )
        self._gone.add(first - offset)
        print(what, file=sys.stderr, flush=True)
        return first

    def _consume(self) -> None:
        """A consumer of ours from the next sequence on; the server forgets the last one by itself."""
        from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

        self._came.clear()
        self._asked(self._listen())
        wanted = ConsumerConfig(
            deliver_policy=DeliverPolicy.BY_START_SEQUENCE,
            opt_start_seq=self._next,
            ack_policy=AckPolicy.NONE,
            filter_subject=self._subject,
            inactive_threshold=INACTIVE_S,
            mem_storage=True,
            num_replicas=1,
        )
        made = self._asked(self._link.streams.add_consumer(self._stream, wanted))
        self._consumer, self._number, self._behind = made.name, 0, made.num_pending or 0

    async def _listen(self) -> None:
        """Answers to requests come to an inbox of their own."""
        if self._inbox:
            return
        client = self._link.client
        inbox = client.new_inbox()
        await client.subscribe(inbox, cb=self._take)
        await client.flush(nats.ANSWER_S)  # it is not in force before
        self._inbox = inbox

    async def _take(self, message: Any) -> None:
        status = (message.headers or {}).get("Status") if not message.data else None
        if status is None:
            self._came.append(message)
        elif status != "100":
            self._ended, self._status = True, status

    # ── rows ────────────────────────────────────────────────────────────────────────────────────

    def poll(self, limit: int) -> Sequence[tuple[int, Any]]:
        if self._idle:
            return []
        if not self._came:
            self._asked(self._pull(limit))
        found: list[tuple[int, Any]] = []
        wanted = self._next
        while self._came and len(found) < limit:
            message = self._came[0]
            about = message.metadata
            if about.sequence.consumer != self._number + 1:
                self._consume()  # something between was lost on its way
                break
            try:
                row = self._row(message, about)
            except ServiceAway:
                if found:
                    break  # the next call says so
                raise
            self._came.popleft()
            self._number, self._behind = self._number + 1, about.num_pending
            found.append((about.sequence.stream, row))
            self._next = about.sequence.stream + 1
        if found and self._next - wanted > len(found):
            self._kept(wanted, self._ready())  # are these holes, or was the stream faster than we?
        if not self._came and self._status in NO_CONSUMER:
            self._status = ""
            self._ready()
            self._consume()
        return found

    async def _pull(self, limit: int) -> None:
        """Ask for what is there, and wait until all of it has come."""
        client = self._link.client
        if client is None or not client.is_connected:
            raise ConnectionError("the connection was closed")
        most_bytes = max(PULL_BYTES, client.max_payload + 65536)
        request = {"batch": limit, "no_wait": True, "max_bytes": most_bytes}
        self._ended, self._status = False, ""
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{self._stream}.{self._consumer}"
        await client.publish(subject, json.dumps(request).encode(), reply=self._inbox)
        end = time.monotonic() + PULL_S
        while not self._ended and len(self._came) < limit:
            if not client.is_connected:
                raise ConnectionError("the connection was closed")
            if time.monotonic() > end:
                raise TimeoutError(f"no answer within {PULL_S:g} s")
            await asyncio.sleep(0.001)

    def _row(self, message: Any, about: Any) -> Any:
        try:
            value = self._format.decode(message.data)
        except BadRow as bad:
            return bad
        if not self._with_metadata:
            return value
        return {
            "value": value,
            "subject": message.subject,
            "headers": dict(message.headers or {}),
            "sequence": about.sequence.stream,
            "timestamp": about.timestamp.timestamp(),
        }

    def lag(self) -> int | None:
        return 0 if self._idle else self._behind + len(self._came)


def overlap(first: str, second: str) -> bool:
    """May one subject be of both filters? The server does not say.

    >>> overlap("plant.*.state", "plant.7.>"), overlap("plant.*", "plant.7.state")
    (True, False)
    """
    ours, theirs = first.split("."), second.split(".")
    for one, other in zip(ours, theirs, strict=False):
        if ">" in (one, other):
            return True
        if one != other and "*" not in (one, other):
            return False
    return len(ours) == len(theirs)
