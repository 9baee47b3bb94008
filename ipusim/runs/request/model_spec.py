"""Define the keys of a scenario's model: layers, user-defined stages, or stages known only by their cost."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Discriminator, Field, Strict, Tag, model_validator

from ipusim.runs.request.fields import Bytes, Cycles, Name, Node, expects
from ipusim.runs.request.layer_spec import MAX_LAYERS, CyclesSpec, LayerSpec, PythonSpec


class ModelSpec(Node, title="model"):
    """Model: named layers in order, the loss last."""

    layers: Annotated[tuple[LayerSpec, ...], Strict(False)] = Field(
        min_length=1, max_length=MAX_LAYERS, description="the layers in order; a loss, if any, is the last"
    )


class StageCyclesSpec(CyclesSpec, title="stage cycles"):
    """Costs of a stage's passes and weight update."""

    update: Cycles = Field(default=0, description="cycles of the tile clock, or time, of one weight update")
    backward_input: Cycles | None = Field(
        default=None,
        description="cycles or time of the half of the backward pass for the gradient of the input, in schedules with "
        "separate halves; default: backward less backward_weights, or half of backward",
    )
    backward_weights: Cycles | None = Field(
        default=None,
        description="cycles or time of the half of the backward pass for the gradients of the weights; default: "
        "backward less backward_input",
    )

    @model_validator(mode="after")
    def _check_single_half(self) -> Self:
        """Refuse a half of a backward pass if the whole is not given, or is shorter than the half."""
        halves = {"backward_input": self.backward_input, "backward_weights": self.backward_weights}
        values = [(name, cycles) for name, cycles in halves.items() if cycles is not None]
        if len(values) == 1:
            ((name, cycles),) = values
            if "backward" not in self.model_fields_set:
                (other_half,) = halves.keys() - {name}
                raise ValueError(f"expected backward or {other_half} in addition to {name}, got only {name}")
            if cycles > self.backward:
                raise ValueError(f"expected {name} of at most backward, {self.backward} cycles, got {cycles}")
        return self

    @property
    def whole_backward(self) -> int:
        """Cycles of the backward pass: ``backward``, or the sum of given halves."""
        halves = (self.backward_input, self.backward_weights)
        if "backward" in self.model_fields_set or halves[0] is None or halves[1] is None:
            return self.backward
        return halves[0] + halves[1]


class TimedStageSpec(StageCyclesSpec, title="timed"):
    """Stage known only by its cost: takes time and moves bytes, without arithmetic."""

    name: Name = Field(description="the stage's name in charts")
    output_bytes: Bytes = Field(default=0, description="bytes of one micro-batch's output for the next stage")
    label_bytes: Bytes = Field(default=0, description="bytes of labels in output_bytes, which have no gradient")
    gradient_bytes: Bytes = Field(
        default=0, description="bytes of the gradient of the stage's input, for the previous stage"
    )
    parameter_bytes: Bytes = Field(default=0, description="bytes of the stage's weights")
    state_bytes: Bytes = Field(default=0, description="bytes of the optimizer's state")
    accumulator_bytes: Bytes | None = Field(
        default=None, description="bytes of the gradient accumulators; default: the weights' bytes, in training"
    )
    input_bytes: Bytes | None = Field(
        default=None,
        description="bytes of the stage's input; default: the bytes of the previous stage's output, or of the infeed",
    )
    stash_bytes: Bytes = Field(
        default=0, description="bytes of one micro-batch kept from its forward pass to its backward pass"
    )
    rest_bytes: Bytes | None = Field(
        default=None,
        description="bytes of one micro-batch kept from the first half of its backward pass to the second half; "
        "default: stash_bytes",
    )


class NamedStageSpec(Node, title="named"):
    """Stage of layers with a name."""

    name: Name = Field(description="the stage's name in charts")
    layers: Annotated[tuple[Name, ...], Strict(False)] = Field(
        min_length=1, max_length=MAX_LAYERS, description="the names of its layers"
    )


def _stage_kind(value: object) -> str | None:
    if isinstance(value, list | tuple):
        return "<concurrent>" if any(isinstance(item, dict | Node) for item in value) else "<layers>"
    if not isinstance(value, dict | Node):
        return None
    keys = value if isinstance(value, dict) else ()
    if isinstance(value, PythonSpec) or "python" in keys:
        return "<python>"
    return "<named>" if isinstance(value, NamedStageSpec) or "layers" in keys else "<timed>"


#: Stage: names of layers, with or without a name of the stage; a Python function; costs; or the costs of several
#: concurrent stages.
StageSpec = Annotated[
    Annotated[
        tuple[Name, ...], Strict(False), Field(title="layers", min_length=1, max_length=MAX_LAYERS), Tag("<layers>")
    ]
    | Annotated[
        tuple[TimedStageSpec, ...],
        Strict(False),
        Field(title="concurrent", min_length=1, max_length=16),
        Tag("<concurrent>"),
    ]
    | Annotated[NamedStageSpec, Tag("<named>")]
    | Annotated[PythonSpec, Tag("<python>")]
    | Annotated[TimedStageSpec, Tag("<timed>")],
    Discriminator(_stage_kind),
    Field(json_schema_extra=expects("a list of layer names, or a mapping with a name, and layers, python or forward")),
]
