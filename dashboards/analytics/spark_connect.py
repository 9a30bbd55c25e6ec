"""A session on a Spark Connect server (`--master sc://HOST:15002`): Java is there, here is only what asks.

The server's own settings (memory, cores) are its own; those that a session may have are set. What Spark's tasks
need of headgate is sent along.
"""

from __future__ import annotations

import importlib.util
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from headgate.topology_runtime.errors import HeadgateError, Unreachable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEME = "sc://"
PORT = 15002
ANSWER_S = 10.0  # for the server to take a connection; the client itself would try for ten minutes
NEEDED = ("grpc", "grpc_status", "pandas", "zstandard")


@contextmanager
def connected(master: str, settings: Mapping[str, str], packed: Path) -> Iterator[SparkSession]:
    """A session with these settings; `packed`: what tasks import. Raises HeadgateError when the client is not
    installed, Unreachable when nobody answers."""
    if missing := [name for name in NEEDED if importlib.util.find_spec(name) is None]:
        raise HeadgateError(
            f"{', '.join(missing)} is not installed",
            cause="a Spark Connect server is asked through it",
            hint="pip install 'headgate[connect]'",
        )
    _answers(master)
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.remote(master).create()
    try:
        for key, value in settings.items():
            spark.conf.set(key, value)
        spark.addArtifacts(str(packed), pyfile=True)
        yield spark
    finally:
        with suppress(Exception):  # a server that is gone holds no session
            spark.stop()


def _answers(master: str) -> None:
    at = urlsplit(master)
    try:
        socket.create_connection((at.hostname or "", at.port or PORT), ANSWER_S).close()
    except (OSError, ValueError) as error:
        raise Unreachable(
            f"no Spark Connect server answers at {master.partition(';')[0]}", cause=str(error)
        ) from error
