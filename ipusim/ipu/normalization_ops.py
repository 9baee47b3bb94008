"""Functions of Graphcore's ``normalization_ops``, on layers of the core; variables are ``scope/gamma`` and ``beta``."""

from __future__ import annotations

from typing import Any

import autograd.numpy as anp

from ipusim.ipu.runtime import checks
from ipusim.ipu.tensorflow.array_functions import tensor
from ipusim.ipu.tensorflow.keras.core_layer import CoreLayer
from ipusim.ipu.tensorflow.keras.layers import GroupNormalization, InstanceNormalization, LayerNormalization


def group_norm(
    inputs: Any,
    groups: int = 2,
    channels_axis: int = -1,
    center: bool = True,
    scale: bool = True,
    epsilon: float = 1e-06,
    param_initializers: dict[str, Any] | None = None,
    reuse: bool | None = None,
    variables_collections: object = None,
    training: bool = True,
    trainable: bool = True,
    scope: str | None = None,
    strided_channel_grouping: bool = True,
) -> Any:
    """Return ``inputs`` with each group of channels of each sample at mean 0 and variance 1.

    Without effect: ``reuse``, as the scope says it, ``variables_collections``, as there is no graph, and ``training``,
    as the statistics are always those of the sample.

    Without ``trainable`` no optimizer changes its variables. Raises ProgramError for channels along an axis that there
    is not.
    """
    arguments = _arguments(center, scale, epsilon, param_initializers, scope)
    grouped = {"groups": groups, "strided_channel_grouping": strided_channel_grouping}
    return _called(GroupNormalization, inputs, channels_axis, trainable, arguments | grouped)


def instance_norm(
    inputs: Any,
    channels_axis: int = -1,
    center: bool = True,
    scale: bool = True,
    epsilon: float = 1e-06,
    param_initializers: dict[str, Any] | None = None,
    reuse: bool | None = None,
    variables_collections: object = None,
    training: bool = True,
    trainable: bool = True,
    scope: str | None = None,
) -> Any:
    """Return ``inputs`` with each channel of each sample at mean 0 and variance 1; raises as :func:`group_norm`.

    Without effect: ``reuse``, as the scope says it, ``variables_collections``, as there is no graph, and ``training``,
    as the statistics are always those of the sample.
    """
    arguments = _arguments(center, scale, epsilon, param_initializers, scope)
    return _called(InstanceNormalization, inputs, channels_axis, trainable, arguments)


def layer_norm(
    inputs: Any,
    channels_axis: int = -1,
    center: bool = True,
    scale: bool = True,
    epsilon: float = 1e-06,
    param_initializers: dict[str, Any] | None = None,
    reuse: bool | None = None,
    variables_collections: object = None,
    training: bool = True,
    trainable: bool = True,
    scope: str | None = None,
) -> Any:
    """Return ``inputs`` with each row of channels at mean 0 and variance 1; raises as :func:`group_norm`.

    Without effect: ``reuse``, as the scope says it, ``variables_collections``, as there is no graph, and ``training``,
    as the statistics are always those of the sample.
    """
    arguments = _arguments(center, scale, epsilon, param_initializers, scope)
    return _called(LayerNormalization, inputs, channels_axis, trainable, arguments)


def _called(kind: type[CoreLayer], inputs: Any, channels_axis: int, trainable: bool, arguments: dict[str, Any]) -> Any:
    """Return what a layer gives for inputs whose channels lie along any axis but the batch's."""
    x = tensor(inputs)
    axis = checks.integer("channels_axis", channels_axis)
    if not (1 <= axis < x.ndim or -x.ndim < axis < 0):
        checks.wrong_value("channels_axis", f"an axis behind the batch's of {x.ndim}", channels_axis)
    layer = kind(trainable=checks.truth("trainable", trainable), **arguments)
    return anp.moveaxis(layer(anp.moveaxis(x, axis, -1)), -1, axis)


def _arguments(
    center: bool, scale: bool, epsilon: float, initializers: dict[str, Any] | None, scope: str | None
) -> dict[str, Any]:
    arguments = {f"{name}_initializer": initializer for name, initializer in (initializers or {}).items()}
    return {"center": center, "scale": scale, "epsilon": epsilon, "name": scope, **arguments}
