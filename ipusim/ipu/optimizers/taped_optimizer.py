"""The optimizer of a body that calls apply_gradients itself: it computes what the body does with its gradients."""

from __future__ import annotations

from typing import Any

from ipusim.errors import UnsupportedProgramError
from ipusim.ipu.optimizers.asked_gradients import AskedUpdate
from ipusim.ipu.optimizers.ipu_optimizer import IpuOptimizer
from ipusim.ipu.optimizers.optimizer import Optimizer
from ipusim.ipu.optimizers.variable import GradientsAndVariables


class TapedOptimizer(IpuOptimizer, maps_gradients=False):
    """Computes gradients as a body asked for, and lets another optimizer apply them."""

    def __init__(self, opt: Optimizer, update: AskedUpdate) -> None:
        """Take the body's optimizer and what it was handed."""
        super().__init__(opt)
        self._update = update

    def apply_gradients(self, grads_and_vars: GradientsAndVariables, *args: Any, **kwargs: Any) -> Any:
        """Compute, and let the body's optimizer apply, with what the body has called it with."""
        return self._opt.apply_gradients(self._update.applied(grads_and_vars), *args, **kwargs)


def as_asked(opt: Optimizer, update: AskedUpdate | None) -> Optimizer:
    """Return the optimizer of a body that handed ``update`` to ``opt``, None where it called minimize.

    Raises UnsupportedProgramError for gradients that would have to be changed before they are accumulated.
    """
    if update is None or update.plain:
        return opt
    if opt.accumulation is not None and opt.accumulation.num_mini_batches > 1:
        raise UnsupportedProgramError(
            "grads_and_vars: expected gradients as they come where an optimizer accumulates them: change them in a "
            "MapGradientOptimizer"
        )
    return TapedOptimizer(opt, update)
