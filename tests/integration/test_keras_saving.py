"""Keras models in files: stages and options come back, and training goes on to the same bits.

Also models that are trained batch by batch, and those of Graphcore's first releases.
"""

import numpy as np
import pytest

from ipusim.base.errors import ProgramError
from tests.effort import sampled
from tests.keras_models import LateKeras, in_strategy
from tests.programs import needs_tensorflow

keras = LateKeras()
RNG = np.random.default_rng(5)
X = RNG.normal(size=(64, 4)).astype(np.float32)
Y = (X @ np.array([[1.0], [-2.0], [0.5], [0.0]], np.float32)).astype(np.float32)
FEW, FEW_Y = X[:32], Y[:32]


@pytest.fixture(autouse=True)
def _fresh():
    needs_tensorflow()
    keras.backend.clear_session()


def sequential():
    """Draws, moving statistics, and a step size that falls."""
    layers = keras.layers
    model = keras.Sequential([layers.Dense(3, "tanh"), layers.BatchNormalization(), layers.Dropout(0.3)])
    model.add(layers.Dense(1))
    model.set_pipeline_stage_assignment([0, 0, 1, 1])
    rate = keras.optimizers.schedules.ExponentialDecay(0.05, 3, 0.9)
    return model, keras.optimizers.Adam(rate)


def functional():
    inputs = keras.Input((4,))
    with keras.ipu.PipelineStage(0):
        x = keras.ipu.layers.LayerNormalization()(keras.layers.Dense(4)(inputs))
    with keras.ipu.PipelineStage(1):
        outputs = keras.layers.Dense(1)(keras.layers.Dropout(0.2)(x))
    return keras.Model(inputs, outputs), keras.optimizers.SGD(0.05, momentum=0.9)


def functional_of_earlier_releases():
    """Optimizers of the releases that programs are written for."""
    model, _ = functional()
    rate = keras.optimizers.schedules.ExponentialDecay(0.05, 3, 0.9)
    return model, keras.optimizers.legacy.Adam(rate)


def fitted(model, **options):
    model.fit(X, Y, 4, verbose=0, shuffle=False, **options)
    return model


@sampled(2)
@pytest.mark.filterwarnings("ignore:You are saving your model as an HDF5 file")
@pytest.mark.parametrize(
    ("make", "ipus", "suffix"),
    [
        (sequential, 2, ".keras"),
        (sequential, 2, ""),
        (functional, 4, ".keras"),
        (functional, 2, ".h5"),
        (functional_of_earlier_releases, 2, ".h5"),
    ],
)
def test_a_model_that_is_loaded_goes_on_to_the_same_bits(make, ipus, suffix, tmp_path, capsys):
    """Optimizers of SavedModels begin anew, as tf_keras has it; an option of the pipeline is not saved, and so said."""
    path = str(tmp_path / f"model{suffix}")

    def run():
        model, optimizer = make()
        model.set_pipelining_options(4, [1, 0], gradient_accumulation_reduction_method="mean", name="mine")
        model.compile(optimizer, "mse", metrics=["mae"], steps_per_execution=8)
        fitted(model)
        model.save(path)
        model.save(path)
        loaded = keras.models.load_model(path)
        options = loaded._ipu_placement.options
        assert (options.pipelining_steps, options.device_mapping, dict(options.pipelining)) == (4, [1, 0], {})
        assert options.reduction_method.name == "MEAN"
        stages = [each.pipeline_stage for each in loaded.get_pipeline_stage_assignment()]
        assert stages == [each.pipeline_stage for each in model.get_pipeline_stage_assignment()]
        assert [type(each) for each in loaded.layers] == [type(each) for each in model.layers]
        if suffix != ".keras":  # which alone keeps steps_per_execution
            loaded.compile(loaded.optimizer, "mse", metrics=["mae"], steps_per_execution=8)
        for each in (model, loaded) if suffix else ():
            fitted(each, epochs=2)
        assert all(map(np.array_equal, model.get_weights(), loaded.get_weights()))
        return [each.evaluate(X, Y, 4, verbose=0) for each in (model, loaded)]

    one, other = in_strategy(ipus, run)
    assert one == other
    text = "name of set_pipelining_options is not saved, as in Graphcore's Keras: call set_pipelining_options again"
    assert capsys.readouterr().err.count(text) == 1


