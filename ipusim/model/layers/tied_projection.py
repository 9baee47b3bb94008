"""Project onto a vocabulary by the table of an earlier embedding."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
import numpy.typing as npt
from annotated_doc import Doc
from annotated_types import Ge, Le

from ipusim.base.errors import ModelError
from ipusim.model.layers.embedding import Embedding
from ipusim.model.layers.keys import EarlierLayer
from ipusim.model.layers.layer import Array, InHalves, Key, LayerCost, Parameters, Rest, Saved, Shape
from ipusim.model.layers.layers import Dense
from ipusim.model.layers.products import add_product


@dataclass(frozen=True)
class TiedProjection(InHalves):
    """Scores every token of a vocabulary by the table of an earlier embedding: x @ W.T + b.

    ``W`` of shape (units, inputs) belongs to the embedding: a single parameter with a single gradient, the sum of both
    uses (arXiv 1608.05859), as in BERT and GPT-2. Stages using the table share an IPU. The bias ``b`` of shape
    (units,) belongs to this layer and starts zero.
    """

    kind: ClassVar = "tied_projection"
    #: Whether the layer may be inside another layer, such as a residual block.
    may_be_inner: ClassVar = False

    units: Annotated[int, Ge(1), Le(10**7), Doc("outputs: rows of the table, the size of the vocabulary")]
    embedding: Annotated[EarlierLayer, Doc("the earlier embedding with the shared table")]
    use_bias: Annotated[bool, Doc("whether b is added")] = True

    def __post_init__(self) -> None:
        """Raise ModelError for units below 1."""
        if self.units < 1:
            raise ModelError(f"a tied projection needs at least 1 unit, got {self.units}")

    @property
    def shared_parameters(self) -> Mapping[str, tuple[str, str]]:
        """Mapping of ``W`` to the embedding's table."""
        return {"W": (self.embedding, "W")}

    def output_shape(self, input_shape: Shape) -> Shape:
        """Return the input's shape with ``units`` as last axis; raises ModelError for a scalar."""
        if not input_shape:
            raise ModelError("a tied projection needs an input of at least one axis, got a scalar for each sample")
        return (*input_shape[:-1], self.units)

    def parameter_shapes(self, input_shape: Shape) -> dict[str, Shape]:
        """Return the shapes of ``W`` and, with a bias, ``b``."""
        table = (self.units, input_shape[-1])
        return {"W": table, "b": (self.units,)} if self.use_bias else {"W": table}

    def initial_parameters(
        self, input_shape: Shape, rng: np.random.Generator, dtype: npt.DTypeLike
    ) -> dict[str, Array]:
        """Draw ``W`` like an embedding, for a layer used alone; ``b`` is zero."""
        parameters = Embedding(self.units, input_shape[-1]).initial_parameters((), rng, dtype)
        if self.use_bias:
            parameters["b"] = np.zeros(self.units, dtype)
        return parameters

    def forward(self, parameters: Parameters, x: Array, key: Key | None = None) -> tuple[Array, Saved]:
        """Return x @ W.T + b: (batch, ..., inputs) to (batch, ..., units)."""
        y = x @ parameters["W"].T
        if self.use_bias:
            y += parameters["b"]
        return y, x

    def backward_input(
        self, parameters: Parameters, saved_values: Saved, grad: Array, need_input_gradient: bool = True
    ) -> tuple[Array | None, Rest]:
        """Return dx = g @ W, and the rest: x and g."""
        return (grad @ parameters["W"] if need_input_gradient else None), (saved_values, grad)

    def backward_weights(self, parameters: Parameters, rest_values: Rest) -> dict[str, Array]:
        """Return dW = g.T @ x, for this use of the table only, and db = sum of g."""
        inputs, rows = self._rows(rest_values)
        gradients = {"W": rows.T @ inputs}
        if self.use_bias:
            gradients["b"] = np.add.reduce(rows, axis=0)
        return gradients

    def add_weight_gradients(self, parameters: Parameters, rest_values: Rest, totals: Parameters) -> None:
        """Add dW and db to ``totals``."""
        inputs, rows = self._rows(rest_values)
        add_product(totals["W"], rows, inputs)
        if self.use_bias:
            np.add(totals["b"], np.add.reduce(rows, axis=0), out=totals["b"])

    def _rows(self, rest_values: Rest) -> tuple[Array, Array]:
        """Return the inputs (batch * ..., inputs) and g (batch * ..., units)."""
        x, grad = rest_values
        return x.reshape(-1, x.shape[-1]), grad.reshape(-1, self.units)

    def cost(self, input_shape: Shape, batch: int, itemsize: int, need_input_gradient: bool = True) -> LayerCost:
        """Return the work of a dense layer with equal units."""
        return Dense(self.units, use_bias=self.use_bias).cost(input_shape, batch, itemsize, need_input_gradient)
