"""An optimizer that changes each micro-batch's gradients before they are accumulated."""

from __future__ import annotations

from typing import Any

import numpy as np

from ipusim.ipu.runtime import checks
from ipusim.ipu.runtime.gradients import GradientFunction, Pair, UnknownGradient, Variable
from ipusim.ipu.runtime.host import Tensor
from ipusim.ipu.runtime.optimizer import Optimizer
from ipusim.ipu.runtime.weight_update import IpuOptimizer


class MapGradientOptimizer(IpuOptimizer):
    """Maps each micro-batch's gradient of each variable before it is accumulated."""

    _argument = "wrapped_optimizer"

    def __init__(
        self,
        wrapped_optimizer: Optimizer,
        gradient_mapping_function: GradientFunction,
        name: str = "MapGradientOptimizer",
    ) -> None:
        """Wrap an optimizer; the function takes a gradient and the variable's value, and returns a gradient.

        Raises ProgramTypeError for what is no optimizer, or no function.
        """
        super().__init__(wrapped_optimizer, name)
        checks.function("gradient_mapping_function", gradient_mapping_function)
        self._function = gradient_mapping_function

    def compute_gradients(self, *args: Any, **kwargs: Any) -> list[Pair]:
        """Return what the wrapped optimizer computes, each gradient mapped.

        Raises ProgramTypeError and ProgramError for a function that does not return a gradient of the same shape.
        """
        return [self._mapped(pair) for pair in self._opt.compute_gradients(*args, **kwargs)]

    def _mapped(self, pair: Pair) -> Pair:
        gradient, variable = pair
        if gradient is None or isinstance(gradient, UnknownGradient):
            return pair
        returned = self._function(gradient, variable.array if isinstance(variable, Variable) else variable)
        result = returned if isinstance(returned, Tensor) else checks.numbers("gradient_mapping_function", returned)
        if result.shape != np.shape(gradient):
            checks.wrong_value(
                "gradient_mapping_function", f"a gradient of shape {np.shape(gradient)} from it", returned
            )
        return result, variable
