"""The Spark session: small enough for two cores by default, any cluster by `--master`."""

from __future__ import annotations

import errno
import importlib.util
import logging
import os
import shutil
import signal
import socket
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from headgate.topology_runtime.errors import HeadgateError, Unreachable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# ── A session on a Spark Connect server (`--master sc://HOST:15002`): Java is there, here is only what asks
#
# The server's own settings (memory, cores) are its own; those that a session may have are set.

SCHEME = "sc://"
PORT = 15002
ANSWER_S = 10.0  # for the server to take a connection; the client itself would try for ten minutes
NEEDED = ("grpc", "grpc_status", "pandas", "zstandard")


def _answers(master: str) -> None:
    at = urlsplit(master)
    try:
        socket.create_connection((at.hostname or "", at.port or PORT), ANSWER_S).close()
    except (OSError, ValueError) as error:
        raise Unreachable(
            f"no Spark Connect server answers at {master.partition(';')[0]}", cause=str(error)
        ) from error


# ── ────────────────────────────────────────────────────────────────────────────────────────────────────

MEMORY = "2g"  # of the driver; with a local master everything runs in it
LOCAL = "127.0.0.1"
MOST_SHUFFLES = 64
STOP_S = 30.0  # for Java to end by itself
FULL = "No space left on device"

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.sql.files.openCostInBytes": "262144",  # many small parts make one task
    "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.sql.autoBroadcastJoinThreshold": str(32 << 20),
    "spark.sql.ansi.enabled": "false",  # x / 0 is null: undefined, as the results have it
}

QUICK_ROWS = 100_000  # of samples: below it Spark takes longer to compile than to work
QUICK = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",  # each of its stages is a job of its own
}
LARGE = {  # Java compiles thoroughly what rows go through, and not what plans questions: ten times the usual calls.
    # Its usual collector works beside the program, which costs a tenth more CPU time; here nobody minds short pauses
    "spark.driver.extraJavaOptions": "-XX:Tier4InvocationThreshold=50000 -XX:Tier4MinInvocationThreshold=6000"
    " -XX:Tier4CompileThreshold=150000 -XX:+UseParallelGC",
}
OF_A_PROCESS = {  # which a session on a server that runs cannot have
    "spark.ui.enabled",
    "spark.ui.showConsoleProgress",
    "spark.sql.catalogImplementation",
    "spark.driver.extraJavaOptions",
    "spark.executor.extraJavaOptions",
}


@contextmanager
def session(master: str, memory: str, log: Path, more: Mapping[str, str] = {}) -> Iterator[SparkSession]:
    """A session that ends with the block. What Spark says goes to the file `log`.

    Raises HeadgateError when Spark or Java is not there, Unreachable when the master does not answer."""
    if master.startswith(SCHEME):
        with _connected(master, log, more) as spark:
            yield spark
        return
    check_installed()
    _check_java()
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName("headgate analyze").master(master)
    for key, value in (SETTINGS | _by_master(master) | {"spark.driver.memory": memory} | dict(more)).items():
        builder = builder.config(key, value)
    log.parent.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    with _quiet(), _interruptible(log):
        with _noise_to(log), _no_process_left():
            try:
                spark = builder.getOrCreate()
            except Exception as error:
                cause = str(error).splitlines()[0] if str(error) else type(error).__name__
                raise Unreachable(
                    f"Spark could not start with master {master}", cause=cause, hint=f"more in {log}"
                ) from error
            _interrupts_raise()
        try:
            spark.sparkContext.setLogLevel("ERROR")
            with _failures(log):
                yield spark
        finally:
            _stop(spark)


@contextmanager
def _connected(master: str, log: Path, more: Mapping[str, str]) -> Iterator[SparkSession]:
    """The same on a server that runs already: it has Java, memory and cores of its own."""
    if missing := [name for name in NEEDED if importlib.util.find_spec(name) is None]:
        raise HeadgateError(
            f"{', '.join(missing)} is not installed",
            cause="a Spark Connect server is asked through it",
            hint="pip install 'headgate[connect]'",
        )
    _answers(master)
    from pyspark.sql import SparkSession

    log.parent.mkdir(parents=True, exist_ok=True)
    with _failures(log):
        spark = SparkSession.builder.remote(master).create()
        try:
            for key, value in (SETTINGS | dict(more)).items():
                if key not in OF_A_PROCESS:
                    spark.conf.set(key, value)
            yield spark
        finally:
            with suppress(Exception):  # a server that is gone holds no session
                spark.stop()


