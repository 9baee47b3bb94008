"""Offer parts of ``tensorflow.contrib`` that Graphcore's programs use, from other names of TensorFlow 2."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from functools import partial
from types import SimpleNamespace
from typing import Any, Final

from ipusim.base.errors import MissingNameError
from ipusim.base.near_names import did_you_mean
from ipusim.ipu.graph.tensorflow_import import load

_V1: Final = load().compat.v1

__all__ = ["data", "framework", "layers", "rnn", "tpu"]


class _Package(SimpleNamespace):
    """Package of ``contrib``, with the attribute ``name``; raises MissingNameError for other names."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # Python asks for these names
            raise AttributeError(name)
        raise MissingNameError(
            f"tensorflow.contrib.{self.name}.{name} is not simulated{did_you_mean(name, vars(self))}"
        )


#: ``tf.contrib.data``: combined reading, mapping and batching of data sets.
data: Final = _Package(
    name="data",
    AUTOTUNE=_V1.data.experimental.AUTOTUNE,
    map_and_batch=_V1.data.experimental.map_and_batch,
    parallel_interleave=_V1.data.experimental.parallel_interleave,
    shuffle_and_repeat=_V1.data.experimental.shuffle_and_repeat,
)
#: ``tf.contrib.framework``: contents of checkpoints, and structures of tensors.
framework: Final = _Package(
    name="framework", list_variables=_V1.train.list_variables, load_variable=_V1.train.load_variable, nest=_V1.nest
)
#: ``tf.contrib.rnn``: cells, and the unrolled recurrent network.
rnn: Final = _Package(
    name="rnn",
    **{name: getattr(_V1.nn.rnn_cell, name) for name in dir(_V1.nn.rnn_cell) if not name.startswith("_")},
    static_rnn=_V1.nn.static_rnn,
)


def xavier_initializer(uniform: bool = True, seed: int | None = None, dtype: Any = _V1.float32) -> Any:
    """Return the initializer of Glorot and Bengio (2010).

    Args:
        uniform: whether values have a uniform distribution, otherwise a normal distribution.
        seed: seed of the draws.
        dtype: dtype of the values.
    """
    kind = _V1.glorot_uniform_initializer if uniform else _V1.glorot_normal_initializer
    return kind(seed=seed, dtype=dtype)


def layer_norm(
    inputs: Any,
    center: bool = True,
    scale: bool = True,
    activation_fn: Callable[[Any], Any] | None = None,
    reuse: Any = None,
    variables_collections: Any = None,
    outputs_collections: Any = None,
    trainable: bool = True,
    begin_norm_axis: int = 1,
    begin_params_axis: int = -1,
    scope: Any = None,
) -> Any:
    """Return layer-normalised inputs, as TensorFlow 1.15.

    Args:
        inputs: tensor of known rank, with known sizes from ``begin_params_axis`` on.
        center, scale: whether to add the variable ``beta``, and to multiply by the variable ``gamma``.
        activation_fn: function of the result; None for no function.
        reuse, scope: scope of the variables, ``LayerNorm`` by default, and whether they exist already.
        variables_collections, outputs_collections: without effect.
        trainable: whether the variables are trained.
        begin_norm_axis, begin_params_axis: first axis of mean and variance, and of the variables.
    """
    dtype, rank = inputs.dtype.base_dtype, inputs.shape.rank
    axes = list(range(begin_norm_axis % rank, rank))
    with _V1.variable_scope(scope, "LayerNorm", [inputs], reuse=reuse):
        make = partial(_V1.get_variable, shape=inputs.shape[begin_params_axis:], dtype=dtype, trainable=trainable)
        beta = make("beta", initializer=_V1.zeros_initializer()) if center else None
        gamma = make("gamma", initializer=_V1.ones_initializer()) if scale else None
        mean, variance = _V1.nn.moments(inputs, axes, keepdims=True)
        epsilon = 1e-3 if dtype == _V1.float16 else 1e-12
        result = _V1.nn.batch_normalization(inputs, mean, variance, beta, gamma, epsilon)
    return result if activation_fn is None else activation_fn(result)


#: ``tf.contrib.layers``: initializers, regularizers and layer normalisation.
layers: Final = _Package(
    name="layers",
    flatten=_V1.layers.flatten,
    layer_norm=layer_norm,
    l1_regularizer=_V1.keras.regularizers.l1,
    l2_regularizer=lambda scale, scope=None: _V1.keras.regularizers.l2(scale / 2),
    xavier_initializer=xavier_initializer,
    xavier_initializer_conv2d=xavier_initializer,
)
#: ``tf.contrib.tpu``: settings that programs for several kinds of devices make without running on a TPU.
tpu: Final = _Package(
    name="tpu",
    InputPipelineConfig=Enum("InputPipelineConfig", "PER_SHARD_V1 PER_HOST_V1 PER_HOST_V2 BROADCAST"),
    RunConfig=SimpleNamespace,
    TPUConfig=SimpleNamespace,
)
