"""Tables of any content are printed whole, whatever the width of the terminal."""

from hypothesis import given, settings
from hypothesis import strategies as st

from ipusim.app.render.tables import Table
from tests.effort import share
from tests.printed_tables import assert_whole

WORDS = st.text("ab, →測.%", max_size=30).map(str.strip)

NUMBERS = st.from_regex(r"[-+]?[1-9][0-9,]{0,14}( cycles|%|)", fullmatch=True)


@st.composite
def tables(draw):
    count = draw(st.integers(2, 12))
    kinds = [draw(st.sampled_from([WORDS, NUMBERS])) for _ in range(count)]
    header = tuple(draw(st.text("abc ", min_size=1, max_size=25).filter(str.strip)).strip() for _ in range(count))
    rows = draw(st.lists(st.tuples(*kinds).filter(any), min_size=1, max_size=5))
    return Table("Rows", header, tuple(rows))


@settings(max_examples=share(50))
@given(tables(), st.integers(60, 160))
def test_every_cell_of_any_table_is_printed_whole_at_any_width(table, width):
    assert_whole(table, width)
