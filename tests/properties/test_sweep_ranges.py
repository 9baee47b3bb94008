"""Ranges of a sweep against arithmetic of their own."""

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from ipusim.app.sweep.vary import axis_of, parse_axis


@given(first=st.integers(-1000, 1000), step=st.integers(1, 50), more=st.integers(0, 60), beyond=st.integers(0, 49))
def test_steps(first, step, more, beyond):
    last = first + step * more + min(beyond, step - 1)
    assert axis_of("a", f"{first}..{last}+{step}").values == tuple(range(first, last + 1, step))


@given(first=st.integers(1, 1000), factor=st.integers(2, 9), more=st.integers(0, 8), data=st.data())
def test_powers(first, factor, more, data):
    last = data.draw(st.integers(first * factor**more, first * factor ** (more + 1) - 1))
    assert axis_of("a", f"{first}..{last}x{factor}").values == tuple(first * factor**n for n in range(more + 1))


@given(first=st.decimals(0, 10, places=3), step=st.decimals("0.001", 1, places=3), more=st.integers(0, 40))
def test_decimals_are_exact_however_many_steps_there_are(first, step, more):
    values = axis_of("a", f"{first}..{first + step * more}+{step}").values
    assert values == tuple(float(Fraction(first) + Fraction(step) * n) for n in range(more + 1))


SCALARS = st.one_of(st.integers(-(10**6), 10**6), st.booleans(), st.text("abcxyz_", min_size=1, max_size=8))


@given(values=st.lists(SCALARS.filter(lambda value: value not in ("x", "y")), min_size=1, max_size=6))
def test_a_list_is_read_as_it_is_written(values):
    text = ",".join(str(value).lower() if isinstance(value, bool) else str(value) for value in values)
    assert parse_axis(f"a={text}").values == tuple(values)
