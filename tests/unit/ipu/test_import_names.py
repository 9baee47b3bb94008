"""Programs import TensorFlow, Keras, Horovod and PopDist by every form of import, and get ipusim's modules."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module

import pytest

from ipusim import ipu
from ipusim.base.errors import MissingImportError, MissingNameError, OptionError, ProgramError, ProgramTypeError
from ipusim.ipu import tensorflow
from ipusim.ipu.programs.program_file import ProgramEnded, ProgramFile
from ipusim.ipu.runtime.import_names import NAMES, VERSIONS, install


def ran(text, **given):
    """Run a program's text with the names installed and return its variables."""
    namespace = {}
    with install(**given):
        exec(text, namespace)
    return namespace


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("import tensorflow as tf; found = tf.keras.layers.Dense", tensorflow.keras.layers.Dense),
        ("import tensorflow.compat.v1 as tf; found = tf.placeholder", tensorflow.placeholder),
        ("import tensorflow.keras.layers; found = tensorflow.keras.layers.Dense", tensorflow.keras.layers.Dense),
        ("from tensorflow.keras.layers import Dense as found", tensorflow.keras.layers.Dense),
        ("from tensorflow import keras; found = keras.Model", tensorflow.keras.Model),
        ("from tensorflow.python.keras import backend; found = backend.clear_session", None),
        ("import keras; found = keras.Sequential", tensorflow.keras.Sequential),
        ("from keras import ipu; found = ipu.PipelineStage", import_module("ipusim.ipu.keras").PipelineStage),
        ("from tensorflow.python import ipu; found = ipu.config.IPUConfig", ipu.config.IPUConfig),
        ("import tensorflow.python.ipu.config as cfg; found = cfg.IPUConfig", ipu.config.IPUConfig),
        ("from tensorflow.python.ipu.ops.pipelining_ops import pipeline as found", ipu.pipelining_ops.pipeline),
        ("from tensorflow.keras.optimizers.schedules import ExponentialDecay as found", None),
        ("from ipusim.ipu.tensorflow.keras.optimizers.schedules import ExponentialDecay as found", None),
        ("from tensorflow.python.ipu import ipu; found = 1", MissingImportError),
        ("from tensorflow.python.framework import ops; found = ops.get_default_graph", tensorflow.get_default_graph),
        ("from tensorflow.python.ops.variable_scope import get_variable as found", tensorflow.get_variable),
        ("from tensorflow.python.keras.layers import Dense as found", tensorflow.keras.layers.Dense),
        (
            "from tensorflow.python.keras.layers.pooling import MaxPool2D as found",
            tensorflow.keras.layers.MaxPooling2D,
        ),
        ("from tensorflow.python.training.gradient_descent import GradientDescentOptimizer as found", None),
        ("import horovod.tensorflow as hvd; found = hvd.allreduce", import_module("ipusim.ipu.horovod").allreduce),
        (
            "from tensorflow.python.ipu import ipu_optimizer; found = ipu_optimizer.CrossReplicaOptimizer",
            ipu.optimizers.CrossReplicaOptimizer,
        ),
        ("from tensorflow.keras import *; found = layers.Dense", tensorflow.keras.layers.Dense),
    ],
)
def test_every_form_of_import_finds_the_module_of_ipusim(text, expected):
    if expected is MissingImportError:
        with pytest.raises(MissingImportError):
            ran(text)
        return
    found = ran(text)["found"]
    assert found is expected or (expected is None and found.__module__.startswith("ipusim."))


@pytest.mark.parametrize("name", NAMES)
def test_every_row_is_importable(name):
    with install():
        module = import_module(name)
        assert module.__name__ == name
        assert dir(module)
        for attribute in dir(module):
            getattr(module, attribute)


FORMS = """
import tensorflow.compat.v1 as tf
from keras.optimizer_v2 import optimizer_v2
from tensorflow.python.framework import errors
from tensorflow.python.ops import control_flow_ops, custom_gradient

shape = tf.TensorShape([4, None])
forms = shape == (4, None), shape.as_list(), shape.ndims, shape.num_elements(), tf.TensorShape(3).num_elements()
bases = isinstance(tf.optimizers.SGD(), optimizer_v2.OptimizerV2), control_flow_ops.cond is tf.cond
own = custom_gradient.custom_gradient is tf.custom_gradient
try:
    tf.reshape([1.0, 2.0], [3])
except (errors.InvalidArgumentError, tf.errors.OutOfRangeError) as error:
    message = error.message
"""


