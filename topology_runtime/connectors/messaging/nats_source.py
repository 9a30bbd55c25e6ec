"""A stream of NATS as a source: read by its sequence numbers, which are kept with the run."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from headgate.topology_runtime.api.logic import Context, OffsetSource
from headgate.topology_runtime.connectors.messaging import nats_client as nats
from headgate.topology_runtime.connectors.messaging.message_params import format_of
from headgate.topology_runtime.connectors.tls import Tls
from headgate.topology_runtime.errors import BadRow, HeadgateError, InvalidInput, ServiceAway

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
    (said, and counted in metric `rows_gone`). credentials: path of a .creds file. format: json, … or its options.
    with_metadata: each row is a dict of value, subject, headers, sequence and timestamp (UTC, seconds). tls: see `Tls`.

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
        login: Mapping[str, Any] | None = None,
        format: str | Mapping[str, Any] = "json",
        with_metadata: bool = False,
        tls: Mapping[str, Any] | bool | None = None,
    ) -> None:
        raise NotImplementedError
