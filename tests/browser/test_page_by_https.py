"""The page as a process on an address that other machines reach: what a browser, openssl and strangers get of it."""

from __future__ import annotations

import http.client
import json
import os
import re
import shutil
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil
import pytest
from pages import can_browse, chromium
from patience import PATIENCE_S, until, within

from headgate.dashboards.web.http_connections import REQUEST_S, WAITING_MOST

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(not can_browse(), reason="there is no chromium here: apt-get install chromium"),
    pytest.mark.skipif(
        shutil.which("openssl") is None, reason="there is no openssl: apt-get install openssl"
    ),
]
HEADGATE = [sys.executable, "-P", "-m", "headgate"]
AT = re.compile(r"https://([\d.]+):(\d+)/#token=(\S+)\ncertificate until \S+, SHA-256 (\S+)\n")
HANGING = 200


def own_address() -> str:
    """An address of this machine that others could reach."""
    found = (a.address for of in psutil.net_if_addrs().values() for a in of if a.family == socket.AF_INET)
    return next((address for address in found if not address.startswith("127.")), "")


class Shown:
    """The page of an idle controller on `host`."""

    def __init__(self, folder: Path) -> None:
        self.host, self.folder = own_address(), folder
        if not self.host:
            pytest.skip("this machine has no address but loopback")
        self.env = {**os.environ, "XDG_CONFIG_HOME": str(folder / "settings")}
        self._children: list[subprocess.Popen[bytes]] = []

    def begin(self) -> None:
        self._start("controller", "run", "--state-dir", "state")
        endpoint = self.folder / "state" / "controller" / "endpoint"
        self._until(endpoint.exists)
        log = self._start("dashboard", "run", "--controller", "state", "--listen", self.host, "--tls")
        self._until(lambda: AT.search(log.read_text()))
        found = AT.search(log.read_text())
        assert found is not None
        self.port, self.token, self.fingerprint = int(found[2]), found[3], found[4]
        self.certificate = self.folder / "settings" / "headgate" / "tls" / f"{self.host}.pem"

    def _start(self, *words: str) -> Path:
        log = self.folder / f"{words[0]}.log"
        with log.open("wb") as out:
            self._children.append(subprocess.Popen(
                [*HEADGATE, *words], stdout=out, stderr=out, cwd=self.folder, env=self.env, process_group=0
            ))  # fmt: skip
        return log

    def _until(self, done: Any) -> None:
        until(done, lambda: str([p.read_text() for p in self.folder.glob("*.log")]), *self._children)

    def end(self) -> None:
        for child in reversed(self._children):
            child.terminate()
            child.wait(PATIENCE_S)

    def address(self, path: str = "/") -> str:
        return f"https://{self.host}:{self.port}{path}"

    def context(self, version: ssl.TLSVersion | None = None) -> ssl.SSLContext:
        """That of a client who trusts this very certificate and nothing else."""
        context = ssl.create_default_context(cafile=str(self.certificate))
        if version is not None:
            context.set_ciphers("ALL:@SECLEVEL=0")  # the client would speak it
            context.minimum_version = context.maximum_version = version
        return context

    def get(self, path: str, context: ssl.SSLContext | None = None, **headers: str) -> tuple[int, bytes]:
        with closing(
            http.client.HTTPSConnection(
                self.host, self.port, timeout=PATIENCE_S, context=context or self.context()
            )
        ) as link:
            link.request("GET", path, headers=headers)
            answer = link.getresponse()
            return answer.status, answer.read()


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shown]:
    found = Shown(tmp_path_factory.mktemp("https"))
    try:
        found.begin()
        yield found
    finally:
        found.end()


def looked_at(context: Any, shown: Shown) -> None:
    """From the printed address to a living picture, then as a second tab without the token in its address."""
    page = context.new_page()
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(shown.address(f"/#token={shown.token}"))
    page.wait_for_selector("body[data-state=live]")
    assert page.evaluate("document.body.dataset.heard") is not None and shown.token not in page.url
    assert page.locator("#orders").get_attribute("data-writes") == "yes"
    second = context.new_page()
    second.goto(shown.address())
    second.wait_for_selector("body[data-state=live]")
    assert second.locator("#orders").get_attribute("data-writes") == "no"
    assert errors == []


def piped(words: list[str], data: bytes = b"") -> bytes:
    return subprocess.run(words, input=data, capture_output=True, timeout=PATIENCE_S, check=True).stdout


def test_a_browser_that_was_told_which_key_to_trust_sees_the_run(shown: Shown, tmp_path: Path) -> None:
    """The pin is openssl's, and it is the one that chromium believes: another key is an error of its own."""
    public = piped(["openssl", "x509", "-in", str(shown.certificate), "-noout", "-pubkey"])
    der = piped(["openssl", "pkey", "-pubin", "-outform", "der"], public)
    pin = piped(["openssl", "base64"], piped(["openssl", "dgst", "-sha256", "-binary"], der)).decode().strip()
    with chromium(tmp_path / "a", f"--ignore-certificate-errors-spki-list={pin}") as context:
        looked_at(context, shown)
    from playwright.sync_api import Error

    other = pin[:-2] + ("A=" if pin[-2] != "A" else "E=")
    flag = f"--ignore-certificate-errors-spki-list={other}"
    with chromium(tmp_path / "b", flag) as context, pytest.raises(Error, match="ERR_CERT_AUTHORITY_INVALID"):
        context.new_page().goto(shown.address())


