"""The Keras programs of scenarios/python/: what they print, and that they learn."""

import re

import pytest

from tests.effort import slowest
from tests.programs import once

pytestmark = pytest.mark.usefixtures("tf")


def _ends(out):
    """Loss and accuracy of each line of a progress bar that has ended."""
    return re.findall(r"(\d+)/\1 \[=+\] - \d+\w+ [\d.]+\w*/step - loss: ([\d.e+-]+)(?: - accuracy: ([\d.]+))?", out)


def test_one_ipu_runs_several_steps_in_one_execution():
    out = once("keras_single_ipu", "--epochs", "2").out
    (_, first, _), (_, second, accuracy) = _ends(out)
    assert float(first) > float(second)
    assert accuracy == "1.0000"
    assert "Total params: 101770 " in out
    alone = once("keras_single_ipu", "--epochs", "1", "--steps-per-execution", "4").out
    assert [loss for _, loss, _ in _ends(alone)] == [first]  # executions only say when results come


def test_digits_over_four_ipus_reach_95_percent():
    out = once("keras_sequential", "--epochs", "5").out
    assert " dense_3 (Dense)                               3\n" in out
    (accuracy,) = re.findall(r"^Held out: loss [\d.]+, accuracy ([\d.]+)$", out, flags=re.MULTILINE)
    assert float(accuracy) > 0.95
    assert f"Predicted (384, 10): {accuracy} are right\n" in out


@slowest
def test_functional_models_tell_each_step():
    out = once("keras_functional").out
    told = re.findall(r"After (\d+) steps: mean loss ([\d.]+)$", out, flags=re.MULTILINE)
    assert [int(steps) for steps, _ in told] == [40, 80, 120, 160] * 4
    for model in (told[:8], told[8:]):
        assert float(model[-1][1]) < 0.2 < float(model[0][1])
    assert " both (Concatenate) (0)                 dense_3              1\n" in out


def test_a_model_that_is_loaded_goes_on_to_the_same_bits():
    out = once("keras_saving", "--epochs", "2").out
    assert "Loaded saved after 8 weight updates\nTrained on to the same bits\n" in out
    (last,) = re.findall(r"^Loss ([\d.]+), mean absolute error [\d.]+$", out, flags=re.MULTILINE)
    (first, _) = re.findall(r"^32/32 - \d+s - loss: ([\d.]+)", out, flags=re.MULTILINE)
    assert float(last) < float(first) / 3


def test_a_subclass_says_its_stages_in_call():
    out = once("keras_subclass").out
    first, last = map(float, re.findall(r"Loss from ([\d.]+) to ([\d.]+)", out)[0])
    assert last < first / 50
    assert " dense (Dense) (0)                      input_1              0\n" in out
