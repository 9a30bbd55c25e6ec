"""`python -m real_services.kafka_mock BROKERS FILE`: a mock cluster that stays up; its addresses go into FILE."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from emulated_services.service_processes import write

FOUND_S = 60.0


def main(brokers: int, file: Path) -> None:
    from confluent_kafka.admin import AdminClient

    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})  # by all threads of librdkafka too
    cluster = AdminClient({"bootstrap.servers": "mock", "test.mock.num.brokers": brokers})
    found = cluster.list_topics(timeout=FOUND_S).brokers.values()
    addresses = ",".join(f"{broker.host}:{broker.port}" for broker in found)
    write(file, addresses.encode("ascii"))
    print(addresses, flush=True)
    signal.sigwait({signal.SIGTERM})


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
