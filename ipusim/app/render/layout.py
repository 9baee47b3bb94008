"""Stack panels below each other on a common time axis, in inches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ipusim.api import Timeline, timelines
from ipusim.app.render.axes import cycle_axis, draw_breaks, draw_torn_edge, second_axis
from ipusim.app.render.brackets import draw_brackets
from ipusim.app.render.content import Content, content
from ipusim.app.render.figures import Chart, default_style_settings
from ipusim.app.render.fold import rows_of
from ipusim.app.render.legend import LEGEND_LINE, Entry, draw_legend, legend_entries, legend_lines
from ipusim.app.render.lettering import text_width, wrap
from ipusim.app.render.memory_strip import STRIP_NAME, MemoryStrip, draw_strip, strip_entries
from ipusim.app.render.panel import draw_panel, names_width
from ipusim.app.render.picture import DEFAULT, Picture
from ipusim.app.render.style import DPI, EDGE_IN, FAINT_TEXT, STAGE_SIZE, TEXT_SIZE
from ipusim.app.render.time_bars import TimeBars
from ipusim.app.render.titles import TitleLine, title_lines, titles_height, write_titles
from ipusim.app.render.window import Window
from ipusim.base.errors import OutputError

#: Distance from row names to the axes in inches.
_NAME_GAP: Final = 0.08
#: Margin right of the axes in inches, for half a tick label.
_RIGHT: Final = 0.30
#: Height of the seconds axis in inches.
_SECONDS: Final = 0.26
#: Space above a panel's heading in inches.
_ABOVE_HEADING: Final = 0.05
#: Height of a heading's line in inches.
_HEADING_LINE: Final = 0.17
#: Height of the band of brackets above a panel's rows, in inches.
_BAND: Final = 0.28
#: Distance of panels in inches.
_PANEL_GAP: Final = 0.10
#: Height of the cycles axis in inches.
_CYCLES: Final = 0.40
#: Text size of headings in points.
_HEADING_SIZE: Final = TEXT_SIZE + 1
#: Share of the room for a heading, since rendered letters are slightly wider than outlines.
_WIDEST_HEADING: Final = 0.97
#: Target height of all rows together in inches.
_ALL_ROWS: Final = 7.0
#: Preferred minimum height of a row in inches.
_LOWEST_ROW: Final = 0.12
#: Maximum height of a row in inches.
_HIGHEST_ROW: Final = 0.42
#: Maximum height of all rows together in inches; more rows become lower than the preferred minimum.
_MOST_HEIGHT_OF_ROWS: Final = 8.0
#: Maximum height in inches of a figure with several panels: 850 pixels wide, it then fits a screen.
_MOST_HEIGHT_OF_PANELS: Final = 12.0
#: Maximum height of a figure with bars in inches: a slide, of 1080 pixels in a PNG.
SLIDE_IN: Final = 1080 / DPI
#: Minimum legible height of a row in inches: 4 pixels in an 850 pixel wide picture.
_LOWEST_SEEN: Final = 0.05
#: Estimated inches for title, time axes and legend of a figure with several panels.
_AROUND: Final = 1.8
#: Estimated inches for title, time axes and a legend of two lines on a slide.
_AROUND_SLIDE: Final = 1.6
#: Minimum height of a row in inches; a slide with lower rows is refused.
_LEAST_ROW_HEIGHT: Final = 0.02
#: Minimum height of a row in inches, in pictures of a chosen size.
_LEAST_ROW_HEIGHT_OF_SIZE: Final = 0.08
#: Minimum width of the axes in inches, in pictures of a chosen size.
_NARROWEST: Final = 1.0
#: Maximum number of layouts until row height and widths of names agree.
_ROUNDS: Final = 2
#: Height of the memory strip in inches.
_STRIP: Final = 0.46
#: Height of the memory strip on slides and in figures with many panels, in inches.
_LOW_STRIP: Final = 0.32
#: Distance between rows and memory strip in inches.
_ABOVE_STRIP: Final = 0.08
#: Maximum number of panels with strips of full height.
_MANY_PANELS: Final = 4
#: Maximum number of boxes drawn as vectors in an SVG; more boxes become an image.
_MOST_VECTOR_BOXES: Final = 40_000
#: Artists with a lower z-order than this, boxes among them, become part of the image.
_ABOVE_BOXES: Final = 2.5
#: Maximum number of rows with full resolution in time. With more rows, bins become wider in proportion.
_MOST_FINE_ROWS: Final = 256
#: Height of a tooth of a torn edge in inches.
_TOOTH: Final = 0.10


@dataclass(frozen=True)
class Headed:
    """Timeline to draw, with heading and window.

    Attributes:
        heading: line above the panel; empty without a line.
        timeline: Timeline to draw.
        torn: whether the run continues after the window.
        window: window in cycles of the panel's clock; None uses the common window.
        own_axis: whether the panel has a separate time axis, as the window differs from the common window.
        ipus_to_a_row: neighbouring IPUs in a row.
        strip: memory over time, below the rows.
    """

    heading: str
    timeline: Timeline
    torn: bool = False
    window: Window | None = None
    own_axis: bool = False
    ipus_to_a_row: int = 1
    strip: MemoryStrip | None = None

    @property
    def rows(self) -> int:
        """Number of rows."""
        return rows_of(self.timeline, self.ipus_to_a_row)

    def names_width(self, row_points: float) -> float:
        """Return the width in points of the labels beside rows and memory."""
        rows = names_width(self.timeline, row_points, self.ipus_to_a_row)
        if self.strip is None:
            return rows
        return max(rows, text_width(STRIP_NAME, TEXT_SIZE), text_width(self.strip.ipu_text, STAGE_SIZE))


def most_rows(panels: int, strips: int) -> int:
    """Return the number of legible rows in a figure with several panels."""
    room = _MOST_HEIGHT_OF_PANELS - _AROUND - _headings_height(panels) - strips * (_ABOVE_STRIP + _strip_height(panels))
    return max(int(room / _LOWEST_SEEN), panels)


def slide_rows(panels: int, strips: int, bars_in: float, picture: Picture = DEFAULT) -> float:
    """Return the estimated inches for rows below bars on a slide; negative if there is no room.

    Titles, headings and legends count with their usual number of lines.
    """
    return (
        (picture.height_in or SLIDE_IN)
        - bars_in
        - _AROUND_SLIDE
        - _headings_height(panels)
        - strips * (_ABOVE_STRIP + _LOW_STRIP)
    )


def _headings_height(panels: int) -> float:
    return panels * (_ABOVE_HEADING + _HEADING_LINE + _BAND + _PANEL_GAP)


def _strip_height(panels: int, *, slide: bool = False) -> float:
    return _LOW_STRIP if slide or panels > _MANY_PANELS else _STRIP


def _first_row(panels: Sequence[Headed], bars_in: float) -> float:
    """Return the first estimate of a row's height, before texts are laid out.

    ``bars_in`` is the height of the bars above the panels; 0 without bars.
    """
    rows, strips = sum(panel.rows for panel in panels), sum(panel.strip is not None for panel in panels)
    most = _MOST_HEIGHT_OF_ROWS
    if bars_in:
        most = min(most, max(slide_rows(len(panels), strips, bars_in), _LEAST_ROW_HEIGHT * rows))
    elif len(panels) > 1:
        most = min(most, _LOWEST_SEEN * most_rows(len(panels), strips))
    return min(max(_ALL_ROWS / rows, _LOWEST_ROW), _HIGHEST_ROW, most / rows)


@default_style_settings()
def stack(
    panels: Sequence[Headed],
    window: Window,
    title: str,
    bars: TimeBars | None = None,
    picture: Picture = DEFAULT,
) -> Chart:
    """Return a figure of ``panels`` below each other, sharing ``window`` by default.

    The first line of ``title`` is the headline. The height depends on the rows, and is bounded for several panels. A
    figure with ``bars`` is at most as high as a slide. In a ``picture`` with a size, rows fill the remaining height.
    Raises OutputError if a slide has no room for the rows, and OptionError if the picture has none.
    """
    bars_in = 0.0 if bars is None else bars.height_in(picture.width_in)
    row = _first_row(panels, bars_in)
    laid_out = _laid_out(panels, window, title, bars, picture, row)
    rows = sum(panel.rows for panel in panels)
    if picture.height_in is not None:
        for _ in range(_ROUNDS):  # names depend on row height
            base_in = laid_out.base_in
            row = (picture.height_in - base_in) / rows
            least = base_in + min(_LEAST_ROW_HEIGHT_OF_SIZE, _first_row(panels, bars_in)) * rows
            if picture.height_in < least:
                raise picture.too_low("rows, axes and legend", least)
            laid_out = _laid_out(panels, window, title, bars, picture, row)
            if laid_out.base_in == base_in:  # fixed point reached
                break
        row = (picture.height_in - laid_out.base_in) / rows
    elif bars is not None or len(panels) > 1:
        row = _bound_row(row, laid_out.base_in, rows, slide=bars is not None)
    return _draw_panels(panels, window, laid_out, row, bars, bars_in)


@dataclass(frozen=True)
class _LaidOut:
    """Sizes and texts of a figure of panels, for a given row height.

    Attributes:
        figure_in: width of the figure, in inches.
        left, width: left end and width of the axes, in inches.
        ticks: inches of the labels beside memory over time.
        strip: inches of memory over time.
        base_in: inches of height without the rows.
        feet: inches below the rows of every panel, for the memory strip and axis numbers.
        numbered: index of the panel below which the common time axis has numbers.
        contents: content of every panel.
        titles, headings, legend: lines of text.
    """

    figure_in: float
    left: float
    width: float
    ticks: float
    strip: float
    base_in: float
    feet: Sequence[float]
    numbered: int
    contents: Sequence[Content]
    titles: Sequence[TitleLine]
    headings: Sequence[Sequence[str]]
    legend: Sequence[Sequence[Entry]]


def _laid_out(
    panels: Sequence[Headed], window: Window, title: str, bars: TimeBars | None, picture: Picture, row: float
) -> _LaidOut:
    """Return the layout of panels with rows ``row`` inches high. Raises OptionError for too narrow a picture."""
    rows, figure_in = sum(panel.rows for panel in panels), picture.width_in
    bars_in = 0.0 if bars is None else bars.height_in(figure_in)
    strips = [panel.strip for panel in panels if panel.strip is not None]
    left = EDGE_IN + _NAME_GAP + max(panel.names_width(row * 72) for panel in panels) / 72
    ticks = text_width("888 MiB", TEXT_SIZE) / 72 + 2 * _NAME_GAP
    left += ticks if strips else 0
    width = figure_in - left - _RIGHT
    if width < _NARROWEST:
        raise picture.refusal(f"names and time axis take at least {left + _RIGHT + _NARROWEST:.1f} inches of width")
    coarser = max(rows / _MOST_FINE_ROWS, 1.0)
    contents = [
        content(panel.timeline, panel.window or window, width, coarser, row, panel.ipus_to_a_row) for panel in panels
    ]
    shows_peak = any(panel.strip and panel.strip.shows_peak(panel.window or window) for panel in panels)
    legend = legend_lines([*legend_entries(contents), *strip_entries(strips, shows_peak)], figure_in - 2 * EDGE_IN)
    titles = title_lines(title, figure_in - 2 * EDGE_IN)
    room = _WIDEST_HEADING * (figure_in - left - EDGE_IN) * 72
    headings = [wrap(panel.heading, _HEADING_SIZE, room) for panel in panels]
    base_in = 2 * EDGE_IN + titles_height(titles) + bars_in + _SECONDS + LEGEND_LINE * len(legend)
    base_in += sum(_BAND + _heading_in(lines) for lines in headings)
    # The common time axis has its numbers below its last panel.
    numbered = max((index for index, panel in enumerate(panels) if not panel.own_axis), default=timelines.NONE)
    strip = _strip_height(len(panels), slide=bars is not None)
    feet = [_foot_in(panel, strip, numbered=panel.own_axis or index == numbered) for index, panel in enumerate(panels)]
    base_in += _PANEL_GAP * (len(panels) - 1) + sum(feet)
    return _LaidOut(figure_in, left, width, ticks, strip, base_in, feet, numbered, contents, titles, headings, legend)


def _draw_panels(
    panels: Sequence[Headed], window: Window, sizes: _LaidOut, row: float, bars: TimeBars | None, bars_in: float
) -> Chart:
    """Draw panels with rows ``row`` inches high."""
    rows, width = sum(panel.rows for panel in panels), sizes.width
    figure = Chart(figsize=(sizes.figure_in, sizes.base_in + row * rows), facecolor="white")
    top = EDGE_IN + write_titles(figure, sizes.titles, EDGE_IN)
    if bars is not None:
        bars.draw(figure, top)
    top += bars_in + _SECONDS
    common = next((panel for panel in panels if not panel.own_axis), panels[0])
    seconds = figure.add_clear_axes(sizes.left, top, width, 0.01)
    second_axis(seconds, common.window or window, common.timeline.info.clock_hz, width)
    for index, (panel, part, lines) in enumerate(zip(panels, sizes.contents, sizes.headings, strict=True)):
        for number, line in enumerate(lines):
            figure.write(sizes.left, top + _ABOVE_HEADING + number * _HEADING_LINE, line, fontsize=_HEADING_SIZE)
        top += _heading_in(lines)
        _draw(figure, sizes, row, panel, part, top, numbered=panel.own_axis or index == sizes.numbered)
        top += _BAND + row * panel.rows + sizes.feet[index] + _PANEL_GAP
    draw_legend(figure, sizes.legend, EDGE_IN, EDGE_IN)
    return figure


@default_style_settings()
def bars_alone(bars: TimeBars, title: str, picture: Picture = DEFAULT) -> Chart:
    """Return a figure of bars under a title; raises OptionError for too low a picture."""
    width = picture.width_in
    titles = title_lines(title, width - 2 * EDGE_IN)
    height = 2 * EDGE_IN + titles_height(titles) + bars.height_in(width)
    if picture.height_in is not None and picture.height_in < height:
        raise picture.too_low("bars, axis and legend", height)
    figure = Chart(figsize=(width, picture.height_in or height), facecolor="white")
    bars.draw(figure, EDGE_IN + write_titles(figure, titles, EDGE_IN))
    return figure


def _draw(
    figure: Chart, sizes: _LaidOut, row: float, panel: Headed, content: Content, top: float, *, numbered: bool
) -> None:
    """Draw a panel ``top`` inches from the top; ``numbered`` shows its axis's numbers."""
    tall = row * panel.rows
    draw_brackets(
        figure.add_clear_axes(sizes.left, top, sizes.width, _BAND), content.phases, content.window, content.points
    )
    axes = figure.add_clear_axes(sizes.left, top + _BAND, sizes.width, tall)
    draw_panel(axes, content, row * 72)
    if sum(len(part.boxes) for part in sizes.contents) > _MOST_VECTOR_BOXES:
        axes.set_rasterization_zorder(_ABOVE_BOXES)
    if panel.torn:
        draw_torn_edge(axes, sizes.width, 0, panel.rows, max(round(tall / _TOOTH), 1))
    draw_breaks(axes, content.window, sizes.width)
    rows_and_strip = [axes]
    if panel.strip is not None:
        foot = top + _BAND + tall + _ABOVE_STRIP
        rows_and_strip.append(figure.add_clear_axes(sizes.left, foot, sizes.width, sizes.strip))
        draw_strip(rows_and_strip[1], panel.strip, content.window, sizes.strip, int(sizes.width * DPI))
        corner, ipu_text = (sizes.left - sizes.ticks, foot + sizes.strip / 2), panel.strip.ipu_text
        figure.write(*corner, STRIP_NAME, ha="right", va="bottom" if ipu_text else "center_baseline")
        figure.write(*corner, ipu_text, fontsize=STAGE_SIZE, color=FAINT_TEXT, ha="right")
    clock_hz = panel.timeline.info.clock_hz
    in_seconds = any(part.timeline.info.clock_hz != clock_hz for part in sizes.contents)
    for part in rows_and_strip:
        labelled = numbered and part is rows_and_strip[-1]
        cycle_axis(part, content.window, clock_hz, sizes.width, labelled, in_seconds)


def _foot_in(panel: Headed, strip: float, *, numbered: bool) -> float:
    """Return the inches below a panel's rows: memory strip and axis numbers."""
    return (_CYCLES if numbered else 0.0) + (0.0 if panel.strip is None else _ABOVE_STRIP + strip)


def _heading_in(lines: Sequence[str]) -> float:
    """Return the inches of the lines above a panel."""
    return _ABOVE_HEADING + _HEADING_LINE * len(lines) if lines else 0.0


def _bound_row(row: float, base_in: float, rows: int, *, slide: bool) -> float:
    """Return ``row``, bounded by the room of several panels. Raises OutputError if a slide has no room."""
    if not slide:
        return max(min(row, (_MOST_HEIGHT_OF_PANELS - base_in) / rows), _LEAST_ROW_HEIGHT)
    room = (SLIDE_IN - base_in) / rows
    if room < _LEAST_ROW_HEIGHT:
        least = base_in + _LEAST_ROW_HEIGHT * rows
        raise OutputError(f"expected a figure at least {least:.1f} inches high for this trace, got {SLIDE_IN:g}")
    return min(row, room)
