"""Layers and losses of ipusim in a stage that is a Python function: the same arithmetic and cost as in a scenario.

>>> from ipusim import api, ipu
>>> def stage(x):
...     return ipu.layers.layer("hidden", api.layers.Dense(64, "relu"), x)

Written with ``autograd.numpy``, ``maximum(dot(x, w) + b, 0)`` would do the same as that layer, but
count as three operations, and keep what autograd keeps.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
from autograd.core import VJPNode
from autograd.tracer import isbox

from ipusim.api import Array, Shape, functions, layers
from ipusim.base.errors import ModelError
from ipusim.ipu.runtime import checks


def layer(name: str, of: layers.Layer, x: Any, seed: int = 0) -> Any:
    """Return a layer's output (batch, ...) for ``x`` (batch, ...).

    Args:
        name: its parameters are the variables ``name/W`` and so on, of the dtype of ``x``.
        of: a layer such as ``Dense(64, "relu")`` of :data:`ipusim.api.layers`.
        x: the input, whose first axis is the batch.
        seed: of the initial parameters, together with the name.

    Raises ModelError for an input that the layer does not take, ProgramTypeError and ProgramError for arguments of
    other types. Dropout draws in training, by the name.
    """
    _check(name, of, "output_shape", x, seed)
    if isinstance(of, layers.SharesParameters):
        table = "/".join(next(iter(of.shared.values())))
        raise ModelError(
            f"layer {name!r}: expected a layer with parameters of its own, got one that shares {table}: ask for that "
            "with get_variable"
        )
    of.output_shape(tuple(x.shape[1:]))
    return run(of, x, _parameters(name, of, x, seed), draws_as=name)


def loss(name: str, of: layers.Loss, x: Any, labels: Any, seed: int = 0) -> Any:
    """Return a loss's mean over the micro-batch, a scalar, for ``x`` (batch, ...) and ``labels`` (batch, ...).

    Raises ModelError for labels that do not fit, or that depend on a variable, as no gradient goes back to them;
    ``name`` and ``seed`` are as for :func:`layer`.
    """
    _check(name, of, "check_labels", x, seed)
    if depends_on_a_variable(labels):
        raise ModelError(f"loss {name!r}: expected labels that depend on no variable, as no gradient goes back to them")
    return run_loss(of, x, labels, _parameters(name, of, x, seed))


def run(of: layers.Layer, x: Any, parameters: Mapping[str, Any], draws_as: str, position: int | None = None) -> Any:
    """Return a layer's output for ``x`` (batch, ...) with ``parameters`` by its own names.

    What it draws is seeded by its name, or by its ``position`` in a network as in a scenario.
    """
    batch, *shape = x.shape
    call = functions.Call(
        of, tuple(parameters), tuple(shape), batch, _itemsize(x, parameters), draws_as=draws_as, position=position
    )
    return functions.run_layer(call, x, *parameters.values())


def run_loss(of: layers.Loss, x: Any, labels: Any, parameters: Mapping[str, Any]) -> Any:
    """Return a loss's mean over the micro-batch; raises ModelError for labels that do not fit."""
    targets = labels if isbox(labels) else checks.numbers("labels", labels)
    call = functions.Call(of, tuple(parameters), tuple(x.shape[1:]), len(x), _itemsize(x, parameters), is_loss=True)
    return functions.run_layer(call, x, targets, *parameters.values())


def depends_on_a_variable(x: Any) -> bool:
    """Tell whether a gradient would go back to ``x``."""
    return isbox(x) and isinstance(x._node, VJPNode)


def _check(name: object, of: object, method: str, x: Any, seed: object) -> None:
    """Refuse arguments of other types, where a layer or loss is what has ``method``."""
    if not checks.text("name", name):
        checks.wrong_value("name", "a name for the layer", name)
    if isinstance(of, type) or not callable(getattr(of, method, None)):
        checks.wrong_type("of", "a layer such as Dense(64), or a loss such as SoftmaxCrossEntropy()", of)
    if not getattr(x, "shape", ()) or x.dtype.kind not in "biuf":
        checks.wrong_type("x", "an array of numbers (batch, ...)", x)
    checks.whole("seed", seed)


def _parameters(name: str, of: Any, x: Any, seed: int) -> dict[str, Any]:
    dtype = x.dtype if x.dtype.kind == "f" else np.dtype(np.float32)
    drawn = initial_parameters(of, tuple(x.shape[1:]), dtype, (seed, zlib.crc32(name.encode())))
    return {own: functions.get_variable(f"{name}/{own}", array) for own, array in drawn.items()}


@lru_cache(maxsize=256)
def initial_parameters(of: Any, shape: Shape, dtype: npt.DTypeLike, seed: tuple[int, ...]) -> dict[str, Array]:
    """Draw a layer's parameters as a scenario does; asked for in every call, drawn once."""
    result: dict[str, Array] = of.initial_parameters(shape, np.random.default_rng(seed), dtype)
    return result


def _itemsize(x: Any, parameters: Mapping[str, Any]) -> int:
    """Return the bytes of an element that the layer computes on: those of whole-number inputs are its parameters'."""
    # Of a traced array it takes a while to ask.
    dtypes = {array.dtype for array in (x, *parameters.values())}
    return int(max((dtype.itemsize for dtype in dtypes if dtype.kind == "f"), default=4))
