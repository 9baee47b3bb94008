"""Write titles of pictures: a headline with the run's description, and a line with its configuration."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from ipusim.api import Timeline
from ipusim.app.render.figures import Chart
from ipusim.app.render.fold import replicas_alike
from ipusim.app.render.lettering import truncate, wrap
from ipusim.app.render.picture import Picture
from ipusim.app.render.style import EDGE_IN, TEXT_SIZE, TITLE_SIZE
from ipusim.app.render.window import Window
from ipusim.base.units import counted

#: Height of a headline's line in inches.
_HEADLINE: Final = 0.19
#: Height of a line below the headline, in inches.
_WORDS: Final = 0.15
#: Space below the title, in inches.
_SPACE: Final = 0.05
#: Length of a headline shortened to two lines, in lines: words do not fill a line to its end.
_TWO_LINES: Final = 1.7


class TitleLine(NamedTuple):
    """Line of a title: of the headline, or of the words below it."""

    text: str
    headline: bool


def default_title(
    timeline: Timeline, window: Window | None = None, *, of_replica: bool = False, headline: str = ""
) -> str:
    """Return a run's description above a line with schedule, size and window.

    For example ``The tutorial's model`` and ``grouped in lock-step, 2 IPUs, 2 stages, 16 micro-batches, ramp-up of
    execution 0``. Runs without a description have a single line beginning with their name. ``of_replica`` marks a
    picture of a single replica even if replicas differ. A ``headline`` replaces the description.
    """
    info = timeline.info
    ipus = len(info.stages_of_ipu)
    devices = [counted(ipus, "IPU")]
    if info.replicas > 1:
        per_replica = counted(ipus // info.replicas, "IPU")
        devices = [f"{info.replicas} replicas", *devices]
        if of_replica:
            devices = [f"{info.replicas} replicas of {per_replica}"]
        elif replicas_alike(timeline, window):
            devices = [f"{info.replicas} equal replicas of {per_replica}"]
    words = ", ".join(
        (
            info.order_and_sync,
            *([f"{info.hosts} equal hosts"] if info.hosts > 1 else []),
            *devices,
            counted(len(info.stages), "stage"),
            counted(info.micro_batches, "micro-batch", "es")
            + (f" in {info.segments} segments each" if info.segments > 1 else ""),
            *([window.name] if window and window.name else []),
        )
    )
    return with_headline(timeline, words, headline)


def with_headline(timeline: Timeline, words: str, headline: str = "") -> str:
    """Return ``words`` below a headline, by default the run's description.

    If both are empty, the single line begins with the run's name.
    """
    headline = headline or timeline.info.title
    return f"{headline}\n{words}" if headline else f"{timeline.info.name}: {words}"


def shorter(title: str, width_in: float) -> str:
    """Shorten a title to two lines of headline and one of words, with ellipses."""
    headline, *lines_below = title.split("\n")
    lines = [truncate(headline, TITLE_SIZE, _TWO_LINES * width_in * 72, bold=True)]
    lines += [truncate(line, TEXT_SIZE, width_in * 72) for line in lines_below[:1]]
    return "\n".join(lines)


def title_lines(title: str, width_in: float) -> list[TitleLine]:
    """Break a title to ``width_in``; the first line of its text is the headline."""
    headline, *texts = title.split("\n")
    lines = [TitleLine(line, True) for line in wrap(headline, TITLE_SIZE, width_in * 72, bold=True)]
    return lines + [TitleLine(line, False) for text in texts for line in wrap(text, TEXT_SIZE, width_in * 72)]


def titles_height(lines: Sequence[TitleLine]) -> float:
    """Return the inches of a title with the space below it."""
    return sum(_HEADLINE if line.headline else _WORDS for line in lines) + _SPACE if lines else 0.0


def write_titles(figure: Chart, lines: Sequence[TitleLine], edge_in: float) -> float:
    """Write a title ``edge_in`` from the figure's edges, and return its height in inches."""
    top = edge_in
    for line in lines:
        style: dict[str, Any] = {"fontsize": TITLE_SIZE, "fontweight": "bold"} if line.headline else {}
        figure.write(edge_in, top, line.text, **style)
        top += _HEADLINE if line.headline else _WORDS
    return titles_height(lines)


def titled_chart(title: str, picture: Picture, tall: float, *, left: float, foot: float, least: float) -> Chart:
    """Return a chart with its title, and with margins for axes below the title.

    Args:
        title: title of the picture; further lines are smaller.
        picture: size of the picture.
        tall: height in inches, unless the picture's size is chosen.
        left, foot: inches for numbers and names to the left of the axes and below them.
        least: least height of the axes in inches.

    Raises OptionError for too low a picture.
    """
    lines = title_lines(title, picture.width_in - 2 * EDGE_IN)
    head, height = 2 * EDGE_IN + titles_height(lines), picture.height_in or tall
    if height < head + least + foot:
        raise picture.too_low("panels, axes and title", head + least + foot)
    chart = Chart(figsize=(picture.width_in, height))
    write_titles(chart, lines, EDGE_IN)
    chart.subplots_adjust(left=left / picture.width_in, right=0.98, top=1 - head / height, bottom=foot / height)
    return chart
