"""Offer parts of ``tensorflow.contrib`` that Graphcore's programs use, from other names of TensorFlow 2."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Final

from ipusim.ipu.graph.tensorflow_import import load

_V1: Final = load().compat.v1

__all__ = ["data", "framework", "layers", "rnn"]

#: ``tf.contrib.data``: combined reading, mapping and batching of data sets.
data: Final = SimpleNamespace(
    AUTOTUNE=_V1.data.experimental.AUTOTUNE,
    map_and_batch=_V1.data.experimental.map_and_batch,
    parallel_interleave=_V1.data.experimental.parallel_interleave,
    shuffle_and_repeat=_V1.data.experimental.shuffle_and_repeat,
)
#: ``tf.contrib.framework``: contents of checkpoints, and structures of tensors.
framework: Final = SimpleNamespace(
    list_variables=_V1.train.list_variables, load_variable=_V1.train.load_variable, nest=_V1.nest
)
#: ``tf.contrib.rnn``: cells, and the unrolled recurrent network.
rnn: Final = SimpleNamespace(
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


#: ``tf.contrib.layers``: initializers and regularizers.
layers: Final = SimpleNamespace(
    flatten=_V1.layers.flatten,
    l1_regularizer=_V1.keras.regularizers.l1,
    l2_regularizer=lambda scale, scope=None: _V1.keras.regularizers.l2(scale / 2),
    xavier_initializer=xavier_initializer,
    xavier_initializer_conv2d=xavier_initializer,
)