@pytest.mark.parametrize("suffix", [".keras", ""])
def test_files_of_plain_arrays_are_refused_by_name(suffix, tmp_path):
    path = tmp_path / "model.npz"
    np.savez(path, model=np.zeros(3))
    path = path.rename(tmp_path / f"model{suffix}")

    def run():
        model, _ = functional()
        for load in (keras.models.load_model, model.load_weights):
            with pytest.raises(ProgramError, match=f"model{suffix}: expected a file that TensorFlow's Keras has saved"):
                load(path)

    in_strategy(2, run)


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
        turns.fit(FEW, FEW_Y, batch_size=8, shuffle=False, verbose=0)
        turns.train_on_batch(FEW[:4], FEW_Y[:4])
        turns.set_infeed_queue_options(prefetch_depth=4)
        turns.fit(FEW, FEW_Y, batch_size=8, shuffle=False, verbose=0)
        starts = [*range(0, 32, 8), None, *range(0, 32, 8)]
        for rows in [slice(0, 4) if start is None else slice(start, start + 8) for start in starts]:
            alone.train_on_batch(FEW[rows], FEW_Y[rows])
        assert all(map(np.array_equal, turns.get_weights(), alone.get_weights()))
        assert int(turns.optimizer.iterations) == 9

    in_strategy(1, run)


def test_one_batch_is_no_weight_update_of_several():
    def run():
        model = regression()
        model.set_gradient_accumulation_options(2)
        with pytest.raises(ProgramError, match=r"current `steps_per_execution` value \(set to 1\) is not divisible"):
            model.train_on_batch(FEW[:8], FEW_Y[:8])

    in_strategy(1, run)


#: Change of zero weights by four batches of 8, with a learning rate of 0.1.
FIRST_UPDATE = 0.1 * sum(2 * FEW[at : at + 8].T @ FEW_Y[at : at + 8] / 8 for at in range(0, 32, 8))


def test_a_step_of_a_model_of_first_releases_has_the_batches_of_a_weight_update():
    from ipusim.ipu.graph.tensorflow_import import load  # noqa: PLC0415 - which imports TensorFlow

    model = keras.ipu.Sequential([keras.layers.Dense(1, kernel_initializer="zeros")], accumulation_count=4)
    model.compile(keras.optimizers.SGD(0.1), "mse")
    data = load().data.Dataset.from_tensor_slices((FEW, FEW_Y)).batch(8, drop_remainder=True).repeat()
    model.fit(data, steps_per_epoch=1, verbose=0)
    assert model.predict(data.map(lambda x, _: x), steps=1, verbose=0).shape == (32, 1)
    np.testing.assert_allclose(model.get_weights()[0], FIRST_UPDATE, rtol=1e-4)
    model.evaluate(data, steps=1, verbose=0)


def test_models_of_first_releases_accumulate_batches():
    """Outside of a strategy's scope, as there was none."""

    def made(accumulation_count):
        first, dense = keras.Input((4,)), keras.layers.Dense(1, kernel_initializer="zeros")
        model = keras.ipu.Model(first, dense(first), accumulation_count=accumulation_count)
        model.compile(keras.optimizers.SGD(0.1), "mse", steps_per_execution=4)
        model.fit(FEW, FEW_Y, batch_size=8, shuffle=False, verbose=0)
        return model.get_weights()

    np.testing.assert_allclose(made(4)[0], FIRST_UPDATE, rtol=1e-4)
    assert not np.allclose(made(1)[0], FIRST_UPDATE)
    with pytest.raises(ProgramError, match="accumulation_count: expected a whole number from 1 to"):
        made(0)
    with pytest.raises(ProgramError, match="gradient_accumulation_count: expected a whole number from 1 to"):
        keras.ipu.Sequential([keras.layers.Dense(1)], gradient_accumulation_count=0)
