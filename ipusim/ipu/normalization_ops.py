"""Functions of Graphcore's ``normalization_ops``, on layers of the core; variables are ``scope/gamma`` and ``beta``."""

from __future__ import annotations

from typing import Any

import numpy as np

from ipusim.errors import UnsupportedProgramError
from ipusim.ipu.tensorflow.keras_layers import (
    CoreLayer,
    GroupNormalization,
    InstanceNormalization,
    LayerNormalization,
)


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

    Raises UnsupportedProgramError for channels that are not the last axis, and parameters that are not trained.
    """
    arguments = _arguments(inputs, channels_axis, center, scale, epsilon, param_initializers, trainable, scope)
    grouped = {"groups": groups, "strided_channel_grouping": strided_channel_grouping}
    return _called(GroupNormalization, inputs, arguments | grouped)


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
    """Return ``inputs`` with each channel of each sample at mean 0 and variance 1; raises as :func:`group_norm`."""
    arguments = _arguments(inputs, channels_axis, center, scale, epsilon, param_initializers, trainable, scope)
    return _called(InstanceNormalization, inputs, arguments)


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
    """Return ``inputs`` with each row of channels at mean 0 and variance 1; raises as :func:`group_norm`."""
    arguments = _arguments(inputs, channels_axis, center, scale, epsilon, param_initializers, trainable, scope)
    return _called(LayerNormalization, inputs, arguments)


def _called(kind: type[CoreLayer], inputs: Any, arguments: dict[str, Any]) -> Any:
    return kind(**arguments)(inputs)


def _arguments(
    inputs: Any,
    channels_axis: int,
    center: bool,
    scale: bool,
    epsilon: float,
    initializers: dict[str, Any] | None,
    trainable: bool,
    scope: str | None,
) -> dict[str, Any]:
    if channels_axis not in (-1, np.ndim(inputs) - 1) or not trainable:
        raise UnsupportedProgramError(
            f"channels_axis and trainable: expected the last axis and True, got {channels_axis} and {trainable}"
        )
    given = {f"{name}_initializer": each for name, each in (initializers or {}).items()}
    return {"center": center, "scale": scale, "epsilon": epsilon, "name": scope, **given}
