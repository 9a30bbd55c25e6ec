"""Clicks of a topic of Kafka become sessions, which go to another topic.

    scripts/example sessions

A session is what one user clicked without a break of more than 30 minutes. That starts a mock of a Kafka
cluster (of librdkafka), sends clicks and shows sessions that ended. With your own: KAFKA_SERVERS; topics `clicks` (four
partitions, the user as key) and `sessions`.
"""

import os
from typing import Any

from headgate import Keyed, topology
from headgate.connectors import KafkaSink, KafkaSource

SERVERS = os.environ.get("KAFKA_SERVERS", "localhost:9092")
BREAK_S = 30 * 60

Row = dict[str, Any]


class Sessions(Keyed):
    """State of a user: the session that goes on."""

    def new(self, key: str) -> Row:
        return {}

    def process(self, key: str, row: Row, state: Row) -> tuple[Row, list[Row]]:
        at = row["at"]
        if state and at - state["end"] <= BREAK_S:
            return {**state, "end": at, "clicks": state["clicks"] + 1, "last": row["page"]}, []
        begun = {"user": key, "start": at, "end": at, "clicks": 1, "first": row["page"], "last": row["page"]}
        return begun, [state] if state else []


flow = topology("sessions")
clicks = flow.source("clicks", KafkaSource, servers=SERVERS, topic="clicks", threads=4)
sessions = flow.task("sessions", Sessions).emits(0.1)
store = flow.task("store", KafkaSink, servers=SERVERS, topic="sessions", key="user")
clicks >> sessions.by("user") >> store
