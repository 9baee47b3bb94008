"""Compute self-attention with relative positions: queries are also compared with positions."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from ipusim.model.layers.attention import MultiHeadAttention, join_heads
from ipusim.model.layers.layer import Array, Halves, InnerSizes, LayerCost, Parameters, Rest, Shape, all_later
from ipusim.model.work import Product, VectorWork, Work, in_one, work_of


@dataclass(frozen=True)
class RelativeMultiHeadAttention(MultiHeadAttention):
    """Self-attention with additional scores of queries and positions, as in Transformer-XL and Conformers.

    The scores are (q + content_bias) k^T + (q + position_bias) p^T, where p is a table of sines and cosines of the
    positions times ``Wp`` of shape (elements, heads * key_dim). Both biases have shape (heads, key_dim) and start
    Glorot uniform ("Transformer-XL", arXiv 1901.02860, without the shift of rows, like WeNet's
    ``RelPositionMultiHeadedAttention``). Everything else follows ``multi_head_attention``.
    """

    kind: ClassVar = "relative_multi_head_attention"

    def parameter_shapes(self, input_shape: Shape) -> dict[str, Shape]:
        """Return the shapes of the attention's parameters, then of ``Wp`` and both biases."""
        shapes = super().parameter_shapes(input_shape)
        biases = (self.num_heads, shapes["Wq"][1] // self.num_heads)
        return shapes | {"Wp": shapes["Wq"], "content_bias": biases, "position_bias": biases}

    def _scores(self, parameters: Parameters, q: Array, k: Array) -> Array:
        content, position = self._biased(parameters, q)
        scores: Array = content @ k.swapaxes(-1, -2)
        scores += position @ self._position_keys(parameters, q).swapaxes(-1, -2)
        return scores

    def _scores_backward(
        self, parameters: Parameters, dscores: Array, q: Array, k: Array
    ) -> tuple[Array, Array, dict[str, Array]]:
        content, position = self._biased(parameters, q)
        dcontent, dposition = dscores @ k, dscores @ self._position_keys(parameters, q)
        return (
            dcontent + dposition,
            dscores.swapaxes(-1, -2) @ content,
            {
                "keys": (dscores.swapaxes(-1, -2) @ position).sum(axis=0),
                "content_bias": dcontent.sum(axis=(0, 2)),
                "position_bias": dposition.sum(axis=(0, 2)),
            },
        )

    def backward_weights(self, parameters: Parameters, rest_values: Rest) -> dict[str, Array]:
        """Return the gradients of the projections, of ``Wp`` and of both biases."""
        _, _, _, score_gradients = rest_values
        keys = join_heads(score_gradients["keys"][None])[0]
        table = _table(len(keys), len(parameters["Wp"]), keys.dtype)
        biases = {name: score_gradients[name] for name in ("content_bias", "position_bias")}
        return super().backward_weights(parameters, rest_values) | {"Wp": table.T @ keys} | biases

    def _biased(self, parameters: Parameters, q: Array) -> tuple[Array, Array]:
        """Return queries (batch, heads, positions, key_dim) with either bias."""
        return q + parameters["content_bias"][:, None], q + parameters["position_bias"][:, None]

    def _position_keys(self, parameters: Parameters, q: Array) -> Array:
        """Return the keys of positions: (1, heads, positions, key_dim)."""
        kernel = parameters["Wp"]
        return self._heads((_table(q.shape[2], len(kernel), q.dtype) @ kernel)[None])

    def inner_sizes(self, input_shape: Shape) -> InnerSizes:
        """Return the sizes of attention, plus biased queries, keys of positions and position scores."""
        saved_elements, passing = super().inner_sizes(input_shape)
        positions, inner = input_shape[0], self.parameter_shapes(input_shape)["Wp"][1]
        return InnerSizes(saved_elements, passing + 3 * positions * inner + self.num_heads * positions**2)

    def cost(self, input_shape: Shape, batch: int, itemsize: int, need_input_gradient: bool = True) -> LayerCost:
        """Return the work of attention plus the work of P positions; symbols are those of the attention's cost.

        Forward: P*D*I + S*key_dim further multiply-accumulates, in two products; the samples share the keys of
        positions. The vector work is a sum per bias, and a sum of both parts per score. Backward: P*D*I again for Wp,
        in the second half, and twice S*key_dim; a sum of both gradients of the queries, and sums for both biases.
        """
        attention = super().cost(input_shape, batch, itemsize, need_input_gradient)
        positions, elements = input_shape
        rows, head_elements = batch * positions, self._head_elements(elements)
        inner = self.num_heads * head_elements
        heads, scores, keys = rows * inner, rows * positions * self.num_heads, positions * inner
        table = positions * elements + elements * inner
        forward = work_of(
            itemsize,
            products=(Product(positions, elements, inner), Product(rows, head_elements, positions, self.num_heads)),
            vector=VectorWork(2 * heads + scores),
            accesses=table + 2 * keys + 4 * heads + 3 * scores,
            exchanged=scores,
            compute_sets=2 + 1,
        )
        first = work_of(
            itemsize,
            products=(
                Product(rows, positions, head_elements, self.num_heads),
                Product(positions, rows, head_elements, self.num_heads),
            ),
            vector=VectorWork(heads, reductions=2 * heads),
            accesses=2 * keys + 5 * heads + 2 * scores,
            exchanged=heads,
            compute_sets=1 + 2 * 2,
        )
        second = work_of(
            itemsize, products=(Product(elements, positions, inner),), accesses=table + keys, compute_sets=0
        )
        backward = _add_work(attention.backward, _add_work(first, second))
        halves = attention.halves
        total_halves = Halves(_add_work(halves.input, first), _add_work(halves.weights, second))
        return LayerCost(
            _add_work(attention.forward, forward),
            backward,
            total_halves if need_input_gradient else all_later(backward),
        )


@lru_cache(maxsize=16)
def _table(positions: int, elements: int, dtype: npt.DTypeLike) -> Array:
    """Return alternating sines and cosines, (positions, elements) ("Attention Is All You Need", 3.5).

    Element 2 i is the sine of position / 10000^(2 i / elements), element 2 i + 1 the cosine.
    """
    position, element = np.arange(positions)[:, None], np.arange(elements)
    angle = position / 10_000.0 ** (element // 2 * 2 / elements)
    return np.where(element % 2, np.cos(angle), np.sin(angle)).astype(dtype)


def _add_work(first: Work, second: Work) -> Work:
    """Return the combined work of two parts of a layer."""
    sram_bytes, exchange_bytes = first.sram_bytes + second.sram_bytes, first.exchange_bytes + second.exchange_bytes
    return in_one(first, second, (*first.products, *second.products), sram_bytes, exchange_bytes)
