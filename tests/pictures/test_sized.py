"""Pictures of a chosen size and title: laid out anew, exactly as large, legible, or refused with the reason."""

import itertools
from contextlib import nullcontext, suppress

import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.text import Text

import ipusim
from ipusim import Picture
from ipusim.app.render.figures import finish
from ipusim.app.render.style import luminance
from ipusim.base.errors import OptionError
from tests.drawn_pictures import assert_legible, contrast, drawn_texts, pixels, words
from tests.effort import rarest, sampled
from tests.scenarios import SCENARIOS

OWN = "A title of my own"
SIZES = ("3x2in", "4x3in", "5x8in", "6x3in", "8x5in", "14x2in", "14x8in")


#: Every picture that takes options, by name: from what it is of, and its options.
PICTURES = {
    "trace": lambda of, picture: of["run"].figure(picture=picture),
    "ramp-up": lambda of, picture: of["run"].figure(phase="ramp-up", picture=picture),
    "trace of BERT": lambda of, picture: of["large"].figure(picture=picture),
    "memory": lambda of, picture: of["run"].memory_figure(picture=picture),
    "memory of BERT": lambda of, picture: of["large"].memory_figure(picture=picture),
    "idle": lambda of, picture: of["explained"].figure(picture),
    "path": lambda of, picture: of["explained"].path_figure(picture=picture),
    "sweep": lambda of, picture: of["swept"].figure(picture=picture),
    "heat map": lambda of, picture: of["mapped"].figure(picture=picture),
    "comparison": lambda of, picture: of["compared"].figure(picture=picture),
}


@pytest.fixture(scope="module")
def pictures():
    """Return a function of a picture's name and options that draws it."""
    small = {"numerics": "off", "evaluate": None, "expect": None, "steps": 1}
    run = ipusim.run(SCENARIOS / "tutorial_step3_pipelining.yaml", changes=small)
    four, counts = SCENARIOS / "schedules_four_ipus.yaml", {"pipeline.gradient_accumulation_count": "8..32x2"}
    of = {
        "run": run,
        "explained": run.explain(),
        "large": ipusim.run(SCENARIOS / "bert_large.yaml", changes=small | {"memory": "report"}),
        "swept": ipusim.sweep(four, counts | {"pipeline.schedule": ["grouped", "sequential"]}, workers=1),
        "mapped": ipusim.sweep(four, counts | {"steps": [1, 2, 3]}, workers=1),
        "compared": ipusim.compare(four, ["grouped", "1f1b", "gpipe"]),
    }
    return lambda name, picture: PICTURES[name](of, picture)


def upright(figure):
    """Return the drawn texts but those along an axis, which have no room for tails above and below."""
    turned = {axes.yaxis.label.get_text() for axes in figure.axes}
    return [(text, box) for text, box in drawn_texts(figure) if text not in turned]


def every_other(values):
    """Return pairs of names of pictures and values: every other one, and the rest with ``--every``."""
    pairs = itertools.product(enumerate(PICTURES), enumerate(values))
    return [
        pytest.param(name, value, id=f"{name}-{value}", marks=rarest if (place + at) % 2 else ())
        for (place, name), (at, value) in pairs
    ]


@sampled(2)
@pytest.mark.parametrize(("name", "size"), every_other(SIZES))
def test_a_picture_has_its_size_and_is_legible_or_is_refused(pictures, name, size):
    width, height = map(float, size.removesuffix("in").split("x"))
    with suppress(OptionError) if width < 8 or height < 5 else nullcontext():  # any picture can be read in 8x5in
        figure = pictures(name, Picture(OWN, size))
        assert figure.get_size_inches().tolist() == pytest.approx([width, height])
        assert_legible(figure, upright(figure))
        assert any(word.startswith(OWN) for word in words(figure))  # of several runs the title says which are shown


@sampled(2)
@pytest.mark.parametrize("name", PICTURES)
def test_a_title_alone_keeps_the_size_and_the_line_of_the_configuration(pictures, name):
    usual, own = pictures(name, Picture()), pictures(name, Picture(OWN))
    assert OWN in words(own)
    assert OWN not in words(usual)
    assert own.get_size_inches()[0] == 10
    later = {text for text in words(usual) if "lock-step" in text}
    assert later <= {*words(own)}


def test_a_text_that_is_cut_or_lies_over_another_is_named():
    run = ipusim.run(SCENARIOS / "schedules_four_ipus.yaml")
    figure, picture = run.figure(), Picture(size="10x4in")
    assert finish(figure, picture) is figure
    figure.write(0.1, 0.1, "over the title")
    with pytest.raises(OptionError, match=r"over the title.* would overlap"):
        finish(figure, picture)
    figure.texts[-1].set_position((0.99, 0.5))
    with pytest.raises(OptionError, match=r"over the title. would be cut off"):
        finish(figure, picture)


@sampled(2)
@pytest.mark.parametrize(("name", "theme"), every_other(["dark", "print"]))
def test_text_of_a_theme_can_be_read_and_colours_are_those_of_the_theme(pictures, name, theme):
    """The ground of a text is the commonest colour below it in the picture without texts."""
    figure = pictures(name, Picture(theme=theme))
    texts = [text for text in figure.findobj(Text) if text.get_text().strip() and text.get_visible()]
    for text in texts:
        text.set_visible(False)
    ground = pixels(figure)[::-1]
    for text in texts:
        text.set_visible(True)
    for text in texts:
        x0, y0, x1, y1 = (max(round(side), 0) for side in text.get_window_extent().extents)
        part = ground[y0:y1, x0:x1].reshape(-1, 3)
        colours, counts = np.unique(part, axis=0, return_counts=True)
        if len(part):
            most = colours[counts.argmax()]
            ink = luminance(to_hex(text.get_color()))
            assert contrast(ink, luminance("#{:02x}{:02x}{:02x}".format(*most))) >= 4.5, text.get_text()
    drawn = pixels(figure)
    if theme == "print":
        assert int((drawn.max(axis=2).astype(int) - drawn.min(axis=2)).max()) == 0
    else:
        assert drawn[2, 2].tolist() == [0x18, 0x1B, 0x21]


def test_the_default_theme_keeps_all_pixels(pictures):
    assert (pixels(pictures("trace", Picture())) == pixels(pictures("trace", Picture(theme="light")))).all()


@pytest.mark.parametrize("size", ["", "6x3in", "6.5x3.25in", "1x1in", "40x40in"])
def test_a_size_is_inches(size):
    picture = Picture(size=size)
    sides = [float(side) for side in size.removesuffix("in").split("x")] if size else [10.0, None]
    assert [picture.width_in, picture.height_in] == sides


@pytest.mark.parametrize("name", PICTURES)
def test_a_size_that_is_too_small_is_refused_with_the_reason(pictures, name):
    with pytest.raises(OptionError, match=r"^size: expected a larger picture, got 2x1in: "):
        pictures(name, Picture(size="2x1in"))


@pytest.mark.parametrize("size", ["6x3", "6x3cm", "x3in", "0x3in", "6x41in", "6x-3in", "nan", 5, None, "6x3in\n", "{}"])
def test_what_is_no_size_is_refused(size):
    with pytest.raises(OptionError, match=r"^size: expected a width and a height from 1 to 40 inches, such as 6x3in"):
        Picture(size=size)


@pytest.mark.parametrize("title", [5, None, "\0", "x" * 2000])
def test_what_is_no_title_is_refused(title):
    with pytest.raises(OptionError, match=r"^title: expected at most 1000 letters and signs"):
        Picture(title)
