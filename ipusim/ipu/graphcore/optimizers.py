"""Graphcore's optimizers around those of TensorFlow: gradients that are accumulated, mapped or sharded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ipusim.base.errors import ProgramError
from ipusim.ipu.graph.accumulation import Accumulation
from ipusim.ipu.graph.node import Node
from ipusim.ipu.graph.own_nodes import add_node
from ipusim.ipu.graph.registry import Entry, Kernel
from ipusim.ipu.graph.tensorflow_import import load
from ipusim.ipu.runtime import checks
from ipusim.ipu.runtime.pipeline_options import GradientAccumulationReductionMethod

__all__ = [
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

    def compute_gradients(self, *args: Any, **kwargs: Any) -> list[tuple[Any, Any]]:
        """Return the pairs of the wrapped optimizer."""
        pairs: list[tuple[Any, Any]] = self._opt.compute_gradients(*args, **kwargs)
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
        entry = Entry(_alone, value=self._accumulation)
        pairs = []
        for gradient, variable in grads_and_vars:
            if gradient is not None:
                tensor = tf.convert_to_tensor(gradient)
                (tensor,) = add_node(entry, [tensor], [(tensor.dtype, tensor.shape)], "gradient_accumulation")
                pairs.append((tensor, variable))
        return super().apply_gradients(pairs, global_step, name)


def _alone(_: Node) -> Kernel:
    """Return the kernel of an accumulation that no loop takes out: the gradient of one mini-batch."""
    return np.asarray


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
            dtype: of the accumulators; the variable's own alone is simulated.
            name: the optimizer's.
            reduction_method: how gradients are accumulated.

        Raises:
            ProgramTypeError: for arguments of other types.
            ProgramError: for a number below 1, a method that there is not, and another dtype.
        """
        super().__init__(opt, name)
        offload = checks.three_state("offload_weight_update_variables", offload_weight_update_variables)
        sharding = checks.three_state("replicated_optimizer_state_sharding", replicated_optimizer_state_sharding)
        checks.nothing("dtype", "accumulators have the dtype of their variable", dtype)
        self._accumulate(
            Accumulation(
                _mini_batches(num_mini_batches),
                GradientAccumulationReductionMethod.parse(reduction_method).value,
                {
                    "offload_weight_update_variables": offload,
                    "replicated_optimizer_state_sharding": bool(offload if sharding is None else sharding),
                },
            )
        )


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
