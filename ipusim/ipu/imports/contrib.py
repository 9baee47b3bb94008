"""What Graphcore's programs use of ``tensorflow.contrib``, which TensorFlow 2 has under other names."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Final

from ipusim.ipu.graph.tensorflow_import import load

_V1: Final = load().compat.v1

#: ``tf.contrib.rnn``: cells, and the recurrent network that is unrolled.
rnn: Final = SimpleNamespace(
    **{name: getattr(_V1.nn.rnn_cell, name) for name in dir(_V1.nn.rnn_cell) if not name.startswith("_")},
    static_rnn=_V1.nn.static_rnn,
)
