"""The layers that a scenario can name, told apart by ``type`` or ``python``: one class of keys for each.

Keys and defaults are those of the layers' constructors in :mod:`ipusim.model`, which have Keras' names.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Discriminator, Field, Strict, Tag

from ipusim.model.layers.activations import ACTIVATIONS
from ipusim.model.layers.recurrent import RECURRENT_ACTIVATIONS
from ipusim.scenario.fields import Axis, Choice, Cycles, Name, Node, PythonName, Shape, expects, kind_of

_ActivationName = Annotated[str, Choice(tuple(ACTIVATIONS))]
_RecurrentActivationName = Annotated[str, Choice(RECURRENT_ACTIVATIONS)]
_PaddingName = Annotated[Literal["valid", "same"], Choice(("valid", "same"))]
_DimensionName = Annotated[
    Literal["a_columns", "a_rows_b_columns", "b_rows"], Choice(("a_columns", "a_rows_b_columns", "b_rows"))
]
#: Height and width of a window, or steps down and right.
_Pair = Annotated[
    tuple[Annotated[int, Field(ge=1, le=128)], ...],
    Strict(False),
    Field(min_length=2, max_length=2, json_schema_extra=expects("two whole numbers from 1 to 128, such as [3, 3]")),
]
_Epsilon = Annotated[float, Field(gt=0, le=1)]
_Rate = Annotated[float, Field(ge=0, lt=1)]


class _LayerSpec(Node):
    name: Name = Field(description="the layer's name, for splits, weights and charts")


class FlattenSpec(_LayerSpec, title="flatten"):
    """Joins all axes of a sample into one."""

    type: Literal["flatten"]


class DenseSpec(_LayerSpec, title="dense"):
    """A fully connected layer: activation(x @ W + b)."""

    type: Literal["dense"]
    units: Axis = Field(description="outputs of the layer")
    activation: _ActivationName = Field(default="identity", description="function of each output")
    use_bias: bool = Field(default=True, description="whether b is added")
    serialization_factor: Axis = Field(
        default=1, description="parts that the matrix products are split into, to take less memory at a time"
    )
    serialization_dimension: _DimensionName = Field(
        default="a_columns", description="what the parts split: the rows of x, the sums over its columns, or the units"
    )


class ActivationSpec(_LayerSpec, title="activation"):
    """A function of each element."""

    type: Literal["activation"]
    activation: _ActivationName = Field(description="the function")


class DropoutSpec(_LayerSpec, title="dropout"):
    """Sets a share of the elements to zero in training and scales the others up."""

    type: Literal["dropout"]
    rate: _Rate = Field(description="share of the elements that are dropped")


class EmbeddingSpec(_LayerSpec, title="embedding"):
    """Rows of a table chosen by tokens; the first layer of a model on tokens."""

    type: Literal["embedding"]
    input_dim: int = Field(ge=1, le=10**7, description="rows of the table, the size of the vocabulary")
    output_dim: Axis = Field(description="elements of a row")


class PositionEmbeddingSpec(_LayerSpec, title="position_embedding"):
    """Adds a trained row to each position of a sequence."""

    type: Literal["position_embedding"]


class _NormSpec(_LayerSpec):
    epsilon: _Epsilon = Field(default=1e-3, description="added to the variance")
    center: bool = Field(default=True, description="whether beta is added")
    scale: bool = Field(default=True, description="whether the result is multiplied by gamma")


class LayerNormSpec(_NormSpec, title="layer_norm"):
    """Brings the last axis to mean 0 and variance 1, at each place."""

    type: Literal["layer_norm"]


class GroupNormSpec(_NormSpec, title="group_norm"):
    """Brings each group of channels to mean 0 and variance 1, over all places."""

    type: Literal["group_norm"]
    groups: Axis = Field(default=2, description="groups that the channels are divided into")
    strided_channel_grouping: bool = Field(
        default=True, description="whether channel c belongs to group c mod groups, else groups are consecutive"
    )


class InstanceNormSpec(_NormSpec, title="instance_norm"):
    """Brings each channel to mean 0 and variance 1, over all places."""

    type: Literal["instance_norm"]


class Conv2DSpec(_LayerSpec, title="conv2d"):
    """A convolution of images of height, width and channels."""

    type: Literal["conv2d"]
    filters: Axis = Field(description="channels of the output")
    kernel_size: _Pair = Field(description="height and width of the kernel")
    strides: _Pair = Field(default=(1, 1), description="steps of the kernel, down and right")
    padding: _PaddingName = Field(default="valid", description="whether the image is padded for windows at its edges")
    activation: _ActivationName = Field(default="identity", description="function of each output")
    use_bias: bool = Field(default=True, description="whether b is added")


class _PoolSpec(_LayerSpec):
    pool_size: _Pair = Field(default=(2, 2), description="height and width of the windows")
    strides: _Pair | None = Field(
        default=None, description="steps from one window to the next; default: the windows' size"
    )
    padding: _PaddingName = Field(default="valid", description="whether the image is padded for windows at its edges")


class MaxPool2DSpec(_PoolSpec, title="max_pool2d"):
    """The largest element of each window of an image, channel by channel."""

    type: Literal["max_pool2d"]


class AveragePool2DSpec(_PoolSpec, title="average_pool2d"):
    """The mean of each window of an image, channel by channel."""

    type: Literal["average_pool2d"]


class _RecurrentSpec(_LayerSpec):
    units: Axis = Field(description="elements of the output and of the state")
    activation: _RecurrentActivationName = Field(default="tanh", description="function of the candidate state")
    recurrent_activation: _RecurrentActivationName = Field(default="sigmoid", description="function of the gates")
    use_bias: bool = Field(default=True, description="whether b is added")
    return_sequences: bool = Field(
        default=False, description="whether the outputs of all time steps are returned, or the last one"
    )


class LstmSpec(_RecurrentSpec, title="lstm"):
    """Long short-term memory over the time steps of a sample."""

    type: Literal["lstm"]
    unit_forget_bias: bool = Field(default=True, description="whether the forget gate's bias starts at one")


class GruSpec(_RecurrentSpec, title="gru"):
    """A gated recurrent unit over the time steps of a sample."""

    type: Literal["gru"]
    reset_after: bool = Field(default=True, description="whether the reset gate comes after the matrix product")


class MultiHeadAttentionSpec(_LayerSpec, title="multi_head_attention"):
    """Self-attention: each position of a sample takes from all positions what it looks for."""

    type: Literal["multi_head_attention"]
    num_heads: int = Field(ge=1, le=1024, description="heads that look in parallel")
    key_dim: Axis | None = Field(
        default=None, description="elements of a head; default: the input's, divided among the heads"
    )
    causal: bool = Field(default=False, description="whether positions take from none after them")
    use_bias: bool = Field(default=True, description="whether the projections have biases")
    dropout: _Rate = Field(default=0.0, description="share of the attention weights that are dropped in training")


class SoftmaxCrossEntropySpec(_LayerSpec, title="softmax_cross_entropy"):
    """The loss of a classifier: mean over the micro-batch of -log softmax(logits)[label]."""

    type: Literal["softmax_cross_entropy"]


class MeanSquaredErrorSpec(_LayerSpec, title="mean_squared_error"):
    """The loss of a regression: mean over all elements of the micro-batch of (output - target)^2."""

    type: Literal["mean_squared_error"]


class CyclesSpec(Node, title="cycles"):
    """What the passes of a stage cost, as measured or assumed, instead of the cost model's figures."""

    forward: Cycles = Field(description="cycles of the tile clock, or time, of the forward pass of one micro-batch")
    backward: Cycles = Field(
        default=0, description="cycles of the tile clock, or time, of the backward pass of one micro-batch"
    )


