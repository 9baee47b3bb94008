"""Optimizers that update weights once for several mini-batches, in programs that are no pipeline."""

from __future__ import annotations

from typing import Any

from ipusim.api import learning
from ipusim.base.errors import ProgramError
from ipusim.ipu.optimizers.cross_replica_optimizer import CrossReplicaOptimizer
from ipusim.ipu.runtime import checks
from ipusim.ipu.runtime.optimizer import Accumulation, Optimizer
from ipusim.ipu.runtime.pipeline_options import GradientAccumulationReductionMethod
from ipusim.ipu.runtime.weight_update import IpuOptimizer

__all__ = [
    "CrossReplicaGradientAccumulationOptimizer",
    "CrossReplicaGradientAccumulationOptimizerV2",
    "GradientAccumulationOptimizer",
    "GradientAccumulationOptimizerV2",
    "GradientAccumulationReductionMethod",
]


class _Accumulating(IpuOptimizer):
    """An optimizer that says how the program accumulates the gradients that it applies."""

    _accumulation: Accumulation

    @property
    def accumulation(self) -> Accumulation:
        """As asked for."""
        return self._accumulation


class GradientAccumulationOptimizerV2(_Accumulating):
    """Accumulates the gradients of several mini-batches before the wrapped optimizer applies them; that may be any."""

    def __init__(
        self,
        opt: Optimizer,
        num_mini_batches: int,
        offload_weight_update_variables: bool | None = None,
        replicated_optimizer_state_sharding: bool | None = False,
        dtype: Any = None,
        name: str = "GradientAccumulationOptimizerV2",
        *,
        reduction_method: GradientAccumulationReductionMethod | str = GradientAccumulationReductionMethod.SUM,
    ) -> None:
        """Wrap ``opt``.

        Args:
            opt: the optimizer.
            num_mini_batches: mini-batches of a weight update.
            offload_weight_update_variables, replicated_optimizer_state_sharding: as those of a pipeline.
            dtype: of the accumulators, or a function from a variable to it; by default the variable's own.
            name: the optimizer's.
            reduction_method: how gradients are accumulated.

        Raises ProgramTypeError for arguments of other types, ProgramError for a number below 1 and a method that
        there is not.
        """
        super().__init__(opt, name)
        offload = checks.three_state("offload_weight_update_variables", offload_weight_update_variables)
        sharding = checks.three_state("replicated_optimizer_state_sharding", replicated_optimizer_state_sharding)
        self._accumulation = Accumulation(
            _mini_batches(num_mini_batches),
            offload,
            offload if sharding is None else sharding,
            dtype
            if dtype is None or (callable(dtype) and not isinstance(dtype, type))
            else checks.dtype("dtype", dtype),
            GradientAccumulationReductionMethod.parse(reduction_method),
        )


class CrossReplicaGradientAccumulationOptimizerV2(IpuOptimizer):
    """Accumulates the gradients of several mini-batches, and averages them over replicas before they are applied."""

    def __init__(
        self,
        opt: Optimizer,
        num_mini_batches: int,
        offload_weight_update_variables: bool | None = None,
        replicated_optimizer_state_sharding: bool | None = False,
        dtype: Any = None,
        name: str = "CrossReplicaGradientAccumulationOptimizerV2",
        *,
        reduction_method: GradientAccumulationReductionMethod | str = GradientAccumulationReductionMethod.SUM,
    ) -> None:
        """Wrap ``opt``; takes and raises what GradientAccumulationOptimizerV2 does."""
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
        opt: Optimizer,
        num_mini_batches: int,
        verify_usage: bool = True,
        name: str = "GradientAccumulationOptimizer",
    ) -> None:
        """Wrap ``opt``.

        Raises ProgramTypeError for arguments of other types, ProgramError for a number below 1, and for another
        optimizer while ``verify_usage`` is True.
        """
        super().__init__(opt, name)
        self._accumulation = Accumulation(_mini_batches(num_mini_batches))
        if checks.truth("verify_usage", verify_usage) and not isinstance(self.rule, learning.SGD | learning.Momentum):
            raise ProgramError(
                "opt: expected a GradientDescentOptimizer or a MomentumOptimizer, as verify_usage is True, got "
                f"{opt.get_name()}: GradientAccumulationOptimizerV2 takes any optimizer"
            )


class CrossReplicaGradientAccumulationOptimizer(IpuOptimizer):
    """Accumulates as GradientAccumulationOptimizer does, and averages over replicas."""

    def __init__(
        self,
        opt: Optimizer,
        num_mini_batches: int,
        verify_usage: bool = True,
        name: str = "CrossReplicaGradientAccumulationOptimizer",
    ) -> None:
        """Wrap ``opt``; raises what GradientAccumulationOptimizer does."""
        super().__init__(
            CrossReplicaOptimizer(GradientAccumulationOptimizer(opt, num_mini_batches, verify_usage)), name
        )


def _mini_batches(count: object) -> int:
    result = checks.integer("num_mini_batches", count)
    if result < 1:
        raise ProgramError("num_mini_batches must be a positive number.")
    return checks.whole("num_mini_batches", result)
