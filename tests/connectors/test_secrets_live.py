"""Real runs whose tasks are given secrets and tell them in every way that they can: nothing that such a run wrote,
answers or shows has them. What is looked for, and how, shares no code with what hides it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.request import urlopen

import psutil
import pyarrow.parquet as parquet
import pytest
from patience import PATIENCE_S, until
from websockets.sync.client import connect

pytestmark = pytest.mark.live

HEADGATE = [sys.executable, "-P", "-m", "headgate"]
IN_FILE, IN_VARIABLE = "Zq7hunterInFile", "Zq7hunterInVariable"
URL = "db://ada:***@host"
TOLD = (  # as they are shown
    f"printed {URL} Bearer ***",
    f"printed on stderr {URL}",
    f"logged {URL}",
    f"a thread beside: {URL}",
    f"KeyError: '{URL}'",
    f"'url': '{URL}', 'token': 'Bearer ***'",
    f"closing {URL} Bearer ***",
    "${ENV:API_TOKEN}",
)
FLOW = """
import logging
import sys
import threading
from pathlib import Path

from headgate import topology
from headgate.topology_runtime.tasks.row_sources import Counter


class Login:
    def __init__(self, url, more):
        self.url, self.token = url, more["headers"][0]

    def open(self, context):
        if Path(__file__).with_name("refuses").exists():
            raise ConnectionError(f"no login with {self.url} and {self.token!r}")
        print("printed", self.url, self.token)
        print("printed on stderr", self.url, self.token, file=sys.stderr)
        logging.warning("logged %s %s", self.url, self.token)
        threading.Thread(target=self.beside).start()

    def beside(self):
        raise OSError(f"a thread beside: {self.url}, {self.token}")

    def __call__(self, row):
        if isinstance(row, int) and row % 50 == 7:
            try:
                raise KeyError(self.url)
            except KeyError as error:
                raise ValueError({"url": self.url, "token": self.token}) from error
        return row

    def close(self):
        raise RuntimeError(f"closing {self.url} {self.token}")


