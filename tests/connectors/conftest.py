"""Real services for tests of connectors: started when a test first asks, one of each for a worker of pytest-xdist.

They are shared: a test takes names of its own (topics, tables, subjects), and may kill what it was given; the next test
finds it running again. With settings of its own: `Postgres(service_folder, tls=certificates)`.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import TypeVar

import pytest
from http_target import Target

import real_services
from real_services import Certificates, Service

T = TypeVar("T", bound=Service)
Running = Callable[[type[T]], T]


@contextmanager
def open_folder() -> Iterator[Path]:
    """Postgres and RabbitMQ run as users of their own, who cannot get into pytest's folders."""
    folder = Path(tempfile.mkdtemp(prefix="headgate-services-"))
    os.chmod(folder, 0o711)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


@pytest.fixture(scope="session")
def running_services() -> Iterator[Running[Service]]:
    with ExitStack() as until_end:
        folder = until_end.enter_context(open_folder())
        started: dict[type[Service], Service] = {}

        def running(kind: type[Service]) -> Service:
            if why := kind.missing():
                pytest.skip(why)
            if kind not in started:
                started[kind] = until_end.enter_context(kind(folder / kind.name))
            if not started[kind].alive():
                started[kind].start_again()
            return started[kind]

        yield running


@pytest.fixture
def service_folder() -> Iterator[Path]:
    """For a service with settings of its own."""
    with open_folder() as folder:
        yield folder / "service"


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def kafka(running_services: Running[real_services.Kafka]) -> real_services.Kafka:
    return running_services(real_services.Kafka)


@pytest.fixture
def mosquitto(running_services: Running[real_services.Mosquitto]) -> real_services.Mosquitto:
    return running_services(real_services.Mosquitto)


@pytest.fixture
def nats(running_services: Running[real_services.Nats]) -> real_services.Nats:
    return running_services(real_services.Nats)


@pytest.fixture
def postgres(running_services: Running[real_services.Postgres]) -> real_services.Postgres:
    return running_services(real_services.Postgres)


@pytest.fixture
def prometheus(running_services: Running[real_services.Prometheus]) -> real_services.Prometheus:
    return running_services(real_services.Prometheus)


@pytest.fixture
def rabbitmq(running_services: Running[real_services.RabbitMQ]) -> real_services.RabbitMQ:
    return running_services(real_services.RabbitMQ)


@pytest.fixture
def redis(running_services: Running[real_services.Redis]) -> real_services.Redis:
    return running_services(real_services.Redis)


@pytest.fixture
def s3(running_services: Running[real_services.S3]) -> real_services.S3:
    return running_services(real_services.S3)


@pytest.fixture
def target() -> Iterator[Target]:
    with closing(Target()) as found:
        yield found
