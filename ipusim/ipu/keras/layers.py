"""Define Graphcore's Keras layers: tf_keras layers with Graphcore's arguments and defaults."""

from __future__ import annotations

from typing import Any, ClassVar, Final

from ipusim.api import layers
from ipusim.ipu.graph.tensorflow_import import load
from ipusim.ipu.keras.recurrent import SERIALIZABLE, PopnnGRU, PopnnLSTM
from ipusim.ipu.pipelining_ops import recomputation_checkpoint
from ipusim.ipu.runtime import checks
from ipusim.ipu.runtime.call_checks import arguments_in
from ipusim.ipu.traced.operations import LayerOperation, operate

__all__ = [
    "GRU",
    "LSTM",
    "Dropout",
    "Embedding",
    "GroupNormalization",
    "InstanceNormalization",
    "LayerNormalization",
    "PopnnGRU",
    "PopnnLSTM",
    "RecomputationCheckpoint",
]

tf = load()
_Layer: Any = tf.keras.layers.Layer
_Dropout: Any = tf.keras.layers.Dropout
_Embedding: Any = tf.keras.layers.Embedding
LSTM, GRU = PopnnLSTM, PopnnGRU


@SERIALIZABLE
class Embedding(_Embedding):  # type: ignore[misc]
    """Graphcore's Keras ``Embedding``."""

    def call(self, inputs: Any, training: Any = None) -> Any:
        """Look up rows of the table.

        Args:
            inputs: row indices, whole numbers.
            training: without effect: training and inference look up the same rows.
        """
        return super().call(inputs)


@SERIALIZABLE
class Dropout(_Dropout):  # type: ignore[misc]
    """Graphcore's Keras ``Dropout``, with a pair of numbers as seed."""

    def __init__(self, rate: float, noise_shape: Any = None, seed: Any = None, **kwargs: Any) -> None:
        """Set the arguments.

        Args:
            rate: share of elements to zero in training.
            noise_shape: shape of the mask; size 1 on an axis shares the mask along it.
            seed: without effect: seeds depend on the place in the program.
            kwargs: other arguments of a Keras layer.
        """
        super().__init__(rate, noise_shape, None, **kwargs)


