"""Graphcore's optimizers around those of TensorFlow: gradients that are accumulated, mapped or sharded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from ipusim.api import functions
from ipusim.base.errors import ProgramError
from ipusim.ipu.graph.accumulation import Accumulation
from ipusim.ipu.graph.averaging import Averaged, averaged_of
from ipusim.ipu.graph.node import Node
from ipusim.ipu.graph.own_nodes import add_node
from ipusim.ipu.graph.registry import Entry, Kernel
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
#: Pairs of a gradient and its variable.
Pairs = Sequence[tuple[Any, Any]]


class IpuOptimizer(_OPTIMIZER):  # type: ignore[misc]
    """Leaves everything to another optimizer; an optimizer of a program's own may inherit from it."""

    #: Name of the argument with the wrapped optimizer.
    _argument = "opt"

    def __init__(self, opt: Any, name: str | None = None) -> None:
        """Wrap an optimizer.

        Args:
            opt: the optimizer.
            name: the name; by default that of the wrapped one.

        Raises:
            ProgramTypeError: for what is no optimizer of TensorFlow 1.
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
        """Return the slots' names of the wrapped optimizer."""
        return self._opt.get_slot_names(*args, **kwargs)

    def variables(self) -> Any:
        """Return the variables of the wrapped optimizer."""
        return self._opt.variables()


class _Accumulating(IpuOptimizer):
    """An optimizer whose update takes gradients that several mini-batches have accumulated."""

    def _accumulate(self, accumulation: Accumulation) -> None:
        self._accumulation = accumulation

    def apply_gradients(self, grads_and_vars: Pairs, global_step: Any = None, name: str | None = None) -> Any:
        """Return the update operation of the wrapped optimizer, for accumulated gradients."""
        accumulation = self._accumulation

        def value(variable: Any) -> Accumulation:
            dtype = accumulation.dtype_of(variable)
            return accumulation if dtype is None else replace(accumulation, dtype=np.dtype(dtype))

        return super().apply_gradients(marked(grads_and_vars, value, "gradient_accumulation"), global_step, name)


def marked(pairs: Pairs, value: Callable[[Any], Any], name: str) -> list[tuple[Any, Any]]:
    """Return pairs of gradients behind a node each, which a value stands behind, and variables."""
    result = []
    for gradient, variable in pairs:
        if gradient is not None:
            tensor = tf.convert_to_tensor(gradient)
            mark = value(variable)
            dtype = getattr(mark, "dtype", None) or tensor.dtype
            (tensor,) = add_node(Entry(_handed_on, value=mark), [tensor], [(dtype, tensor.shape)], name)
            result.append((tensor, variable))
    return result


def _handed_on(node: Node) -> Kernel:
    """Return the kernel of a node that hands on a gradient: in a pass the average of all replicas."""
    (dtype,), mark = node.output_types, averaged_of(node)
    if mark is not None and mark.in_pass:
        return lambda gradient: functions.all_reduce(gradient) / dtype.type(functions.surroundings().replica.count)
    return lambda gradient: np.asarray(gradient, dtype)


def accumulates(optimizer: Any) -> bool:
    """Tell whether an optimizer, or the optimizer that it wraps, accumulates gradients."""
    while isinstance(optimizer, IpuOptimizer) and not isinstance(optimizer, _Accumulating):
        optimizer = optimizer._opt
    return isinstance(optimizer, _Accumulating)


def accumulator_dtype(argument: str, chosen: Any, variable: Any) -> Any:
    """Return the dtype of a variable's gradient accumulator; None for that of the variable.

    Args:
        argument: name of the argument.
        chosen: a dtype, a function from a variable to it, or None.
        variable: the variable.

    Raises:
        ProgramError: for a function that fails, and ProgramTypeError for a function that returns no dtype.
    """
    if callable(chosen) and not isinstance(chosen, type | tf.DType):
        try:
            chosen = chosen(variable)
        except Exception as error:
            raise ProgramError(
                f"{argument}: expected a dtype of the function for variable {variable.op.name!r}, got "
                f"{type(error).__name__}: {error}"
            ) from error
    return None if chosen is None else checks.dtype(argument, chosen)


class CrossReplicaOptimizer(IpuOptimizer):
    """Averages the accumulated gradients over all replicas before the wrapped optimizer applies them.

    A subclass, or an optimizer around it, gets each replica's own gradients; the wrapped one gets the averages.
    """

    def __init__(self, opt: Any, name: str = "CrossReplicaOptimizer") -> None:
        """Wrap an optimizer; raises ProgramTypeError for another object."""
        super().__init__(opt, name)

    def apply_gradients(self, grads_and_vars: Pairs, global_step: Any = None, name: str | None = None) -> Any:
        """Average the gradients over replicas, and let the wrapped optimizer apply them."""
        pairs = marked(grads_and_vars, lambda variable: Averaged(variable_name(variable)), "cross_replica_average")
        return super().apply_gradients(pairs, global_step, name)


