"""Compute self-attention within square windows of an image, as in Swin Transformers.

Windows may be shifted. A parameter adds a bias to the score of two positions, by their distance and direction.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, ClassVar

import numpy as np
import numpy.typing as npt
from annotated_doc import Doc
from annotated_types import Ge, Le

from ipusim.base.errors import ModelError
from ipusim.model.layers import chain
from ipusim.model.layers.attention import MultiHeadAttention
from ipusim.model.layers.embedding import Embedding
from ipusim.model.layers.keys import Axis
from ipusim.model.layers.layer import Array, InnerSizes, Key, LayerCost, Parameters, Rest, Saved, Shape, all_later
from ipusim.model.layers.space_to_depth import check_windows, from_windows, in_windows, moving, window_places
from ipusim.model.work import VectorWork, Work, work_of

#: Name under which the forward pass finds the array added to scores: (windows or 1, heads, positions, positions).
_SCORE_BIAS = "score_bias"


@dataclass(frozen=True)
class WindowAttention(MultiHeadAttention):
    """Self-attention within square windows of an image, as in Swin.

    Windows of ``window`` by ``window`` positions tile the image. With a ``shift`` the image is rolled up and to the
    left by ``shift`` positions before attention, and back afterwards. Positions from opposite edges of the image, which
    the roll puts into one window, do not attend to each other. ``position_bias`` of shape ((2 window - 1)^2, heads) is
    added to the scaled scores: a row for each relative position. It starts Glorot uniform ("Swin Transformer", arXiv
    2103.14030). All else is as in ``multi_head_attention``.
    """

    kind: ClassVar = "window_attention"

    window: Annotated[Axis, Doc("height and width of a window, which divide those of the image")] = 7
    shift: Annotated[
        int, Ge(0), Le(65_535), Doc("positions by which windows are shifted down and to the right, fewer than window")
    ] = 0

    def __post_init__(self) -> None:
        """Raise ModelError for a window below 1, a shift of a whole window, or wrong heads or dropout."""
        super().__post_init__()
        if self.window < 1 or not 0 <= self.shift < self.window:
            raise ModelError(
                f"expected a shift from 0 and below a window of at least 1, got {self.shift} and {self.window}"
            )

    def output_shape(self, input_shape: Shape) -> Shape:
        """Return the input's shape; raises ModelError unless windows tile the image and the heads fit."""
        check_windows(input_shape, self.window)
        self._head_elements(input_shape[-1])
        return input_shape

    def parameter_shapes(self, input_shape: Shape) -> dict[str, Shape]:
        """Return the shapes of the attention's parameters, then of ``position_bias``."""
        return super().parameter_shapes(input_shape) | {"position_bias": (self._bias_table.input_dim, self.num_heads)}

    @property
    def _bias_table(self) -> Embedding:
        """Table ``position_bias`` with a row per relative position."""
        return Embedding((2 * self.window - 1) ** 2, self.num_heads)

    def forward(self, parameters: Parameters, x: Array, key: Key | None = None) -> tuple[Array, Saved]:
        """Attend within each window: (batch, height, width, channels) to the same shape."""
        shape = x.shape[1:]
        bias_rows = relative_places(self.window)
        score_bias = parameters["position_bias"].take(bias_rows, axis=0).transpose(2, 0, 1)[None]
        if self.shift:
            score_bias = score_bias + edge_mask(*shape[:2], self.window, self.shift).astype(x.dtype)[:, None]
        windows = in_windows(x, self.window, self.shift)
        y, saved_values = super().forward({**parameters, _SCORE_BIAS: score_bias}, windows, key)
        return from_windows(y, shape, self.window, self.shift), (shape, saved_values)

    def backward_input(
        self, parameters: Parameters, saved_values: Saved, grad: Array, need_input_gradient: bool = True
    ) -> tuple[Array | None, Rest]:
        """Return dx, back through windows and attention, and the gradients at the projections."""
        shape, attention_saved = saved_values
        windows = in_windows(grad, self.window, self.shift)
        dx, rest_values = super().backward_input(parameters, attention_saved, windows, need_input_gradient)
        return (None if dx is None else from_windows(dx, shape, self.window, self.shift)), rest_values

    def backward_weights(self, parameters: Parameters, rest_values: Rest) -> dict[str, Array]:
        """Return the gradients of the projections, and of ``position_bias``: sums over the uses of each row."""
        *_, score_gradients = rest_values
        use_gradients = score_gradients["position_bias"].reshape(self.num_heads, -1).T
        table = self._bias_table.backward_weights(
            {"W": parameters["position_bias"]}, (relative_places(self.window), use_gradients)
        )
        return super().backward_weights(parameters, rest_values) | {"position_bias": table["W"]}

    def _scores(self, parameters: Parameters, q: Array, k: Array) -> Array:
        scores, score_bias = super()._scores(parameters, q, k), parameters[_SCORE_BIAS]
        by_window = scores.reshape(-1, *score_bias.shape)
        by_window += score_bias * math.sqrt(q.shape[-1])  # the caller divides all scores by this root
        return scores

    def _scores_backward(
        self, parameters: Parameters, dscores: Array, q: Array, k: Array
    ) -> tuple[Array, Array, dict[str, Array]]:
        dq, dk, _ = super()._scores_backward(parameters, dscores, q, k)
        return dq, dk, {"position_bias": dscores.sum(axis=0) * math.sqrt(q.shape[-1])}

    def _windows(self, input_shape: Shape) -> int:
        """Return the number of windows of an image."""
        return math.prod(input_shape[:2]) // self.window**2

    def inner_sizes(self, input_shape: Shape) -> InnerSizes:
        """Return the sizes of attention in all windows, with the input in windows and the array added to the scores."""
        windows, positions = self._windows(input_shape), self.window**2
        saved_elements, passing = super().inner_sizes((positions, input_shape[-1]))
        score_bias = (windows if self.shift else 1) * self.num_heads * positions**2
        return InnerSizes(windows * saved_elements + math.prod(input_shape), windows * passing + score_bias)

    def cost(self, input_shape: Shape, batch: int, itemsize: int, need_input_gradient: bool = True) -> LayerCost:
        """Return the work of attention on all windows, of moving images into windows and back, and of the biases.

        Either pass moves each element into its window, and later out of it; rolling an image is part of the move
        (assumed). In the forward pass, each pair of positions looks up a row of the table, once for all windows. Adding
        the rows takes one sum per score, and the mask of shifted windows another sum. In the second half of the
        backward pass, the gradients of scores are summed up over windows, then over the uses of each row.
        """
        windows, positions = batch * self._windows(input_shape), self.window**2
        scores = windows * self.num_heads * positions**2
        pairs = self.num_heads * positions**2
        move, sums_per_score = moving(batch * math.prod(input_shape), itemsize), 1 + (self.shift > 0)
        biased = work_of(
            itemsize,
            vector=VectorWork(sums_per_score * scores),
            accesses=2 * scores + pairs,
            exchanged=scores,
            compute_sets=sums_per_score,
        )
        bias_sum = work_of(
            itemsize,
            vector=VectorWork(reductions=scores),
            accesses=scores + pairs,
            exchanged=scores,
            compute_sets=2,
        )
        costs = (
            LayerCost(move, move if need_input_gradient else Work(itemsize=itemsize)),
            self._bias_table.cost((positions**2,), 1, itemsize),
            LayerCost(biased, bias_sum, all_later(bias_sum)),
            super().cost((positions, input_shape[-1]), windows, itemsize, need_input_gradient),
            LayerCost(move, move),
        )
        return chain.cost_in_turn(costs, itemsize, need_input_gradient)


@lru_cache(maxsize=16)
def relative_places(size: int) -> npt.NDArray[np.int64]:
    """Return the row of ``position_bias`` for each pair of positions in a window: (size * size, size * size)."""
    rows, columns = np.divmod(np.arange(size**2), size)
    down, right = (axis[:, None] - axis[None] + size - 1 for axis in (rows, columns))
    bias_rows: npt.NDArray[np.int64] = down * (2 * size - 1) + right
    return bias_rows


@lru_cache(maxsize=64)
def edge_mask(height: int, width: int, size: int, shift: int) -> npt.NDArray[np.float64]:
    """Return -inf for two positions of a window that come from opposite edges of a rolled image, 0 for other pairs.

    Args:
        height, width: size of the image.
        size: height and width of a window.
        shift: positions by which the image is rolled.

    Returns:
        Array (windows, size * size, size * size).
    """
    rows, columns = np.divmod(window_places(height, width, size, shift), width)
    region = 2 * (rows < shift) + (columns < shift)
    return np.where(region[:, :, None] == region[:, None], 0.0, -np.inf)
