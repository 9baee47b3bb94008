"""What a program's own stages do wrong: told with their names, files and lines."""

from __future__ import annotations

import autograd.numpy as anp
import numpy as np
import pytest

from ipusim.base.errors import IpusimError, ModelError
from ipusim.ipu import get_variable, optimizers
from ipusim.ipu.runtime.weight_update import OptimizerFunctionOutput


def test_an_error_of_a_stage_in_python_that_cannot_be_printed_is_told(run):
    class Mute(BaseException):
        def __str__(self):
            raise RuntimeError("no words")

    def stage(x):
        raise Mute

    with pytest.raises(IpusimError, match=r"Mute: \(its message cannot be read: RuntimeError\)"):
        run(computational_stages=[stage, lambda x: x])


def test_a_training_in_python_without_any_finite_result_says_so(run):
    def logarithm(x):
        return anp.log(-x * get_variable("w", np.ones(2)))

    found = run(computational_stages=[logarithm, anp.sum], optimizer_function=learn)
    line = logarithm.__code__.co_firstlineno + 1
    assert found.notes == (
        "No result is finite, from the first micro-batch on: the first value that is not is from the function "
        f"({__file__}:{line}: FloatingPointError: invalid value encountered in log) in F0.0 of stage "
        "'pipeline_stage_0'.",
    )
    assert (
        run(computational_stages=[lambda x: x * get_variable("w", 1.0), anp.sum], optimizer_function=learn).notes == ()
    )


def learn(loss):
    return OptimizerFunctionOutput(optimizers.GradientDescentOptimizer(0.1), loss)


def test_a_stage_in_python_that_fails_late_names_file_and_line(run):
    calls = []

    def later(x):
        calls.append(x)
        return x if len(calls) < 5 else {}["gone"]

    line = later.__code__.co_firstlineno + 2
    with pytest.raises(ModelError) as caught:
        run(computational_stages=[later, lambda x: x])
    text = f"of stage 'pipeline_stage_0' failed in execution 0: {__file__}:{line}: KeyError: 'gone'"
    assert str(caught.value).endswith(text)
