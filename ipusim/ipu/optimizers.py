"""Optimizers in TensorFlow's and Graphcore's names: what they compute is the core's."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ipusim.errors import ProgramTypeError
from ipusim.ipu import checks
from ipusim.ipu.averaging import UntilAverage, averaged
from ipusim.ipu.gradient_accumulation import GradientAccumulationReductionMethod
from ipusim.model.layers.layer import Array, Parameters
from ipusim.model.learning import optimizers as core
from ipusim.model.learning.gradient_map import GradientMap
from ipusim.model.learning.optimizers import State, Updated
from ipusim.model.work import VectorWork, Work

__all__ = [
    "CrossReplicaOptimizer",
    "GradientAccumulationReductionMethod",
    "GradientDescentOptimizer",
    "MapGradientOptimizer",
    "MomentumOptimizer",
    "Optimizer",
    "Variable",
    "WeightUpdate",
]


@dataclass(frozen=True, eq=False)
class Variable:
    """A variable as an optimizer sees it in a weight update.

    Attributes:
        name: as in get_variable.
        array: its value, which may be changed in place.
        state: the optimizer's arrays for the variables of one stage.
    """

    name: str
    array: Array
    state: State

    @property
    def shape(self) -> tuple[int, ...]:
        """The variable's shape."""
        return self.array.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """The variable's dtype."""
        return self.array.dtype

    def numpy(self) -> Array:
        """Return a copy of the value."""
        return self.array.copy()

    def assign(self, value: npt.ArrayLike) -> None:
        """Set the value; raises ProgramTypeError and ProgramError for one that does not fit."""
        self.array[...] = self._fitting("value", value)

    def assign_add(self, delta: npt.ArrayLike) -> None:
        """Add to the value; raises as :meth:`assign` does."""
        self.array[...] = self.array + self._fitting("delta", delta)

    def assign_sub(self, delta: npt.ArrayLike) -> None:
        """Subtract from the value; raises as :meth:`assign` does."""
        self.array[...] = self.array - self._fitting("delta", delta)

    def _fitting(self, argument: str, value: npt.ArrayLike) -> Array:
        found = checks.numbers(argument, value)
        try:
            return np.broadcast_to(found, self.shape)
        except ValueError:
            checks.wrong_value(
                argument, f"the shape {self.shape} of variable {self.name!r} and not {found.shape}", value
            )


#: What a weight update is given: gradients as they were accumulated, each with its variable.
GradientsAndVariables = Iterable[tuple[Array, Variable]]
#: From a micro-batch's gradient of a variable, and the variable's value, to the gradient to accumulate.
GradientFunction = Callable[[Array, Array], Any]


class Optimizer:
    """Base of all optimizers. A subclass may change what :meth:`apply_gradients` does."""

    def __init__(self, rule: core.Optimizer, name: str = "Optimizer") -> None:
        """Apply gradients by ``rule``; raises ProgramTypeError for what is none."""
        if not callable(getattr(rule, "apply", None)) or isinstance(rule, type):
            checks.wrong_type("rule", "an optimizer of ipusim.model", rule)
        self._rule = rule
        self.name = checks.text("name", name)

    @property
    def rule(self) -> core.Optimizer:
        """The core's rule of the weight update."""
        return self._rule

    @property
    def gradient_functions(self) -> tuple[GradientFunction, ...]:
        """What is done to each micro-batch's gradients before they are accumulated, in order."""
        return ()

    @property
    def cross_replica(self) -> bool:
        """Whether gradients are averaged over replicas."""
        return False

    def apply_gradients(
        self, grads_and_vars: GradientsAndVariables, global_step: object = None, name: str | None = None
    ) -> None:
        """Update the variables; called once for each execution of the pipeline and replica, with all variables.

        What a subclass computes here, over all stages, takes no simulated time beyond its rule's. Raises
        ProgramTypeError for a gradient of another type than its variable: as in Graphcore's, no optimizer casts it.
        """
        pairs = list(grads_and_vars)
        for gradient, variable in pairs:
            given = np.asarray(gradient).dtype
            if given != variable.dtype:
                raise ProgramTypeError(
                    f"the gradient of {variable.name!r} is {given} and the variable {variable.dtype}: expected "
                    "gradients of the variable's type, to which an optimizer of your own casts what was accumulated "
                    "in another gradient_accumulation_dtype, as in `gradient.astype(variable.dtype)`"
                )
        for state in {id(variable.state): variable.state for _, variable in pairs}.values():
            here = [(gradient, variable) for gradient, variable in pairs if variable.state is state]
            self.rule.apply(
                {variable.name: variable.array for _, variable in here},
                {variable.name: gradient for gradient, variable in here},
                state,
            )


