"""What workers say to each other and to the controller about latency (docs/explanation/protocol.md, Latency)."""

from __future__ import annotations

from typing import Literal

import msgspec

from headgate.topology_runtime.api.cluster import Slot


class ChannelSeen(msgspec.Struct, frozen=True, array_like=True):
    """Frames of one channel since the last report: how many, and their mean time (ns) in the sender's buffer, from
    its first row on, and from there to the receiver's inbox."""

    sender: int
    target: int
    frames: int
    buffer_ns: int
    transport_ns: int


class ThreadSeen(msgspec.Struct, frozen=True, array_like=True):
    """A thread since the last report: its rows' mean time (ns) from its inbox until they are done, and the share of
    the time that it was in its task's logic."""

    thread: int
    latency_ns: int
    busy: float


class LatencyReport(msgspec.Struct, frozen=True, tag="l", array_like=True):
    """What a worker has seen of what a manager looks after, by routes `number`. Empty ones are not sent."""

    slot: Slot
    incarnation: int
    number: int
    channels: tuple[ChannelSeen, ...]
    threads: tuple[ThreadSeen, ...]


class Pace(msgspec.Struct, frozen=True, array_like=True):
    """When the buffer of a channel leaves, by routes `number`: `gap_ns` after the one before, or when it has so many
    rows."""

    number: int
    sender: int
    edge: int
    target: int
    gap_ns: int
    rows: int


class Paces(msgspec.Struct, frozen=True, tag="b", array_like=True):
    """A manager wants these, all by the same routes; of several for one channel the shortest holds."""

    slot: Slot
    incarnation: int
    number: int
    paces: tuple[Pace, ...]


Standing = Literal["held", "adapting", "helpless"]


class PathNow(msgspec.Struct, frozen=True, array_like=True):
    """A manager's part of constraint `constraint`: mean latency (ms) of its sequences, of the quickest and the
    slowest; channels whose buffers leave earlier (`shortened`) or later (`lengthened`) than by default; threads that it
    has chained. helpless: nothing that it can do is left; `text` says what it is about then."""

    constraint: int
    standing: Standing
    mean_ms: float
    least_ms: float
    most_ms: float
    channels: int = 0
    shortened: int = 0
    lengthened: int = 0
    chained: int = 0
    text: str = ""
