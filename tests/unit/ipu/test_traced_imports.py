"""Imports of programs on TensorFlow: which module a name finds, in which version, and what stays as it was."""

import ast
import builtins
import os
import random
import subprocess
import sys

import numpy as np
import pytest

from ipusim.base.errors import ProgramError
from ipusim.ipu.programs.program_file import ProgramEnded, ProgramFile

pytestmark = pytest.mark.usefixtures("tf")


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Runs the text of a program on TensorFlow."""
    monkeypatch.chdir(tmp_path)

    def call(text, *, tensorflow=None, **modules):
        for name, module in modules.items():
            (tmp_path / f"{name}.py").write_text(module)
        file = tmp_path / "program.py"
        file.write_text(text)
        ProgramFile(file).run(tensorflow=tensorflow)

    return call


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("import tensorflow as tf\ntf.placeholder(tf.float32)", 1),
        ("import tensorflow as tf\ntf.compat.v1.placeholder(tf.float32)", 2),
        ("import tensorflow.compat.v1 as tf\ntf.disable_v2_behavior()", 1),
        ("import tensorflow as tf\nimport tensorflow.compat.v1 as tf1\ntf.constant(1)", 2),
        ("from tensorflow import Session", 1),
        ("from tensorflow import keras", 2),
        ("from tensorflow.contrib import ipu", 1),
        ("import tensorflow as tf\ntf.contrib.ipu", 1),
        ("import tensorflow as tf\ntf.function(print)", 2),
        ("import helper", 1),
    ],
)
def test_the_names_that_a_program_and_its_modules_use_tell_its_version(text, version, tmp_path):
    from ipusim.ipu.imports.version import written_for  # noqa: PLC0415

    (tmp_path / "helper.py").write_text("import tensorflow as tf\ntf.get_variable_scope()")
    assert written_for(ast.parse(text), tmp_path)[0] == version


def test_programs_find_tensorflow_1s_native_functions(run):
    run("""
from tensorflow.python.training import training_ops
assert callable(training_ops.resource_apply_momentum)
import tensorflow as tf
from tensorflow import pywrap_tensorflow
from tensorflow.python import pywrap_tensorflow as same
tf.get_variable("w", initializer=[1.0, 2.0])
with tf.Session() as session:
    session.run(tf.global_variables_initializer())
    path = tf.train.Saver().save(session, "./model")
for module in (pywrap_tensorflow, same, tf.pywrap_tensorflow):
    reader = module.NewCheckpointReader(path)
    assert reader.get_variable_to_shape_map() == {"w": [2]} and reader.get_tensor("w").tolist() == [1, 2]
""")


def test_programs_normalise_batches_with_parameters_in_half_precision(run):
    run("""
import numpy as np
import tensorflow as tf
values = np.random.default_rng(1).normal(2.0, 3.0, (4, 2, 2, 3)).astype(np.float32)
results = {}
for dtype in (tf.float16, tf.float32):
    x, scale = tf.constant(values, dtype), tf.constant([1.0, 2.0, 0.5], dtype)
    y, mean, variance = tf.nn.fused_batch_norm(x, scale, tf.zeros_like(scale), epsilon=0.01)
    z, *_ = tf.compat.v1.nn.fused_batch_norm(x, scale, scale, mean=mean, variance=variance, is_training=False)
    tensors = [y, mean, variance, z, *tf.gradients(tf.reduce_sum(y * y * y), [x, scale])]
    assert all(tensor.dtype == dtype for tensor in tensors)
    with tf.Session() as session:
        results[dtype] = session.run(tensors)
for half, single in zip(results[tf.float16], results[tf.float32]):
    np.testing.assert_allclose(half, single, rtol=0.02, atol=0.1)
""")


def test_programs_find_names_of_numpys_earlier_releases(run):
    run("""
import numpy as np
import tensorflow as tf
assert np.array([np.Inf, np.NINF, np.NaN], np.float).tolist()[:2] == [float("inf"), float("-inf")]
assert np.zeros(2, np.int).dtype == int and np.dtype(np.object) == object and np.float_ is np.float64
assert np.product([2, 3]) == 6 and np.alltrue([1, 0]) == False and np.round_(2.51, 1) == 2.5
assert np.in1d([[1, 2], [3, 4]], [1, 4]).tolist() == [True, False, False, True]
assert np.trapz([1, 2], dx=2) == 3 and np.asfarray([1]).dtype == float
""")
    assert not hasattr(np, "float")


def test_programs_of_both_versions_share_a_process_in_turn(run, tf):
    of_1 = """
