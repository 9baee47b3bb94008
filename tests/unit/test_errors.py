"""Messages: what they show of long values, and how long they are at most."""

import pytest

from ipusim.base.errors import FileError, IpusimError, PlanError


@pytest.mark.parametrize(
    "text",
    [
        "x" * 30_000,
        " ".join(["word"] * 6000),
        "\n".join(["a line of the input"] * 3000),
        "\n".join(["y" * 5000] * 9),
        "begin\n" + "z " * 40_000 + "\nend",
        "\x1b[31m" * 5000,
    ],
    ids=["a word", "words", "lines", "long lines", "a long line", "escapes"],
)
def test_a_message_of_one_problem_is_short_whatever_it_quotes(text):
    said = str(FileError(f"place: expected this, got {text}"))
    assert said.startswith("place: expected this, got ")
    assert len(said) <= 3100
    assert "[... " in said


def test_a_short_message_stays_as_it_is():
    text = "\n".join(f"line {number}: expected a thing, got another" for number in range(40))
    assert str(PlanError(text)) == text


def test_python_s_words_for_too_many_digits_are_ours():
    with pytest.raises(ValueError, match="Exceeds the limit") as python_s:
        int("9" * 5000)
    said = str(IpusimError(f"a.py:1: ValueError: {python_s.value}"))
    assert said == "a.py:1: ValueError: expected whole numbers of at most 4300 digits, got one of more"
