"""Normalise tensors by ipusim's layers: Graphcore's ``normalization_ops``.

Variables are ``scope/gamma`` and ``scope/beta``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from ipusim.api import layers
from ipusim.base.errors import ProgramError
from ipusim.ipu.graph.tensorflow_import import load
from ipusim.ipu.runtime import checks
from ipusim.ipu.traced.operations import LayerOperation, operate

tf = load()
_V1: Final = tf.compat.v1
#: Checks of a layer's options, in order.
_CHECKS: Final[dict[str, Callable[[str, Any], Any]]] = {
    "epsilon": checks.number,
    "center": checks.truth,
    "scale": checks.truth,
    "groups": partial(checks.whole, least=1),
    "strided_channel_grouping": checks.truth,
}


def group_norm(
    inputs: Any,
    groups: int = 2,
    channels_axis: int = -1,
    center: bool = True,
    scale: bool = True,
    epsilon: float = 1e-06,
    param_initializers: dict[str, Any] | None = None,
    reuse: bool | None = None,
    variables_collections: Any = None,
    training: bool = True,
    trainable: bool = True,
    scope: str | None = None,
    strided_channel_grouping: bool = True,
) -> Any:
    """Normalise groups of channels to mean 0 and variance 1, sample by sample.

    Args:
        inputs: tensor with the batch as first axis.
        groups: number of groups.
        channels_axis: axis of the channels.
        center: whether to add the variable ``beta``.
        scale: whether to multiply by the variable ``gamma``.
        epsilon: number added to the variance.
        param_initializers: initializers by variable name.
        reuse: reuse of variables as in ``tf.variable_scope``.
        variables_collections: additional collections for the variables.
        training: without effect: statistics always come from the sample.
        trainable: whether optimizers change the variables.
        scope: name of the variables' scope.
        strided_channel_grouping: whether channel c belongs to group c mod groups; otherwise groups are consecutive.

    Raises:
        ProgramTypeError: if an argument has a wrong type.
        ProgramError: if the axis does not exist or the groups are not possible (Graphcore's message).
    """
    return _apply(layers.GroupNorm, **locals())


def instance_norm(
    inputs: Any,
    channels_axis: int = -1,
    center: bool = True,
    scale: bool = True,
    epsilon: float = 1e-06,
    param_initializers: dict[str, Any] | None = None,
    reuse: bool | None = None,
    variables_collections: Any = None,
    training: bool = True,
    trainable: bool = True,
    scope: str | None = None,
) -> Any:
    """Normalise every channel to mean 0 and variance 1, sample by sample.

    Args:
        inputs, channels_axis, center, scale, epsilon, param_initializers: see :func:`group_norm`.
        reuse, variables_collections, trainable, scope: see :func:`group_norm`.
        training: without effect: statistics always come from the sample.
    """
    return _apply(layers.InstanceNorm, **locals())


def layer_norm(
    inputs: Any,
    channels_axis: int = -1,
    center: bool = True,
    scale: bool = True,
    epsilon: float = 1e-06,
    param_initializers: dict[str, Any] | None = None,
    reuse: bool | None = None,
    variables_collections: Any = None,
    training: bool = True,
    trainable: bool = True,
    scope: str | None = None,
) -> Any:
    """Normalise rows of channels to mean 0 and variance 1.

    Args:
        inputs, channels_axis, center, scale, epsilon, param_initializers: see :func:`group_norm`.
        reuse, variables_collections, trainable, scope: see :func:`group_norm`.
        training: without effect: statistics always come from the sample.
    """
    return _apply(layers.LayerNorm, **locals())


def _apply(
    kind: Any,
    inputs: Any,
    channels_axis: int,
    param_initializers: dict[str, Any] | None,
    reuse: bool | None,
    variables_collections: Any,
    trainable: bool,
    scope: str | None,
    **options: Any,
) -> Any:
    """Apply a normalisation layer along any axis except the batch axis."""
    layer = kind(**{name: check(name, options[name]) for name, check in _CHECKS.items() if name in options})
    checks.instance("param_initializers", param_initializers, dict | None, "a dictionary of initializers by name")
    checks.instance("variables_collections", variables_collections, list | tuple | dict | None, "a list of names")
    x = tf.convert_to_tensor(inputs)
    rank, axis = x.shape.rank, checks.integer("channels_axis", channels_axis)
    if rank is None:
        raise ProgramError(f"Inputs {x.name} has undefined rank.")
    if axis >= rank:
        raise ProgramError("Axis is out of bounds.")
    if axis == 0 or axis <= -rank:
        checks.wrong_value("channels_axis", f"an axis after the batch's of {rank}", channels_axis)
    channels, groups = x.shape[axis], getattr(layer, "groups", 1)
    if channels is None:
        raise ProgramError(f"Inputs {x.name} has undefined channel dimension: {axis}.")
    if groups > channels:
        raise ProgramError(f"Invalid groups {groups} for {channels} channels.")
    if channels % groups:
        raise ProgramError(f"{channels} channels is not commensurate with {groups} groups.")
    axis %= rank
    if axis != rank - 1:
        x = tf.transpose(x, [*range(axis), *range(axis + 1, rank), axis])
    shapes = layer.parameter_shapes(tuple(x.shape.as_list()[1:]))
    layer.output_shape(tuple(x.shape.as_list()[1:]))
    default = {"gamma": _V1.ones_initializer(), "beta": _V1.zeros_initializer()}
    initializer_of, is_trainable = {**default, **(param_initializers or {})}, checks.truth("trainable", trainable)
    with _V1.variable_scope(scope, kind.__name__, reuse=reuse, use_resource=True):
        variables = [
            _V1.get_variable(
                name,
                list(shape),
                x.dtype,
                initializer_of[name],
                trainable=is_trainable,
                collections=_collections_of(variables_collections, name),
            )
            for name, shape in shapes.items()
        ]
    operation = LayerOperation(layer, tuple(shapes))
    (result,) = operate(operation, [x, *variables], [(x.dtype, x.shape)], kind.__name__.lower())
    if axis != rank - 1:
        result = tf.transpose(result, [*range(axis), rank - 1, *range(axis, rank - 1)])
    return result


def _collections_of(collections: Any, name: str) -> list[str] | None:
    """Return a variable's collections; None for TensorFlow's default."""
    names = collections.get(name) if isinstance(collections, dict) else collections
    return None if not names else [_V1.GraphKeys.GLOBAL_VARIABLES, *names]