flow = topology("secretive")
params = {"url": "db://ada:${FILE:SECRET}@host", "more": {"headers": ["Bearer ${ENV:API_TOKEN}"]}}
flow.source("rows", Counter) >> flow.task("login", Login, **params) >> flow.task("keep", Login, **params)
"""


class SecretRun:
    """One `headgate up` in a folder; what its commands said is in `said`."""

    def __init__(self, folder: Path, secret: Path) -> None:
        self.folder = folder
        self.said: dict[str, str] = {}
        (folder / "flow.py").write_text(FLOW.replace("SECRET", str(secret)))
        words = ["up", "flow.py:flow", "--rates", "200", "--state-dir", "state", "--dashboard", "-o", "json"]
        env = {**os.environ, "API_TOKEN": f"{IN_VARIABLE}-é'\"", "XDG_CACHE_HOME": str(folder / "cache")}
        with (folder / "up.log").open("wb") as log:
            self.process = subprocess.Popen(
                [*HEADGATE, *words], cwd=folder, env=env, stdout=log, stderr=log, process_group=0
            )

    @property
    def log(self) -> str:
        return (self.folder / "up.log").read_text()

    @property
    def worker_logs(self) -> str:
        return "".join(path.read_text() for path in self.folder.rglob("worker-*.log"))

    def ask(self, *words: str) -> str:
        """What a command prints."""
        where = [] if words == ("history",) else ["--controller", "state"]
        done = subprocess.run([*HEADGATE, *words, *where], cwd=self.folder, capture_output=True, text=True)
        self.said[" ".join(words)] = done.stdout + done.stderr
        return done.stdout

    def processes(self, role: str) -> list[psutil.Process]:
        children = psutil.Process(self.process.pid).children(recursive=True)
        found = []
        for one in children:
            with suppress(psutil.Error):
                found += [one] if role in " ".join(one.cmdline()) else []
        return found

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        try:
            self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            raise


@contextmanager
def running(folder: Path, there: bool = True) -> Iterator[SecretRun]:
    secret = folder.with_name("password")
    if there:
        secret.write_text(f"{IN_FILE}-é'\\\"/ &\n")
    folder.mkdir(exist_ok=True)
    one = SecretRun(folder, secret)
    try:
        yield one
    finally:
        one.end()


def hits(texts: Iterable[tuple[str, str]]) -> list[str]:
    """Where one of the two is."""
    return [name for name, text in texts if IN_FILE in text or IN_VARIABLE in text]


def texts_in(folder: Path) -> Iterator[tuple[str, str]]:
    """(file, all that is in it) of every file of a folder."""
    for path in sorted(folder.rglob("*")):
        if path.suffix == ".parquet":
            yield str(path), str(parquet.read_table(path).to_pylist())
        elif path.is_file() and not path.is_socket():
            yield str(path), path.read_bytes().decode("utf-8", "replace")


def page_says(run: SecretRun) -> Iterator[tuple[str, str]]:
    """The page, its snapshot, and what it is sent at first."""
    at = until(lambda: [word for word in run.log.split() if "http://127.0.0.1" in word], lambda: run.log)
    address = at[0].strip('",').partition("#")[0]
    for path in ("", "api/snapshot"):
        with urlopen(address + path, timeout=PATIENCE_S) as answer:
            yield f"page /{path}", answer.read().decode()
    with connect(address.replace("http", "ws") + "api/stream", origin=address.rstrip("/")) as stream:  # type: ignore[arg-type]
        for number in range(3):
            yield f"stream {number}", str(stream.recv(PATIENCE_S))


def started_with(processes: Iterable[psutil.Process]) -> Iterator[tuple[str, str]]:
    for one in processes:
        for name in ("cmdline", "environ"):
            with suppress(FileNotFoundError, ProcessLookupError):  # it has ended
                yield f"{name} of {one}", Path(f"/proc/{one.pid}/{name}").read_text(errors="replace")


def shown_by(run: SecretRun) -> Iterator[tuple[str, str]]:
    """What the run's processes are seen to have been started with, and what its page and its commands say."""
    for role in ("controller run", "agent run"):
        assert run.processes(role), role
        yield from started_with(run.processes(role))
    yield from page_says(run)
    number = json.loads(run.ask("deadletter", "list", "-o", "jsonl").splitlines()[0])["id"]
    for words in (
        ("deadletter", "show", str(number)),
        ("logs",),
        ("explain",),
        ("events",),
        ("status",),
        ("history",),
    ):
        assert run.ask(*words), run.said[" ".join(words)]
    yield from run.said.items()


def test_a_run_that_tells_its_secrets_in_every_way_shows_none(tmp_path: Path) -> None:
    with running(tmp_path / "run") as run:
        until(lambda: run.ask("deadletter", "list", "-o", "jsonl"), lambda: run.log, run.process)
        [first, *_] = run.processes("headgate.topology_runtime.worker")
        first.kill()
        until(lambda: all(one.pid != first.pid for one in run.processes("")), lambda: run.log, run.process)
        until(lambda: "a thread beside" in run.worker_logs, lambda: run.log, run.process)
        workers = "headgate.topology_runtime.worker"
        until(lambda: not hits(started_with(run.processes(workers))), lambda: run.log, run.process)
        looked = list(shown_by(run))
    looked += texts_in(run.folder)
    names = " ".join(name for name, _ in looked)
    assert all(
        part in names for part in ("state/controller", "worker-0.log", "/agents/vm1", ".parquet", "/models/")
    )
    everything = "".join(text for _, text in looked)
    for told in TOLD:
        assert told in everything
    assert hits(looked) == []


def test_a_run_whose_task_does_not_open_shows_none(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "refuses").touch()
    with running(tmp_path / "run") as run:
        assert run.process.wait(PATIENCE_S) == 7
    assert "no login with db://ada:***@host and 'Bearer ***'" in run.log
    assert hits(texts_in(run.folder)) == []


def test_a_run_whose_secret_is_not_there_ends_and_names_it(tmp_path: Path) -> None:
    with running(tmp_path / "run", there=False) as run:
        assert run.process.wait(PATIENCE_S) == 7
    assert f"cannot read ${{FILE:{tmp_path}/password}}: No such file or directory" in run.log
    assert hits(texts_in(run.folder)) == []
