"""The summary of a Keras model as a text: its layers, the shapes that they give, and their weights."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ipusim.ipu.tensorflow.keras.input_layer import InputLayer
from ipusim.ipu.tensorflow.keras.symbolic import KerasTensor, mapped_tensors


def summary_lines(model: Any, line_length: int) -> Iterator[str]:
    """Yield the lines, as Keras has them."""
    ends = [int(line_length * share) for share in (0.45, 0.85, 1.0)]
    yield f'Model: "{model.name}"'
    yield "_" * line_length
    yield row(("Layer (type)", "Output Shape", "Param #"), ends)
    yield "=" * line_length
    for layer in model.layers:
        cells = (f"{layer.name} ({type(layer).__name__})", _shape(model, layer), f"{layer.count_params()}")
        yield row(cells, ends)
    yield "=" * line_length
    trained, kept = (
        sum(int(np.prod(each.shape)) for each in weights)
        for weights in (model.trainable_weights, model.non_trainable_weights)
    )
    yield f"Total params: {trained + kept:,}"
    yield f"Trainable params: {trained:,}"
    yield f"Non-trainable params: {kept:,}"
    yield "_" * line_length


def row(cells: tuple[str, ...], ends: list[int]) -> str:
    """Return cells, each up to its column's end, the next one a space behind."""
    found = ""
    for cell, end in zip(cells, ends, strict=True):
        found = f"{found} {cell}"[: end - 1].ljust(end)
    return found.rstrip()


def _shape(model: Any, layer: Any) -> str:
    """Return the shape that a layer gives in this model."""
    if isinstance(layer, InputLayer):
        return str([layer.tensor.shape])
    nodes = [] if model.graph is None else [node for node in model.graph.nodes if node.layer is layer]
    if not nodes:
        return "multiple"
    given: Any = nodes[0].outputs
    found = given.shape if isinstance(given, KerasTensor) else mapped_tensors(lambda each: each.shape, given)
    return str(found)
