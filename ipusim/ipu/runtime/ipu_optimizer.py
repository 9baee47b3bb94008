"""An optimizer around another: what it does not define is the other's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ipusim.base.errors import UnsupportedProgramError
from ipusim.ipu.runtime import checks
from ipusim.ipu.runtime.gradients import GradientsAndVariables, Pair, Variable
from ipusim.ipu.runtime.optimizer import Accumulation, Optimizer, said
from ipusim.ipu.runtime.symbolic_gradients import SymbolicUpdate


class IpuOptimizer(Optimizer, maps_gradients=False):
    """Leaves everything to another optimizer; one of your own may inherit from it and change what it needs to."""

    #: What the argument with the wrapped optimizer is called.
    _argument = "opt"

    def __init__(self, opt: Optimizer, name: str | None = None) -> None:
        """Wrap ``opt``, whose name is also this one's by default; raises ProgramTypeError for what is no optimizer."""
        value: object = opt
        if not isinstance(value, Optimizer):
            checks.wrong_type(self._argument, "an Optimizer", value)
        super().__init__(opt.rule, opt.get_name() if name is None else name)
        self._opt = opt

    @property
    def gradient_maps(self) -> int:
        """The wrapped optimizer's, and this one's."""
        return super().gradient_maps + self._opt.gradient_maps

    @property
    def cross_replica(self) -> bool:
        """Whether the wrapped optimizer averages gradients over replicas."""
        return self._opt.cross_replica

    @property
    def leaves_update(self) -> bool:
        """Whether the wrapped optimizer does."""
        return self._opt.leaves_update

    @property
    def accumulation(self) -> Accumulation | None:
        """How the wrapped optimizer accumulates."""
        return self._opt.accumulation

    def get_name(self) -> str:
        """Return the name of the wrapped optimizer."""
        return self._opt.get_name()

    def compute_gradients(self, loss: Any, var_list: Sequence[Any] | None = None, **kwargs: Any) -> list[Pair]:  # type: ignore[override]
        """Return what the wrapped optimizer computes."""
        return self._opt.compute_gradients(loss, var_list=var_list, **kwargs)

    def apply_gradients(
        self, grads_and_vars: GradientsAndVariables, global_step: object = None, name: str | None = None
    ) -> Any:
        """Update the variables by the wrapped optimizer."""
        return self._opt.apply_gradients(grads_and_vars, **said(global_step=global_step, name=name))

    def get_slot(self, *args: Any, **kwargs: Any) -> Variable | None:
        """Return a slot of the wrapped optimizer."""
        return self._opt.get_slot(*args, **kwargs)

    def get_slot_names(self, *args: Any, **kwargs: Any) -> list[str]:
        """Return the names of the wrapped optimizer's slots.

        Arguments have no effect: ``args`` and ``kwargs`` are not handed on, as the wrapped optimizer's method takes
        none.
        """
        return self._opt.get_slot_names(*args, **kwargs)

    def variables(self) -> list[Variable]:
        """Return the wrapped optimizer's slots."""
        return self._opt.variables()


class TapedOptimizer(IpuOptimizer, maps_gradients=False):
    """Computes gradients as a body asked for, and lets another optimizer apply them."""

    def __init__(self, opt: Optimizer, update: SymbolicUpdate) -> None:
        """Take the body's optimizer and what it was handed."""
        super().__init__(opt)
        self._update = update

    def apply_gradients(self, grads_and_vars: GradientsAndVariables, *args: Any, **kwargs: Any) -> Any:
        """Compute, and let the body's optimizer apply, with what the body has called it with."""
        return self._opt.apply_gradients(self._update.applied(grads_and_vars), *args, **kwargs)


def optimizer_of_body(opt: Optimizer, update: SymbolicUpdate | None) -> Optimizer:
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
