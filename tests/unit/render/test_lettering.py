"""The width of a text is that of its outline, whatever its letters do to each other."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.font_manager import FontProperties
from matplotlib.path import Path
from matplotlib.textpath import TextPath

from ipusim.app.render.lettering import text_width

#: Letters that are moved towards each other or become one sign, accents that stand above another, signs of labels.
_LETTERS = "AVTLjfilo 0123,.µ×→…·–éŐ\u0301\u0327\u200dαЖ"


def width_of_outline(text, size, bold):
    font = FontProperties(family="DejaVu Sans", size=size, weight="bold" if bold else "normal")
    outline = TextPath((0, 0), text, prop=font)
    return np.ptp(outline.vertices[outline.codes != Path.CLOSEPOLY, 0])


@given(st.text(st.sampled_from(_LETTERS), min_size=1, max_size=12), st.sampled_from([7, 8.5, 11.3]), st.booleans())
def test_it_is_that_of_the_outline(text, size, bold):
    text = f"a{text}b"  # some letters have no outline by themselves
    assert text_width(text, size, bold) == width_of_outline(text, size, bold)


@pytest.mark.parametrize("text", ["forward of stage 12", "office", "AVATAR To", "stages 0, 4, 8", "1,024 µs"])
def test_letters_are_measured_as_they_are_laid_out(text):
    assert text_width(text, 9) == width_of_outline(text, 9, False)
    apart = sum(text_width(letter, 9) for letter in text)
    assert text_width(text, 9) != apart


def test_spaces_have_no_width():
    assert text_width("  ", 9) == 0
    assert text_width(" a ", 9) == pytest.approx(text_width("a", 9))