def test_a_browser_whose_user_clicked_the_warning_away_sees_the_run(shown: Shown, tmp_path: Path) -> None:
    with chromium(tmp_path, ignore_https_errors=True) as context:
        looked_at(context, shown)


def test_a_browser_without_the_token_is_asked_for_it(shown: Shown, tmp_path: Path) -> None:
    with chromium(tmp_path, ignore_https_errors=True) as context:
        page = context.new_page()
        page.goto(shown.address())
        assert "headgate" in page.title() and page.locator("#topology").count() == 0
        page.fill("#token", "not the token at all")
        page.click("button")
        page.locator("#told", has_text="not its token").wait_for()
        page.fill("#token", shown.token)
        page.click("button")
        page.wait_for_selector("body[data-state=live]")
        assert page.locator("#orders").get_attribute("data-writes") == "yes"


def test_a_client_without_the_token_gets_nothing(shown: Shown) -> None:
    for path in ("/api/snapshot", "/static/main.js", "/plotly.min.js"):
        status, body = shown.get(path)
        assert status == 401 and json.loads(body)["error"]["code"] == "HG-TOKEN"
    status, body = shown.get("/api/snapshot", **{"x-headgate-token": shown.token})
    assert status == 200 and json.loads(body)["schema"] == "headgate/snapshot/v1"


def test_openssl_sees_the_printed_certificate_its_addresses_and_no_old_tls(shown: Shown) -> None:
    seen = subprocess.run(
        ["openssl", "s_client", "-connect", f"{shown.host}:{shown.port}", "-CAfile", str(shown.certificate),
         "-verify_ip", shown.host, "-verify_return_error"],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE_S,
    )  # fmt: skip
    assert "Verify return code: 0 (ok)" in seen.stdout, seen.stdout + seen.stderr
    told = subprocess.run(
        ["openssl", "x509", "-noout", "-fingerprint", "-sha256", "-ext", "subjectAltName"],
        input=seen.stdout, capture_output=True, text=True, timeout=PATIENCE_S,
    ).stdout  # fmt: skip
    assert f"IP Address:{shown.host}\n" in told and f"Fingerprint={shown.fingerprint}\n" in told
    for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        assert shown.get("/", shown.context(version))[0] == 401
    for version in (ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1):
        with pytest.warns(DeprecationWarning), pytest.raises(ssl.SSLError, match=r"PROTOCOL_VERSION|EOF"):
            shown.get("/", shown.context(version))


def test_who_speaks_plain_http_is_told(shown: Shown) -> None:
    with closing(http.client.HTTPConnection(shown.host, shown.port, timeout=PATIENCE_S)) as link:
        link.request("GET", "/api/snapshot", headers={"x-headgate-token": shown.token})
        answer = link.getresponse()
        text = answer.read().decode()
    assert answer.status == 400 and text == f"this port speaks https only: {shown.address()}\n"


def over(sock: socket.socket) -> bool:
    sock.setblocking(False)
    try:
        return sock.recv(1, socket.MSG_PEEK) is not None
    except BlockingIOError:
        return False
    except OSError:
        return True


@pytest.mark.parametrize("first", [b"", b"\x16", b"\x16\x03\x01\x02\x00\x01", b"GET"], ids=repr)
@within(REQUEST_S)  # then they would be over by themselves
def test_hundreds_that_never_shake_hands_keep_nobody_out(shown: Shown, first: bytes, within_s: float) -> None:
    socks: list[socket.socket] = []
    try:
        for _ in range(HANGING):
            socks.append(socket.create_connection((shown.host, shown.port), PATIENCE_S))
            socks[-1].sendall(first)
        begin_s = time.monotonic()
        assert shown.get("/")[0] == 401
        until(lambda: len([sock for sock in socks if over(sock)]) >= HANGING - WAITING_MOST)
        assert time.monotonic() - begin_s < within_s, "they hold more connections than they may"
    finally:
        for sock in socks:
            sock.close()


def test_many_at_once_and_requests_in_pieces_are_all_answered(shown: Shown) -> None:
    """What comes with the last bytes of the handshake is not lost."""
    wrong: list[object] = []

    def ask() -> None:
        try:
            for _ in range(10):
                status, body = shown.get("/api/snapshot", **{"x-headgate-token": shown.token})
                assert status == 200 and json.loads(body)["schema"] == "headgate/snapshot/v1"
        except Exception as error:
            wrong.append(error)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert wrong == []


def test_off_loopback_without_tls_is_refused_with_what_to_type(shown: Shown) -> None:
    words = ["dashboard", "run", "--controller", "state", "--listen", shown.host]
    told = subprocess.run(
        [*HEADGATE, *words], cwd=shown.folder, env=shown.env, capture_output=True, text=True
    )
    assert told.returncode == 2 and told.stdout == "" and "unencrypted" in told.stderr
    assert f"try: headgate dashboard run --listen {shown.host} --tls" in told.stderr
