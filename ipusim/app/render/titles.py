"""Titles of pictures: a headline with the run's description, and a line with its configuration."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from ipusim.api import Timeline
from ipusim.app.render.figures import Chart
from ipusim.app.render.fold import replicas_alike
from ipusim.app.render.lettering import cut, wrap
from ipusim.app.render.style import TEXT_SIZE, TITLE_SIZE
from ipusim.app.render.window import Window
from ipusim.base.units import counted

#: Inches: a line of the headline, one of the words below it, and the space below both.
_HEADLINE, _WORDS, _BELOW = 0.19, 0.15, 0.05
#: Lines of headline that a shorter one takes, less what breaks between words leave free.
_TWO_LINES: Final = 1.7


class TitleLine(NamedTuple):
    """A line of a title, of its headline or of the words below that."""

    text: str
    headline: bool


def default_title(
    timeline: Timeline, shown: Window | None = None, *, of_replica: bool = False, headline: str = ""
) -> str:
    """Return the description of a run, and in a second line its schedule, size and window.

    As in ``The tutorial's model`` and ``grouped in lock-step, 2 IPUs, 2 stages, 16 micro-batches, ramp-up of
    execution 0``. A run without a description has one line that begins with its name. ``of_replica`` is set for a
    picture of one replica even if replicas differ. A ``headline`` stands in place of the description.
    """
    info = timeline.info
    used = len(info.stages_of_ipu)
    devices = [counted(used, "IPU")]
    if info.replicas > 1:
        per_replica = counted(used // info.replicas, "IPU")
        devices = [f"{info.replicas} replicas", *devices]
        if of_replica:
            devices = [f"{info.replicas} replicas of {per_replica}"]
        elif replicas_alike(timeline, shown):
            devices = [f"{info.replicas} replicas of {per_replica}, each as this one"]
    words = ", ".join(
        (
            info.order_and_sync,
            *([f"{info.hosts} hosts, each as this one"] if info.hosts > 1 else []),
            *devices,
            counted(len(info.stages), "stage"),
            counted(info.micro_batches, "micro-batch", "es")
            + (f" in {info.segments} segments each" if info.segments > 1 else ""),
            *([shown.name] if shown and shown.name else []),
        )
    )
    return headed(timeline, words, headline)


def headed(timeline: Timeline, words: str, headline: str = "") -> str:
    """Return words below a headline, by default a run's description; without either, one line with the run's name."""
    headline = headline or timeline.info.title
    return f"{headline}\n{words}" if headline else f"{timeline.info.name}: {words}"


def shorter(title: str, width_in: float) -> str:
    """Return a title in at most two lines of headline and one of words on such a width; the rest is an ellipsis."""
    headline, *others = title.split("\n")
    lines = [cut(headline, TITLE_SIZE, _TWO_LINES * width_in * 72, bold=True)]
    lines += [cut(other, TEXT_SIZE, width_in * 72) for other in others[:1]]
    return "\n".join(lines)


def title_lines(title: str, width_in: float) -> list[TitleLine]:
    """Return the lines of a title on a width of ``width_in``; the first line of its text is the headline."""
    headline, *others = title.split("\n")
    lines = [TitleLine(line, True) for line in wrap(headline, TITLE_SIZE, width_in * 72, bold=True)]
    return lines + [TitleLine(line, False) for text in others for line in wrap(text, TEXT_SIZE, width_in * 72)]


def titles_height(lines: Sequence[TitleLine]) -> float:
    """Return the inches that the lines of a title take, with the space below them."""
    return sum(_HEADLINE if line.headline else _WORDS for line in lines) + _BELOW if lines else 0.0


def write_titles(figure: Chart, lines: Sequence[TitleLine], edge_in: float) -> float:
    """Write the lines at the top of a figure, ``edge_in`` from its edges, and return the inches that they take."""
    top = edge_in
    for line in lines:
        how: dict[str, Any] = {"fontsize": TITLE_SIZE, "fontweight": "bold"} if line.headline else {}
        figure.write(edge_in, top, line.text, **how)
        top += _HEADLINE if line.headline else _WORDS
    return titles_height(lines)
