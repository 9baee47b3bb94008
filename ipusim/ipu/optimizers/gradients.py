"""The gradients of a loss that is a function, outside of any program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ipusim.errors import ProgramTypeError
from ipusim.ipu.optimizers.variable import Pair, Variable
from ipusim.model.learning.optimizers import State
from ipusim.model.stages.function_stage import FunctionStage, try_stage


def gradients_of(loss: Callable[[], Any]) -> list[Pair]:
    """Return the gradient of each variable that ``loss`` asks for, at its initial value, in that order.

    A loss of several elements counts as their sum. Raises ModelError for a loss that fails or cannot be traced, and
    ProgramTypeError for one that gives several results.
    """
    from ipusim.model.functions.gradient import pullback_of_several  # noqa: PLC0415 - autograd takes a while to import

    tried = try_stage("loss", loss, ())
    if len(tried.outputs) != 1:
        raise ProgramTypeError(f"loss: expected one tensor of it, got {len(tried.outputs)}")
    values = [array.copy() for array in tried.variables.values()]
    stage = FunctionStage("loss", loss, tried.variables, (), True)
    with stage.tracing():
        pull, (value,) = pullback_of_several(stage.call, values, stage.wanted(()))
        found = pull([np.ones_like(value)])
    state: State = {}
    return [
        (np.asarray(gradient, array.dtype), Variable(name, array, state))
        for name, array, gradient in zip(tried.variables, values, found, strict=True)
    ]