def _cost_kind(value: object) -> str:
    return "<cycles>" if isinstance(value, dict | Node) else "<counted>"


#: The cost of a Python function: counted from its operations, or given.
Cost = Annotated[
    Annotated[Literal["counted"], Choice(("counted",)), Field(title="counted"), Tag("<counted>")]
    | Annotated[CyclesSpec, Tag("<cycles>")],
    Discriminator(_cost_kind),
]


class PythonSpec(Node, title="python"):
    """A layer, or a whole stage, that is a Python function of arrays; ``autograd`` differentiates it."""

    name: Name = Field(description="the layer's or stage's name, for splits, weights and charts")
    python: PythonName = Field(description="the function: file.py:function, the file relative to the scenario's folder")
    parameters: dict[Name, Shape] = Field(
        default={}, max_length=64, description="shape of each trainable parameter by name"
    )
    fill: dict[Name, float] = Field(
        default={},
        max_length=64,
        description="constant that a parameter starts with; default: Glorot uniform, or zero for one axis",
    )
    loss: bool = Field(
        default=False, description="whether it is the loss, a function of outputs and labels that ends the model"
    )
    cost: Cost = Field(default="counted", description="cycles of the passes, or counted from the function's operations")


#: A layer that may stand within another one.
InnerLayerSpec = Annotated[
    Annotated[FlattenSpec, Tag("<flatten>")]
    | Annotated[DenseSpec, Tag("<dense>")]
    | Annotated[ActivationSpec, Tag("<activation>")]
    | Annotated[DropoutSpec, Tag("<dropout>")]
    | Annotated[PositionEmbeddingSpec, Tag("<position_embedding>")]
    | Annotated[LayerNormSpec, Tag("<layer_norm>")]
    | Annotated[GroupNormSpec, Tag("<group_norm>")]
    | Annotated[InstanceNormSpec, Tag("<instance_norm>")]
    | Annotated[Conv2DSpec, Tag("<conv2d>")]
    | Annotated[MaxPool2DSpec, Tag("<max_pool2d>")]
    | Annotated[AveragePool2DSpec, Tag("<average_pool2d>")]
    | Annotated[LstmSpec, Tag("<lstm>")]
    | Annotated[GruSpec, Tag("<gru>")]
    | Annotated[MultiHeadAttentionSpec, Tag("<multi_head_attention>")]
    | Annotated[PythonSpec, Tag("<python>")],
    Discriminator(kind_of),
    Field(json_schema_extra=expects("a layer, such as {name: hidden, type: dense, units: 64}")),
]