#: A number, or a tensor of one: what a stage returns, such as a learning rate on its way from ``inputs``.
Scalar = Any


def _number(name: str, value: Scalar) -> float:
    """Return the number that the argument ``name`` is, or the value of a tensor of one.

    Raises ProgramTypeError for what is no number, ProgramError for several.
    """
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    from autograd.tracer import getval  # noqa: PLC0415 - autograd takes a while to import

    found = getval(value)
    if not isinstance(found, np.ndarray | np.generic) or found.dtype.kind not in "iuf":
        checks.wrong_type(name, "a number, or a tensor of one number", found)
    if found.ndim:
        checks.wrong_value(name, f"a number, or a tensor of one number and not of shape {found.shape}", found)
    return float(found)


class GradientDescentOptimizer(Optimizer):
    """TensorFlow's gradient descent: variable -= learning_rate * gradient."""

    def __init__(self, learning_rate: Scalar, use_locking: bool = False, name: str = "GradientDescent") -> None:
        """Take the step size, a number or a tensor of one.

        Raises ModelError for one below 0, ProgramTypeError and ProgramError for what is no single number.
        """
        checks.truth("use_locking", use_locking)
        super().__init__(core.SGD(_number("learning_rate", learning_rate)), name)


class MomentumOptimizer(Optimizer):
    """TensorFlow 1's momentum, without Nesterov: a = momentum * a + gradient; variable -= learning_rate * a."""

    def __init__(
        self, learning_rate: Scalar, momentum: Scalar, use_locking: bool = False, name: str = "Momentum"
    ) -> None:
        """Take the step size and the decay of a, each a number or a tensor of one; raises as gradient descent does."""
        checks.truth("use_locking", use_locking)
        super().__init__(core.Momentum(_number("learning_rate", learning_rate), _number("momentum", momentum)), name)


class _Wrapper(Optimizer):
    """Leaves everything to another optimizer."""

    def __init__(self, opt: Optimizer, name: str, argument: str = "opt") -> None:
        given: object = opt
        if not isinstance(given, Optimizer):
            checks.wrong_type(argument, "an Optimizer", given)
        super().__init__(opt.rule, name)
        self._opt = opt

    @property
    def gradient_functions(self) -> tuple[GradientFunction, ...]:
        return self._opt.gradient_functions

    @property
    def cross_replica(self) -> bool:
        return self._opt.cross_replica

    def apply_gradients(
        self, grads_and_vars: GradientsAndVariables, global_step: object = None, name: str | None = None
    ) -> None:
        self._opt.apply_gradients(grads_and_vars, global_step, name)


class CrossReplicaOptimizer(_Wrapper):
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
    ) -> None:
        """Average the gradients over replicas, and let the wrapped optimizer apply them."""
        super().apply_gradients(averaged(grads_and_vars), global_step, name)


class MapGradientOptimizer(_Wrapper):
    """Maps each micro-batch's gradient of each variable before it is accumulated."""

    def __init__(
        self,
        wrapped_optimizer: Optimizer,
        gradient_mapping_function: GradientFunction,
        name: str = "MapGradientOptimizer",
    ) -> None:
        """Wrap an optimizer; the function takes a gradient and the variable's value, and returns a gradient.

        Raises ProgramTypeError for what is no optimizer, or no function.
        """
        super().__init__(wrapped_optimizer, name, "wrapped_optimizer")
        if not callable(gradient_mapping_function):
            checks.wrong_type("gradient_mapping_function", "a function", gradient_mapping_function)
        self._function = gradient_mapping_function

    @property
    def gradient_functions(self) -> tuple[GradientFunction, ...]:
        """The wrapped optimizer's functions, and then this one."""
        return (*self._opt.gradient_functions, self._function)


