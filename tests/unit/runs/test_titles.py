import pytest

from ipusim.runs.titles import title_of


@pytest.mark.parametrize(
    ("description", "title"),
    [
        ("", ""),
        ("Real data: a classifier of digits. It reaches 95 %.", "Real data: a classifier of digits"),
        ("One sentence", "One sentence"),
        ("Products, e.g. of layers, and v1.2 of it. Timing only", "Products, e.g. of layers, and v1.2 of it"),
        ("Why is it slow? The host.", "Why is it slow?"),
        ("A model by its layers: " + "and what it is run on, " * 9 + "and so on. More", "A model by its layers"),
        ("A bell\x07 and\ta tab. More", "A bell and a tab"),
    ],
)
def test_the_title_is_the_first_sentence(description, title):
    assert title_of(description) == title


def test_a_long_sentence_is_shortened_at_a_word():
    found = title_of("word " * 100)
    assert len(found) <= 160
    assert found.endswith("word…")
