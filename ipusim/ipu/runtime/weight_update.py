"""An optimizer of Graphcore's API as the core's: the machine applies it with this."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ipusim.api import Array, VectorWork, Work, functions, layers, learning, models
from ipusim.base.errors import IpusimError, ModelError
from ipusim.ipu.runtime import checks
from ipusim.ipu.runtime.distribution import UntilAverage
from ipusim.ipu.runtime.gradients import Pair, UnknownGradient, Variable, knowing, refuse_several
from ipusim.ipu.runtime.optimizer import Optimizer
from ipusim.ipu.runtime.stage_outfeeds import UpdateOutfeeds
from ipusim.ipu.runtime.symbolic_gradients import trying_updates


class _Loss:
    """The stand-in for the loss in compute_gradients, whose gradients the machine has computed."""


@dataclass(frozen=True)
class MappedByOptimizer(learning.GradientMap):
    """The gradient map of an optimizer's own compute_gradients.

    Each function that changes them costs one operation an element (assumed).

    Attributes:
        compute: from a gradient and its variable's value to what is accumulated.
        functions: how many change it.
    """

    compute: Callable[[Array, Array], Array] = lambda gradient, _: gradient
    functions: int = 0

    def __call__(self, gradient: Array, variable: Array) -> Array:
        """Return the gradient to accumulate, in the dtype of the one that came."""
        return self.compute(gradient, variable)

    def work(self, parameter_count: int, itemsize: int) -> Work:
        """Return one operation for each function and element; reads gradient and variable, writes the gradient."""
        return models.MappingWork(
            vector=VectorWork(parameter_count * self.functions),
            sram_bytes=3 * parameter_count * itemsize if self.functions else 0,
            itemsize=itemsize,
            compute_sets=self.functions,
        )


@dataclass
class WeightUpdate:
    """An optimizer of this package as the core's.

    The last stage sets what it is called with anew in each micro-batch, for a learning rate that is a tensor has
    its value there: that of the last micro-batch before the update counts.

    Attributes:
        optimizer: whose compute_gradients and apply_gradients are called.
        args, kwargs: what apply_gradients is called with beside the gradients.
        compute_args, compute_kwargs: what compute_gradients is called with beside the loss.
        outfeeds: the queues that apply_gradients sends to.
    """

    optimizer: Optimizer
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] | None = None
    compute_args: tuple[Any, ...] = ()
    compute_kwargs: Mapping[str, Any] | None = None
    outfeeds: UpdateOutfeeds = field(default_factory=UpdateOutfeeds)
    #: The variables of all stages beside an unknown gradient, each by the identity of its array, which lives as long as
    #: this.
    _unknown: dict[int, tuple[UnknownGradient, Variable]] = field(default_factory=dict, init=False, repr=False)
    #: Names of those that compute_gradients has left out.
    _left_out: set[str] = field(default_factory=set, init=False, repr=False)

    @property
    def gradient_map(self) -> learning.GradientMap | None:
        """The gradient map of compute_gradients over each micro-batch's gradients, if there is one."""
        count = self.optimizer.gradient_maps
        if not (count or self.compute_args or self.compute_kwargs):
            return None
        return MappedByOptimizer(compute=self._computed, functions=count)

    def _computed(self, gradient: Array, array: Array) -> Array:
        """Return the gradient of one variable that compute_gradients returns.

        Raises UnsupportedProgramError where that depends on other gradients, ProgramTypeError and ProgramError for
        what is no gradient of the variable.
        """
        _, here = self._unknown[id(array)]
        # A stage that is there twice has two arrays of a name: to the program they are one variable.
        pairs: list[Pair] = [
            (gradient, here) if key == id(array) else pair
            for key, pair in self._unknown.items()
            if key == id(array) or pair[1].name != here.name
        ]
        with knowing(pairs), functions.Surrounded(ipu_alone="compute_gradients of an optimizer"):
            returned = self.optimizer.compute_gradients(_Loss(), *self.compute_args, **(self.compute_kwargs or {}))
        result = _of_variable(returned, here)
        if result is None:
            self._left_out.add(here.name)
            return np.zeros_like(gradient)
        return result.astype(gradient.dtype, copy=False)

    def initial_state(self, parameters: layers.Parameters) -> learning.State:
        """Return the rule's state before the first update."""
        state = self.optimizer.rule.initial_state(parameters)
        self._unknown |= {
            id(array): (UnknownGradient(array.shape, array.dtype), Variable(name, array, state))
            for name, array in parameters.items()
        }
        return state

    def find_outfeeds(self, variables: Mapping[str, Array]) -> None:
        """Find the queues that apply_gradients sends to, where it is that of an optimizer around another.

        It is called once with gradients of zeros for ``variables``, none of which changes.
        """
        if self.optimizer.leaves_update:
            pairs = [(np.zeros_like(array), Variable(name, array.copy(), {})) for name, array in variables.items()]
            with self.outfeeds.calling(running=False), trying_updates():
                self.optimizer.apply_gradients(pairs, *self.args, **(self.kwargs or {}))

    def apply(self, parameters: layers.Parameters, gradients: layers.Parameters, state: learning.State) -> None:
        """Update the variables of one stage by the optimizer."""
        self._apply([learning.Updated(parameters, gradients, state)])

    def begin(self, stages: Sequence[learning.Updated], replicated: bool) -> Callable[[], object]:
        """Run the optimizer up to the averaging of gradients; return the rest of the update."""
        if not any(stage.parameters for stage in stages):
            return lambda: None
        if not replicated:
            return lambda: self._apply(stages)
        call = UntilAverage(lambda: self._apply(stages))
        stored = {name: array for stage in stages for name, array in stage.gradients.items()}
        values = [pair for pair in call.start() or () if pair[0] is not None]
        for gradient, variable in values:
            stored[variable.name][...] = gradient
        return lambda: call.finish([(stored[variable.name], variable) for _, variable in values])

    def _apply(self, stages: Sequence[learning.Updated]) -> None:
        pairs = [
            (None if name in self._left_out else stage.gradients[name], Variable(name, array, stage.state))
            for stage in stages
            for name, array in stage.parameters.items()
        ]
        if not pairs:
            return
        try:
            with functions.Surrounded(ipu_alone="apply_gradients of an optimizer"), self.outfeeds.calling(running=True):
                self.optimizer.apply_gradients(pairs, *self.args, **(self.kwargs or {}))
        except (IpusimError, KeyboardInterrupt):
            raise
        except BaseException as error:  # an optimizer of the user's own may do anything
            line = functions.line_of(error)
            raise ModelError(
                f"apply_gradients failed: {line + ': ' if line else ''}{functions.message_of(error)}"
            ) from error

    def work(self, parameter_count: int, itemsize: int) -> Work:
        """Return the rule's work."""
        return self.optimizer.rule.work(parameter_count, itemsize)

    def state_bytes(self, parameter_count: int, itemsize: int) -> int:
        """Return the bytes of the rule's slots."""
        return self.optimizer.rule.state_bytes(parameter_count, itemsize)


def _of_variable(returned: Any, here: Variable) -> Array | None:
    """Return the gradient of one variable out of what compute_gradients has returned; None where it has none."""
    try:
        pairs = [(gradient, variable) for gradient, variable in returned]
    except (TypeError, ValueError):
        checks.wrong_type("compute_gradients", "pairs of a gradient and a Variable from it", returned)
    result = next((gradient for gradient, variable in pairs if getattr(variable, "name", None) == here.name), None)
    if result is None:
        return None
    if isinstance(result, UnknownGradient):
        refuse_several()
    array = checks.numbers("compute_gradients", result)
    if array.shape != here.shape:
        checks.wrong_value("compute_gradients", f"a gradient of shape {here.shape} for {here.name!r}", result)
    return array
