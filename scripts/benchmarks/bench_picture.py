"""What the live picture costs the controller's turn, and how large a tick of it is.

A made-up run whose every value moves between two ticks. `view`: the frozen view of the run. `look`: nobody
listens. `advance`: the delta of a tick, made and encoded. `send`: the same bytes to so many subscribers, of which none
reads. Milliseconds.
"""
# bench: picture – the live picture: its cost in the controller's turn, bytes a tick, with 50 subscribers

from __future__ import annotations

import statistics
import time
from typing import Any

import msgspec

from benchmarks.picture_cluster import Cluster
from headgate.controller.knowledge.loop_events import Now
from headgate.controller.views.run_snapshots import SnapshotMaker
from headgate.topology_runtime.keys.curve import new_pair
from headgate.topology_runtime.keys.key_pairs import Contact, KeyGuard, Who
from headgate.topology_runtime.wire.channels import PublisherChannel, SubscriberChannel

WARM = 5


def bench(tasks: int = 12, slots: int = 100, ticks: int = 100, subscribers: int = 50) -> dict[str, Any]:
    cluster, picture = Cluster(tasks, slots), SnapshotMaker()
    own, viewer = new_pair(), new_pair()
    channel = PublisherChannel(KeyGuard(own, {viewer.public: Who("viewer", "bench")}.get))
    listening = [SubscriberChannel(Contact(channel.endpoint, viewer, own.public)) for _ in range(subscribers)]
    if subscribers:
        time.sleep(1.0)
        assert channel.heard
    found: dict[str, list[float]] = {
        "view": [],
        "look": [],
        "advance": [],
        "encode": [],
        "send": [],
        "bytes": [],
    }
    for n in range(ticks + WARM):
        sight = cluster.at(n + 1.0)
        moment = Now(sight.mono_ns, sight.wall_ns)
        times = [time.perf_counter()]
        sight = cluster.view(sight.result, moment)
        times.append(time.perf_counter())
        picture.look(sight)
        times.append(time.perf_counter())
        delta = picture.advance(sight)
        times.append(time.perf_counter())
        data = msgspec.json.encode(delta)
        times.append(time.perf_counter())
        channel.send_bytes(data)
        times.append(time.perf_counter())
        if n >= WARM:
            for name, begin, end in zip(found, times, times[1:], strict=False):
                found[name].append(1000 * (end - begin))
            found["bytes"].append(len(data))
    for one in listening:
        one.close(0)
    channel.close(0)
    return {
        "tasks": tasks,
        "slots": slots,
        "threads": cluster.threads,
        "subscribers": subscribers,
        "ticks": ticks,
        **{name: {"median": statistics.median(v), "max": max(v)} for name, v in found.items()},
        "snapshot_bytes": len(msgspec.json.encode(picture.snapshot())),
    }


BENCHMARKS = {"picture": bench}
