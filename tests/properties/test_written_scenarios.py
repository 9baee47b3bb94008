"""What is written as a scenario reads back as the same, whatever it says."""

from fractions import Fraction
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from ipusim.app.scenario.source import description_of
from ipusim.app.scenario.write import scenario_text
from ipusim.runs.request.request import Request
from ipusim.runs.yaml_text import Located, dump
from tests.random_runs import any_text
from tests.scenarios import timed

TIMED = timed(1)


@given(any_text())
def test_any_description_becomes_a_comment_that_reads_back_as_its_words(description):
    text = scenario_text(Request.from_dict(TIMED, description=description), Path(), ["Written by a test."])
    words = " ".join("".join(c if c.isprintable() else " " for c in description).split())
    assert description_of(text) in (words, words.lstrip("# "), "")
    assert Located("it").read(text)["system"] == {"name": "m2000"}


@st.composite
def decimals(draw):
    """Numbers of seconds that some decimals say, forty at most."""
    tens = draw(st.integers(9, 40))
    return Fraction(draw(st.integers(10 ** (tens - 9), 10 ** (tens - 6))), 10**tens)


@given(decimals())
def test_a_rate_keeps_all_its_decimals(seconds):
    request = Request.from_dict({**TIMED, "rates": {"hop_latency": seconds}})
    read = Located("it").read(scenario_text(request, Path()))
    assert Request.from_dict(read).options.rates == request.options.rates


PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**12), 10**12)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=("Cs", "Cc", "Cn", "Co")), max_size=300),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text("abcdefgh_0123456789.-~", min_size=1, max_size=8), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(st.dictionaries(st.text("abcdefgh", min_size=1, max_size=8), PLAIN, max_size=4))
def test_what_is_dumped_reads_back_as_the_same(data):
    located = Located("it")
    read = located.read(dump(data))
    assert (read, located.problems) == (data if data else {}, [])
    shared = [1, [2, 3]]
    assert Located("it").read(dump({"a": shared, "b": shared})) == {"a": shared, "b": shared}
    assert list(read) == list(data)
