"""What a stage keeps of a micro-batch, against the shapes of the layers written out by hand."""

import autograd.numpy as anp
import pytest

from ipusim.model.functions.python_layer import PythonLayer, PythonLoss
from ipusim.model.layers.embedding import Embedding, PositionEmbedding
from ipusim.model.layers.layers import Dense, Flatten
from ipusim.model.learning.optimizers import SGD, Momentum
from ipusim.model.stages.layer_profile import layer_profile
from ipusim.model.stages.stash import saved_bytes
from tests.unit.model.test_halves import stages

CLASSIFIER = ([Flatten(), Dense(64, "relu"), Dense(32, "relu"), Dense(10)], (4, 5), (2,))


@pytest.mark.parametrize("batch", [1, 2, 3, 32])
@pytest.mark.parametrize("itemsize", [2, 4, 8])
def test_stash_of_a_classifier_cut_in_two(batch, itemsize):
    first, second = stages(*CLASSIFIER)
    # The input and the relu's output; then the input, the next relu's output, which is also the logits'
    # input, the probabilities, and of each row its number (int64) and its label (int32).
    assert saved_bytes(first, batch, itemsize).stash == batch * (20 + 64) * itemsize
    assert saved_bytes(second, batch, itemsize).stash == batch * ((64 + 32 + 10) * itemsize + 8 + 4)


def test_profile_holds_what_the_stage_holds():
    batch, label_bytes = 16, 16 * 8
    first, second = (
        layer_profile(stage, batch, 4, label_bytes, optimizer=Momentum(0.1, 0.9)) for stage in stages(*CLASSIFIER)
    )
    weights = [4 * (20 * 64 + 64), 4 * (64 * 32 + 32 + 32 * 10 + 10)]
    assert [profile.parameter_bytes for profile in (first, second)] == weights
    assert [profile.state_bytes for profile in (first, second)] == weights
    assert [profile.accumulator_bytes for profile in (first, second)] == weights
    assert [profile.weight_gradient_bytes for profile in (first, second)] == [weights[0], 4 * (64 * 32 + 32)]
    assert first.input_bytes == 4 * batch * 20 + label_bytes
    assert second.input_bytes == 4 * batch * 64 + label_bytes == first.output_bytes
    assert first.working_bytes == 4 * batch * (20 + 64)
    assert second.working_bytes == 4 * batch * (64 + 32)
    assert first.stash_bytes == 4 * batch * (20 + 64)


def test_sgd_has_no_state_and_inference_keeps_nothing():
    first, _ = stages(*CLASSIFIER)
    assert layer_profile(first, 8, 4, optimizer=SGD(0.1)).state_bytes == 0
    inference = layer_profile(first, 8, 4, training=False)
    assert inference.stash_bytes == inference.accumulator_bytes == inference.weight_gradient_bytes == 0
    assert inference.working_bytes == 4 * 8 * (20 + 64)


def test_nothing_is_kept_below_the_first_weights():
    """No gradient goes through the layers before them, so that none of their arrays is kept."""
    (stage,) = stages([Flatten(), PythonLayer(lambda x: anp.tanh(x) * x), Dense(3)], (5,), loss=None)
    assert saved_bytes(stage, 4, 4).stash == 4 * 4 * 5


def test_embedding_keeps_ids():
    (stage,) = stages([Embedding(100, 8), PositionEmbedding()], (6,), loss=None)
    assert (saved_bytes(stage, 3, 4).stash, saved_bytes(stage, 3, 8).stash) == (3 * 6 * 4, 3 * 6 * 4)


def test_python_functions_keep_what_their_gradient_reads():
    """Of tanh(x @ W): x, for the gradient of W, and the result, for that of tanh; W is no part of it."""

    def layer(x, W):
        return anp.tanh(x @ W)

    def loss(x, labels):
        return anp.mean((x - labels) ** 2)

    (stage,) = stages([PythonLayer(layer, {"W": (5, 7)})], (5,), loss=None)
    assert saved_bytes(stage, 9, 4).stash == 9 * 4 * (5 + 7)
    (whole,) = stages([PythonLayer(layer, {"W": (5, 7)})], (5,), loss=PythonLoss(loss, label_shape=(7,)))
    more = saved_bytes(whole, 9, 4).stash - 9 * 4 * (5 + 7)
    assert more >= 9 * 4 * 7  # the difference, at least
