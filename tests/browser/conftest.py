"""A real browser, headless: Debian's Chromium driven by Playwright. Tests skip with the reason where either is missing.

Where ``IPUSIM_BROWSER=required`` is set, as .ci/run does, they fail instead.
"""

import os
import shutil
from collections import defaultdict
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from ipusim.app.page.page import report_page
from tests.browser.folders import run_into

#: What the browser may be called.
_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def _without(reason):
    if os.environ.get("IPUSIM_BROWSER") == "required":
        pytest.fail(f"the browser tests are required here: {reason}")
    pytest.skip(reason)


#: Ends the browser that is open, if one is.
_ENDS = ExitStack()
_BROWSERS: list[Any] = []
#: Tabs that no test uses now, by what they were opened with.
_TABS: defaultdict[tuple, list[Any]] = defaultdict(list)


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
        _TABS.clear()
        _BROWSERS.clear()
        _ENDS.close()


@pytest.fixture
def open_page(browser):
    """Open a page, as in ``open_page(path, color_scheme="dark")``; none may go wrong, or fetch anything.

    It opens where another test has closed its own, if there is such a place: each further tab takes a second.
    """
    opened_here, wrong = [], []

    def opened(path, width=1280, height=900, **how):
        free = _TABS[tuple(sorted(how.items()))]
        page = free.pop() if free else browser.new_context(**how).new_page()
        page.set_viewport_size({"width": width, "height": height})
        page.set_default_timeout(10_000)
        url = path.as_uri()
        listeners = {
            "console": lambda message: wrong.append(f"{message.type}: {message.text}"),
            "pageerror": lambda error: wrong.append(f"error: {error}"),
            "dialog": lambda dialog: (wrong.append(f"dialog: {dialog.message}"), dialog.dismiss()),
            "request": lambda request: None if request.url == url else wrong.append(f"request: {request.url[:80]}"),
        }
        for event, listener in listeners.items():
            page.on(event, listener)
        opened_here.append((free, page, listeners))
        page.goto(url)
        page.wait_for_selector("html[data-ready]")
        return page

    yield opened
    for free, page, listeners in opened_here:
        for event, listener in listeners.items():
            page.remove_listener(event, listener)
        page.mouse.move(0, 0)
        page.goto("about:blank")
        free.append(page)
    # What the page holds itself is no request, and it is the tests that read its canvas back.
    ours = ("request: data:", "warning: Canvas2D: Multiple readback")
    assert [each for each in wrong if not each.startswith(ours)] == []


@pytest.fixture(scope="module")
def timelines(request, tmp_path_factory):
    """The folders of a module's ``RUNS``, and their Timelines by name."""
    home = tmp_path_factory.mktemp("runs")
    return home, {name: run_into(home / name, options) for name, options in request.module.RUNS.items()}


@pytest.fixture
def show(request, open_page, timelines):
    """Open the page of some of those runs, by name; it plays them if the module's ``PLAY`` says so."""
    home, _ = timelines

    def shown(*names, **how):
        path = home / f"{'-'.join(names)}.html"
        play = getattr(request.module, "PLAY", False)
        path.write_bytes(report_page([home / name for name in names], play=play))
        return open_page(path, **how)

    return shown
