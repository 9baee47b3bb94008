"""Compute multi-head self-attention, the core of a transformer."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Final, Literal

import numpy as np
from annotated_doc import Doc
from annotated_types import Ge, Le

from ipusim.base.errors import ModelError
from ipusim.model.layers.dropout import DROP, DROP_SETS, check_rate, drop
from ipusim.model.layers.keys import Axis, Rate
from ipusim.model.layers.layer import (
    Array,
    Halves,
    InHalves,
    InnerSizes,
    Key,
    LayerCost,
    Parameters,
    Rest,
    Saved,
    Shape,
    all_later,
)
from ipusim.model.work import NO_VECTOR_WORK, Product, VectorWork, in_one, work_of

#: Forward work per score: scale by 1 / sqrt(key_dim), then a softmax: maximum, difference, exp, sum and quotient.
_SCORE: Final = VectorWork(elementwise=2, reductions=2, quotients=1, transcendentals=1)
#: Backward work per score: product with the weight, sum, difference, product, scale.
_SCORE_BACK: Final = VectorWork(elementwise=4, reductions=1)
#: Compute sets of the forward work on scores: scale (1), maximum (2), difference (1), exp (1), sum (2), inverse of the
#: sum and its cast to the scores' type (2), product with the scores (1). As in PopLibs (lib/popnn/NonLinearity.cpp), an
#: element-wise operation takes one set, a reduction over tiles takes two.
_SCORE_SETS: Final = 1 + 2 + 1 + 1 + 2 + 2 + 1
#: Compute sets of the backward work on scores: product (1), sum (2), difference (1), product (1), scale (1).
_SCORE_BACK_SETS: Final = 1 + 2 + 1 + 1 + 1


@dataclass(frozen=True)
class MultiHeadAttention(InHalves):
    """Self-attention: every position of a sample gathers information from all positions.

    Uses several heads, like Keras ``MultiHeadAttention(x, x)``: softmax(q k^T / sqrt(key_dim)) v per head, where q, k
    and v are x times ``Wq``, ``Wk`` and ``Wv`` of shape (elements, heads * key_dim). The concatenated results of the
    heads are multiplied by ``Wo`` of shape (heads * key_dim, elements). Kernels start Glorot uniform, biases ``bq``,
    ``bk``, ``bv`` and ``bo`` zero ("Attention Is All You Need", arXiv 1706.03762).
    """

    kind: ClassVar = "multi_head_attention"

    num_heads: Annotated[int, Ge(1), Le(1024), Doc("number of attention heads")]
    key_dim: Annotated[
        Axis | None, Doc("elements of a head; default: the elements of the input, divided among the heads")
    ] = None
    causal: Annotated[bool, Doc("whether each position ignores the positions after it")] = False
    use_bias: Annotated[bool, Doc("whether the projections have biases")] = True
    dropout: Annotated[Rate, Doc("share of the attention weights that are dropped in training")] = 0.0
    split_qkv: Annotated[
        bool, Doc("whether queries, keys and values are computed by a matrix product each, or by one joint product")
    ] = False
    padding_mask: Annotated[
        bool,
        Doc(
            "whether a mask of padded positions is added to the scores; only time is affected, as samples have no "
            "padding here"
        ),
    ] = False

    def __post_init__(self) -> None:
        """Raise ModelError for zero heads, empty heads, or a rate that is not a probability below 1."""
        if self.num_heads < 1 or (self.key_dim is not None and self.key_dim < 1):
            raise ModelError(
                f"expected at least 1 head of at least 1 element, got {self.num_heads} heads of {self.key_dim}"
            )
        check_rate(self.dropout)

    def _head_elements(self, elements: int) -> int:
        """Return the elements per head."""
        if self.key_dim is not None:
            return self.key_dim
        if elements % self.num_heads:
            raise ModelError(
                f"expected a number of heads that divides the input's {elements} elements, got {self.num_heads}; "
                "or give key_dim"
            )
        return elements // self.num_heads

    def output_shape(self, input_shape: Shape) -> Shape:
        """Return the input's shape; raises ModelError unless it is (positions, elements) and the heads fit."""
        if len(input_shape) != 2:
            raise ModelError(f"attention needs an input of two axes, positions and elements, got {len(input_shape)}")
        self._head_elements(input_shape[-1])
        return input_shape

    def parameter_shapes(self, input_shape: Shape) -> dict[str, Shape]:
        """Return the shapes of the kernels, then of the biases."""
        elements = input_shape[-1]
        inner = self.num_heads * self._head_elements(elements)
        shapes: dict[str, Shape] = {"Wq": (elements, inner), "Wk": (elements, inner), "Wv": (elements, inner)}
        shapes["Wo"] = (inner, elements)
        if self.use_bias:
            shapes |= {"bq": (inner,), "bk": (inner,), "bv": (inner,), "bo": (elements,)}
        return shapes

    def forward(self, parameters: Parameters, x: Array, key: Key | None = None) -> tuple[Array, Saved]:
        """Attend within samples: (batch, positions, elements) to the same shape."""
        q, k, v = (self._heads(self._affine(parameters, name, x)) for name in "qkv")
        scores = self._scores(parameters, q, k)  # (batch, heads, positions, positions)
        scores *= 1 / math.sqrt(q.shape[-1])
        if self.causal:
            scores[..., ~np.tri(x.shape[1], dtype=bool, like=x)] = -np.inf
        scores -= scores.max(axis=-1, keepdims=True)
        weights = np.exp(scores, out=scores)
        weights /= weights.sum(axis=-1, keepdims=True)
        context = join_heads(drop(key, weights, self.dropout) @ v)
        return self._affine(parameters, "o", context), (x, q, k, v, weights, context, key)

    def backward_input(
        self, parameters: Parameters, saved_values: Saved, grad: Array, need_input_gradient: bool = True
    ) -> tuple[Array | None, Rest]:
        """Return dx and, as the rest, the gradients of the results of the projections."""
        x, q, k, v, weights, context, key = saved_values
        dcontext = self._heads(grad @ parameters["Wo"].T)
        dscores = drop(key, dcontext @ v.swapaxes(-1, -2), self.dropout)
        dscores -= (dscores * weights).sum(axis=-1, keepdims=True)
        dscores *= weights
        dscores *= 1 / math.sqrt(q.shape[-1])
        dv = drop(key, weights, self.dropout).swapaxes(-1, -2) @ dcontext
        dq, dk, score_gradients = self._scores_backward(parameters, dscores, q, k)
        deltas = {"q": join_heads(dq), "k": join_heads(dk), "v": join_heads(dv)}
        dx = None
        for name, d in deltas.items() if need_input_gradient else ():
            part = d @ parameters[f"W{name}"].T
            dx = part if dx is None else dx + part
        return dx, (x, context, {**deltas, "o": grad}, score_gradients)

    def backward_weights(self, parameters: Parameters, rest_values: Rest) -> dict[str, Array]:
        """Return the gradients of the projections."""
        x, context, deltas, _ = rest_values
        gradients: dict[str, Array] = {}
        for name, d in deltas.items():
            gradients |= self._affine_gradients(name, context if name == "o" else x, d)
        return {name: gradients[name] for name in self.parameter_shapes(x.shape[1:]) if name in gradients}

    def _scores(self, parameters: Parameters, q: Array, k: Array) -> Array:
        """Return the similarity of queries and keys (batch, heads, positions, key_dim)."""
        scores: Array = q @ k.swapaxes(-1, -2)
        return scores

    def _scores_backward(
        self, parameters: Parameters, dscores: Array, q: Array, k: Array
    ) -> tuple[Array, Array, dict[str, Array]]:
        """Return the gradients of queries, keys and score parameters, which plain attention lacks."""
        return dscores @ k, dscores.swapaxes(-1, -2) @ q, {}

    def _affine(self, parameters: Parameters, name: str, x: Array) -> Array:
        y = x @ parameters[f"W{name}"]
        if self.use_bias:
            y += parameters[f"b{name}"]
        return y

    def _affine_gradients(self, name: str, x: Array, grad: Array) -> dict[str, Array]:
        rows = grad.reshape(-1, grad.shape[-1])
        kernel = {f"W{name}": x.reshape(-1, x.shape[-1]).T @ rows}
        return kernel | {f"b{name}": rows.sum(axis=0)} if self.use_bias else kernel

    def _heads(self, side_by_side: Array) -> Array:
        """Return (batch, positions, heads * key_dim) as (batch, heads, positions, key_dim)."""
        return side_by_side.reshape(*side_by_side.shape[:2], self.num_heads, -1).swapaxes(1, 2)

    def inner_sizes(self, input_shape: Shape) -> InnerSizes:
        """Return the sizes of attention weights, queries, keys, values and head results, and an input copy."""
        positions, elements = input_shape
        inner = self.parameter_shapes(input_shape)["Wo"][0]
        return InnerSizes(self.num_heads * positions**2 + 4 * positions * inner, positions * elements)

    def cost(self, input_shape: Shape, batch: int, itemsize: int, need_input_gradient: bool = True) -> LayerCost:
        """Return the work of both passes, with dimensions R, D, I and S.

        R = batch x positions, D elements, I = heads x key_dim, S = R x positions x heads.

        Forward: 4*R*D*I + 2*S*key_dim multiply-accumulates; the projections of queries, keys and values are one product
        or three. Then a softmax of S scores, gathered by row.

        Backward: 4*R*D*I for the gradients of the kernels, 4*S*key_dim for the scores, R*D*I for the head results and,
        if needed, 3*R*D*I for dx. The gradients of kernels and biases form the second half.

        Causal attention also computes every score (assumed), and a mask is a sum per score. Arrays between two steps
        are written and read once.
        """
        positions, elements = input_shape
        head_elements = self._head_elements(elements)
        rows, inner = batch * positions, self.num_heads * head_elements
        x, heads, kernels = rows * elements, rows * inner, 4 * elements * inner
        biases = 3 * inner + elements if self.use_bias else 0
        scores, mask_count = batch * self.num_heads * positions**2, self.causal + self.padding_mask
        drops, drop_sets = (scores * DROP, DROP_SETS) if self.dropout else (NO_VECTOR_WORK, 0)
        biased = 3 * heads + x if self.use_bias else 0
        groups, projection = batch * self.num_heads, Product(rows, inner, elements)
        q_by_k = Product(positions, head_elements, positions, groups)
        weights_by_v = Product(positions, positions, head_elements, groups)
        forward = work_of(
            itemsize,
            products=(*self._projections(Product(rows, elements, inner), "n"), q_by_k, weights_by_v, projection),
            vector=scores * _SCORE + drops + VectorWork(scores * mask_count + biased),
            accesses=2 * x + kernels + biases + 8 * heads + 2 * scores,
            exchanged=scores,
            compute_sets=_SCORE_SETS + drop_sets + mask_count + 2 * self.use_bias,
        )
        added, add_sets = (2 * x, 2) if self.split_qkv and need_input_gradient else (0, 0)  # adds three dx
        weight_products = (*self._projections(Product(elements, rows, inner), "n"), Product(inner, rows, elements))
        head_products = (Product(rows, elements, inner), q_by_k, weights_by_v, weights_by_v, weights_by_v)
        dx_products = self._projections(Product(rows, inner, elements), "k") if need_input_gradient else ()
        first = work_of(
            itemsize,
            products=(*head_products, *dx_products),
            vector=scores * _SCORE_BACK + 2 * drops + VectorWork(added),
            accesses=2 * x + 11 * heads + 3 * scores + kernels,
            exchanged=scores,
            compute_sets=_SCORE_BACK_SETS + 2 * drop_sets + add_sets,
        )
        second = work_of(
            itemsize,
            products=weight_products,
            vector=VectorWork(reductions=biased),
            accesses=2 * x + 4 * heads + kernels + biases,
            compute_sets=4 * self.use_bias,
        )
        sram_bytes = ((2 + need_input_gradient) * x + 12 * heads + 3 * scores + 2 * kernels + biases) * itemsize
        backward = in_one(
            first, second, (*head_products, *weight_products, *dx_products), sram_bytes, first.exchange_bytes
        )
        return LayerCost(forward, backward, Halves(first, second) if need_input_gradient else all_later(backward))

    def _projections(self, product: Product, dimension: Literal["n", "k"]) -> tuple[Product, ...]:
        """Return the products for queries, keys and values, merged or separate, given a separate ``product``.

        Merged products have three times the columns, or backward, three times the summed inputs.
        """
        return (product,) * 3 if self.split_qkv else (replace(product, **{dimension: 3 * getattr(product, dimension)}),)


def join_heads(heads: Array) -> Array:
    """Return (batch, heads, positions, key_dim) as (batch, positions, heads * key_dim)."""
    return heads.swapaxes(1, 2).reshape(len(heads), heads.shape[2], -1)