def test_shapes_errors_and_bases_that_programs_ask_for():
    found = ran(FORMS)
    assert found["forms"] == (True, [4, None], 2, None, 3)
    assert (found["bases"], found["own"]) == ((True, True), True)
    assert found["message"].startswith("reshape: expected tensors that go together")
    for dims, kind in ((None, ProgramError), ([-1], ProgramError), (["a"], ProgramTypeError)):
        with pytest.raises(kind, match=r"^dims: expected a"):
            tensorflow.TensorShape(dims)


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        ("from tensorflow.keras.layers import Desne", ImportError, r"tensorflow\.keras\.layers\.Desne .*mean Dense\?"),
        ("import tensorflow.lite", ImportError, r"^tensorflow\.lite is not simulated"),
        ("from tensorflow.python import tf2", ImportError, r"^tensorflow\.python\.tf2 is not simulated"),
        ("import tensorflow as tf; tf.raw_ops", AttributeError, r"^tf\.raw_ops is not simulated"),
        (
            "import tensorflow as tf; tf.python.ipu",
            AttributeError,
            r"^module 'tensorflow' has no attribute 'python': use",
        ),
        ("from tensorflow import python; python.tf2", AttributeError, r"^tensorflow\.python\.tf2 is not simulated"),
    ],
)
def test_a_name_that_is_not_there_is_said_as_python_says_it(text, kind, message):
    with pytest.raises(kind, match=message) as caught:
        ran(text)
    assert isinstance(caught.value, MissingImportError | MissingNameError)


@pytest.mark.parametrize(
    ("text", "version", "why"),
    [
        ("import tensorflow as tf", 2, "nothing so far is of TensorFlow 1 alone"),
        ("import tensorflow.compat.v1 as tf", 1, "tf.compat.v1 is of TensorFlow 1"),
        ("import tensorflow as tf; tf.Session", 1, "tf.Session is of TensorFlow 1"),
        ("import tensorflow as tf; tf.keras.layers; tf.function", 2, "nothing so far"),
    ],
)
def test_the_version_is_told_by_the_names_that_were_used(text, version, why, capsys):
    assert ran(f"{text}; found = tf.__version__, tf.__version__")["found"] == (VERSIONS[version],) * 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"tf.__version__ is {VERSIONS[version]}: {why}")
    assert line.endswith(f"--tensorflow {3 - version} changes it")


def test_a_version_that_is_chosen_is_told_without_a_line(capsys):
    assert ran("import tensorflow.compat.v1 as tf; found = tf.__version__", tensorflow=2)["found"] == VERSIONS[2]
    assert not capsys.readouterr().err
    with pytest.raises(OptionError, match="expected 1 or 2, got 3"):
        install(tensorflow=3)
    assert not any(isinstance(finder, install) for finder in sys.meta_path)


def test_what_was_imported_before_is_there_again(monkeypatch):
    real = type(sys)("tensorflow")
    monkeypatch.setitem(sys.modules, "tensorflow", real)
    with install():
        assert import_module("tensorflow") is not real
        import_module("tensorflow.keras.layers")
    assert sys.modules["tensorflow"] is real
    assert "tensorflow.keras" not in sys.modules


PROGRAM = """
import numpy as np
import tensorflow.compat.v1 as tf
from tensorflow.python import ipu
from tensorflow.python.ipu.ops import pipelining_ops

{line}
"""


def test_a_program_is_told_the_line_of_a_name_that_is_not_there(tmp_path):
    before = _tensorflow_modules()
    path = tmp_path / "mine.py"
    path.write_text(PROGRAM.format(line="tf.raw_ops.Abs"))
    with pytest.raises(ProgramError, match=rf"^{path}:7: tf\.raw_ops is not simulated"):
        ProgramFile(path).run()
    path.write_text(PROGRAM.format(line="raise ImportError('mine')"))
    with pytest.raises(ProgramEnded):
        ProgramFile(path).run()
    assert _tensorflow_modules() == before


def _tensorflow_modules():
    return {name for name in sys.modules if name.partition(".")[0] == "tensorflow"}


def test_the_finder_costs_nothing_until_it_is_installed():
    code = "import sys, ipusim.ipu; print('ipusim.ipu.runtime.import_names' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
