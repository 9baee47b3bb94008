"""Keras models in files: stages and options come back, and training goes on to the same bits."""

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
