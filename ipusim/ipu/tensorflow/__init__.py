"""What programs of pipelines use of TensorFlow, in its place: ``from ipusim.ipu import tensorflow as tf``.

Functions take and return arrays, in a stage those of autograd; layers are the core's own, so that a model costs
the same as in a scenario. What a session runs are placeholders and compiled programs. There is no graph, and no other
engine than the one behind ``pipelining_ops.pipeline``. A name that is not offered says so in an AttributeError.

>>> import numpy as np
>>> from ipusim.ipu import tensorflow as tf
>>> dataset = tf.data.Dataset.from_tensor_slices(np.arange(6, dtype=np.float32)).batch(2).repeat()
>>> [batch.tolist() for batch in dataset.take(4)]
[[0.0, 1.0], [2.0, 3.0], [4.0, 5.0], [0.0, 1.0]]
"""

from __future__ import annotations

import re
from typing import Final

from ipusim.ipu.runtime.offered import Row, in_module, offering

_HERE: Final = "ipusim.ipu.tensorflow"
_ARRAYS: Final = f"{_HERE}.array_functions"
_INITIALIZERS: Final = "ipusim.ipu.runtime.initializers"
_STATE: Final = "ipusim.ipu.runtime.program_state"

_MODULES: Final = ("data", "distribute", "keras", "logging", "losses", "metrics", "nn", "random", "train")
#: Functions of arrays that ``tf.math`` has too.
_MATH: Final = (
    "abs add argmax argmin cos divide equal exp greater greater_equal less less_equal log log1p logical_and "
    "logical_not logical_or maximum minimum multiply negative not_equal pow reduce_max reduce_mean reduce_min "
    "reduce_prod reduce_sum round sigmoid sign sin sqrt square squared_difference subtract tanh truediv"
)
#: Functions of arrays that ``tf`` alone has.
_OF_TF: Final = (
    "add_n cast clip_by_value constant convert_to_tensor einsum eye fill identity linspace matmul ones ones_like "
    "range rank shape size stop_gradient tensordot zeros zeros_like"
)
#: What model functions, hooks, configurations and trainings of estimators are written with.
_ESTIMATOR: Final = (
    in_module(f"{_HERE}.estimator_spec", "EstimatorSpec ModeKeys")
    | in_module(f"{_HERE}.run_config", "RunConfig")
    | in_module(
        f"{_HERE}.session_run_hooks",
        "CheckpointSaverListener LoggingTensorHook NanLossDuringTrainingError NanTensorHook SecondOrStepTimer "
        "SessionRunArgs SessionRunContext SessionRunHook SessionRunValues StepCounterHook StopAtStepHook",
    )
    | in_module(f"{_HERE}.checkpoint_saver_hook", "CheckpointSaverHook")
    | in_module("ipusim.ipu.estimators.training", "WarmStartSettings")
    | in_module("ipusim.ipu.estimators.train_and_evaluate", "EvalSpec TrainSpec train_and_evaluate")
)
#: The kinds of errors that programs catch, each one of ipusim's own. Their ``message`` is the whole text, as
#: TensorFlow's is.
_ERRORS: Final[dict[str, Row]] = {
    "FailedPreconditionError": "ipusim.base.errors:ProgramStateError",
    "InternalError": "ipusim.base.errors:PlanError",
    "InvalidArgumentError": "ipusim.base.errors:ProgramError",
    "NotFoundError": "ipusim.base.errors:FileError",
    "OpError": "ipusim.base.errors:IpusimError",
    "OutOfRangeError": "ipusim.base.errors:EndOfDataError",
    "ResourceExhaustedError": "ipusim.base.errors:OutOfMemoryError",
    "UnimplementedError": "ipusim.base.errors:UnsupportedProgramError",
}

#: Initializers whose defaults are others in TensorFlow 1 than in 2, by functions; and all that are classes.
_BY_VERSION: Final = ("random_normal", "random_uniform", "truncated_normal")
_CLASSES: Final = (
    *("Constant", "GlorotNormal", "GlorotUniform", "HeNormal", "HeUniform", "LecunNormal", "LecunUniform"),
    *("Ones", "Orthogonal", "RandomNormal", "RandomUniform", "TruncatedNormal", "VarianceScaling", "Zeros"),
)
_INITIALIZER_ROWS: Final = (
    {name: f"{_INITIALIZERS}:{name}" for name in _CLASSES}
    | {re.sub("(?<=[a-z])(?=[A-Z])", "_", name).lower(): f"{_INITIALIZERS}:{name}" for name in _CLASSES}
    | {name: f"{_INITIALIZERS}:{name}_initializer" for name in _BY_VERSION}
    | {"get": f"{_INITIALIZERS}:initializer_of"}
)

__getattr__, __dir__ = offering(
    "tf",
    {name: f"{_HERE}.{name}" for name in _MODULES}
    | {"compat": {"v1": _HERE}, "contrib": {"distribute": f"{_HERE}.distribute"}}
    | {"errors": _ERRORS, "estimator": _ESTIMATOR, "math": in_module(_ARRAYS, _MATH)}
    | {"initializers": _INITIALIZER_ROWS, "layers": f"{_HERE}.keras.legacy_tf_layers"}
    | {"optimizers": f"{_HERE}.keras.optimizers"}
    | {f"random_{name}": f"{_HERE}.random:{name}" for name in ("normal", "shuffle", "uniform")}
    | in_module(f"{_HERE}.random", "truncated_normal")
    | in_module("numpy", "float16 float32 float64 int8 int16 int32 int64 newaxis uint8")
    | in_module("ipusim.ipu.runtime.tensor_shape", "TensorShape")
    | {"bool": "numpy:bool_", "IndexedSlices": "ipusim.ipu.horovod:IndexedSlices"}
    | {"set_random_seed": f"{_STATE}:set_random_seed"}
    | in_module(
        f"{_HERE}.scoping", "AUTO_REUSE VariableScope get_variable get_variable_scope name_scope variable_scope"
    )
    | in_module(
        f"{_HERE}.session",
        "ConfigProto Graph Session control_dependencies device disable_eager_execution disable_v2_behavior "
        "disable_v2_tensorshape enable_resource_variables executing_eagerly get_default_graph get_default_session "
        "get_logger global_variables_initializer group identity_n initialize_all_variables no_op placeholder "
        "placeholder_with_default reset_default_graph",
    )
    | in_module(_ARRAYS, f"{_MATH} {_OF_TF}")
    | in_module(
        f"{_HERE}.shaping",
        "broadcast_to concat expand_dims gather one_hot pad reshape reverse slice split squeeze stack "
        "strided_slice tile transpose unstack where",
    )
    | in_module(f"{_HERE}.control_flow", "cond while_loop")
    | in_module(f"{_HERE}.own_gradients", "GradientTape custom_gradient")
    | in_module(
        f"{_HERE}.variables",
        "GraphKeys Variable assign assign_add assign_sub get_collection global_variables trainable_variables "
        "variables_initializer",
    )
    | in_module("ipusim.ipu.runtime.function", "function")
    | {
        f"{name}_initializer": row
        for name, row in _INITIALIZER_ROWS.items()
        if name.islower() and not name.startswith(("get", "he_", "lecun_"))
    },
)
