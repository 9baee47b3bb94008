"""Wrap TensorFlow optimizers as Graphcore does: accumulation, mapping and sharding of gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from ipusim.api import functions
from ipusim.base.errors import ProgramError
from ipusim.ipu.graph.accumulation import Accumulation
from ipusim.ipu.graph.averaging import Averaged
from ipusim.ipu.graph.node import Node
from ipusim.ipu.graph.own_nodes import add_node
from ipusim.ipu.graph.registry import Entry, Kernel, value_of
from ipusim.ipu.graph.tensorflow_import import load
from ipusim.ipu.graph.tracing import variable_name
from ipusim.ipu.runtime import checks
from ipusim.ipu.runtime.pipeline_options import GradientAccumulationReductionMethod

__all__ = [
    "CrossReplicaGradientAccumulationOptimizer",
    "CrossReplicaGradientAccumulationOptimizerV2",
    "CrossReplicaOptimizer",
    "GradientAccumulationOptimizer",
    "GradientAccumulationOptimizerV2",
    "GradientAccumulationReductionMethod",
    "IpuOptimizer",
    "MapGradientOptimizer",
    "ShardedOptimizer",
]

tf = load()
_TRAIN = tf.compat.v1.train
_OPTIMIZER: Any = _TRAIN.Optimizer
#: Pairs of gradient and variable.
Pairs = Sequence[tuple[Any, Any]]


class IpuOptimizer(_OPTIMIZER):  # type: ignore[misc]
    """Delegates to another optimizer; base class for a program's own optimizers."""

    #: Name of the argument with the wrapped optimizer.
    _argument = "opt"

    def __init__(self, opt: Any, name: str | None = None) -> None:
        """Wrap an optimizer.

        Args:
            opt: optimizer to wrap.
            name: name of the wrapper; by default the wrapped optimizer's name.

        Raises:
            ProgramTypeError: unless opt is an optimizer of TensorFlow 1.
        """
        checks.instance(self._argument, opt, _TRAIN.Optimizer, "an Optimizer")
        super().__init__(False, name=opt.get_name() if name is None else name)
        self._opt = opt

    def compute_gradients(self, loss: Any, var_list: Any = None, **kwargs: Any) -> list[tuple[Any, Any]]:
        """Return the pairs of the wrapped optimizer."""
        pairs: list[tuple[Any, Any]] = self._opt.compute_gradients(loss, var_list=var_list, **kwargs)
        return pairs

    def apply_gradients(self, grads_and_vars: Pairs, global_step: Any = None, name: str | None = None) -> Any:
        """Return the update operation of the wrapped optimizer."""
        return self._opt.apply_gradients(grads_and_vars, global_step=global_step, name=name)

    def get_slot(self, *args: Any, **kwargs: Any) -> Any:
        """Return a slot of the wrapped optimizer."""
        return self._opt.get_slot(*args, **kwargs)

    def get_slot_names(self, *args: Any, **kwargs: Any) -> Any:
        """Return the slot names of the wrapped optimizer."""
        return self._opt.get_slot_names(*args, **kwargs)

    def variables(self) -> Any:
        """Return the variables of the wrapped optimizer."""
        return self._opt.variables()


class _Accumulating(IpuOptimizer):
    """Accumulates gradients over mini-batches for the wrapped optimizer."""

    #: Set by constructors of subclasses.
    _accumulation: Accumulation

    def apply_gradients(self, grads_and_vars: Pairs, global_step: Any = None, name: str | None = None) -> Any:
        """Return the wrapped optimizer's update operation for accumulated gradients."""
        accumulation = self._accumulation

        def value(variable: Any) -> Accumulation:
            dtype = accumulation.dtype_of(variable)
            return replace(
                accumulation, dtype=None if dtype is None else np.dtype(dtype), variable=variable_name(variable)
            )

        return super().apply_gradients(
            mark_gradients(grads_and_vars, value, "gradient_accumulation"), global_step, name
        )


def mark_gradients(pairs: Pairs, value: Callable[[Any], Any], name: str) -> list[tuple[Any, Any]]:
    """Mark gradients: pass each through a node that holds ``value(variable)``, for readers of the graph."""
    result = []
    for gradient, variable in pairs:
        if gradient is not None:
            tensor = tf.convert_to_tensor(gradient)
            mark = value(variable)
            dtype = getattr(mark, "dtype", None) or tensor.dtype
            (tensor,) = add_node(Entry(_mark_kernel, value=mark), [tensor], [(dtype, tensor.shape)], name)
            result.append((tensor, variable))
    return result


