"""The services inside this process: what they can be asked for, what is made, how they answer."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import resource
import socket
import sqlite3
from pathlib import Path

import pytest
from msgspec.structs import replace

from emulated_services import proxy
from emulated_services.contents import row_of
from emulated_services.control import ServiceSettings
from emulated_services.embedded import Rows, Server
from emulated_services.limits import Gate, Terms
from emulated_services.seeding import seed_files, seed_sqlite, table_file
from headgate.topology_runtime.progress import bar

SETTINGS = ServiceSettings(True, 1, 1, 1.0, 1.0, 0.0, 10000, 10002)


class TestSettings:
    @pytest.mark.parametrize("ports", [(10000, 10002), (0, 0), (1, 65535)])
    def test_ports_that_can_be(self, ports: tuple[int, int]) -> None:
        assert list(replace(SETTINGS, blob_port=ports[0], table_port=ports[1]).faults()) == []

    @pytest.mark.parametrize(
        ("ports", "said"),
        [((-1, 65536), ["--blob-port -1: ", "--table-port 65536: "]), ((7, 7), ["are both 7"])],
    )
    def test_ports_that_cannot_be_are_all_told(self, ports: tuple[int, int], said: list[str]) -> None:
        faults = list(replace(SETTINGS, blob_port=ports[0], table_port=ports[1]).faults())
        assert len(faults) == len(said)
        assert all(words in fault for words, fault in zip(said, faults, strict=True))


class TestSeeding:
    def test_only_what_was_made_is_told(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        for blobs, said in ((2, "2 blobs made in "), (2, ""), (3, "1 blobs made in ")):
            with bar("blobs made", blobs) as step:
                seed_files(tmp_path, blobs, step)
            err = capsys.readouterr().err
            assert err.startswith(said) and bool(err) == bool(said)
        for rows, said in ((150, "150 rows made in "), (150, ""), (320, "170 rows made in ")):
            with bar("rows made", rows) as step:
                seed_sqlite(tmp_path, rows, step)
            err = capsys.readouterr().err
            assert err.startswith(said) and bool(err) == bool(said)


class TestRows:
    def answered(self, rows: Rows, path: str) -> bytes:
        async def ask() -> bytes:
            server = await asyncio.start_server(Server(rows.answer, Gate(Terms())).serve, "127.0.0.1", 0)
            async with server:
                reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
                writer.write(f"GET {path} HTTP/1.1\r\nConnection: close\r\n\r\n".encode())
                answer = await asyncio.wait_for(reader.read(), 10.0)
                writer.close()
                await writer.wait_closed()
                return answer

        return asyncio.run(ask())

    def test_a_row_of_this_table_alone_in_a_folder_of_any_name(self, tmp_path: Path) -> None:
        folder = tmp_path / "a b?#%41"
        seed_sqlite(folder, 3, lambda there, made: None)
        rows = Rows(table_file(folder), Gate(Terms()))
        answer = self.answered(rows, "/headgate/2")
        assert answer.startswith(b"HTTP/1.1 200 ") and str(row_of(2)["c11"]).encode() in answer
        for path in ("/headgate/3", "/other/2", "/table/2", "/headgate/x"):
            assert self.answered(rows, path).startswith(b"HTTP/1.1 404 ")
        rows.close()

    def test_a_file_without_the_table_is_seen_at_the_start(self, tmp_path: Path) -> None:
        sqlite3.connect(tmp_path / "empty.sqlite").close()
        (tmp_path / "text").write_text("no database, but long enough to be looked at as one" * 20)
        for name in ("empty.sqlite", "text", "absent"):
            with pytest.raises(sqlite3.Error):
                Rows(tmp_path / name, Gate(Terms()))


def test_the_proxy_goes_on_when_it_could_not_take_a_connection(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(proxy, "PAUSE_S", 0.001)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    said = ""

    async def ask() -> bytes:
        nonlocal said
        loop = asyncio.get_running_loop()
        with socket.create_server(("127.0.0.1", 0)) as listener, socket.socket() as client:
            for each in (listener, client):
                each.setblocking(False)
            route = proxy.ProxyRoute(listener.getsockname()[1], 1, Terms())
            accepting = asyncio.create_task(proxy.accept(route, listener))
            taken: list[int] = []
            try:
                gc.collect()  # what earlier tests left open is not to be closed just now
                resource.setrlimit(
                    resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))), limits[1])
                )
                with contextlib.suppress(OSError):
                    while True:
                        taken.append(os.dup(0))  # also numbers below that are free
                await loop.sock_connect(client, listener.getsockname())
                async with asyncio.timeout(10.0):
                    while not said and not accepting.done():
                        await asyncio.sleep(0)
                        said = capsys.readouterr().err
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, limits)
                for descriptor in taken:
                    os.close(descriptor)
            answer = await asyncio.wait_for(loop.sock_recv(client, 100), 3.0)
            accepting.cancel()
            await asyncio.gather(accepting, return_exceptions=True)
            return answer

    assert asyncio.run(ask()).startswith(b"HTTP/1.1 502 ")
    assert "takes none: Too many open files" in said
