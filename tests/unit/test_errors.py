"""Messages of errors, long values and options in them, and quantities as people read them."""

import pickle
import re

import pytest

from ipusim.app.cli.shape import plan_for
from ipusim.app.render.window import ShownPart
from ipusim.app.run_folder.report_options import check_picture
from ipusim.base.errors import FileError, IpusimError, OptionError, PlanError, QuantityError
from ipusim.base.units import format_bytes, format_figure, format_rate, format_seconds, parse_quantity
from tests.scenarios import ROOT


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


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0"), (0.01333, "0.0133"), (5.4, "5.4"), (99.96, "100"), (100.4, "100"), (46_739.2, "46,739")],
)
def test_figures_have_three_digits_at_least(number, text):
    assert format_figure(number) == text


def test_bytes_rates_and_times():
    assert [format_bytes(size) for size in (0, 1000, 638_976, 3 << 40)] == ["0 B", "1000 B", "624 KiB", "3 TiB"]
    assert [format_rate(rate) for rate in (12, 16e9, 2.5e12)] == ["12 B/s", "16 GB/s", "2.5 TB/s"]
    assert [format_seconds(time) for time in (0, 5e-9, 3.7e-6, 240, 30840)] == [
        *("0 s", "5 ns", "3.7 us", "240 s", "30,840 s")
    ]


@pytest.mark.parametrize("text", ["٣ ms", "1٣ ms", "５ ms", "1e٣ ms", "1.٣ ms", "1__0 ms", "1_ ms", "_1 ms", "ms"])
def test_a_quantity_has_plain_digits(text):
    with pytest.raises(QuantityError, match="got "):
        parse_quantity(text, "seconds")
    assert parse_quantity("1_000.5e-1 ms", "seconds") * 10**5 == 10_005


def test_options_have_their_own_names_until_a_door_has_another_word():
    with pytest.raises(OptionError) as found:
        check_picture(2, ShownPart(start=7, end=7))
    assert str(found.value) == "start: expected a cycle before end 7, got 7"
    assert found.value.worded(lambda name: f"<{name}>") == "<start>: expected a cycle before <end> 7, got 7"
    assert str(pickle.loads(pickle.dumps(found.value))) == str(found.value)


def test_what_was_given_stands_in_the_message_whatever_it_is():
    with pytest.raises(OptionError, match=r"^phase: expected ramp-up, .*, got '\{\}\{0\}'$"):
        check_picture(2, ShownPart(phase="{}{0}"))
    with pytest.raises(OptionError, match=r"^mapping: expected IPUs below 256, .* got '\{\}'$"):
        plan_for("grouped", None, None, "{}", False, False)


def test_no_flag_of_the_command_line_stands_outside_of_it():
    flags = re.compile(r"--(from|to|phase|execution|out|count|mapping|stages)\b")
    holding = {path.parent.name for path in (ROOT / "ipusim").rglob("*.py") if flags.search(path.read_text("utf-8"))}
    assert holding == {"cli"}
