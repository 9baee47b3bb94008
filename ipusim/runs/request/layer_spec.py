"""Define the keys of a scenario's layers: a class of keys for each kind of layer.

The key ``type``, ``python`` or ``repeat`` of an item selects the class of its keys. Classes of typed layers are derived
from the table of layers (:mod:`ipusim.model.layers.table`), with Keras' names.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal

from pydantic import Discriminator, Field, Strict, Tag

from ipusim.model.layers.table import LayerRow, rows
from ipusim.runs.request.derived import RowSpec, spec_of
from ipusim.runs.request.fields import Choice, Cycles, Name, Node, PythonName, Shape, expects, kind_of
from ipusim.runs.request.kinds import OneOfKinds

#: Maximum number of layers of a model, repetitions included.
MAX_LAYERS: Final = 1024


class BuiltSpec(RowSpec):
    """Layer or loss of the table.

    Attributes:
        row: row of the table.
    """

    row: ClassVar[LayerRow]

    name: Name = Field(description="the layer's name, for splits, weights and charts")
    trainable: bool = Field(
        default=True,
        description="whether its parameters learn; false freezes all parameters of a layer or block: they have no "
        "gradient and no optimizer state, and the backward pass ends at the first layer that learns",
    )


class CyclesSpec(Node, title="cycles"):
    """Measured or assumed costs of a stage's passes, in place of the cost model's figures."""

    forward: Cycles = Field(description="cycles of the tile clock, or time, of the forward pass of one micro-batch")
    backward: Cycles = Field(
        default=0, description="cycles of the tile clock, or time, of the backward pass of one micro-batch"
    )


def _cost_kind(value: object) -> str:
    return "<cycles>" if isinstance(value, dict | Node) else "<counted>"


#: Cost of a Python function: counted from its operations, or given.
Cost = Annotated[
    Annotated[Literal["counted"], Choice(("counted",)), Field(title="counted"), Tag("<counted>")]
    | Annotated[CyclesSpec, Tag("<cycles>")],
    Discriminator(_cost_kind),
]


class PythonSpec(Node, title="python"):
    """Layer, or whole stage, given by a Python function of arrays; ``autograd`` differentiates the function."""

    name: Name = Field(description="the layer's or stage's name, for splits, weights and charts")
    python: PythonName = Field(description="the function: file.py:function, the file relative to the scenario's folder")
    parameters: dict[Name, Shape] = Field(
        default={}, max_length=64, description="shape of each trainable parameter by name"
    )
    fill: dict[Name, float] = Field(
        default={},
        max_length=64,
        description="constant initial value of a parameter; default: Glorot uniform, or zero for one axis",
    )
    loss: bool = Field(
        default=False,
        description="whether the function is the loss, the last layer, with outputs and labels as arguments",
    )
    cost: Cost = Field(
        default="counted", description="cycles of the passes; default: counted from the function's operations"
    )


def _entry_kind(value: object) -> str | None:
    return "<repeat>" if isinstance(value, dict) and "repeat" in value else kind_of(value)


@cache
def _spec_of(row: LayerRow) -> type[BuiltSpec]:
    return spec_of(row, BuiltSpec, InnerLayerSpec)


@cache
def _kinds(*, inner: bool = False) -> dict[str, Callable[[], type[Node]]]:
    """Return the layers of the table, and a function as a layer.

    With ``within``, only layers allowed within another layer.
    """
    table_rows = (row for row in rows() if row.may_be_inner or not inner)
    return {f"<{row.kind}>": partial(_spec_of, row) for row in table_rows} | {"<python>": lambda: PythonSpec}


_EXPECTATION: Final = Field(json_schema_extra=expects("a layer, such as {name: hidden, type: dense, units: 64}"))
if TYPE_CHECKING:
    InnerLayerSpec = BuiltSpec | PythonSpec
else:
    #: Layer within another layer.
    InnerLayerSpec = Annotated[Any, OneOfKinds(kind_of, partial(_kinds, inner=True)), _EXPECTATION]


class RepeatSpec(Node, title="repeat"):
    """Layers repeated several times in a row: names of layers get the number of the repetition, from 0."""

    repeat: int = Field(ge=1, le=MAX_LAYERS, description="number of times that the layers repeat")
    layers: Annotated[tuple[LayerSpec, ...], Strict(False)] = Field(
        min_length=1,
        max_length=MAX_LAYERS,
        description="the layers in order; repetitions of `attention` are called `attention0`, `attention1` and so on, "
        "repetitions of `conv2` are called `conv2_0` and so on; `from` with the name of a repeated layer means the "
        "layer of the same repetition",
    )


@cache
def _entries() -> dict[str, Callable[[], type[Node]]]:
    return _kinds() | {"<repeat>": lambda: RepeatSpec}


if TYPE_CHECKING:
    LayerSpec = BuiltSpec | PythonSpec | RepeatSpec
else:
    #: Layer of a model, including layers only allowed at the top; or repeated layers.
    LayerSpec = Annotated[Any, OneOfKinds(_entry_kind, _entries), _EXPECTATION]
    RepeatSpec.model_rebuild()