def _mark_kernel(node: Node) -> Kernel:
    """Return the kernel of a marking node: the identity, or the average over replicas if inside a pass."""
    (dtype,), mark = node.output_types, value_of(node, Averaged)
    if mark is not None and mark.in_pass:
        return lambda gradient: functions.all_reduce(gradient) / dtype.type(functions.surroundings().replica.count)
    return lambda gradient: np.asarray(gradient, dtype)


def accumulates(optimizer: Any) -> bool:
    """Tell whether an optimizer, or an optimizer that it wraps, accumulates gradients."""
    while isinstance(optimizer, IpuOptimizer) and not isinstance(optimizer, _Accumulating):
        optimizer = optimizer._opt
    return isinstance(optimizer, _Accumulating)


def accumulator_dtype(argument: str, choice: Any, variable: Any) -> Any:
    """Return the dtype of a variable's gradient accumulator; None for the variable's dtype.

    Args:
        argument: name of the argument, for messages.
        choice: a dtype, a function from a variable to a dtype, or None.
        variable: the variable.

    Raises:
        ProgramError: if the function fails.
        ProgramTypeError: if the function does not return a dtype.
    """
    if callable(choice) and not isinstance(choice, type | tf.DType):
        try:
            choice = choice(variable)
        except Exception as error:
            raise ProgramError(
                f"{argument}: expected a dtype of the function for variable {variable.op.name!r}, got "
                f"{type(error).__name__}: {error}"
            ) from error
    return None if choice is None else checks.dtype(argument, choice)


class CrossReplicaOptimizer(IpuOptimizer):
    """Averages accumulated gradients over all replicas, and passes the averages to the wrapped optimizer.

    Subclasses and outer optimizers see a replica's local gradients.
    """

    def __init__(self, opt: Any, name: str = "CrossReplicaOptimizer") -> None:
        """Wrap an optimizer; raises ProgramTypeError for another object."""
        super().__init__(opt, name)

    def apply_gradients(self, grads_and_vars: Pairs, global_step: Any = None, name: str | None = None) -> Any:
        """Average gradients over replicas, and apply them with the wrapped optimizer."""
        pairs = mark_gradients(
            grads_and_vars, lambda variable: Averaged(variable_name(variable)), "cross_replica_average"
        )
        return super().apply_gradients(pairs, global_step, name)


class GradientAccumulationOptimizerV2(_Accumulating):
    """Accumulates gradients over mini-batches, and passes the result to any wrapped optimizer."""

    def __init__(
        self,
        opt: Any,
        num_mini_batches: int,
        offload_weight_update_variables: bool | None = None,
        replicated_optimizer_state_sharding: bool | None = False,
        dtype: Any = None,
        name: str = "GradientAccumulationOptimizerV2",
        *,
        reduction_method: GradientAccumulationReductionMethod | str = GradientAccumulationReductionMethod.SUM,
    ) -> None:
        """Wrap an optimizer.

        Args:
            opt: optimizer to wrap.
            num_mini_batches: mini-batches per weight update.
            offload_weight_update_variables: as in ``pipelining_ops.pipeline``.
            replicated_optimizer_state_sharding: as in ``pipelining_ops.pipeline``.
            dtype: dtype of the accumulators, or a function from a variable to a dtype; by default the variable's dtype.
            name: name of the wrapper.
            reduction_method: sum, mean or running mean of the gradients.

        Raises:
            ProgramTypeError: if an argument has a wrong type.
            ProgramError: if num_mini_batches is below 1 or the reduction_method is unknown.
        """
        super().__init__(opt, name)
        offload = checks.three_state("offload_weight_update_variables", offload_weight_update_variables)
        sharding = checks.three_state("replicated_optimizer_state_sharding", replicated_optimizer_state_sharding)
        if dtype is not None and (not callable(dtype) or isinstance(dtype, type)):
            dtype = checks.dtype("dtype", dtype)
        self._accumulation = Accumulation(
            _checked_mini_batches(num_mini_batches),
            GradientAccumulationReductionMethod.parse(reduction_method).value,
            {
                "offload_weight_update_variables": offload,
                "replicated_optimizer_state_sharding": bool(offload if sharding is None else sharding),
            },
            partial(accumulator_dtype, "dtype", dtype),
        )


class CrossReplicaGradientAccumulationOptimizerV2(IpuOptimizer):
    """Accumulates gradients over mini-batches, then averages over replicas, then applies."""

    def __init__(
        self,
        opt: Any,
        num_mini_batches: int,
        offload_weight_update_variables: bool | None = None,
        replicated_optimizer_state_sharding: bool | None = False,
        dtype: Any = None,
        name: str = "CrossReplicaGradientAccumulationOptimizerV2",
        *,
        reduction_method: GradientAccumulationReductionMethod | str = GradientAccumulationReductionMethod.SUM,
    ) -> None:
        """Wrap an optimizer; arguments and errors as in GradientAccumulationOptimizerV2."""
        inner = GradientAccumulationOptimizerV2(
            CrossReplicaOptimizer(opt),
            num_mini_batches,
            offload_weight_update_variables,
            replicated_optimizer_state_sharding,
            dtype,
            reduction_method=reduction_method,
        )
        super().__init__(inner, name)


