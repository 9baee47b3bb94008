"""A real browser, headless: Debian's Chromium driven by Playwright. Tests skip with the reason where either is missing.

Where ``IPUSIM_BROWSER=required`` is set, as .ci/run does, they fail instead.
"""

from __future__ import annotations

import os
import shutil
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

#: What the browser may be called.
_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def _without(reason):
    if os.environ.get("IPUSIM_BROWSER") == "required":
        pytest.fail(f"the browser tests are required here: {reason}")
    pytest.skip(reason)


#: Ends the browser that is open, if one is.
_ENDS = ExitStack()
_BROWSERS: list[Any] = []


@pytest.fixture
def browser():
    """The browser of all tests of this folder, which is opened by the first of them."""
    if not _BROWSERS:
        try:
            from playwright.sync_api import sync_playwright  # noqa: PLC0415
        except ImportError:
            _without("Playwright is not installed: pip install -e '.[test]'")
        path = next(filter(None, map(shutil.which, _NAMES)), None)
        if path is None:
            _without("no Chromium is installed: apt-get install chromium")
        playwright = _ENDS.enter_context(sync_playwright())
        found = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        _ENDS.callback(found.close)
        _BROWSERS.append(found)
    return _BROWSERS[0]


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(nextitem):
    """End the browser behind the last of its tests: others run event loops themselves, which Playwright's forbids."""
    if nextitem is None or nextitem.path.parent != Path(__file__).parent:
        _BROWSERS.clear()
        _ENDS.close()


@pytest.fixture
def open_page(browser):
    """Open a page, as in ``open_page(path, color_scheme="dark")``; none may go wrong, or fetch anything."""
    contexts, wrong = [], []

    def opened(path, width=1280, height=900, **how):
        context = browser.new_context(viewport={"width": width, "height": height}, **how)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(10_000)
        page.on("console", lambda message: wrong.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: wrong.append(f"error: {error}"))
        page.on("dialog", lambda dialog: (wrong.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        page.on("request", lambda request: None if request.url == url else wrong.append(f"request: {request.url[:80]}"))
        url = path.as_uri()
        page.goto(url)
        page.wait_for_selector("html[data-ready]")
        return page

    yield opened
    for context in contexts:
        context.close()
    # What the page holds itself is no request, and it is the tests that read its canvas back.
    ours = ("request: data:", "warning: Canvas2D: Multiple readback")
    assert [each for each in wrong if not each.startswith(ours)] == []
