"""Measure the memory that a stage of layers keeps per micro-batch, on the stage's arithmetic.

The stash of a micro-batch consists of the distinct arrays that the layers' forward passes keep for the backward passes.
A run of the stage on outlines, arrays without elements, finds the arrays. User-defined functions need elements: a stage
with such a layer runs on zeros, with one and with two samples. Since every array of a micro-batch grows linearly with
the number of samples, both runs determine the bytes of any number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

import numpy as np

from ipusim.base.errors import ModelError
from ipusim.model.layers.layer import Array, Shape, TakesTokens, View
from ipusim.model.layers.outline import Outline
from ipusim.model.layers.saved_arrays import saved_arrays
from ipusim.model.stages.stage import LayerStage

#: Measurements of float16 use float32, with faster products, and halve the bytes.
_MEASURED_ITEMSIZE: Final = {2: 4, 4: 4, 8: 8}


class SavedBytes(NamedTuple):
    """Bytes kept by a stage per micro-batch.

    Attributes:
        stash: bytes kept between forward and backward pass.
        rest_bytes: bytes kept between the halves of the backward pass: inputs of layers that learn, and gradients of
            their outputs; for layers with an undivided backward pass, the parameter gradients.
    """

    stash: int
    rest_bytes: int


def saved_bytes(stage: LayerStage, batch: int, itemsize: int) -> SavedBytes:
    """Return the bytes that ``stage`` keeps of ``batch`` samples.

    Parameters do not count. If no earlier stage learns, layers before the first layer that learns do not count either,
    since no gradient reaches them. A frozen layer after the first layer that learns counts fully.
    """
    try:
        return outlined_bytes(stage, batch, itemsize)
    except Exception:  # a run on zeros supports every operation, or gives a better error
        return measured_bytes(stage, batch, itemsize)


def outlined_bytes(stage: LayerStage, batch: int, itemsize: int) -> SavedBytes:
    """Return the bytes kept by ``stage`` for ``batch`` samples, without data; raises for unsupported operations."""
    return _run(stage, batch, itemsize, Outline)


def measured_bytes(stage: LayerStage, batch: int, itemsize: int) -> SavedBytes:
    """Return the same bytes, measured with zeros as temporary parameters and activations."""
    try:
        single, double = (_run(stage, samples, itemsize, np.zeros) for samples in (1, 2))
    except ModelError:  # a layer with rows split in equal parts may need more samples
        return _run(stage, batch, itemsize, np.zeros)
    return SavedBytes(*(first + (batch - 1) * (second - first) for first, second in zip(single, double, strict=True)))


def _run(stage: LayerStage, samples: int, itemsize: int, make: Callable[[Shape, Any], Any]) -> SavedBytes:
    """Run both passes on arrays ``make(shape, dtype)``, and count the kept bytes."""
    dtype = np.dtype(f"f{_MEASURED_ITEMSIZE[itemsize]}")
    parameters = {
        named_layer.flat_name(name): make(shape, dtype)
        for named_layer, layer_shape in zip(stage.layers_and_loss, stage.shapes, strict=False)
        for name, shape in named_layer.layer.parameter_shapes(layer_shape).items()
    }
    labels = None
    if stage.loss is not None:
        no_labels = stage.loss.layer.zero_labels(stage.shapes[-1], 0, dtype)
        labels = make((samples, *no_labels.shape[1:]), no_labels.dtype)
    x = make((samples, *stage.shapes[0]), np.dtype(np.int32) if _takes_ids(stage) else dtype)
    values = stage.skips.beside_input if stage.skips else ()
    arriving = [make((samples, *value.shape), dtype) for value in values]
    stage_input: Any = (x, *arriving) if arriving else x
    passes = stage.whole(parameters)
    with np.errstate(all="ignore"):  # zeros may lead to a division by zero that data would not cause
        output, saved_values = passes.forward(stage_input, labels)
        # With skip connections, kept arrays are not sorted by layers, so all of them count.
        lowest = 0 if stage.needs_input_gradient or stage.skips is not None else stage.first_trained
        stash = saved_arrays(saved_values[lowest:], parameters)
        grad: Any = tuple(map(np.zeros_like, output)) if isinstance(output, tuple) else np.zeros_like(output)
        _, rest_values = passes.backward_input(saved_values, None if stage.loss else grad, stage.needs_input_gradient)
    return SavedBytes(_size(stash, itemsize), _size(saved_arrays(rest_values, parameters), itemsize))


def _size(arrays: Iterable[Array], itemsize: int) -> int:
    """Return the bytes of the measured arrays, in elements of ``itemsize``."""
    measured_itemsize = _MEASURED_ITEMSIZE[itemsize]
    return sum(
        array.nbytes * itemsize // measured_itemsize if array.dtype.kind == "f" else array.nbytes for array in arrays
    )


def _takes_ids(stage: LayerStage) -> bool:
    """Tell whether the first layer of the stage takes whole numbers as input."""
    layers = (named_layer.layer for named_layer in stage.named_layers if not isinstance(named_layer.layer, View))
    return isinstance(next(layers, None), TakesTokens)
