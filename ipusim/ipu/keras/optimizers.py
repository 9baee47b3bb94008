"""Optimizers of ``ipu_tensorflow_addons`` for Keras, with separate dtypes for the optimizer's state."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ipusim.ipu.graph.tensorflow_import import load
from ipusim.ipu.keras.recurrent import SERIALIZABLE
from ipusim.ipu.runtime import checks

tf = load()

_KERAS: Any = tf.keras.optimizers.legacy


class _VariableWithDtype:
    """A variable with another ``true_dtype``, which Keras' ``add_slot`` gives to a slot."""

    def __init__(self, variable: Any, dtype: Any) -> None:
        self._variable, self.true_dtype = variable, dtype

    def __getattr__(self, name: str) -> Any:
        return getattr(self._variable, name)


class IpuOptimizerBase(_KERAS.Optimizer):  # type: ignore[misc]
    """Base class of the optimizers."""

    def __init__(
        self,
        *args: Any,
        optimizer_compute_precisions: Sequence[Any] = (tf.float32,),
        outline_apply_gradients: bool = False,
        outline_apply_gradients_kwargs: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Set the arguments.

        Args:
            args, kwargs: arguments of Keras' optimizer.
            optimizer_compute_precisions: dtypes of an update's stages.
            outline_apply_gradients, outline_apply_gradients_kwargs: without effect.
        """
        super().__init__(*args, **kwargs)
        self.opt_dtypes = tuple(map(tf.as_dtype, optimizer_compute_precisions))
        self.outline_apply_gradients = checks.truth("outline_apply_gradients", outline_apply_gradients)
        self.outline_apply_gradients_kwargs = dict(outline_apply_gradients_kwargs or {})

    def get_slot_dtype(self, var: Any, slot_name: str) -> Any:
        """Return a slot's dtype; None for the variable's dtype."""
        return getattr(self, f"{slot_name}_dtype", None)

    def add_slot(self, var: Any, slot_name: str, initializer: Any = "zeros", shape: Any = None) -> Any:
        """Return the slot of a variable, of the slot's own dtype."""
        dtype = self.get_slot_dtype(var, slot_name)
        return super().add_slot(var if dtype is None else _VariableWithDtype(var, dtype), slot_name, initializer, shape)

    def get_config(self) -> dict[str, Any]:
        """Return the optimizer's arguments."""
        names = {
            "optimizer_compute_precisions": [dtype.name for dtype in self.opt_dtypes],
            "outline_apply_gradients": self.outline_apply_gradients,
            "outline_apply_gradients_kwargs": self.outline_apply_gradients_kwargs,
        }
        own_arguments = {name: value for name in self._argument_names if (value := getattr(self, name)) is not None}
        return {**super().get_config(), **names, **own_arguments}

    #: Names of a subclass's arguments that are attributes, too.
    _argument_names: tuple[str, ...] = ()

    def _hyperparameter(self, name: str) -> Any:
        """Return a hyperparameter in the first stage's precision."""
        return tf.identity(self._get_hyper(name, self.opt_dtypes[0]))

    def _learning_rate_of(self, var: Any) -> Any:
        """Return a variable's learning rate in the first stage's precision."""
        return tf.cast(self._decayed_lr(var.dtype.base_dtype), self.opt_dtypes[0])


class _Moments(IpuOptimizerBase):
    """Adam's direction: the mean of gradients divided by the root of the mean square."""

    def _direction(self, grad: Any, var: Any) -> tuple[Any, list[Any]]:
        """Return the direction in the precision of the first stage, and the assignments of both moments."""
        dtype, step = self.opt_dtypes[0], tf.cast(self.iterations + 1, self.opt_dtypes[0])
        cast, means, assigns = tf.cast(grad, dtype), [], []
        for name, hyper, value in (("m", "beta_1", cast), ("v", "beta_2", tf.square(cast))):
            slot, beta = self.get_slot(var, name), self._hyperparameter(hyper)
            mean = tf.cast(slot, dtype) * beta + value * (1 - beta)
            assigns.append(slot.assign(tf.cast(mean, slot.dtype)))
            means.append(mean / (1 - tf.pow(beta, step)) if self.debiasing else mean)
        if getattr(self, "amsgrad", False):
            slot = self.get_slot(var, "vhat")
            means[1] = tf.maximum(tf.cast(slot, dtype), means[1])
            assigns.append(slot.assign(tf.cast(means[1], slot.dtype)))
        return means[0] / (tf.sqrt(means[1]) + tf.cast(self.epsilon, dtype)), assigns


@SERIALIZABLE
class AdamIpuOptimizer(_Moments, _KERAS.Adam):  # type: ignore[misc]
    """Adam with a dtype for each moment."""

    _argument_names = ("m_dtype", "v_dtype", "vhat_dtype", "debiasing")

    def __init__(
        self,
        learning_rate: Any = 0.001,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-7,
        amsgrad: bool = False,
        name: str = "Adam",
        m_dtype: Any = None,
        v_dtype: Any = None,
        vhat_dtype: Any = None,
        debiasing: bool = True,
        **kwargs: Any,
    ) -> None:
        """Set the arguments of Keras' Adam, the dtypes of its slots, and whether moments are corrected at the start."""
        super().__init__(learning_rate, beta_1, beta_2, epsilon, amsgrad, name, **kwargs)
        self.m_dtype, self.v_dtype, self.vhat_dtype, self.debiasing = m_dtype, v_dtype, vhat_dtype, debiasing

    def _resource_apply_dense(self, grad: Any, var: Any, apply_state: Any = None) -> Any:
        direction, assigns = self._direction(grad, var)
        return tf.group(var.assign_sub(tf.cast(self._learning_rate_of(var) * direction, var.dtype)), *assigns)


@SERIALIZABLE
class LAMBIpuOptimizer(_Moments):
    """LAMB of You et al. (arXiv 1904.00962): Adam's direction, scaled to the norm of the variable."""

    _argument_names = ("epsilon", "m_dtype", "v_dtype", "debiasing", "weight_norm_clip")

    def __init__(
        self,
        learning_rate: Any = 0.001,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-6,
        weight_decay_rate: float = 0.0,
        exclude_from_weight_decay: Sequence[str] | None = None,
        exclude_from_layer_adaptation: Sequence[str] | None = None,
        name: str = "LAMB",
        debiasing: bool = True,
        m_dtype: Any = None,
        v_dtype: Any = None,
        weight_norm_clip: float | None = None,
        optimizer_compute_precisions: Sequence[Any] = (tf.float32, tf.float32),
        **kwargs: Any,
    ) -> None:
        """Set the arguments; patterns exclude variables by name from the decay or from the scaling by norms."""
        super().__init__(name, optimizer_compute_precisions=optimizer_compute_precisions, **kwargs)
        numbers = {"weight_decay_rate": weight_decay_rate, "learning_rate": kwargs.get("lr", learning_rate)}
        for hyper, value in {**numbers, "decay": self._initial_decay, "beta_1": beta_1, "beta_2": beta_2}.items():
            self._set_hyper(hyper, value)
        self.epsilon, self.debiasing, self.weight_norm_clip = epsilon, debiasing, weight_norm_clip
        self.m_dtype, self.v_dtype = m_dtype, v_dtype
        self.exclude_from_weight_decay = list(exclude_from_weight_decay or ())
        self.exclude_from_layer_adaptation = list(exclude_from_layer_adaptation or ())

    def _create_slots(self, var_list: Sequence[Any]) -> None:
        for name in "mv":
            for var in var_list:
                self.add_slot(var, name)

    def _resource_apply_dense(self, grad: Any, var: Any, apply_state: Any = None) -> Any:
        direction, assigns = self._direction(grad, var)
        value = tf.cast(var, direction.dtype)
        if not any(re.search(pattern, var.name) for pattern in self.exclude_from_weight_decay):
            direction += value * self._hyperparameter("weight_decay_rate")
        scale = self._learning_rate_of(var)
        if not any(re.search(pattern, var.name) for pattern in self.exclude_from_layer_adaptation):
            variable_norm, direction_norm = tf.norm(value), tf.norm(direction)
            variable_norm = (
                variable_norm
                if self.weight_norm_clip is None
                else tf.minimum(variable_norm, tf.cast(self.weight_norm_clip, variable_norm.dtype))
            )
            scale = scale * tf.where(
                (variable_norm > 0) & (direction_norm > 0), variable_norm / direction_norm, tf.ones_like(variable_norm)
            )
        change = tf.cast(scale, self.opt_dtypes[-1]) * tf.cast(direction, self.opt_dtypes[-1])
        return tf.group(var.assign_sub(tf.cast(change, var.dtype)), *assigns)

    def get_config(self) -> dict[str, Any]:
        """Return the optimizer's arguments."""
        hypers = ("weight_decay_rate", "learning_rate", "decay", "beta_1", "beta_2")
        patterns = ("exclude_from_weight_decay", "exclude_from_layer_adaptation")
        numbers = {name: self._serialize_hyperparameter(name) for name in hypers}
        return {**super().get_config(), **numbers, **{name: getattr(self, name) for name in patterns}}


@SERIALIZABLE
class SGDIpuOptimizer(IpuOptimizerBase, _KERAS.SGD):  # type: ignore[misc]
    """Gradient descent with a separate dtype for the momentum."""

    _argument_names = ("momentum_accum_dtype",)

    def __init__(
        self,
        learning_rate: Any = 0.01,
        momentum: float = 0.0,
        nesterov: bool = False,
        name: str = "SGD",
        momentum_accum_dtype: Any = None,
        **kwargs: Any,
    ) -> None:
        """Set the arguments of Keras' SGD, and the dtype of its momentum."""
        super().__init__(learning_rate, momentum, nesterov, name, **kwargs)
        self.momentum_accum_dtype = momentum_accum_dtype

    def get_slot_dtype(self, var: Any, slot_name: str) -> Any:
        """Return the momentum's dtype; None for the variable's dtype."""
        return self.momentum_accum_dtype

    def _resource_apply_dense(self, grad: Any, var: Any, apply_state: Any = None) -> Any:
        if not self._momentum:
            return super()._resource_apply_dense(grad, var, apply_state)
        slot, dtype = self.get_slot(var, "momentum"), self.opt_dtypes[0]
        momentum, change = self._hyperparameter("momentum"), self._learning_rate_of(var) * tf.cast(grad, dtype)
        velocity = tf.cast(slot, dtype) * momentum - change
        step = velocity * momentum - change if self.nesterov else velocity
        return tf.group(var.assign_add(tf.cast(step, var.dtype)), slot.assign(tf.cast(velocity, slot.dtype)))
