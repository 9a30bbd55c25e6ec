"""Subjects of NATS as a sink: a row is done when its stream has stored it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Any

from headgate.topology_runtime.api.logic import Context, RowId, Sink
from headgate.topology_runtime.connectors.messaging import nats_client as nats
from headgate.topology_runtime.connectors.messaging.message_params import PlaceOf, format_of
from headgate.topology_runtime.errors import BadRow, HeadgateError, InvalidInput, ServiceAway

ID = "Nats-Msg-Id"
WRITE_S, TRY_S = 8.0, 2.0  # of a call of 10 s; until a row is sent again
UNCONFIRMED_MOST = 256
TOO_LARGE = 10054
Message = tuple[str, str, bytes]


class NatsSink(Sink[Any]):
    """Rows as messages of a JetStream stream, each under its name (`Nats-Msg-Id`): the stream stores a row once while
    its window for duplicates lasts (two minutes unless set otherwise); a replay after that stores it again.

    url: nats://host:4222 or tls://…. subject: may have fields of the row in it (`plant.{machine}`); a stream must take
    it. format: json, … or its options. connection: user, password, credentials (a .creds file), tls (see `Tls`).

    Raises InvalidInput; ServiceAway while the stream is not there, full, or does not answer; BadRow for a row that is
    too large.

    >>> NatsSink("nats://localhost:4222", "plant.{machine}").subject
    'plant.{machine}'
    """

    reads_references = ("password",)

    def __init__(
        self,
        url: str,
        subject: str,
        *,
        format: str | Mapping[str, Any] = "json",
        **connection: Any,
    ) -> None:
        faults = nats.faults_of(url, connection)
        if not isinstance(subject, str) or not all(subject.split(".")) or not is_plain(subject):
            faults.append("subject: without * and >; fields of the row as {name}")
        if faults:
            raise InvalidInput("invalid NatsSink", faults=faults)
        self.subject, self._format = subject, format_of(format)
        self._subject = PlaceOf(subject, lambda part: is_plain(part) and "." not in part)
        self._link = nats.NatsLink(url, **connection)

    def open(self, context: Context) -> None:
        self._link.connect()

    def close(self) -> None:
        self._link.close()

    def write(self, rows: Sequence[Any], ids: Sequence[RowId]) -> None:
        messages = [
            (str(name), self._subject(row), self._format.encode(row))
            for name, row in zip(ids, rows, strict=True)
        ]
        try:
            self._link.connect()
            answers = self._link.run(self._published(messages), WRITE_S + TRY_S / 2)
        except Exception as error:
            raise self._away(error) from error
        failed = [error for error in answers if error is not None]
        others = [error for error in failed if not _of_the_row(error)]
        if others:
            raise self._away(others[0]) from others[0]
        if failed:
            raise BadRow(f"$: too large for {self._link.where}", cause=str(failed[0])) from failed[0]

    async def _published(self, messages: Sequence[Message]) -> list[Exception | None]:
        """Of each why it was not stored."""
        slots, end, streams = (
            asyncio.Semaphore(UNCONFIRMED_MOST),
            time.monotonic() + WRITE_S,
            self._link.streams,
        )

        async def stored(name: str, subject: str, data: bytes) -> Exception | None:
            async with slots:
                while True:
                    left_s = end - time.monotonic()
                    if left_s <= 0:
                        return TimeoutError("it did not confirm all rows in time")
                    try:
                        await streams.publish(subject, data, timeout=min(TRY_S, left_s), headers={ID: name})
                        return None
                    except TimeoutError:  # it may have come: sent again under the same name
                        continue
                    except Exception as error:
                        return error

        return list(await asyncio.gather(*(stored(*one) for one in messages)))

    def _away(self, error: Exception) -> HeadgateError:
        from nats.js.errors import APIError, NoStreamResponseError

        if isinstance(error, NoStreamResponseError):
            what, hint = f"no stream of {self._link.where} takes {self.subject}", "create it"
            return ServiceAway(what, hint=hint)
        if isinstance(error, APIError):
            what = f"the stream of {self.subject} at {self._link.where} takes no rows"
            return ServiceAway(what, cause=error.description)
        found = self._link.trouble(error)
        self._link.drop()
        return ServiceAway(found.what, cause=found.cause, hint=found.hint)


def is_plain(subject: str) -> bool:
    return bool(subject) and not any(one in "*>" or one.isspace() or one == "\0" for one in subject)


def _of_the_row(error: Exception) -> bool:
    from nats.errors import MaxPayloadError
    from nats.js.errors import APIError

    return isinstance(error, MaxPayloadError) or (isinstance(error, APIError) and error.err_code == TOO_LARGE)
