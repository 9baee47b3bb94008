"""Quantities as people read them: no digit that counts is lost, and none is shown that says nothing."""

import pytest

from ipusim.base.errors import QuantityError
from ipusim.base.units import format_bytes, format_figure, format_rate, format_seconds, parse_quantity


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