class GradientAccumulationOptimizerV2(_Accumulating):
    """Accumulates the gradients of several mini-batches before the wrapped optimizer applies them; that may be any."""

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
            opt: the optimizer.
            num_mini_batches: mini-batches of a weight update.
            offload_weight_update_variables: as that of a pipeline.
            replicated_optimizer_state_sharding: as that of a pipeline.
            dtype: of the accumulators, or a function from a variable to it; by default the variable's own.
            name: the optimizer's.
            reduction_method: how gradients are accumulated.

        Raises:
            ProgramTypeError: for arguments of other types.
            ProgramError: for a number below 1, and a method that there is not.
        """
        super().__init__(opt, name)
        offload = checks.three_state("offload_weight_update_variables", offload_weight_update_variables)
        sharding = checks.three_state("replicated_optimizer_state_sharding", replicated_optimizer_state_sharding)
        if dtype is not None and (not callable(dtype) or isinstance(dtype, type)):
            dtype = checks.dtype("dtype", dtype)
        self._accumulate(
            Accumulation(
                _mini_batches(num_mini_batches),
                GradientAccumulationReductionMethod.parse(reduction_method).value,
                {
                    "offload_weight_update_variables": offload,
                    "replicated_optimizer_state_sharding": bool(offload if sharding is None else sharding),
                },
                partial(accumulator_dtype, "dtype", dtype),
            )
        )


class CrossReplicaGradientAccumulationOptimizerV2(IpuOptimizer):
    """Accumulates the gradients of several mini-batches, and averages them over replicas before they are applied."""

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
        """Wrap an optimizer; takes and raises what GradientAccumulationOptimizerV2 does."""
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
    """Accumulates the gradients of several mini-batches for a GradientDescentOptimizer or a MomentumOptimizer."""

    def __init__(
        self,
        opt: Any,
        num_mini_batches: int,
        verify_usage: bool = True,
        name: str = "GradientAccumulationOptimizer",
    ) -> None:
        """Wrap an optimizer.

        Args:
            opt: the optimizer.
            num_mini_batches: mini-batches of a weight update.
            verify_usage: whether other optimizers than those two are refused.
            name: the optimizer's.

        Raises:
            ProgramTypeError: for arguments of other types.
            ProgramError: for a number below 1, and for another optimizer.
        """
        super().__init__(opt, name)
        self._accumulate(Accumulation(_mini_batches(num_mini_batches)))
        innermost = opt
        while isinstance(innermost, IpuOptimizer):
            innermost = innermost._opt
        simple = _TRAIN.GradientDescentOptimizer | _TRAIN.MomentumOptimizer
        if checks.truth("verify_usage", verify_usage) and not isinstance(innermost, simple):
            raise ProgramError(
                "opt: expected a GradientDescentOptimizer or a MomentumOptimizer, as verify_usage is True, got "
                f"{opt.get_name()}: GradientAccumulationOptimizerV2 takes any optimizer"
            )


class CrossReplicaGradientAccumulationOptimizer(IpuOptimizer):
    """Accumulates as GradientAccumulationOptimizer does, and averages over replicas."""

    def __init__(
        self,
        opt: Any,
        num_mini_batches: int,
        verify_usage: bool = True,
        name: str = "CrossReplicaGradientAccumulationOptimizer",
    ) -> None:
        """Wrap an optimizer; raises what GradientAccumulationOptimizer does."""
        inner = GradientAccumulationOptimizer(CrossReplicaOptimizer(opt), num_mini_batches, verify_usage)
        super().__init__(inner, name)


class MapGradientOptimizer(IpuOptimizer):
    """Maps each micro-batch's gradient of each variable before it is accumulated."""

    _argument = "wrapped_optimizer"

    def __init__(
        self,
        wrapped_optimizer: Any,
        gradient_mapping_function: Callable[[Any, Any], Any],
        name: str = "MapGradientOptimizer",
    ) -> None:
        """Wrap an optimizer.

        Args:
            wrapped_optimizer: the optimizer.
            gradient_mapping_function: takes a gradient and its variable, returns a gradient.
            name: the optimizer's.

        Raises:
            ProgramTypeError: for what is no optimizer, or no function.
        """
        super().__init__(wrapped_optimizer, name)
        checks.function("gradient_mapping_function", gradient_mapping_function)
        self._function = gradient_mapping_function

    def compute_gradients(self, *args: Any, **kwargs: Any) -> list[tuple[Any, Any]]:
        """Return the pairs of the wrapped optimizer, each gradient mapped."""
        return [
            (gradient if gradient is None else self._function(gradient, variable), variable)
            for gradient, variable in super().compute_gradients(*args, **kwargs)
        ]


class ShardedOptimizer(IpuOptimizer):
    """Leaves everything to another optimizer: backward passes and updates are where the forward passes are anyway."""

    _argument = "optimizer"

    def __init__(self, optimizer: Any) -> None:
        """Wrap an optimizer; raises ProgramTypeError for another object."""
        super().__init__(optimizer, "ShardedOptimizer")

    def compute_gradients(self, loss: Any, var_list: Any = None, **kwargs: Any) -> list[tuple[Any, Any]]:
        """Return the pairs of the wrapped optimizer, each gradient where its forward operation is."""
        return super().compute_gradients(loss, var_list=var_list, **kwargs | {"colocate_gradients_with_ops": True})


def _mini_batches(count: object) -> int:
    result = checks.integer("num_mini_batches", count)
    if result < 1:
        raise ProgramError("num_mini_batches must be a positive number.")
    return checks.whole("num_mini_batches", result)
