"""Values and gradients of what stands in TensorFlow's place, against a table that TensorFlow itself has computed."""

from __future__ import annotations

import inspect
import json
from pathlib import Path

import numpy as np
import pytest

from ipusim import ipu
from ipusim.ipu import tensorflow as tf
from ipusim.ipu.optimizers import Optimizer
from ipusim.ipu.runtime.gradients import Variable
from ipusim.ipu.runtime.names import ProgramNames
from ipusim.ipu.runtime.per_example_loss import concrete
from ipusim.ipu.tensorflow import array_functions, control_flow, own_gradients, shaping
from ipusim.model.functions.counting import count_several
from ipusim.model.functions.gradient import pullback_of_several
from ipusim.model.functions.surrounded import Surrounded
from ipusim.model.functions.untrained import Untrained
from tests.golden.tensorflow_cases import (
    BEGIN,
    CASES,
    OPTIMIZERS,
    TRAININGS,
    named,
    trained,
    weights,
    weights_after_updates,
)

TABLE = json.loads(Path(__file__).with_name("tensorflow_values.json").read_text())
#: Of numbers of float32; half precision has a thousandth.
TOLERANCE = {"rtol": 1e-5, "atol": 1e-6}
MODULES = ("nn", "math", "losses", "layers", "keras.activations", "keras.losses", "keras.layers")


def array(described):
    dtype, shape, elements = described
    return np.array(elements, dtype).reshape(shape)


@pytest.fixture(autouse=True, scope="module")
def _tensorflow_2():
    """Let names behave as in TensorFlow 2, which has computed the table."""
    with ipu.install(tensorflow=2):
        yield


def stage_of(case):
    """Return a case as a stage of a pipeline calls it, and which of its arrays are of floating-point numbers."""
    variables = {}

    def stage(*arrays):
        with (
            ProgramNames().stage(0),
            Surrounded(lookup=variables.setdefault),
            Surrounded(untrained=Untrained({}, takes_new=True)),
            Surrounded(key=(5, 1)),
        ):
            results = case.function(tf, *arrays)
        return [concrete(each) for each in (results if isinstance(results, list | tuple) else [results])]

    return stage, [place for place, each in enumerate(case.arrays) if each.dtype.kind == "f"]


def in_a_stage(case):
    """Return the results of a case as a stage computes them, and their gradients by its floating-point arrays."""
    stage, wanted = stage_of(case)
    with np.errstate(all="ignore"):
        pull, results = pullback_of_several(stage, case.arrays, wanted)
        results = [np.asarray(each) for each in results]
        return results, pull(
            [weights(each.shape).astype(each.dtype) if each.dtype.kind == "f" else None for each in results]
        )


@pytest.mark.parametrize("name", CASES)
def test_what_both_passes_of_it_cost_can_be_counted(name):
    case = CASES[name]
    stage, wanted = stage_of(case)
    results, _ = in_a_stage(case)
    pulled = [place for place, each in enumerate(results) if each.dtype.kind == "f"]
    with np.errstate(all="ignore"):
        count_several(stage, case.arrays, wanted, pulled, weights=(), itemsize=4)  # refuses what leaves the trace


@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients_are_tensorflows(name):
    results, gradients = in_a_stage(CASES[name])
    row = TABLE["cases"][name]
    assert len(results) == len(row["results"])
    for result, described in zip(results, row["results"], strict=True):
        expected = array(described)
        assert (result.dtype, result.shape) == (expected.dtype, expected.shape)
        tolerance = TOLERANCE if expected.dtype != np.float16 else {"rtol": 2e-3}
        np.testing.assert_allclose(result, expected, **tolerance)
    for gradient, described in zip(gradients, row["gradients"], strict=True):
        expected = np.zeros_like(gradient) if described is None else array(described)
        np.testing.assert_allclose(gradient, expected, **TOLERANCE)


def test_every_name_that_computes_has_a_row():
    """Found where the names are: functions of arrays, activations, losses and layers."""
    homes = {each.__name__ for each in (array_functions, shaping, control_flow, own_gradients)}
    offered = {
        name for name in dir(tf) if inspect.isfunction(getattr(tf, name)) and getattr(tf, name).__module__ in homes
    }
    for module in MODULES:
        of = named(module, tf)
        offered |= {f"{module}.{name}" for name in dir(of) if not inspect.ismodule(getattr(of, name))}
    assert offered == {name.split()[0] for name in CASES}


def test_every_optimizer_of_keras_and_tensorflow_has_a_row():
    own = {"Optimizer", "LAMB"}  # the base, and one of Graphcore's addons
    offered = {
        f"{module}.{name}"
        for module in ("keras.optimizers", "train")
        for name in dir(named(module, tf))
        if name not in own and inspect.isclass(kind := getattr(named(module, tf), name)) and issubclass(kind, Optimizer)
    }
    assert offered == {name.split()[0] for name in OPTIMIZERS}


def test_the_table_has_the_rows_of_the_cases():
    assert TABLE["version"]["tensorflow"].startswith("2.15.")
    assert {part: list(rows) for part, rows in TABLE.items() if part != "version"} == {
        "cases": list(CASES),
        "optimizers": list(OPTIMIZERS),
        "trainings": list(TRAININGS),
    }


class Shown(Variable):
    """A variable of an optimizer whose value can be asked for as that of a TensorFlow variable."""

    def numpy(self):
        return self.array


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_updates_are_tensorflows(name):
    found = weights_after_updates(tf, name, Shown("v", BEGIN.copy(), {}))
    for update, described in zip(found, TABLE["optimizers"][name], strict=True):
        np.testing.assert_allclose(update, array(described), **TOLERANCE)


@pytest.mark.parametrize("name", TRAININGS)
def test_training_on_blank_images_ends_with_tensorflows_weights(name):
    for found, described in zip(trained(tf, name), TABLE["trainings"][name], strict=True):
        np.testing.assert_allclose(found, array(described), **TOLERANCE)
