"""Layers in order inside another layer: their parameters under their names, and their passes one after another."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from ipusim.base.errors import ModelError
from ipusim.model.layers.layer import (
    Array,
    Halves,
    InHalves,
    InnerSizes,
    Key,
    Layer,
    LayerCost,
    Parameters,
    Rest,
    Saved,
    Shape,
    all_later,
    inner_sizes,
)
from ipusim.model.layers.network import NamedLayer, chain_shapes
from ipusim.model.work import Work, in_turn

#: Layers in order.
Chain = tuple[NamedLayer[Layer], ...]


def check_names(layers: Iterable[NamedLayer[Layer]], where: str) -> None:
    """Raise ModelError for names in ``where`` that are not distinct and without a slash."""
    seen: set[str] = set()
    for named in layers:
        if not named.name or "/" in named.name or named.name in seen:
            raise ModelError(f"expected distinct names without '/' in {where}, got {named.name!r}")
        seen.add(named.name)


def own(parameters: Parameters, name: str) -> dict[str, Array]:
    """Return the parameters of the inner layer ``name`` under its own names."""
    return {short: parameters[key] for short, key in _keys(tuple(parameters), name)}


@lru_cache(maxsize=1 << 12)
def _keys(names: tuple[str, ...], layer: str) -> tuple[tuple[str, str], ...]:
    """Return the own name and the whole name of each parameter of a layer.

    Every pass of every micro-batch looks them up: looked for anew, they took 3.0 us of 25 us of a layer norm's forward
    pass on 16 x 8 x 32 elements, and 1.2 us as it is.
    """
    prefix = f"{layer}/"
    return tuple((name.removeprefix(prefix), name) for name in names if name.startswith(prefix))


def with_shapes(chain: Chain, input_shape: Shape) -> Iterator[tuple[NamedLayer[Layer], Shape]]:
    """Yield each layer and the shape of its input."""
    return zip(chain, chain_shapes(chain, input_shape), strict=False)


def run_forward(chain: Chain, parameters: Parameters, x: Array, key: Key | None, first: int) -> tuple[Array, Saved]:
    """Run the layers in order; the key of each is ``key`` and its place, counted from ``first``."""
    saved = []
    for position, named in enumerate(chain, first):
        x, of_layer = named.layer.forward(own(parameters, named.name), x, None if key is None else (*key, position))
        saved.append(of_layer)
    return x, saved


def run_backward_input(
    chain: Chain, parameters: Parameters, saved: Saved, grad: Array | None, need_input_gradient: bool
) -> tuple[Array | None, list[Rest]]:
    """Run the first halves of the backward passes in reverse; return the gradient, and what each layer leaves."""
    rests: list[Rest] = [None] * len(chain)
    for index in range(len(chain) - 1, -1, -1):
        named = chain[index]
        assert grad is not None  # only the first layer may go without
        grad, rests[index] = named.layer.backward_input(
            own(parameters, named.name), saved[index], grad, need_input_gradient or index > 0
        )
    return (grad if need_input_gradient else None), rests


def run_backward_weights(chain: Chain, parameters: Parameters, rests: list[Rest]) -> dict[str, Array]:
    """Run the second halves; gradients come in the order of the layers."""
    return {
        f"{named.name}/{name}": array
        for named, rest in zip(chain, rests, strict=True)
        for name, array in named.layer.backward_weights(own(parameters, named.name), rest).items()
    }


def costs(
    chains: Iterable[Chain], input_shape: Shape, batch: int, itemsize: int, need_input_gradient: bool
) -> list[LayerCost]:
    """Return the work of each layer of chains."""
    return [
        named.layer.cost(shape, batch, itemsize, need_input_gradient or index > 0)
        for chain in chains
        for index, (named, shape) in enumerate(with_shapes(chain, input_shape))
    ]


def cost_in_turn(
    costs: Sequence[LayerCost],
    itemsize: int,
    need_input_gradient: bool,
    behind: tuple[Work, ...] = (),
    before: tuple[Work, ...] = (),
    after: tuple[Work, ...] = (),
) -> LayerCost:
    """Return the cost of layers in turn as that of one.

    Work ``behind`` them ends the forward pass. The backward pass begins with the work ``before`` theirs and ends with
    that ``after``, which the gradient of the input alone needs; in halves, both stand in the first one.
    """
    last = after if need_input_gradient else ()
    forward = in_turn((*(cost.forward for cost in costs), *behind), itemsize)
    backward = in_turn((*before, *(cost.backward for cost in reversed(costs)), *last), itemsize)
    halves = [cost.halves for cost in reversed(costs)]
    first = in_turn((*before, *(half.input for half in halves), *last), itemsize)
    second = in_turn(tuple(half.weights for half in halves), itemsize)
    return LayerCost(forward, backward, Halves(first, second) if need_input_gradient else all_later(backward))


class InChains(InHalves, ABC):
    """A layer made of others, in chains side by side; its parameters are theirs, under their names: ``inner/W``."""

    @property
    @abstractmethod
    def chains(self) -> tuple[Chain, ...]:
        """The layers in order, of each chain."""

    def parameter_shapes(self, input_shape: Shape) -> dict[str, Shape]:
        """Return the shapes of all inner parameters."""
        return {
            f"{named.name}/{name}": shape
            for chain in self.chains
            for named, before in with_shapes(chain, input_shape)
            for name, shape in named.layer.parameter_shapes(before).items()
        }

    def initial_parameters(
        self, input_shape: Shape, rng: np.random.Generator, dtype: npt.DTypeLike
    ) -> dict[str, Array]:
        """Draw the inner parameters, one layer after another."""
        return {
            f"{named.name}/{name}": array
            for chain in self.chains
            for named, before in with_shapes(chain, input_shape)
            for name, array in named.layer.initial_parameters(before, rng, dtype).items()
        }

    def inner_sizes(self, input_shape: Shape) -> InnerSizes:
        """Return the stash of all layers with outputs, and the largest tensor that is there within a pass alone."""
        saved, passing = 0, 0
        for chain in self.chains:
            shapes = chain_shapes(chain, input_shape)
            inside = [inner_sizes(named.layer, shape) for named, shape in zip(chain, shapes, strict=False)]
            saved += sum(math.prod(shape) for shape in shapes[1:]) + sum(sizes.saved for sizes in inside)
            passing = max([passing, *(sizes.passing for sizes in inside)])
        return InnerSizes(saved, passing)
