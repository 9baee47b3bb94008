"""The gradients of a loss outside of any program: one that is a function, or a tensor of the host."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from ipusim.errors import ProgramTypeError
from ipusim.ipu.host import Fetch, Running, Tensor
from ipusim.ipu.optimizers.variable import Pair, Variable
from ipusim.ipu.variable import NamedVariable
from ipusim.model.layers.layer import Array
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


def gradients_of_tensor(loss: Tensor) -> list[tuple[Tensor, NamedVariable]]:
    """Return the gradient of each trained variable that a tensor of the host is a function of, in their order there.

    Each is a tensor of the host, whose value a session computes at the values that the variables have then.
    """
    sources = {id(each): each for each in loss.sources()}
    variables = [each for each in sources.values() if isinstance(each, NamedVariable) and each.trainable]
    together = _Gradients(loss, variables)
    return [(_Gradient(together, place, each), each) for place, each in enumerate(variables)]


class _Gradients(Fetch):
    """The gradients of a tensor of the host, in each run of a session."""

    def __init__(self, loss: Tensor, variables: Sequence[NamedVariable]) -> None:
        self._loss, self._variables = loss, variables

    def evaluate(self, running: Running) -> list[Array]:
        import autograd.numpy as anp  # noqa: PLC0415 - autograd takes a while to import
        from autograd import make_vjp  # noqa: PLC0415 - as above

        def loss(values: list[Any]) -> Any:
            known = {id(each): value for each, value in zip(self._variables, values, strict=True)}
            return anp.sum(
                self._loss.of_sources(lambda each: known[id(each)] if id(each) in known else running.value(each))
            )

        pull, value = make_vjp(loss)([running.value(each) for each in self._variables])
        return list(pull(np.ones_like(value)))


class _Gradient(Tensor):
    """The gradient of one variable."""

    late: ClassVar[bool] = True

    def __init__(self, together: _Gradients, place: int, variable: NamedVariable) -> None:
        super().__init__(variable.initial)
        self._together, self._place = together, place

    def evaluate(self, running: Running) -> Array:
        return np.asarray(running.value(self._together)[self._place], self.dtype)
