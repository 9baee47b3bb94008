"""The synthetic language: what its tokens are, and that only a model that looks at two of them can learn it."""

import numpy as np
import pytest

from ipusim.base.errors import ModelError
from ipusim.model.data.synthetic import synthetic_tokens


def test_labels_are_the_next_tokens():
    data = synthetic_tokens(9, 7, 50, seed=1)
    assert data.x.shape == data.y.shape == (50, 9)
    assert data.x.dtype == data.y.dtype == np.int32
    np.testing.assert_array_equal(data.x[:, 1:], data.y[:, :-1])
    assert data.classes == 7
    assert set(np.unique(data.x)) == set(range(7))


def test_without_noise_two_tokens_tell_the_next_and_one_does_not():
    data = synthetic_tokens(12, 5, 400, noise=0.0, seed=2)
    after_two, after_one = {}, {}
    for x, y in zip(data.x, data.y, strict=True):
        for place in range(1, 12):
            after_two.setdefault((x[place - 1], x[place]), set()).add(int(y[place]))
            after_one.setdefault(int(x[place]), set()).add(int(y[place]))
    assert len(after_two) == 25
    assert all(len(following) == 1 for following in after_two.values())
    assert all(len(following) == 5 for following in after_one.values())


def test_noise_is_the_share_of_tokens_that_are_drawn():
    plain, noisy = synthetic_tokens(2, 100, 20_000, 0.0, 3), synthetic_tokens(2, 100, 20_000, 0.4, 3)
    np.testing.assert_array_equal(plain.x, noisy.x)
    assert (plain.y[:, 1] != noisy.y[:, 1]).mean() == pytest.approx(0.4 * 0.99, abs=0.01)


def test_the_same_seed_gives_the_same_tokens():
    first, again, other = (synthetic_tokens(5, 9, 30, seed=seed) for seed in (4, 4, 5))
    np.testing.assert_array_equal(first.x, again.x)
    assert not np.array_equal(first.x, other.x)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, 5, 3), "at least 1 token, got 3 of 0"),
        ((5, 5, 0), "at least 1 token, got 0 of 5"),
        ((5, 1, 3), "at least 2 tokens, got 1"),
        ((5, 5, 3, 1.5), "noise from 0 to 1, got 1.5"),
    ],
)
def test_refused(arguments, message):
    with pytest.raises(ModelError, match=message):
        synthetic_tokens(*arguments)