@contextmanager
def _quiet() -> Iterator[None]:
    """What Py4J logs of a conversation that broke off is said by the error that comes of it, or was asked for."""
    nowhere = logging.NullHandler()
    logging.getLogger().addHandler(nowhere)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(nowhere)


@contextmanager
def _interruptible(log: Path) -> Iterator[None]:
    """Ctrl-C is as before when the block ends, and leaves no log that was not there."""
    before, new = signal.getsignal(signal.SIGINT), not log.exists()
    try:
        yield
    except KeyboardInterrupt:
        if new:
            log.unlink(missing_ok=True)
        raise
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, before)


def _interrupts_raise() -> None:
    """Ctrl-C raises and does no more. (PySpark's own handler speaks with Java within another conversation.)"""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.default_int_handler)


@contextmanager
def _no_process_left() -> Iterator[None]:
    """Ends what was started meanwhile, when the block fails."""
    import psutil

    me = psutil.Process()
    before = set(me.children(recursive=True))
    try:
        yield
    except BaseException:
        begun = [child for child in me.children(recursive=True) if child not in before]
        for child in begun:
            with suppress(psutil.NoSuchProcess):
                child.kill()
        psutil.wait_procs(begun, STOP_S)
        raise


@contextmanager
def _failures(log: Path) -> Iterator[None]:
    """What fails in Spark as one of our errors; a full disk as the OSError that it was."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    try:
        yield
    except (Py4JError, PySparkException) as error:
        if FULL in str(error):
            raise OSError(errno.ENOSPC, FULL) from error
        hint = f"more in {log}, or with --debug"
        raise HeadgateError("Spark failed", cause=cause_of(error), hint=hint) from error


def cause_of(error: Exception) -> str:
    """What of it was first, in a line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    caused = [line for line in lines if line.startswith("Caused by:")]
    return (caused or lines or [type(error).__name__])[-1 if caused else 0]


def tuned(rows: int) -> dict[str, str]:
    """Settings of Spark, by how many rows of samples there are."""
    return QUICK if rows < QUICK_ROWS else LARGE


def _stop(spark: SparkSession) -> None:
    """End the session and the Java process behind it, so that a next one may have other settings; but none that was
    there before (PYSPARK_GATEWAY_PORT)."""
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    process = getattr(gateway, "proc", None)
    if gateway is None or process is None:
        spark.stop()
        return
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, lambda *_: process.kill())  # who asks twice does not wait
    try:
        spark.stop()
        gateway.shutdown()
        process.stdin.close()
        process.wait(STOP_S)
    except Exception:  # an interrupt broke the conversation off: it ends without
        process.kill()
        process.wait(STOP_S)
    SparkContext._gateway = SparkContext._jvm = None


def check_installed() -> None:
    """Raises HeadgateError when PySpark is not there."""
    if importlib.util.find_spec("pyspark") is None:
        raise HeadgateError(
            "PySpark is not installed", cause="`analyze` runs on it", hint="pip install 'headgate[spark]'"
        )


def _check_java() -> None:
    home = os.environ.get("JAVA_HOME")
    java = Path(home, "bin", "java") if home else None
    if not (java and java.exists()) and shutil.which("java") is None:
        raise HeadgateError(
            "Java is not installed",
            cause="Spark runs on Java 17 or later, and there is no `java` in PATH nor in JAVA_HOME",
            hint="apt install openjdk-17-jre-headless (Debian, Ubuntu), or set JAVA_HOME",
        )


def _by_master(master: str) -> dict[str, str]:
    """Few shuffles on few cores; loopback when the master is on it."""
    if master.startswith("local"):
        cores = max(2, os.cpu_count() or 2)
        return {
            "spark.sql.shuffle.partitions": str(min(MOST_SHUFFLES, 2 * cores)),
            "spark.driver.bindAddress": LOCAL,
            "spark.driver.host": LOCAL,
        }
    if LOCAL in master or "localhost" in master:
        return {"spark.driver.bindAddress": LOCAL, "spark.driver.host": LOCAL}
    return {"spark.sql.shuffle.partitions": str(MOST_SHUFFLES)}


@contextmanager
def _noise_to(log: Path) -> Iterator[None]:
    """Processes started meanwhile have this file as their stderr."""
    sys.stderr.flush()
    before = os.dup(2)
    with log.open("ab") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(before, 2)
        os.close(before)
