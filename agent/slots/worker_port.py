"""Where an agent's workers speak to it. User code may say whatever its worker could: what is no use to the agent, or
would have the controller refuse the agent itself, is dropped and counted."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from headgate.topology_runtime.errors import BadMessage
from headgate.topology_runtime.keys.key_pairs import Who, key_of, keyed_fault
from headgate.topology_runtime.keys.worker_keys import WorkerKeys
from headgate.topology_runtime.platform.addresses import parted
from headgate.topology_runtime.wire import channels
from headgate.topology_runtime.wire.channels import ServerChannel, encode
from headgate.topology_runtime.wire.message_bounds import (
    TROUBLES_MOST,
    bounded,
    check_letter,
    check_thread,
)
from headgate.topology_runtime.wire.messages import (
    FromAgentToWorker,
    FromWorker,
    WorkerHello,
    WorkerReport,
)

MESSAGES_MOST = 256  # taken in one turn: a flood from a worker must not drown the rest
PART_MOST = channels.FROM_AGENT_MAX_BYTES // 8  # of an agent's report, by one worker
Took = Callable[[bytes, Who, FromWorker], None]


class WorkerPort:
    """dropped: messages of workers that were of no use."""

    def __init__(self, keys: WorkerKeys, address: str) -> None:
        """address: of this machine, by which other machines reach its workers. Raises Unreachable."""
        self._keys, self._address = keys, address
        self.channel: ServerChannel[FromAgentToWorker, FromWorker] = ServerChannel(
            channels.from_worker, keys.guard, max_bytes=channels.FROM_WORKER_MAX_BYTES
        )
        self.dropped = 0

    def hear(self, take: Took) -> None:
        """What has come, bounded: by whose link, whose it is by its key, and what he says of himself."""
        for _ in range(MESSAGES_MOST):
            try:
                if (came := self.channel.receive()) is None:
                    return
                peer, who, message = came
                message = self._checked(who, message)
            except BadMessage:
                self.dropped += 1
            else:
                take(peer, who, message)

    def _checked(self, who: Who, message: FromWorker) -> FromWorker:
        """Raises BadMessage."""
        if who.name != f"{message.slot}#{message.incarnation}":
            raise BadMessage("a worker that speaks for another")
        if isinstance(message, WorkerReport):
            message = replace(message, troubles=message.troubles[:TROUBLES_MOST])
        bounded(type(message).__name__, message)
        if isinstance(message, WorkerHello):
            self._check_endpoint(who, message.endpoint)
        elif isinstance(message, WorkerReport):
            _check_report(message)
        return message

    def _check_endpoint(self, who: Who, endpoint: str) -> None:
        """It is told to others, so it must be its own."""
        if fault := keyed_fault(endpoint):
            raise BadMessage("an endpoint that nobody may connect to", cause=fault)
        if parted(endpoint.partition("#")[0])[0] != self._address:
            raise BadMessage("an endpoint on another machine")
        owner = self._keys.guard.admits(key_of(endpoint))
        if owner is None or owner.name != who.name:
            raise BadMessage("an endpoint with the key of another")


def _check_report(report: WorkerReport) -> None:
    for letter in report.letters:
        check_letter(letter)
    for now in report.threads:
        check_thread(now)
    if any(metric.slot != report.slot.number for metric in report.metrics):
        raise BadMessage("metrics of another slot")
    if len(encode(replace(report, letters=(), metrics=()))) > PART_MOST:
        raise BadMessage("a report that is too long")
