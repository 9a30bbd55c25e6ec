"""A browser per file of tests; each test has its own page and its own server.

Not one for the session: it leaves a running event loop in the process, and a file that starts a browser or a loop of
its own, later in the same process, would fail by it.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from pages import can_browse, chromium


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    if not can_browse():
        pytest.skip("there is no chromium here: apt-get install chromium")
    pytest.importorskip("playwright.sync_api", reason="pip install playwright")
    folder: Path = tmp_path_factory.mktemp("profile")
    with chromium(folder) as context:
        yield context


@pytest.fixture
def page(browser):
    """A page that fails its test by an error on the console or by asking for anything that is not its own."""
    found, faults = browser.new_page(), []
    found.on("pageerror", lambda error: faults.append(f"error: {error}"))
    found.on("console", lambda said: faults.append(said.text) if said.type in ("error", "warning") else None)
    found.on("request", lambda asked: faults.append(asked.url) if _foreign(asked.url) else None)
    found.faults = faults
    yield found
    found.close()
    assert [fault for fault in faults if not (_of_a_dead_server(fault) or _refused_meanwhile(fault))] == []


def _foreign(url: str) -> bool:
    return not url.startswith(("http://127.0.0.1:", "ws://127.0.0.1:", "data:", "blob:http://127.0.0.1:"))


def _of_a_dead_server(fault: str) -> bool:
    """Chromium itself writes these when a server is gone, or goes in the middle of an answer; a page cannot keep them
    back."""
    words = "ERR_CONNECTION_REFUSED", "ERR_CONTENT_LENGTH_MISMATCH", "WebSocket connection to"
    return any(word in fault for word in words)


def _refused_meanwhile(fault: str) -> bool:
    """What the browser writes when a question of the page met a plan that was just changing: 409, and it asks again."""
    return "status of 409 (Conflict)" in fault
