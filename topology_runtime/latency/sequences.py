"""How long sequences take, without naming them: paper 4, equation 1, by dynamic programming over their channels. Pure.

The latency of a sequence is the sum of the means of its elements: of each channel half the life of a buffer (its rows
came one after the other) and the way, of each thread but the first what its rows wait and work. So the slowest and
the quickest sequence, and the slowest through each channel, come of one look at every channel, forwards and backwards.
A channel without frames has no sequences now.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headgate.topology_runtime.latency.managers import Threads

Channel = tuple[int, int]  # (sender, receiver)


@dataclass(frozen=True)
class Seen:
    """Mean ms of a channel: in buffers (half their life), on the way."""

    buffer_ms: float
    transport_ms: float

    @property
    def ms(self) -> float:
        return self.buffer_ms + self.transport_ms


@dataclass(frozen=True)
class Judged:
    """mean_ms: the means of all channels and threads, step by step, added up. slowest: the threads of the slowest
    sequence. through: the slowest sequence through each channel; fixed: the same without the time in buffers."""

    mean_ms: float
    least_ms: float
    most_ms: float
    slowest: tuple[int, ...]
    through: Mapping[Channel, float]
    fixed: Mapping[Channel, float]


def judged(
    steps: Sequence[Threads], channels: Mapping[Channel, Seen], threads_ms: Mapping[int, float]
) -> Judged | None:
    """steps: the threads of each task of the path. None: no sequence has any rows."""
    whole = {pair: seen.ms for pair, seen in channels.items()}
    edges = _edges(steps, whole)
    through, ways = _through(steps, edges, whole, threads_ms)
    if not through:
        return None
    bare = {pair: seen.transport_ms for pair, seen in channels.items()}
    fixed, _ = _through(steps, edges, bare, threads_ms)
    last = max(ways, key=lambda thread: ways[thread][0])
    quick, _ = _through(
        steps, edges, {p: -ms for p, ms in whole.items()}, {t: -ms for t, ms in threads_ms.items()}
    )
    mean_ms = 0.0
    for edge in edges:
        used = [pair for pair in edge if pair in through]
        mean_ms += sum(whole[pair] for pair in used) / len(used)
        reached = {target for _, target in used}
        mean_ms += sum(threads_ms.get(target, 0.0) for target in reached) / len(reached)
    return Judged(mean_ms, -max(quick.values()), ways[last][0], ways[last][1], through, fixed)


def _edges(steps: Sequence[Threads], whole: Mapping[Channel, float]) -> list[list[Channel]]:
    """The channels of each step that have rows."""
    return [
        [(a, b) for a, b in whole if a in before and b in after]
        for before, after in zip(steps, steps[1:], strict=False)
    ]


Way = tuple[float, tuple[int, ...]]


def _through(
    steps: Sequence[Threads],
    edges: Sequence[Sequence[Channel]],
    channel_ms: Mapping[Channel, float],
    threads_ms: Mapping[int, float],
) -> tuple[dict[Channel, float], dict[int, Way]]:
    """The most ms through each channel, and to each thread of the last step, with the way."""
    to: list[dict[int, Way]] = [{thread: (0.0, (thread,)) for thread in steps[0]}]
    for edge in edges:
        reached: dict[int, Way] = {}
        for sender, target in edge:
            if sender in to[-1]:
                ms = to[-1][sender][0] + channel_ms[sender, target] + threads_ms.get(target, 0.0)
                if target not in reached or ms > reached[target][0]:
                    reached[target] = ms, (*to[-1][sender][1], target)
        to.append(reached)
    beyond: dict[int, float] = dict.fromkeys(steps[-1], 0.0)
    through: dict[Channel, float] = {}
    for step in range(len(edges) - 1, -1, -1):
        onwards: dict[int, float] = {}
        for sender, target in edges[step]:
            if sender in to[step] and target in beyond:
                ms = channel_ms[sender, target] + threads_ms.get(target, 0.0) + beyond[target]
                through[sender, target] = to[step][sender][0] + ms
                onwards[sender] = max(ms, onwards.get(sender, ms))
        beyond = onwards
    return through, to[-1]