import tensorflow as tf
x = tf.placeholder(tf.float32, [2, 3])
assert not tf.executing_eagerly() and x.shape[0].value == 2 and {x: 1}[x] == 1
assert tf.__version__ == "1.15.5" and tf.keras.layers.Dense(4)(x).shape.as_list() == [2, 4]
tf.reset_default_graph()
with tf.Session() as session:
    assert session.run(tf.constant(3)) == 3
"""
    of_2 = """
import tensorflow as tf
assert tf.executing_eagerly() and int(tf.constant(1) + 1) == 2
assert tf.zeros([2]).shape[0] == 2 and tf.__version__ == "2.6.3"
"""
    for text in (of_2, of_1, of_2, of_1):
        run(text)
    assert tf.executing_eagerly()
    assert tf.zeros([2]).shape[0] == 2


@pytest.mark.parametrize("switch", ["disable_v2_behavior", "disable_eager_execution"])
def test_a_program_that_switches_version_2_off_leaves_the_process_as_it_was(run, tf, switch):
    run(
        "import tensorflow as tf\n"
        f"assert tf.executing_eagerly()\ntf.compat.v1.{switch}()\nassert not tf.executing_eagerly()\n"
        "assert tf.compat.v1.resource_variables_enabled()",
        tensorflow=2,
    )
    assert tf.executing_eagerly()


def test_modules_beside_a_program_have_its_imports_and_packages_their_own(run):
    run(
        "import sys, tensorflow as tf, helper, tf_keras\n"
        "assert helper.tf is tf and tf.Session\n"
        "assert not hasattr(sys.modules['tf_keras.src.backend'].tf, 'Session')",
        helper="import tensorflow as tf\nfrom tensorflow.python import ipu\nassert ipu.loops.repeat",
    )


def test_the_imports_of_the_process_are_its_own_again_behind_a_program_that_fails(run, capsys):
    own, state, draws = builtins.__import__, random.getstate(), np.random.get_state()[1]
    with pytest.raises(ProgramEnded):
        run("import tensorflow as tf\nassert tf.Session\nraise KeyError('here')")
    assert "KeyError: 'here'" in capsys.readouterr().err
    assert builtins.__import__ is own
    assert random.getstate() == state
    assert np.array_equal(np.random.get_state()[1], draws)


@pytest.mark.parametrize(
    ("statement", "name"),
    [
        ("from tensorflow.python import ipu", "ipu.pipelining_ops.pipeline"),
        ("import tensorflow.python.ipu as ipu", "ipu.ipu_compiler.compile"),
        ("from tensorflow.python.ipu.ops.pipelining_ops import PipelineSchedule", "PipelineSchedule.Grouped"),
        ("from tensorflow.python.ipu.utils import *", "create_ipu_config"),
        ("from tensorflow.contrib import ipu", "ipu.ipu_compiler"),
        ("from tensorflow.python.ipu.rnn_ops import PopnnLSTM", "PopnnLSTM"),
        ("from tensorflow.python import ipu", "ipu.outlined_function"),
        ("from tensorflow.python.ipu import ipu_strategy", "ipu_strategy.IPUStrategy"),
        ("from tensorflow.python.ipu.optimizers import map_gradient_optimizer", "map_gradient_optimizer.IpuOptimizer"),
        ("from tensorflow.python.ipu.ops.all_to_all_op import all_gather", "all_gather"),
        ("from tensorflow.python.ipu.ops.reduce_scatter_op import reduce_scatter", "reduce_scatter"),
        ("import tensorflow.keras.layers as layers", "layers.Dense"),
        ("from tensorflow.python import keras", "keras.models.Sequential"),
        ("from tensorflow.python.keras.layers.recurrent import LSTM", "LSTM"),
        ("from tensorflow.python.keras.engine import training", "training.Model"),
        ("import keras", "keras.layers.Dense"),
        ("from tensorflow.python.framework.ops import array_ops", "array_ops.placeholder"),
        ("from tensorflow.contrib.rnn import LSTMCell", "LSTMCell"),
        ("from tensorflow.contrib.compiler import xla", "xla.compile"),
        ("import tensorflow as tf", "tf.contrib.layers.xavier_initializer(dtype=tf.float16)([2, 3])"),
        ("import tensorflow as tf", "tf.contrib.tpu.RunConfig(master='', tpu_config=tf.contrib.tpu.TPUConfig())"),
        ("import tensorflow as tf", "tf.contrib.tpu.InputPipelineConfig.PER_HOST_V2"),
        ("import tensorflow as tf", "tf.get_variable('w', [2.0, 3])"),
        ("import tensorflow as tf", "tf.data.Options().experimental_stats"),
        ("import tensorflow as tf\nimport tensorflow_core._api.v1.compat.v1 as v1", "v1.placeholder"),
        ("from tensorflow.compiler.plugin.poplar.ops import gen_poputil_ops", "gen_poputil_ops"),
        ("from tensorflow import distribute", "distribute.get_strategy().num_replicas_in_sync"),
        ("from tensorflow.keras.datasets import mnist", "mnist.load_data"),
        (
            "from tensorflow.python.distribute.distribution_strategy_context import get_replica_context as found",
            "found",
        ),
        ("from tensorflow.python.estimator.model_fn import EstimatorSpec, LOSS_METRIC_KEY", "EstimatorSpec"),
        ("from tensorflow.python.ipu.ipu_multi_worker_strategy import IPUMultiWorkerStrategyV1 as found", "found"),
        ("from tensorflow.python.keras.optimizer_v2.gradient_descent import SGD", "SGD"),
        ("from tensorflow.python.layers.normalization import batch_normalization", "batch_normalization"),
        ("from tensorflow.python.ops.control_flow_ops import cond, group, while_loop", "while_loop"),
    ],
)
def test_a_program_finds_a_name_where_it_looks_for_it(run, statement, name):
    run(f"{statement}\nassert {name} is not None", tensorflow=1)


def test_layer_normalisation_of_contrib_has_mean_and_variance_over_the_axes_from_its_first_on(run):
    run(
        "import numpy as np, tensorflow as tf\n"
        "x = np.arange(12, dtype=np.float32).reshape(2, 2, 3) ** 2\n"
        "y = tf.contrib.layers.layer_norm(x := tf.constant(x), begin_norm_axis=-1, begin_params_axis=-1)\n"
        "z = tf.contrib.layers.layer_norm(x, center=False, activation_fn=tf.negative, scope='mine')\n"
        "names = [(each.op.name, each.shape.as_list()) for each in tf.trainable_variables()]\n"
        "assert names == [('LayerNorm/beta', [3]), ('LayerNorm/gamma', [3]), ('mine/gamma', [3])]\n"
        "with tf.Session() as session:\n"
        "    session.run(tf.global_variables_initializer())\n"
        "    x, y, z = session.run([x, y, z])\n"
        "for found, axes in ((y, (2,)), (-z, (1, 2))):\n"
        "    mean, deviation = (take(x, axes, keepdims=True) for take in (np.mean, np.std))\n"
        "    np.testing.assert_allclose(found, (x - mean) / deviation, rtol=1e-5, atol=1e-6)",
        tensorflow=1,
    )


def test_keras_of_a_program_is_that_of_tensorflow_whatever_it_is_called(run):
    run(
        "import keras, tensorflow as tf\nfrom tensorflow.python.keras.layers import Dense\n"
        "assert keras.layers.Dense is tf.keras.layers.Dense and tf.keras.layers.Dense is Dense\n"
        "assert Dense.__module__.startswith('tf_keras')",
        tensorflow=2,
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "from tensorflow.python.ipu import lops",
            "python.ipu.lops is not simulated; did you mean loops or ops?",
        ),
        ("from tensorflow.python import ipu\nipu.lops", "tensorflow.python.ipu.lops is not simulated"),
        (
            "from tensorflow.python.ipu.loops import repeet",
            "python.ipu.loops.repeet is not simulated; did you mean repeat",
        ),
        ("import tensorflow.contrib.slim", "tensorflow.contrib.slim is not simulated"),
        (
            "import tensorflow as tf\ntf.contrib.layers.layer_nrm",
            "tensorflow.contrib.layers.layer_nrm is not simulated; did you mean layer_norm?",
        ),
        ("from keras.ipu.optimizers import ALSOptimizer", "keras.ipu.optimizers.ALSOptimizer is not simulated"),
        ("from tensorflow import keras\nkeras.ipu.layers.Lstm", "keras.ipu.layers.Lstm is not simulated"),
        ("import importlib; importlib.import_module('tensorflow.python.ipu.lops')", "ipu.lops is not simulated"),
        (
            "from tensorflow.compiler.plugin.poplar.driver import config_pb2",
            "tensorflow.compiler.plugin.poplar.driver.config_pb2 is not simulated",
        ),
    ],
)
def test_a_name_of_graphcores_that_is_missing_is_one_line(run, text, said):
    with pytest.raises(ProgramError, match=r"program\.py:[12]: ") as raised:
        run(text, tensorflow=1)
    assert said in str(raised.value)


def test_tensorflows_lists_of_devices_have_the_ipus_of_the_configuration(run):
    run(
        "import tensorflow as tf\nfrom tensorflow.python import ipu\nfrom tensorflow.python.client import device_lib\n"
        "names = lambda found: [each.name for each in found if each.device_type == 'IPU']\n"
        "assert names(tf.config.list_physical_devices()) == ['/physical_device:IPU:0']\n"
        "config = ipu.config.IPUConfig()\nconfig.auto_select_ipus = [1, 1]\nconfig.configure_ipu_system()\n"
        "assert names(tf.config.experimental.list_logical_devices('IPU')) == ['/device:IPU:0', '/device:IPU:1']\n"
        "assert names(device_lib.list_local_devices()) == ['/device:IPU:0', '/device:IPU:1']\n"
        "assert names(tf.config.list_logical_devices('CPU')) == names(tf.config.list_logical_devices('GPU')) == []",
        tensorflow=2,
    )


def test_version_1_alone_has_its_package_as_an_attribute(run):
    text = "import tensorflow as tf\nfrom tensorflow.python import ipu\nassert tf.python.ipu.loops is ipu.loops"
    run(text, tensorflow=1)
    with pytest.raises(ProgramError, match="module 'tensorflow' has no attribute 'python'"):
        run(text, tensorflow=2)


def test_a_name_that_tensorflow_lacks_is_tensorflows_own_error(run, capsys):
    with pytest.raises(ProgramEnded):
        run("import tensorflow as tf\ntf.no_such_name")
    assert "AttributeError: module 'tensorflow' has no attribute 'no_such_name'" in capsys.readouterr().err


DRAWS = """
import random, sys
import numpy as np
import tensorflow as tf
weights = tf.get_variable("w", [2, 3])
kernel = tf.keras.layers.Dense(2)(tf.zeros([1, 3]))
with tf.Session() as session:
    session.run(tf.global_variables_initializer())
    values = session.run([*tf.global_variables(), tf.random_normal([2])])
