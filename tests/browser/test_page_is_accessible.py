"""axe-core finds nothing in either theme; it is fetched from npm into the user's cache once."""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest
from feed_made import example, plain
from pages import TOKEN, Asked, MadeFeed, served

pytestmark = pytest.mark.live
AXE = "axe-core@4.10.3"
FETCH_S = 60
RULES = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]}


@pytest.fixture(scope="session")
def axe() -> str:
    """The source of axe-core."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "headgate-tests"
    kept = cache / f"{AXE}.js"
    if not kept.exists():
        _fetch(cache, kept)
    return kept.read_text("utf-8")


def _fetch(cache: Path, kept: Path) -> None:
    if shutil.which("npm") is None:
        pytest.skip("there is no npm to fetch axe-core with")
    cache.mkdir(parents=True, exist_ok=True)
    try:
        subprocess.run(
            ["npm", "pack", "--silent", AXE], cwd=cache, check=True, capture_output=True, timeout=FETCH_S
        )
    except (subprocess.SubprocessError, OSError) as error:
        pytest.skip(f"npm does not bring axe-core: {error}")
    (packed,) = cache.glob("axe-core-*.tgz")
    with tarfile.open(packed) as archive:
        found = archive.extractfile("package/axe.min.js")
        assert found is not None
        kept.write_bytes(found.read())
    packed.unlink()


def violations(page, axe):
    page.evaluate(axe)
    found = page.evaluate("rules => axe.run(document, rules)", RULES)["violations"]
    return [(rule["id"], [node["target"] for node in rule["nodes"]][:5]) for rule in found]


@pytest.mark.parametrize(
    ("theme", "width"),
    [  # each theme and each width in every run; the two other pairs have nothing of their own
        ("light", 1440),
        ("dark", 390),
        pytest.param("light", 390, marks=pytest.mark.full),
        pytest.param("dark", 1440, marks=pytest.mark.full),
    ],
)
def test_axe_finds_nothing(page, axe, theme, width):
    page.set_viewport_size({"width": width, "height": 5000})
    proposal = {"id": "p1", "reason": "rate_changed", "text": "8 slots", "rate_tps": 300.0, "slots": 8,
                "predicted_tps": 301.0, "base_epoch": 3, "diff": ["+ vm2/2 parse×4"]}  # fmt: skip
    document = {**plain(example()), "proposal": proposal, "alarms": {"lost": "3 rows are lost"}}
    with served(MadeFeed(document), Asked()) as server:
        page.goto(f"{server.address}#token={TOKEN}")
        page.select_option("#theme", theme)
        page.wait_for_selector("[data-chart=rates][data-drawn]")
        for link in page.locator("#tabs a").all():
            link.click()
            tab = link.get_attribute("href")
            page.wait_for_selector(f"{tab} [data-shown], {tab}[data-shown]")
            if tab == "#whatif":
                page.wait_for_selector("[data-answer=one-more-slot][data-buys]")
            for summary in page.locator(f"{tab} details > summary").all():
                summary.click()
            assert violations(page, axe) == [], tab
        page.click("#approve")
        page.wait_for_selector("#order[data-step]")
        assert violations(page, axe) == []
        page.faults[:] = [fault for fault in page.faults if "409" not in fault]


def test_the_stale_page_is_accessible_too(page, axe):
    with served(MadeFeed(plain(example())), Asked()) as server:
        page.goto(server.address)
        page.wait_for_selector("body[data-drawn]")
    page.wait_for_selector("#feed-state[data-state=stale]")
    assert violations(page, axe) == []
