"""librdkafka's mock cluster in a process of its own, and what only its C interface can do to it: topics with a number
of partitions, brokers that are down and keep what they have, rows that are deleted.

`python -m emulated_services.mock_kafka` prints its address; then it takes a JSON list a line, [name, argument, …], and
answers by a line: 0, or the error's number.
"""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

PRODUCER, BROKER = 0, 1
SAID = 512  # bytes of an error


class MockKafka:
    """The process, seen from a test."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(Path(__file__))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.servers = self._line()

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        assert line, "the mock cluster has ended"
        return line

    def do(self, name: str, *arguments: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([name, *arguments]) + "\n")
        self._process.stdin.flush()
        answer = self._line()
        assert answer == "0", f"{name}: {answer}"

    @property
    def pid(self) -> int:
        return self._process.pid

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


def library() -> ctypes.CDLL:
    """librdkafka as confluent-kafka has loaded it."""
    import confluent_kafka  # noqa: F401

    maps = Path("/proc/self/maps").read_text().split()
    return ctypes.CDLL(next(word for word in maps if "librdkafka" in word))


def main() -> None:
    kafka, said = library(), ctypes.create_string_buffer(SAID)
    kafka.rd_kafka_conf_new.restype = kafka.rd_kafka_new.restype = ctypes.c_void_p
    kafka.rd_kafka_mock_cluster_new.restype = ctypes.c_void_p
    kafka.rd_kafka_mock_cluster_bootstraps.restype = ctypes.c_char_p
    kafka.rd_kafka_new.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t]
    own = kafka.rd_kafka_new(PRODUCER, kafka.rd_kafka_conf_new(), said, SAID)
    cluster = ctypes.c_void_p(kafka.rd_kafka_mock_cluster_new(ctypes.c_void_p(own), 1))
    calls: dict[str, Callable[..., int]] = {
        "create": lambda topic, count: kafka.rd_kafka_mock_topic_create(cluster, topic.encode(), count, 1),
        "delete": lambda topic: kafka.rd_kafka_mock_topic_delete(cluster, topic.encode()),
        "down": lambda: kafka.rd_kafka_mock_broker_set_down(cluster, BROKER),
        "up": lambda: kafka.rd_kafka_mock_broker_set_up(cluster, BROKER),
        "forget": lambda topic, number, before: kafka.rd_kafka_mock_partition_delete_records(
            cluster, topic.encode(), number, ctypes.c_int64(before)
        ),
        "fail": lambda api, error, count: (
            kafka.rd_kafka_mock_push_request_errors_array(
                cluster, ctypes.c_int16(api), ctypes.c_size_t(count), (ctypes.c_int * count)(*[error] * count)
            )
            or 0
        ),
        "slow": lambda api, millis: kafka.rd_kafka_mock_broker_push_request_error_rtts(
            cluster, BROKER, ctypes.c_int16(api), ctypes.c_size_t(1), 0, millis
        ),
    }
    print(kafka.rd_kafka_mock_cluster_bootstraps(cluster).decode(), flush=True)
    for line in sys.stdin:
        name, *arguments = json.loads(line)
        print(calls[name](*arguments), flush=True)


if __name__ == "__main__":
    main()
