"""Clicks of forty users, by Kafka."""

from __future__ import annotations

import json
from collections.abc import Mapping

from confluent_kafka import Consumer, Producer, TopicPartition

from connected_examples.demo import Demo, Row
from real_services import Kafka

USERS = 40
PARTITIONS = 4


def click(number: int) -> Row:
    """Users come again and again; every 500 clicks all of them rest for an hour."""
    at = 10 * number + number // 500 * 3600
    return {"user": f"u{number * 7 % USERS}", "at": at, "page": f"/p{number % 9}"}


class Sessions(Demo):
    needs = (Kafka,)
    about = "sessions that ended, as topic `sessions` has them"

    @property
    def servers(self) -> dict[str, str]:
        return {"bootstrap.servers": self.services["kafka"].address}

    def environment(self) -> Mapping[str, str]:
        return {"KAFKA_SERVERS": self.services["kafka"].address}

    def prepare(self) -> None:
        """The mock cluster makes topics, of four partitions, when somebody asks for them."""
        client = Producer(self.servers)
        for topic in ("clicks", "sessions"):
            assert len(client.list_topics(topic, 30).topics[topic].partitions) == PARTITIONS

    def send(self, first: int, count: int) -> None:
        client = Producer(self.servers)
        for row in map(click, range(first, first + count)):
            client.produce("clicks", json.dumps(row), key=row["user"])
        assert not client.flush(30)

    def results(self, sent: int) -> list[Row] | None:
        """A break ends the session of each user: all but the last of each is there."""
        reader = Consumer(self.servers | {"group.id": "example", "enable.partition.eof": True})
        reader.assign([TopicPartition("sessions", number, 0) for number in range(PARTITIONS)])
        rows: dict[tuple[str, int], Row] = {}
        ended = 0
        while ended < PARTITIONS:
            message = reader.poll(10)
            if message is None or message.error():
                ended += 1
            else:
                row = json.loads(message.value())
                rows[row["user"], row["start"]] = row
        reader.close()
        due = (sent - 1) // 500 * USERS
        return [rows[key] for key in sorted(rows)] if len(rows) >= due else None
