"""Pictures of the live page for the documents: `docs/pictures/*.png`, every view in both themes and a narrow one.

    python scripts/screenshots.py --trace traces/demo/RUN        (of a recorded run)
    python scripts/screenshots.py --page http://127.0.0.1:8642/  (of a page that is served)

Needs chromium and playwright.
"""

from __future__ import annotations

import argparse
import contextlib
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PICTURES = ROOT / "docs" / "pictures"
CHROMIUM = "/usr/bin/chromium"
FLAGS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip
VIEWS = ("topology", "slots", "charts", "whatif", "fidelity", "models", "timeline", "tasks", "vms", "events")
THEMES = ("light", "dark")
WIDE, NARROW, TALL = 1440, 390, 9000
WAIT_MS = 120_000  # a machine that runs a topology besides takes its time
SETTLED = "#summary:has([data-verdict=stable]):not(:has([data-notice=enacting]))"
SETTLE_MS = 2500  # charts and the planner's answer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--trace", type=Path, help="a recorded run")
    source.add_argument("--page", help="the address of a live page")
    parser.add_argument("--at", type=float, default=100.0, help="seconds into the recorded run")
    parser.add_argument("--output", type=Path, default=PICTURES, help="the folder to write to")
    given = parser.parse_args()
    given.output.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as open_:
        address = given.page or open_.enter_context(served(given.trace))
        browser = open_.enter_context(chromium())
        for theme in THEMES:
            for width in (WIDE, NARROW):
                shoot(browser, address, theme, width, None if given.page else given.at, given.output)


@contextlib.contextmanager
def served(trace: Path) -> Iterator[str]:
    """The page over a trace, as the command serves it."""
    command = [sys.executable, "-m", "headgate.dashboards.cli", "dashboard", "run", "--trace", str(trace)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
    finally:
        process.terminate()
        process.wait(10)


@contextlib.contextmanager
def chromium() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        context = playwright.chromium.launch_persistent_context(
            folder, executable_path=CHROMIUM, headless=True, args=list(FLAGS), timezone_id="UTC"
        )
        context.set_default_timeout(WAIT_MS)
        try:
            yield context
        finally:
            context.close()


def shoot(browser: Any, address: str, theme: str, width: int, at_s: float | None, output: Path) -> None:
    """The page from its top, and when it is wide each view by itself."""
    page = browser.new_page()
    page.set_viewport_size({"width": width, "height": 900})
    page.goto(address)
    page.wait_for_selector("body[data-drawn]")
    page.select_option("#theme", theme)
    if at_s is not None:
        seek(page, at_s)
    else:
        page.wait_for_selector(SETTLED)
    page.set_viewport_size({"width": width, "height": TALL})  # everything is in sight, so everything is drawn
    page.wait_for_selector("[data-chart=slope][data-drawn]", state="attached")
    page.locator("#timeline details").first.evaluate("details => { details.open = true; }")
    page.wait_for_timeout(SETTLE_MS)
    if width == NARROW:
        page.screenshot(
            path=output / f"narrow-{theme}.png", clip={"x": 0, "y": 0, "width": width, "height": 1500}
        )
    else:
        page.screenshot(
            path=output / f"page-{theme}.png", clip={"x": 0, "y": 0, "width": width, "height": 1240}
        )
        for view in VIEWS:
            page.locator(f"#{view}").screenshot(path=output / f"{view}-{theme}.png")
    page.close()


def seek(page: Any, at_s: float) -> None:
    """Hold the recorded run at this second."""
    page.locator("#replay-at").evaluate(
        "(scrubber, at) => { scrubber.value = at; scrubber.dispatchEvent(new Event('input')); }", at_s
    )
    page.wait_for_function("at => Math.abs(document.getElementById('replay').dataset.at - at) < 3", arg=at_s)
    if re.search("Hold", page.inner_text("#replay-play")):
        page.click("#replay-play")


if __name__ == "__main__":
    main()
