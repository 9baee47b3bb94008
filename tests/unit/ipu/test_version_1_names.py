"""Names of modules and methods of version 1 that later versions of TensorFlow have elsewhere, or not."""

from tests.programs import hosted_names

IMPORTS = """
from tensorflow.python.distribute.distribution_strategy_context import get_replica_context
from tensorflow.python.estimator.model_fn import EstimatorSpec, LOSS_METRIC_KEY
from tensorflow.python.ipu.ipu_multi_worker_strategy import IPUMultiWorkerStrategyV1
from tensorflow.python.keras.optimizer_v2.gradient_descent import SGD
from tensorflow.python.layers.normalization import batch_normalization
from tensorflow.python.ops.control_flow_ops import cond, group, while_loop
"""


def test_modules_of_version_1_have_their_names():
    with hosted_names():
        for line in IMPORTS.strip().splitlines():
            exec(line, {"__name__": "program", "__file__": "program.py"})


def test_a_variable_has_an_initialized_value():
    with hosted_names() as names:
        tf = names.tf
        variable = tf.get_variable("v", [], initializer=tf.constant_initializer(2.0), use_resource=True)
        value = variable.initialized_value()
        with tf.Session() as session:
            assert session.run(value) == 2
            session.run(variable.initializer)
            session.run(variable.assign(5.0))
            assert session.run(value) == 5


def test_a_layer_computes_in_the_dtype_of_its_input():
    with hosted_names() as names:
        tf = names.tf
        assert tf.keras.layers.Dense(2)(tf.placeholder(tf.float16, [1, 2])).dtype == tf.float16
