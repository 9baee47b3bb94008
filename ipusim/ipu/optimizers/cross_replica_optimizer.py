"""An optimizer that averages gradients over replicas."""

from __future__ import annotations

from typing import Any

from ipusim.ipu.runtime.distribution import averaged
from ipusim.ipu.runtime.gradients import GradientsAndVariables
from ipusim.ipu.runtime.optimizer import Optimizer, said
from ipusim.ipu.runtime.weight_update import IpuOptimizer


class CrossReplicaOptimizer(IpuOptimizer):
    """Averages the accumulated gradients over all replicas before the wrapped optimizer applies them.

    A subclass, or an optimizer around it, gets each replica's own gradients; the wrapped one gets the averages.
    """

    def __init__(self, opt: Optimizer, name: str = "CrossReplicaOptimizer") -> None:
        """Wrap ``opt``; raises ProgramTypeError for what is no optimizer."""
        super().__init__(opt, name)

    @property
    def cross_replica(self) -> bool:
        """True."""
        return True

    def apply_gradients(
        self, grads_and_vars: GradientsAndVariables, global_step: object = None, name: str | None = None
    ) -> Any:
        """Average the gradients over replicas, and let the wrapped optimizer apply them."""
        return super().apply_gradients(averaged(grads_and_vars), **said(global_step=global_step, name=name))
