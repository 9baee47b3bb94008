"""Layers and losses: forward and backward passes side by side, shapes, and work.

As ``layers`` of :mod:`ipusim.api` this package offers the classes of a model, and the parts of a user-defined layer:
:class:`Layer`, :class:`LayerCost`, and :class:`Saved`, the data kept between passes.
"""

from typing import TYPE_CHECKING

from ipusim.base.lazy import lazy

if TYPE_CHECKING:
    from ipusim.model.layers.add import Add
    from ipusim.model.layers.attention import MultiHeadAttention
    from ipusim.model.layers.augru import AUGRU
    from ipusim.model.layers.convolution import Conv2D
    from ipusim.model.layers.ctc import CTC
    from ipusim.model.layers.dropout import Dropout
    from ipusim.model.layers.embedding import Embedding, PositionEmbedding
    from ipusim.model.layers.gru import GRU
    from ipusim.model.layers.keys import EarlierLayer
    from ipusim.model.layers.layer import Layer, Saved, TakesTokens
    from ipusim.model.layers.layers import ActivationLayer, Dense, Flatten
    from ipusim.model.layers.losses import MeanSquaredError, SoftmaxCrossEntropy
    from ipusim.model.layers.lstm import LSTM
    from ipusim.model.layers.normalisation import BatchNorm, GroupNorm, InstanceNorm, LayerNorm
    from ipusim.model.layers.pooling import AveragePool2D, MaxPool2D
    from ipusim.model.layers.recurrent import RECURRENT_ACTIVATIONS, Recurrent
    from ipusim.model.layers.serialized_matmul import SerializedMatmul
    from ipusim.model.layers.table import rows
else:
    __getattr__, __dir__ = lazy(__name__)
