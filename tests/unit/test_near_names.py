from ipusim.near_names import did_you_mean, nearest


def test_the_nearest_name_in_any_case_and_as_it_is_written():
    assert nearest("GRUOPED", ["sequential", "Grouped", "grouping"]) == "Grouped"
    assert nearest("x", ["sequential"]) is None
    assert nearest(3, ["3"]) is None


def test_the_hint_as_a_word_or_quoted_or_nothing():
    assert did_you_mean("snak", ("ZIGZAG", "SNAKE")) == "; did you mean SNAKE?"
    assert did_you_mean("snak", ("ZIGZAG", "SNAKE"), quoted=True) == "; did you mean 'SNAKE'?"
    assert did_you_mean("hoof", ("ZIGZAG", "SNAKE")) == ""
