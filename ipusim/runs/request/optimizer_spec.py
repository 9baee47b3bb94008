"""The part of a scenario that says how weights are updated, once for each execution of the pipeline."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Discriminator, Field, Strict, Tag

from ipusim.runs.request.fields import Node, kind_of

_Beta = Annotated[float, Field(ge=0, lt=1)]
#: Part of a parameter's name; an empty one would be in every name.
_Part = Annotated[str, Field(min_length=1, max_length=256)]
_Bound = Annotated[float, Field(gt=0, le=1e9)]


class MapGradientSpec(Node, title="map_gradient"):
    """What is done to each micro-batch's gradient of each variable before it is accumulated, in this order."""

    decay: float = Field(default=0.0, ge=0, le=1, description="share of the variable that is added to its gradient")
    clip_by_value: _Bound | None = Field(default=None, description="each element is brought between -this and this")
    clip_by_norm: _Bound | None = Field(default=None, description="longer gradients are scaled down to this norm")


class _OptimizerSpec(Node):
    learning_rate: float = Field(ge=0, le=1e6, description="step size")
    map_gradient: MapGradientSpec | None = Field(
        default=None, description="what is done to each micro-batch's gradients before they are accumulated"
    )


class SgdSpec(_OptimizerSpec, title="sgd"):
    """Stochastic gradient descent: W -= learning_rate * gradient."""

    type: Literal["sgd"]


class MomentumSpec(_OptimizerSpec, title="momentum"):
    """Momentum: accumulator = momentum * accumulator + gradient; W -= learning_rate * accumulator."""

    type: Literal["momentum"]
    momentum: float = Field(ge=0, le=1, description="decay of the accumulator")


class _MomentsSpec(_OptimizerSpec):
    beta_1: _Beta = Field(default=0.9, description="decay of the mean of gradients")
    beta_2: _Beta = Field(default=0.999, description="decay of the mean of their squares")
    weight_decay: float = Field(default=0.0, ge=0, le=1, description="share of a weight that is added to its update")
    exclude_from_weight_decay: Annotated[tuple[_Part, ...], Strict(False)] = Field(
        default=(), max_length=64, description="parts of the names (layer/W) of parameters that are not decayed"
    )


class AdamSpec(_MomentsSpec, title="adam"):
    """Adam: steps along the mean of gradients over the root of the mean of their squares."""

    type: Literal["adam"]
    epsilon: float = Field(default=1e-8, gt=0, le=1, description="added to the root")


class LambSpec(_MomentsSpec, title="lamb"):
    """LAMB: steps as Adam does, of a length in proportion to that of the parameter."""

    type: Literal["lamb"]
    epsilon: float = Field(default=1e-6, gt=0, le=1, description="added to the root")


#: The weight update, once for each execution of the pipeline.
OptimizerSpec = Annotated[
    Annotated[SgdSpec, Tag("<sgd>")]
    | Annotated[MomentumSpec, Tag("<momentum>")]
    | Annotated[AdamSpec, Tag("<adam>")]
    | Annotated[LambSpec, Tag("<lamb>")],
    Discriminator(kind_of),
]