drawn = [random.random(), *np.random.rand(2), *np.concatenate([value.ravel() for value in values])]
print(drawn, file=sys.stderr)
"""


def test_draws_without_seeds_are_the_same_in_every_run(run, capsys):
    """Also in another process, whose hashes of texts are others."""
    run(DRAWS)
    first = capsys.readouterr().err
    run(DRAWS)
    assert capsys.readouterr().err == first
    program = (
        "from pathlib import Path\nfrom ipusim.ipu.programs.program_file import ProgramFile\n"
        "ProgramFile(Path('program.py')).run()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        check=True,
        env={**os.environ, "PYTHONHASHSEED": "7"},
        capture_output=True,
        text=True,
    )
    assert done.stderr == first


def test_an_operation_on_an_ipu_device_needs_no_device_of_tensorflows(run):
    run(
        "import tensorflow as tf\nfrom tensorflow.python.framework import ops\n"
        "with tf.device('/device:IPU:0'):\n    x = tf.constant(1)\n"
        "with ops.device('/device:IPU:0'):\n    y = tf.constant(2)\n"
        "with tf.device('cpu'):\n    z = x + y\nassert 'CPU' in z.device and not x.device\n"
        "assert tf.Session().run(z) == 3",
        tensorflow=1,
    )


def test_a_program_may_set_what_tensorflow_has_read_already(run, monkeypatch):
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "3")
    run(
        "import os\nos.environ['TF_CPP_MIN_LOG_LEVEL'] = '2'\n"
        "from ipusim.ipu.graph.tensorflow_import import load\nassert load()"
    )


def test_a_name_of_an_optimizer_stands_for_the_optimizer_of_tf_keras_optimizers(run):
    run(
        "import tensorflow as tf\nmodel = tf.keras.Sequential([tf.keras.layers.Dense(1)])\n"
        "model.compile('adam', 'mse')\nassert type(model.optimizer) is tf.keras.optimizers.Adam"
    )


def test_data_sets_of_keras_are_those_that_need_no_network(run):
    """However a program imports them; their files and draws have tests of their own."""
    run(
        "import keras, tensorflow as tf\nfrom tensorflow.keras.datasets import imdb\n"
        "from tensorflow.python.keras import datasets\n"
        "names = 'cifar10 fashion_mnist imdb mnist'.split()\n"
        "assert all(getattr(tf.keras.datasets, name).load_data.__module__.startswith('ipusim.') for name in names)\n"
        "assert keras.datasets.imdb.load_data is imdb.load_data is datasets.imdb.load_data\n"
        "assert tf.keras.datasets.boston_housing.load_data.__module__.startswith('tf_keras.')"
    )