@dataclass(frozen=True)
class MappedByFunctions(GradientMap):
    """Python functions as the core's gradient map; each costs one operation an element (assumed).

    Attributes:
        functions: returns those of the optimizer in use.
    """

    functions: Callable[[], tuple[GradientFunction, ...]] = tuple

    def __call__(self, gradient: Array, variable: Array) -> Array:
        """Return the gradient to accumulate, in the dtype of the one that came.

        Raises ProgramTypeError and ProgramError for a function that does not return a gradient of the same shape.
        """
        found: Any = gradient
        for function in self.functions():
            returned = function(found, variable)
            found = checks.numbers("gradient_mapping_function", returned)
            if found.shape != gradient.shape:
                checks.wrong_value(
                    "gradient_mapping_function", f"a gradient of shape {gradient.shape} from it", returned
                )
        return np.asarray(found, gradient.dtype)

    def work(self, parameter_count: int, itemsize: int) -> Work:
        """Return one operation for each function and element; reads gradient and variable, writes the gradient."""
        count = len(self.functions())
        return Work(
            vector=VectorWork(parameter_count * count),
            sram_bytes=3 * parameter_count * itemsize,
            itemsize=itemsize,
            compute_sets=count,
        )


@dataclass
class WeightUpdate:
    """An optimizer of this module as the core's: the machine applies it with this.

    The last stage sets all three anew in each micro-batch, for a learning rate that is a tensor has
    its value there: that of the last micro-batch before the update counts.

    Attributes:
        optimizer: whose apply_gradients is called.
        args, kwargs: what it is called with beside the gradients.
    """

    optimizer: Optimizer
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] | None = None

    @property
    def gradient_map(self) -> GradientMap | None:
        """The optimizer's functions of each micro-batch's gradients, if any."""
        if not self.optimizer.gradient_functions:
            return None
        return MappedByFunctions(functions=lambda: self.optimizer.gradient_functions)

    def initial_state(self, parameters: Parameters) -> State:
        """Return the rule's state before the first update."""
        return self.optimizer.rule.initial_state(parameters)

    def apply(self, parameters: Parameters, gradients: Parameters, state: State) -> None:
        """Let the optimizer update the variables of one stage."""
        self._apply([Updated(parameters, gradients, state)])

    def begin(self, stages: Sequence[Updated], replicated: bool) -> Callable[[], object]:
        """Let the optimizer do what comes before its gradients are averaged; return the rest of the update."""
        if not any(stage.parameters for stage in stages):
            return lambda: None
        if not replicated:
            return lambda: self._apply(stages)
        call = UntilAverage(lambda: self._apply(stages))
        held = {name: array for stage in stages for name, array in stage.gradients.items()}
        given = [pair for pair in call.start() or () if pair[0] is not None]
        for gradient, variable in given:
            held[variable.name][...] = gradient
        return lambda: call.finish([(held[variable.name], variable) for _, variable in given])

    def _apply(self, stages: Sequence[Updated]) -> None:
        pairs = [
            (stage.gradients[name], Variable(name, array, stage.state))
            for stage in stages
            for name, array in stage.parameters.items()
        ]
        if pairs:
            self.optimizer.apply_gradients(pairs, *self.args, **(self.kwargs or {}))

    def work(self, parameter_count: int, itemsize: int) -> Work:
        """Return the rule's work."""
        return self.optimizer.rule.work(parameter_count, itemsize)

    def state_bytes(self, parameter_count: int, itemsize: int) -> int:
        """Return the bytes of the rule's slots."""
        return self.optimizer.rule.state_bytes(parameter_count, itemsize)
