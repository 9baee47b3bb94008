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

from typing import Final

from ipusim.ipu.tensorflow.offered import found_in, offering

_HERE: Final = "ipusim.ipu.tensorflow"

#: Draws that TensorFlow 1 has beside those of ``tf.random``.
_DRAWS: Final = ("random_normal", "random_shuffle", "random_uniform", "truncated_normal")

_NAMES: Final = (
    {name: f"{_HERE}.{name}" for name in ("data", "initializers", "keras", "layers", "losses", "math", "nn", "train")}
    | {"random": f"{_HERE}.random", "estimator": f"{_HERE}.estimator", "metrics": f"{_HERE}.metrics"}
    | {"logging": f"{_HERE}.logging", "errors": f"{_HERE}.errors", "optimizers": f"{_HERE}.keras.optimizers"}
    | {"TensorShape": f"{_HERE}.tensor_shape:TensorShape"}
    | {name: f"{_HERE}.random_draws:{name.removeprefix('random_')}" for name in _DRAWS}
    | found_in("numpy", "float16 float32 float64 int8 int16 int32 int64 uint8")
    | {"bool": "numpy:bool_", "newaxis": "numpy:newaxis", "compat": f"{_HERE}.compat", "contrib": f"{_HERE}.contrib"}
    | {"distribute": f"{_HERE}.distribute", "IndexedSlices": "ipusim.ipu.indexed_slices:IndexedSlices"}
    | found_in(f"{_HERE}.scoping", "AUTO_REUSE VariableScope get_variable get_variable_scope name_scope variable_scope")
    | found_in(
        f"{_HERE}.session",
        "ConfigProto Graph Session control_dependencies device disable_eager_execution disable_v2_behavior "
        "disable_v2_tensorshape enable_resource_variables executing_eagerly get_default_graph get_default_session "
        "get_logger global_variables_initializer group identity_n initialize_all_variables no_op placeholder "
        "placeholder_with_default reset_default_graph set_random_seed",
    )
    | found_in(
        f"{_HERE}.array_functions",
        "abs add add_n argmax argmin cast clip_by_value constant convert_to_tensor cos divide einsum equal exp eye "
        "fill greater greater_equal identity less less_equal linspace log log1p logical_and logical_not logical_or "
        "matmul maximum minimum multiply negative not_equal ones ones_like pow range rank reduce_max reduce_mean "
        "reduce_min reduce_prod reduce_sum round shape sigmoid sign sin size sqrt square squared_difference "
        "stop_gradient subtract tanh tensordot zeros zeros_like",
    )
    | found_in(
        f"{_HERE}.shaping",
        "broadcast_to concat expand_dims gather one_hot reshape split squeeze stack tile transpose unstack where",
    )
    | found_in(f"{_HERE}.slices", "pad reverse slice strided_slice")
    | found_in(f"{_HERE}.control_flow", "cond while_loop")
    | {"custom_gradient": f"{_HERE}.own_gradients:custom_gradient"}
    | found_in(
        f"{_HERE}.variables",
        "GraphKeys Variable assign assign_add assign_sub get_collection global_variables trainable_variables "
        "variables_initializer",
    )
    | {"GradientTape": f"{_HERE}.gradient_tape:GradientTape", "function": f"{_HERE}.compiled_function:function"}
    | {"glorot_uniform_initializer": f"{_HERE}.initializers:GlorotUniform"}
    | {"constant_initializer": f"{_HERE}.initializers:Constant", "zeros_initializer": f"{_HERE}.initializers:Zeros"}
    | {
        f"{name}_initializer": f"{_HERE}.initializers:{kind}"
        for name, kind in {
            "ones": "Ones",
            "random_normal": "RandomNormal",
            "random_uniform": "RandomUniform",
            "truncated_normal": "TruncatedNormal",
            "glorot_normal": "GlorotNormal",
            "variance_scaling": "VarianceScaling",
        }.items()
    }
)
__getattr__, __dir__ = offering("tf", _NAMES)