class _Normalization(_Layer):  # type: ignore[misc]
    """Normalisation layer of the simulator, along any axis except the batch axis."""

    core: ClassVar[type[layers.Layer]]

    def __init__(
        self,
        dtype: Any = tf.float32,
        channels_axis: int = -1,
        center: bool = True,
        scale: bool = True,
        epsilon: float = 0.001,
        beta_initializer: Any = None,
        gamma_initializer: Any = None,
        trainable: bool = True,
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        """Set the arguments; see :class:`GroupNormalization`."""
        weight_options = {name: kwargs.pop(name, None) for name in _WEIGHT_OPTION_NAMES}
        super().__init__(dtype=dtype, trainable=trainable, name=name, **kwargs)
        self._axis = checks.integer(self._axis_name, channels_axis)
        self._options = {"center": center, "scale": scale, "epsilon": epsilon}
        self._initializers = {
            "gamma": tf.keras.initializers.get(gamma_initializer or "ones"),
            "beta": tf.keras.initializers.get(beta_initializer or "zeros"),
        }
        self._weight_options = {
            name: (tf.keras.constraints if name.endswith("constraint") else tf.keras.regularizers).get(value)
            for name, value in weight_options.items()
        }

    #: Name of the argument for the axis of channels.
    _axis_name: ClassVar[str] = "channels_axis"

    def build(self, input_shape: Any) -> None:
        """Create the weights.

        Raises:
            ProgramError: if the axis of channels does not exist or is the batch axis.
        """
        shape = tf.TensorShape(input_shape).as_list()
        if not (1 <= self._axis < len(shape) or -len(shape) < self._axis < 0):
            checks.wrong_value(self._axis_name, f"an axis after the batch's of {len(shape)}", self._axis)
        self._layer: Any = self.core(**self._options)
        self._layer.output_shape(tuple(size or 1 for size in self._move_to_end(shape)[1:]))
        self._parameters = {
            name: self.add_weight(
                name,
                (shape[self._axis],),
                initializer=self._initializers[name],
                regularizer=self._weight_options[f"{name}_regularizer"],
                constraint=self._weight_options[f"{name}_constraint"],
            )
            for name, is_wanted in (("gamma", self._options["scale"]), ("beta", self._options["center"]))
            if is_wanted
        }
        super().build(input_shape)

    def _move_to_end(self, axes: list[Any]) -> list[Any]:
        """Return axes with the channels moved to the end."""
        axis = self._axis % len(axes)
        return [*axes[:axis], *axes[axis + 1 :], axes[axis]]

    def call(self, inputs: Any, training: Any = None) -> Any:
        """Normalise the input.

        Args:
            inputs: (batch, ...).
            training: without effect: statistics always come from the sample.
        """
        x = tf.convert_to_tensor(inputs)
        order = self._move_to_end(list(range(x.shape.rank)))
        is_moved = order != sorted(order)
        x = tf.transpose(x, order) if is_moved else x
        operation = LayerOperation(self._layer, tuple(self._parameters))
        values = [tf.cast(weight, x.dtype) for weight in self._parameters.values()]
        (y,) = operate(operation, [x, *values], [(x.dtype, x.shape)], self._layer.kind)
        return tf.transpose(y, [order.index(axis) for axis in range(len(order))]) if is_moved else y

    def get_config(self) -> dict[str, Any]:
        """Return the layer's arguments."""
        initializers = {
            f"{name}_initializer": tf.keras.initializers.serialize(weight)
            for name, weight in self._initializers.items()
        }
        weights = {
            name: (tf.keras.constraints if name.endswith("constraint") else tf.keras.regularizers).serialize(value)
            for name, value in self._weight_options.items()
            if value is not None
        }
        return {**super().get_config(), self._axis_name: self._axis, **self._options, **initializers, **weights}


#: Arguments for the weights of a normalisation.
_WEIGHT_OPTION_NAMES: Final = ("beta_regularizer", "gamma_regularizer", "beta_constraint", "gamma_constraint")


@SERIALIZABLE
class GroupNormalization(_Normalization):
    """Graphcore's Keras ``GroupNormalization``."""

    core = layers.GroupNorm

    def __init__(
        self,
        dtype: Any = tf.float32,
        groups: int = 2,
        channels_axis: int = -1,
        center: bool = True,
        scale: bool = True,
        epsilon: float = 0.001,
        beta_initializer: Any = None,
        gamma_initializer: Any = None,
        strided_channel_grouping: bool = True,
        trainable: bool = True,
        name: str | None = None,
    ) -> None:
        """Set the arguments.

        Args:
            dtype: dtype of the weights.
            groups: number of groups of channels.
            channels_axis: axis of the channels.
            center: whether to add ``beta``.
            scale: whether to multiply by ``gamma``.
            epsilon: number added to the variance.
            beta_initializer: initializer of ``beta``; by default zeros.
            gamma_initializer: initializer of ``gamma``; by default ones.
            strided_channel_grouping: whether channel c belongs to group c mod groups; otherwise groups are consecutive.
            trainable: whether the weights are trained.
            name: name of the layer.
        """
        arguments = arguments_in(locals())
        grouping = {name: arguments.pop(name) for name in ("groups", "strided_channel_grouping")}
        super().__init__(**arguments)
        self._options |= grouping


@SERIALIZABLE
class InstanceNormalization(_Normalization):
    """Graphcore's Keras ``InstanceNormalization``."""

    core = layers.InstanceNorm


@SERIALIZABLE
class LayerNormalization(_Normalization):
    """Graphcore's Keras ``LayerNormalization`` over one axis."""

    core = layers.LayerNorm
    _axis_name = "axis"

    def __init__(
        self,
        dtype: Any = tf.float32,
        axis: Any = -1,
        epsilon: float = 0.001,
        center: bool = True,
        scale: bool = True,
        beta_initializer: Any = "zeros",
        gamma_initializer: Any = "ones",
        trainable: bool = True,
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        """Set the arguments; see :class:`GroupNormalization`, with regularizers and constraints."""
        arguments = arguments_in(locals())
        del arguments["axis"]
        single_axis = axis[0] if isinstance(axis, list | tuple) and len(axis) == 1 else axis
        super().__init__(channels_axis=single_axis, **arguments, **kwargs)


@SERIALIZABLE
class RecomputationCheckpoint(_Layer):  # type: ignore[misc]
    """Graphcore's layer that marks a recomputation checkpoint."""

    def call(self, inputs: Any, **kwargs: Any) -> Any:
        """Return the tensors, which recomputation inside the backward pass keeps.

        Args:
            inputs: a tensor or a structure of tensors.
            kwargs: without effect.
        """
        return recomputation_checkpoint(inputs)
