"""A hundred thousand spans in a browser: there before three seconds are over, and quick from then on."""

import pytest

from ipusim.app.page.page import report_page
from tests.browser.folders import run_into
from tests.browser.shown import hover, shows
from tests.effort import rarest

SPANS = 100_000
#: Seconds from opening to the first picture that answers, and of a picture from then on.
OPEN_S, PICTURE_S = 3.0, 0.25
STAGES = [{"name": f"s{n}", "forward": 4000 + 500 * n, "backward": 8000, "output_bytes": 4096} for n in range(8)]


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    home = tmp_path_factory.mktemp("large")
    pipeline = {"stages": STAGES, "gradient_accumulation_count": 768, "repeat_count": 4}
    timeline = run_into(home / "run", {"name": "large", "system": {"name": "pod16"}, "pipeline": pipeline})
    assert timeline.spans_in_all >= SPANS
    (home / "page.html").write_bytes(report_page([home / "run"]))
    return home / "page.html"


@rarest
def test_a_hundred_thousand_spans_are_there_at_once_and_answer_at_once(open_page, large):
    page = open_page(large)
    opened_s = page.evaluate("Number(document.documentElement.dataset.ready)") / 1000
    page.click("[data-do=fit]")
    start, end = shows(page)
    pictures_s = page.evaluate(
        """async () => {
          const began = performance.now(), canvas = document.querySelector("canvas.trace");
          for (let n = 0; n < 10; n++) {
            canvas.dispatchEvent(new WheelEvent("wheel", { deltaY: n < 5 ? -60 : 60, clientX: 700, cancelable: true }));
            await new Promise(requestAnimationFrame);
            await new Promise(requestAnimationFrame);
          }
          return (performance.now() - began) / 10000;
        }"""
    )
    print(f"{opened_s:.2f} s to open, {pictures_s * 1000:.0f} ms a picture of all spans")
    assert opened_s < OPEN_S
    assert pictures_s < PICTURE_S
    assert shows(page) == pytest.approx((start, end), rel=1e-6)
    assert hover(page, "IPU 3", (start + end) / 2)["IPU"] in ("3", "all")
