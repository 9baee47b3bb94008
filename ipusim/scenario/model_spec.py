"""The part of a scenario that says what is executed: layers, stages of one's own, stages known by cost, optimizer."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Discriminator, Field, Strict, Tag

from ipusim.scenario.fields import Axis, Bytes, Choice, Cycles, Name, Node, PythonName, Shape, expects, kind_of


class FlattenSpec(Node, title="flatten"):
    """Joins all axes of a sample into one."""

    name: Name = Field(description="the layer's name, for splits, weights and charts")
    type: Literal["flatten"]


class DenseSpec(Node, title="dense"):
    """A fully connected layer: activation(x @ W + b)."""

    name: Name = Field(description="the layer's name, for splits, weights and charts")
    type: Literal["dense"]
    units: Axis = Field(description="outputs of the layer")
    activation: Annotated[Literal["identity", "relu", "tanh"], Choice(("identity", "relu", "tanh"))] = Field(
        default="identity", description="function of each output"
    )
    use_bias: bool = Field(default=True, description="whether b is added")


class SoftmaxCrossEntropySpec(Node, title="softmax_cross_entropy"):
    """The loss of a classifier: mean over the micro-batch of -log softmax(logits)[label]."""

    name: Name = Field(description="the layer's name, for splits and charts")
    type: Literal["softmax_cross_entropy"]


class MeanSquaredErrorSpec(Node, title="mean_squared_error"):
    """The loss of a regression: mean over all elements of the micro-batch of (output - target)^2."""

    name: Name = Field(description="the layer's name, for splits and charts")
    type: Literal["mean_squared_error"]


class CyclesSpec(Node, title="cycles"):
    """What the passes of a stage cost, as measured or assumed, instead of the cost model's figures."""

    forward: Cycles = Field(description="cycles of the tile clock for the forward pass of one micro-batch")
    backward: Cycles = Field(default=0, description="cycles of the tile clock for the backward pass of one micro-batch")


class StageCyclesSpec(CyclesSpec, title="stage cycles"):
    """What the passes and the weight update of a stage cost."""

    update: Cycles = Field(default=0, description="cycles of the tile clock for one weight update")


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


#: One layer of a model, told apart by ``type`` or ``python``.
LayerSpec = Annotated[
    Annotated[FlattenSpec, Tag("<flatten>")]
    | Annotated[DenseSpec, Tag("<dense>")]
    | Annotated[SoftmaxCrossEntropySpec, Tag("<softmax_cross_entropy>")]
    | Annotated[MeanSquaredErrorSpec, Tag("<mean_squared_error>")]
    | Annotated[PythonSpec, Tag("<python>")],
    Discriminator(kind_of),
    Field(json_schema_extra=expects("a layer, such as {name: hidden, type: dense, units: 64}")),
]


class ModelSpec(Node, title="model"):
    """The model: named layers in order, the loss last."""

    layers: Annotated[tuple[LayerSpec, ...], Strict(False)] = Field(
        min_length=1, max_length=1024, description="the layers in order; a loss, if any, is the last"
    )


class TimedStageSpec(StageCyclesSpec, title="timed"):
    """A stage known by its cost alone: it takes time and moves bytes, and computes nothing."""

    name: Name = Field(description="the stage's name in charts")
    output_bytes: Bytes = Field(default=0, description="bytes of one micro-batch that leave for the next stage")
    gradient_bytes: Bytes = Field(default=0, description="bytes of the gradient of the stage's input, which go back")
    parameter_bytes: Bytes = Field(default=0, description="bytes of the stage's weights")


def _stage_kind(value: object) -> str | None:
    if isinstance(value, list | tuple):
        return "<layers>"
    if isinstance(value, dict | Node):
        return (
            "<python>"
            if isinstance(value, PythonSpec) or (isinstance(value, dict) and "python" in value)
            else "<timed>"
        )
    return None


#: One stage: names of layers, a Python function, or a cost alone.
StageSpec = Annotated[
    Annotated[tuple[Name, ...], Strict(False), Field(title="layers", min_length=1, max_length=1024), Tag("<layers>")]
    | Annotated[PythonSpec, Tag("<python>")]
    | Annotated[TimedStageSpec, Tag("<timed>")],
    Discriminator(_stage_kind),
    Field(json_schema_extra=expects("a list of layer names, or a mapping with a name, and python or forward")),
]


class SgdSpec(Node, title="sgd"):
    """Stochastic gradient descent: W -= learning_rate * gradient."""

    type: Literal["sgd"]
    learning_rate: float = Field(ge=0, le=1e6, description="step size")


class MomentumSpec(Node, title="momentum"):
    """Momentum: accumulator = momentum * accumulator + gradient; W -= learning_rate * accumulator."""

    type: Literal["momentum"]
    learning_rate: float = Field(ge=0, le=1e6, description="step size")
    momentum: float = Field(ge=0, le=1, description="decay of the accumulator")


#: The weight update, once for each execution of the pipeline.
OptimizerSpec = Annotated[
    Annotated[SgdSpec, Tag("<sgd>")] | Annotated[MomentumSpec, Tag("<momentum>")], Discriminator(kind_of)
]
