"""The pictures of the gallery, each run, laid out and drawn once for all tests that look at it."""

from __future__ import annotations

import io
from collections.abc import Iterable
from functools import cache
from typing import Any

import matplotlib.image
import numpy as np
import numpy.typing as npt
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from ipusim.app.render.figures import own_settings, to_png
from ipusim.app.render.style import DPI
from reports.gallery import GALLERY
from tests.effort import slowest
from tests.places import ROOT

PICTURES = {picture.scenario: picture for picture in GALLERY}
#: Scenarios whose pictures show every look, every file, and one row to sixteen: the rest is drawn with ``--all``.
_DRAWN = (
    "tutorial_step1_single_ipu",
    "schedules_four_ipus",
    "zero_bubble",
    "selection_orders",
    "small_superstep",
    "memory_by_schedule",
    "optimizer_state_offload",
    "concurrent_stages",
    "variables_on_host",
    "data_parallel_4x4",
    "inference",
    "bert_large",
)


def drawn_of(names: Iterable[str]) -> list[Any]:
    """Return names of scenarios as parameters of a test that draws each of their pictures."""
    return [name if name in _DRAWN else pytest.param(name, marks=slowest) for name in names]


@cache
def figure(name: str) -> Figure:
    """Return the picture of a scenario: who changes it puts back what was there."""
    drawn = PICTURES[name].figure()
    drawn.set_dpi(DPI)
    return drawn


@cache
def png(name: str) -> bytes:
    """Return the file of a scenario's picture."""
    return to_png(figure(name))


@cache
def figure_pixels(name: str) -> npt.NDArray[np.uint8]:
    """Return red, green and blue of every pixel in the file of a scenario's picture, from 0 to 255."""
    shown = matplotlib.image.imread(io.BytesIO(png(name)))[..., :3]
    return np.rint(shown * 255).astype(np.uint8)


def pixels(drawn: Figure) -> npt.NDArray[np.uint8]:
    """Return red, green and blue of every pixel of a figure, as its file would have them, from 0 to 255."""
    drawn.set_dpi(DPI)
    canvas = FigureCanvasAgg(drawn)
    with own_settings():
        canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3].copy()


def assert_same_picture(made: bytes, name: str) -> None:
    """Hold that a picture is that of ``reports/``, but for how the fonts of this machine are smoothed."""
    there = (ROOT / "reports" / name).read_bytes()
    if made == there:
        return  # the same on a machine like the one that drew it: nothing to decode
    new, old = (matplotlib.image.imread(io.BytesIO(content)) for content in (made, there))
    assert new.shape == old.shape
    assert np.abs(new - old).mean() < 0.005
