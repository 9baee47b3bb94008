"""Where things are on a page of runs, from what it says of itself: its canvases' times, and the names beside them."""

#: Where the row of an IPU is.
_ROW = """(section, label) => {
  const row = [...section.querySelector(".labels").children].find((each) => each.firstChild.textContent === label);
  const box = row.getBoundingClientRect();
  return [box.y, box.height];
}"""


def shows(page, section=0):
    """Return from which second to which the trace of a section reaches."""
    canvas = page.locator("canvas.trace").nth(section)
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    return tuple(float(canvas.get_attribute(f"data-{name}")) for name in ("start", "end"))


def place(page, label, seconds, section=0):
    """Return the point of the canvas, in its own pixels, on the row called ``label`` at a time."""
    start, end = shows(page, section)
    box = page.locator("canvas.trace").nth(section).bounding_box()
    top, tall = page.locator("section").nth(section).evaluate(_ROW, label)
    return (seconds - start) / (end - start) * box["width"], top + tall / 2 - box["y"]


def hover(page, label, seconds, section=0):
    """Put the pointer on a row at a time, and return the fields that the page then shows."""
    page.locator("canvas.trace").nth(section).scroll_into_view_if_needed()
    x, y = place(page, label, seconds, section)
    box = page.locator("canvas.trace").nth(section).bounding_box()
    page.mouse.move(box["x"] + x, box["y"] + y)
    return fields(page, "#tip")


def fields(page, where):
    """Return what a list of fields says, by name; nothing where it is hidden."""
    return dict(
        page.locator(where).evaluate(
            "(list) => list.hidden ? [] : [...list.querySelectorAll('dt')].map((term) => "
            "[term.textContent, term.nextElementSibling.textContent])"
        )
    )


def colour(page, label, seconds, section=0, below=0):
    """Return red, green and blue of the canvas on a row at a time, so many pixels below its middle."""
    x, y = place(page, label, seconds, section)
    return tuple(
        page.locator("canvas.trace")
        .nth(section)
        .evaluate(
            "(canvas, [x, y]) => [...canvas.getContext('2d').getImageData(x * devicePixelRatio, y * devicePixelRatio, "
            "1, 1).data.slice(0, 3)]",
            [x, y + below],
        )
    )


def rgb(text):
    """Return red, green and blue of ``#rrggbb``."""
    return tuple(int(text[at : at + 2], 16) for at in (1, 3, 5))


def unfold(page):
    """Open what is folded: tables and scenarios."""
    for summary in page.locator("details.fold:not([open]) > summary").all()[::-1]:
        summary.click()


def span_of(timeline, kind, stage, micro_batch):
    """Return the row of a pass, and the second in its middle."""
    rows = timeline.rows(kind)
    row = int(rows[(timeline.stage[rows] == stage) & (timeline.micro_batch[rows] == micro_batch)][0])
    return row, (timeline.start[row] + timeline.end[row]) / 2 / timeline.info.clock_hz
