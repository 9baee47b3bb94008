"""An optimizer of a sharded program: each variable is updated on the IPU that it is on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ipusim.ipu.runtime.gradients import GradientsAndVariables, Pair
from ipusim.ipu.runtime.optimizer import Optimizer, said
from ipusim.ipu.runtime.weight_update import IpuOptimizer


class ShardedOptimizer(IpuOptimizer, maps_gradients=False):
    """Leaves everything to another optimizer: backward passes and updates are where the forward passes are anyway."""

    _argument = "optimizer"

    def __init__(self, optimizer: Optimizer) -> None:
        """Wrap an optimizer; raises ProgramTypeError for what is none."""
        super().__init__(optimizer, "ShardedOptimizer")

    def compute_gradients(self, loss: Any, var_list: Sequence[Any] | None = None, **kwargs: Any) -> list[Pair]:  # type: ignore[override]
        """Return what the wrapped optimizer computes on the IPUs of the forward passes."""
        return super().compute_gradients(loss, var_list, **kwargs | {"colocate_gradients_with_ops": True})

    def apply_gradients(
        self, grads_and_vars: GradientsAndVariables, global_step: object = None, name: str | None = None
    ) -> Any:
        """Update each variable by the wrapped optimizer, on the variable's IPU."""
        return super().apply_gradients(grads_and_vars, **said(global_step=global_step, name=name))