class ResidualSpec(_LayerSpec, title="residual"):
    """Adds what a list of layers makes of its input to the input."""

    type: Literal["residual"]
    layers: Annotated[tuple[InnerLayerSpec, ...], Strict(False)] = Field(
        min_length=1, max_length=64, description="the layers in order"
    )
    shortcut: Annotated[tuple[InnerLayerSpec, ...], Strict(False)] = Field(
        default=(), max_length=64, description="layers on the way of the input itself, such as a 1 x 1 convolution"
    )


class ParallelSpec(_LayerSpec, title="parallel"):
    """Branches that take the same input; their outputs are joined along the last axis."""

    type: Literal["parallel"]
    branches: Annotated[
        tuple[
            Annotated[tuple[InnerLayerSpec, ...], Strict(False), Field(title="branch", min_length=1, max_length=64)],
            ...,
        ],
        Strict(False),
    ] = Field(min_length=2, max_length=16, description="the layers in order, of each branch")


class AddSpec(_LayerSpec, title="add"):
    """Adds the output of an earlier layer, of the same shape: a skip connection."""

    type: Literal["add"]
    source: Name = Field(alias="from", description="the earlier layer")


#: One layer of a model: any of these, and those that only stand in a model itself.
LayerSpec = Annotated[
    Annotated[FlattenSpec, Tag("<flatten>")]
    | Annotated[DenseSpec, Tag("<dense>")]
    | Annotated[ActivationSpec, Tag("<activation>")]
    | Annotated[DropoutSpec, Tag("<dropout>")]
    | Annotated[PositionEmbeddingSpec, Tag("<position_embedding>")]
    | Annotated[LayerNormSpec, Tag("<layer_norm>")]
    | Annotated[GroupNormSpec, Tag("<group_norm>")]
    | Annotated[InstanceNormSpec, Tag("<instance_norm>")]
    | Annotated[Conv2DSpec, Tag("<conv2d>")]
    | Annotated[MaxPool2DSpec, Tag("<max_pool2d>")]
    | Annotated[AveragePool2DSpec, Tag("<average_pool2d>")]
    | Annotated[LstmSpec, Tag("<lstm>")]
    | Annotated[GruSpec, Tag("<gru>")]
    | Annotated[MultiHeadAttentionSpec, Tag("<multi_head_attention>")]
    | Annotated[EmbeddingSpec, Tag("<embedding>")]
    | Annotated[ResidualSpec, Tag("<residual>")]
    | Annotated[ParallelSpec, Tag("<parallel>")]
    | Annotated[AddSpec, Tag("<add>")]
    | Annotated[SoftmaxCrossEntropySpec, Tag("<softmax_cross_entropy>")]
    | Annotated[MeanSquaredErrorSpec, Tag("<mean_squared_error>")]
    | Annotated[PythonSpec, Tag("<python>")],
    Discriminator(kind_of),
    Field(json_schema_extra=expects("a layer, such as {name: hidden, type: dense, units: 64}")),
]