class GradientAccumulationOptimizer(_Accumulating):
    """Accumulates gradients over mini-batches for a GradientDescentOptimizer or a MomentumOptimizer."""

    def __init__(
        self,
        opt: Any,
        num_mini_batches: int,
        verify_usage: bool = True,
        name: str = "GradientAccumulationOptimizer",
    ) -> None:
        """Wrap an optimizer.

        Args:
            opt: optimizer to wrap.
            num_mini_batches: mini-batches per weight update.
            verify_usage: whether to refuse other optimizers.
            name: name of the wrapper.

        Raises:
            ProgramTypeError: if an argument has a wrong type.
            ProgramError: if num_mini_batches is below 1 or opt is not the expected optimizer.
        """
        super().__init__(opt, name)
        self._accumulation = Accumulation(_checked_mini_batches(num_mini_batches))
        innermost = opt
        while isinstance(innermost, IpuOptimizer):
            innermost = innermost._opt
        supported_classes = _TRAIN.GradientDescentOptimizer | _TRAIN.MomentumOptimizer
        if checks.truth("verify_usage", verify_usage) and not isinstance(innermost, supported_classes):
            raise ProgramError(
                "opt: expected a GradientDescentOptimizer or a MomentumOptimizer, because verify_usage is True, got "
                f"{opt.get_name()}: GradientAccumulationOptimizerV2 takes any optimizer"
            )


class CrossReplicaGradientAccumulationOptimizer(IpuOptimizer):
    """Accumulates like GradientAccumulationOptimizer, and averages over replicas."""

    def __init__(
        self,
        opt: Any,
        num_mini_batches: int,
        verify_usage: bool = True,
        name: str = "CrossReplicaGradientAccumulationOptimizer",
    ) -> None:
        """Wrap an optimizer; errors as in GradientAccumulationOptimizer."""
        inner = GradientAccumulationOptimizer(CrossReplicaOptimizer(opt), num_mini_batches, verify_usage)
        super().__init__(inner, name)


class MapGradientOptimizer(IpuOptimizer):
    """Maps a micro-batch's gradients, variable by variable, before accumulation."""

    _argument = "wrapped_optimizer"

    def __init__(
        self,
        wrapped_optimizer: Any,
        gradient_mapping_function: Callable[[Any, Any], Any],
        name: str = "MapGradientOptimizer",
    ) -> None:
        """Wrap an optimizer.

        Args:
            wrapped_optimizer: optimizer to wrap.
            gradient_mapping_function: function from a gradient and its variable to a gradient.
            name: name of the wrapper.

        Raises:
            ProgramTypeError: if wrapped_optimizer is not an optimizer or the function is not callable.
        """
        super().__init__(wrapped_optimizer, name)
        checks.function("gradient_mapping_function", gradient_mapping_function)
        self._function = gradient_mapping_function

    def compute_gradients(self, *args: Any, **kwargs: Any) -> list[tuple[Any, Any]]:
        """Return the wrapped optimizer's pairs with mapped gradients."""
        return [
            (gradient if gradient is None else self._function(gradient, variable), variable)
            for gradient, variable in super().compute_gradients(*args, **kwargs)
        ]


class ShardedOptimizer(IpuOptimizer):
    """Delegates to another optimizer: backward passes and updates always run on the forward pass's shard."""

    _argument = "optimizer"

    def __init__(self, optimizer: Any) -> None:
        """Wrap an optimizer; raises ProgramTypeError for another object."""
        super().__init__(optimizer, "ShardedOptimizer")

    def compute_gradients(self, loss: Any, var_list: Any = None, **kwargs: Any) -> list[tuple[Any, Any]]:
        """Return the wrapped optimizer's pairs, with gradients on the shards of the forward operations."""
        return super().compute_gradients(loss, var_list=var_list, **kwargs | {"colocate_gradients_with_ops": True})


def _checked_mini_batches(count: object) -> int:
    """Return a number of mini-batches; raises ProgramError with Graphcore's message if it is below 1."""
    result = checks.integer("num_mini_batches", count)
    if result < 1:
        raise ProgramError("num_mini_batches must be a positive number.")
    return checks.whole("num_mini_batches", result)
