"""The width of a text is that of its outline, in which outer spaces have no part."""

import pytest

from ipusim.app.render.lettering import text_width


def test_spaces_have_no_width():
    assert text_width("  ", 9) == 0
    assert text_width(" a ", 9) == pytest.approx(text_width("a", 9))
