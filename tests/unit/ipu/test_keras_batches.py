"""Keras models in a strategy's scope, trained batch by batch, and models of Graphcore's first releases."""

import numpy as np
import pytest

from ipusim.base.errors import ProgramError
from tests.keras_models import LateKeras, in_strategy
from tests.programs import needs_tensorflow

keras = LateKeras()
RNG = np.random.default_rng(5)
X = RNG.normal(size=(32, 4)).astype(np.float32)
Y = (X @ np.array([[1.0], [-2.0], [0.5], [0.0]], np.float32)).astype(np.float32)


@pytest.fixture(autouse=True)
def _fresh():
    needs_tensorflow()
    keras.backend.clear_session()


def regression():
    """A model whose training goes on from more than its weights: momenta, draws, a schedule."""
    keras.backend.clear_session()  # so that layers have the same names
    keras.utils.set_random_seed(1)
    layers = keras.layers
    model = keras.Sequential([layers.Dense(3, "tanh", input_shape=(4,)), layers.Dropout(0.3), layers.Dense(1)])
    rate = keras.optimizers.schedules.ExponentialDecay(0.05, 3, 0.9)
    model.compile(keras.optimizers.SGD(rate, momentum=0.9), "mse", metrics=["mae"])
    return model


def test_programs_of_several_batch_sizes_take_turns_on_one_optimizer():
    """Drawn masks too are those of the same batches by one program."""

    def run():
        turns, alone = regression(), regression()
        turns.fit(X, Y, batch_size=8, shuffle=False, verbose=0)
        turns.train_on_batch(X[:4], Y[:4])
        turns.set_infeed_queue_options(prefetch_depth=4)
        turns.fit(X, Y, batch_size=8, shuffle=False, verbose=0)
        starts = [*range(0, 32, 8), None, *range(0, 32, 8)]
        for rows in [slice(0, 4) if start is None else slice(start, start + 8) for start in starts]:
            alone.train_on_batch(X[rows], Y[rows])
        assert all(map(np.array_equal, turns.get_weights(), alone.get_weights()))
        assert int(turns.optimizer.iterations) == 9

    in_strategy(1, run)


def test_one_batch_is_no_weight_update_of_several():
    def run():
        model = regression()
        model.set_gradient_accumulation_options(2)
        with pytest.raises(ProgramError, match=r"current `steps_per_execution` value \(set to 1\) is not divisible"):
            model.train_on_batch(X[:8], Y[:8])

    in_strategy(1, run)


#: Change of zero weights by four batches of 8, with a learning rate of 0.1.
FIRST_UPDATE = 0.1 * sum(2 * X[at : at + 8].T @ Y[at : at + 8] / 8 for at in range(0, 32, 8))


def test_a_step_of_a_model_of_first_releases_has_the_batches_of_a_weight_update():
    from ipusim.ipu.graph.tensorflow_import import load  # noqa: PLC0415 - which imports TensorFlow

    model = keras.ipu.Sequential([keras.layers.Dense(1, kernel_initializer="zeros")], accumulation_count=4)
    model.compile(keras.optimizers.SGD(0.1), "mse")
    data = load().data.Dataset.from_tensor_slices((X, Y)).batch(8, drop_remainder=True).repeat()
    model.fit(data, steps_per_epoch=1, verbose=0)
    assert model.predict(data.map(lambda x, _: x), steps=1, verbose=0).shape == (32, 1)
    np.testing.assert_allclose(model.get_weights()[0], FIRST_UPDATE, rtol=1e-4)
    model.evaluate(data, steps=1, verbose=0)


@pytest.mark.parametrize("kind", ["Sequential", "Model"])
def test_models_of_first_releases_accumulate_batches(kind):
    """Outside of a strategy's scope, as there was none."""

    def made(accumulation_count):
        dense = keras.layers.Dense(1, kernel_initializer="zeros")
        if kind == "Sequential":
            model = keras.ipu.Sequential([dense], accumulation_count=accumulation_count)
        else:
            first = keras.Input((4,))
            model = keras.ipu.Model(first, dense(first), accumulation_count=accumulation_count)
        model.compile(keras.optimizers.SGD(0.1), "mse", steps_per_execution=4)
        model.fit(X, Y, batch_size=8, shuffle=False, verbose=0)
        return model.get_weights()

    np.testing.assert_allclose(made(4)[0], FIRST_UPDATE, rtol=1e-4)
    assert not np.allclose(made(1)[0], FIRST_UPDATE)
    with pytest.raises(ProgramError, match="accumulation_count: expected a whole number from 1 to"):
        made(0)
    with pytest.raises(ProgramError, match="gradient_accumulation_count: expected a whole number from 1 to"):
        keras.ipu.Sequential([keras.layers.Dense(1)], gradient_accumulation_count=0)
