"""Run branches of layers on a common input, and concatenate their outputs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
import numpy.typing as npt
from annotated_doc import Doc
from annotated_types import Len

from ipusim.base.errors import ModelError
from ipusim.model.layers import chain
from ipusim.model.layers.concatenate import joining
from ipusim.model.layers.keys import ScenarioName
from ipusim.model.layers.layer import Array, Key, LayerCost, Parameters, Rest, Saved, Shape
from ipusim.model.layers.network import chain_shapes
from ipusim.model.work import VectorWork, work_of


@dataclass(frozen=True)
class Branch(chain.InChains):
    """Layers in order, combined into a layer.

    Parameters of inner layers carry the inner layer's name: ``inner/W``.

    Attributes:
        layers: the layers, at least one.
        number: position among the branches, part of the seed of draws.
    """

    layers: chain.Chain
    number: int = 0

    def __post_init__(self) -> None:
        """Raise ModelError for no layers."""
        if not self.layers:
            raise ModelError(f"branch {self.number} needs at least one layer, got none")

    def output_shape(self, input_shape: Shape) -> Shape:
        """Return the shape of the last layer's output."""
        return chain_shapes(self.layers, input_shape)[-1]

    @property
    def chains(self) -> tuple[chain.Chain, ...]:
        """The layers."""
        return (self.layers,)

    def initial_parameters(
        self, input_shape: Shape, rng: np.random.Generator, dtype: npt.DTypeLike
    ) -> dict[str, Array]:
        """Draw the inner parameters, the same whether the branch is alone or beside other branches."""
        branch_rng = np.random.default_rng([int(rng.integers(2**63)), self.number])
        return super().initial_parameters(input_shape, branch_rng, dtype)

    def forward(self, parameters: Parameters, x: Array, key: Key | None = None) -> tuple[Array, Saved]:
        """Run the layers in order; a layer's key is ``key``, the branch's number, and the layer's position."""
        return chain.run_forward(self.layers, parameters, x, None if key is None else (*key, self.number), 0)

    def backward_input(
        self, parameters: Parameters, saved_values: Saved, grad: Array, need_input_gradient: bool = True
    ) -> tuple[Array | None, Rest]:
        """Run the first halves of the backward passes in reverse."""
        return chain.run_backward_input(self.layers, parameters, saved_values, grad, need_input_gradient)

    def backward_weights(self, parameters: Parameters, rest_values: Rest) -> dict[str, Array]:
        """Run the second halves."""
        return chain.run_backward_weights(self.layers, parameters, rest_values)

    def cost(self, input_shape: Shape, batch: int, itemsize: int, need_input_gradient: bool = True) -> LayerCost:
        """Return the consecutive work of the inner layers."""
        costs = chain.costs(self.chains, input_shape, batch, itemsize, need_input_gradient)
        return chain.cost_in_turn(costs, itemsize, need_input_gradient)


@dataclass(frozen=True)
class Parallel(chain.InChains):
    """Branches that take the same input; their outputs are joined along the last axis.

    If the layer is a stage, the branches can run on separate IPUs, like Graphcore's concurrent stages.
    """

    kind: ClassVar = "parallel"
    #: Whether the layer may be inside another layer, such as a residual block.
    may_be_inner: ClassVar = False

    branches: Annotated[
        tuple[Annotated[chain.Chain, ScenarioName("branch"), Len(1, 64)], ...],
        Len(2, 16),
        Doc("the layers in order, of each branch"),
    ]

    def __post_init__(self) -> None:
        """Raise ModelError for fewer than two branches, duplicate names, or names containing a slash."""
        if len(self.branches) < 2:
            raise ModelError(f"expected at least two branches, got {len(self.branches)}")
        chain.check_names((named_layer for layers in self.branches for named_layer in layers), "parallel branches")

    @property
    def parts(self) -> tuple[Branch, ...]:
        """Branches as separate layers."""
        return tuple(Branch(layers, number) for number, layers in enumerate(self.branches))

    def output_shape(self, input_shape: Shape) -> Shape:
        """Return the joined shape; raises ModelError if branches differ in more than the last axis."""
        shapes = [part.output_shape(input_shape) for part in self.parts]
        if len({shape[:-1] for shape in shapes}) > 1 or not all(shapes):
            raise ModelError(f"expected branches whose outputs differ in the last axis alone, got {shapes}")
        return (*shapes[0][:-1], sum(shape[-1] for shape in shapes))

    @property
    def chains(self) -> tuple[chain.Chain, ...]:
        """Layers of the branches."""
        return self.branches

    def initial_parameters(
        self, input_shape: Shape, rng: np.random.Generator, dtype: npt.DTypeLike
    ) -> dict[str, Array]:
        """Draw the branches' parameters from the same state of ``rng``, as for single branches."""
        state = rng.bit_generator.state
        parameters: dict[str, Array] = {}
        for part in self.parts:
            rng.bit_generator.state = state
            parameters |= part.initial_parameters(input_shape, rng, dtype)
        return parameters

    def forward(self, parameters: Parameters, x: Array, key: Key | None = None) -> tuple[Array, Saved]:
        """Return the branches' outputs for ``x`` (batch, ...), joined."""
        outputs = [part.forward(parameters, x, key) for part in self.parts]
        widths = [y.shape[-1] for y, _ in outputs]
        return np.concatenate([y for y, _ in outputs], axis=-1), ([saved_values for _, saved_values in outputs], widths)

    def backward_input(
        self, parameters: Parameters, saved_values: Saved, grad: Array, need_input_gradient: bool = True
    ) -> tuple[Array | None, Rest]:
        """Return the sum of the branches' input gradients, and the rest per branch."""
        branch_saved, widths = saved_values
        branch_rests: list[Rest] = []
        total: Array | None = None
        for part, part_saved, piece in zip(self.parts, branch_saved, _pieces(grad, widths), strict=True):
            dx, rest_values = part.backward_input(parameters, part_saved, piece, need_input_gradient)
            branch_rests.append(rest_values)
            if dx is not None:
                total = dx if total is None else total + dx
        return total, branch_rests

    def backward_weights(self, parameters: Parameters, rest_values: Rest) -> dict[str, Array]:
        """Return the gradients of the inner parameters."""
        gradients: dict[str, Array] = {}
        for part, part_rest in zip(self.parts, rest_values, strict=True):
            gradients |= part.backward_weights(parameters, part_rest)
        return gradients

    def cost(self, input_shape: Shape, batch: int, itemsize: int, need_input_gradient: bool = True) -> LayerCost:
        """Return the work: branches in turn, concatenation of outputs, and a gradient sum per further branch."""
        costs = [part.cost(input_shape, batch, itemsize, need_input_gradient) for part in self.parts]
        sums = (len(costs) - 1) * batch * math.prod(input_shape)
        join = joining(batch * math.prod(self.output_shape(input_shape)), itemsize)
        add = work_of(itemsize, vector=VectorWork(sums), accesses=3 * sums)
        return chain.cost_in_turn(
            costs, itemsize, need_input_gradient, forward_end=(join,), backward_begin=(join,), backward_end=(add,)
        )


def _pieces(array: Array, widths: Sequence[int]) -> Iterator[Array]:
    """Yield copies of adjacent pieces along the last axis."""
    end = 0
    for width in widths:
        start, end = end, end + width
        yield array[..., start:end].copy()
