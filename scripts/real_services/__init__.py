"""Real services on loopback for tests and examples, each with its own folder, port and data.

    with Mosquitto(folder) as broker:
        connect(broker.host, broker.port)
        broker.kill()
        broker.start_again()

`scripts/services start NAME…` starts the same ones for people.
"""

from real_services.certificates import Certificates
from real_services.kafka import Kafka
from real_services.mosquitto import Mosquitto
from real_services.nats import Nats
from real_services.postgres import Postgres
from real_services.prometheus import Prometheus
from real_services.rabbitmq import RabbitMQ
from real_services.redis import Redis
from real_services.s3 import S3
from real_services.service import Login, Service

SERVICES: dict[str, type[Service]] = {
    kind.name: kind for kind in (Kafka, Mosquitto, Nats, Postgres, Prometheus, RabbitMQ, Redis, S3)
}

__all__ = [
    "S3",
    "SERVICES",
    "Certificates",
    "Kafka",
    "Login",
    "Mosquitto",
    "Nats",
    "Postgres",
    "Prometheus",
    "RabbitMQ",
    "Redis",
    "Service",
]
