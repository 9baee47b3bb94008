"""Draws of jitter: lognormal with the mean 1, by what a pass is."""

from fractions import Fraction
from math import log
from statistics import fmean, stdev

import numpy as np
import pytest

from ipusim.hardware.jitter import PARTS, Draws, drawn_parts
from ipusim.timeline.kinds import SpanKind

COUNT = 20_000


@pytest.mark.parametrize("deviation", [Fraction(1, 20), Fraction(1, 2)])
def test_draws_are_lognormal_with_a_mean_of_1(deviation: Fraction) -> None:
    """Within four standard errors; logarithms are normal: two thirds of them within one standard deviation."""
    draws = Draws(7, deviation)
    drawn = [parts / PARTS for parts in draws.parts(2, 0, [(0, 1, number) for number in range(COUNT)])]
    assert fmean(drawn) == pytest.approx(1, abs=4 * float(deviation) / COUNT**0.5)
    assert stdev(drawn) == pytest.approx(float(deviation), rel=0.05)
    logarithms = [log(each) for each in drawn]
    mean, width = fmean(logarithms), stdev(logarithms)
    assert sum(abs(each - mean) < width for each in logarithms) / COUNT == pytest.approx(0.6827, abs=0.014)


def test_a_draw_depends_on_each_of_its_keys_and_on_no_other_draw() -> None:
    key = 7, Fraction(1, 20), 2, 0, 0, 1, 100

    def drawn(seed: int, deviation: Fraction, ipu: int, execution: int, *of: int) -> int:
        kind, stage, micro_batch = of
        (parts,) = Draws(seed, deviation).parts(ipu, execution, [(kind, stage, micro_batch)])
        return parts

    once = drawn(*key)
    others = [drawn(*key[:place], key[place] + 1, *key[place + 1 :]) for place in range(7)]
    assert len({once, *others}) == 8
    assert drawn(*key) == once
    assert Draws(*key[:2]).parts(2, 0, [(0, 1, 100), (0, 1, 101), (0, 2, 100)])[0] == once
    assert once > Draws(*key[:2]).least * PARTS > 0


def test_ten_draws_are_what_they_have_always_been() -> None:
    """Another text of their keys would change every result under jitter, without a word; NumPy's integers do not."""
    draws = [
        [16205757, 16794490, 16647339, 17198545, 15983844],
        [15591120, 15730463, 16866993, 15529618, 16534238],
    ]
    keys = [(7, 2, 0, 1, 0, 3), (2**31, 11, 1, 64, 5, 0)]
    for integer in (int, np.int64):
        of = [tuple(map(integer, key)) for key in keys]
        assert drawn_parts(of, Fraction(1, 20))[:, :5].tolist() == draws
    kind = SpanKind.BACKWARD
    assert kind == 1
    assert Draws(2**31, Fraction(1, 20)).parts(11, 5, [(kind, 64, number) for number in range(5)]) == draws[1]
