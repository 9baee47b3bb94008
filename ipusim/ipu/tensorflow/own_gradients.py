"""Gradients that a program computes itself: ``tf.GradientTape`` and ``tf.custom_gradient``."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any

import autograd.builtins  # noqa: F401 - lets an operation have several results under a trace
import autograd.numpy as anp
import numpy as np
from autograd.core import VJPNode
from autograd.extend import defvjp_argnums, primitive
from autograd.tracer import isbox, register_notrace

from ipusim.api import functions
from ipusim.base.errors import ProgramError, ProgramTypeError, UnsupportedProgramError
from ipusim.ipu.runtime import checks
from ipusim.ipu.runtime.loop_body import BodyRecord, body_record
from ipusim.ipu.runtime.optimizer import is_tensor
from ipusim.ipu.runtime.per_example_loss import concrete
from ipusim.ipu.runtime.shards import refuse_written
from ipusim.ipu.runtime.structures import leaves, mapped
from ipusim.ipu.runtime.symbolic_gradients import gradient_of
from ipusim.ipu.tensorflow.array_functions import tensor


class GradientTape:
    """Gives gradients of a loss, which the program's backward pass computes, for an optimizer to apply.

    A body is traced as a whole, so that what is watched, and whether the tape is ``persistent``, has no effect.
    """

    def __init__(self, persistent: bool = False, watch_accessed_variables: bool = True) -> None:
        """Check the arguments."""
        checks.truth("persistent", persistent)
        checks.truth("watch_accessed_variables", watch_accessed_variables)

    def __enter__(self) -> GradientTape:
        """Begin; raises UnsupportedProgramError outside of a body, where nothing is differentiated."""
        _body()
        return self

    def __exit__(self, *_: object) -> None:
        """End."""

    def watch(self, tensor: Any) -> None:
        """Check that variables are watched; raises UnsupportedProgramError for anything else."""
        record = _body()
        for item in tensor if isinstance(tensor, list | tuple) else [tensor]:
            if record.name_of(item) is None:
                raise UnsupportedProgramError(
                    f"tensor: expected variables to watch, as gradients of inputs are not simulated, got {item!r}"
                )

    def gradient(
        self,
        target: Any,
        sources: Any,
        output_gradients: object = None,
        unconnected_gradients: object = None,
    ) -> Any:
        """Return the gradient of ``target`` for each of ``sources``, in a structure like theirs.

        A target of several elements counts as their sum. A variable that the body has not asked for has None. Raises
        ProgramTypeError for what is no loss or no variable, UnsupportedProgramError outside of a body.
        """
        record, loss = _body(), concrete(target)
        if not is_tensor(loss):
            checks.wrong_type("target", "a tensor, the loss", target)
        checks.nothing("output_gradients", "the gradient of a loss by itself is one", output_gradients)
        return _gradients(record, loss, sources)


def _gradients(record: BodyRecord, loss: Any, sources: Any) -> Any:
    if isinstance(sources, Mapping):
        return {name: _gradients(record, loss, source) for name, source in sources.items()}
    name = record.name_of(sources)
    if name is None and isinstance(sources, Iterable) and not (isinstance(sources, str | bytes) or is_tensor(sources)):
        return [_gradients(record, loss, source) for source in sources]
    if name is None:
        raise ProgramTypeError(
            f"sources: expected variables, as gradients of other tensors are not simulated, got {sources!r}"
        )
    value = dict(record.variables.values()).get(name)
    return None if value is None else gradient_of(loss, name, value)


def _body() -> BodyRecord:
    record = body_record()
    if record is None:
        raise ProgramError(
            "GradientTape: expected the body of a loop on the device, as in `for _ in tf.range(n)` in a function that "
            "a strategy runs"
        )
    return record


@dataclass(frozen=True)
class _Gradient:
    """From the gradients of a function's results to those of its arguments and variables, by the program's function.

    Attributes:
        name: of the function.
        function: the one that it returned beside its results.
        results, arguments: how many there are; variables stand behind the arguments.
        variables: what the function was given for those that it asked for.
        trace: of the arguments; the function may compute with them as it has seen them.
    """

    name: str
    function: Callable[..., Any]
    results: int
    arguments: int
    variables: tuple[Any, ...]
    trace: int

    def pull(self, sources: Sequence[Any], argnums: Sequence[int], grads: Sequence[Any]) -> tuple[Any, ...]:
        """Return the gradients of the sources ``argnums``, counted from 0; None counts as zeros."""
        if self.variables:
            value, own = self.function(*grads, variables=list(self.variables))
        else:
            value, own = self.function(*grads), ()
        result = [*_listed(value), *_listed(own)]
        if len(result) != len(sources):
            raise ProgramError(
                f"custom_gradient of {self.name}: expected gradients of {self.arguments} arguments and "
                f"{len(self.variables)} variables, got {len(result)}"
            )
        return tuple(self._fitting(result[index], sources[index], index) for index in argnums)

    def _fitting(self, grad: Any, source: Any, index: int) -> Any:
        while isbox(grad) and grad._trace >= self.trace:
            grad = grad._value
        if grad is None:
            return np.zeros(anp.shape(source), source.dtype)
        if anp.shape(grad) != anp.shape(source):
            raise ProgramError(
                f"custom_gradient of {self.name}: expected gradient {index} of shape {anp.shape(source)}, got "
                f"{anp.shape(grad)}"
            )
        return grad


@primitive  # type: ignore[untyped-decorator]
def _constant(value: Any) -> Any:
    return value


# What the function computes with is the forward pass alone: no gradient goes back through that.
register_notrace(VJPNode, _constant)


@primitive  # type: ignore[untyped-decorator]
def _with_gradient(gradient: _Gradient, *arrays: Any) -> Any:
    return arrays[: gradient.results]


def _pull_back(argnums: Sequence[int], _: Any, args: Sequence[Any], __: Any) -> Callable[[Any], tuple[Any, ...]]:
    gradient, first = args[0], 1 + args[0].results

    def pull(grads: Any) -> tuple[Any, ...]:
        arriving = [grads[index] for index in range(gradient.results)]
        return gradient.pull(args[first:], [at - first for at in argnums], arriving)  # type: ignore[no-any-return]

    return pull


defvjp_argnums(_with_gradient, _pull_back)


def custom_gradient(f: Callable[..., Any] | None = None) -> Any:
    """Return a function of tensors with the results of ``f``, whose gradient is the function that it returns beside.

    That takes the gradients of all results, and where ``f`` asks for variables ``variables``; it returns those of the
    arguments, and behind them a list of those of the variables. Raises ProgramTypeError for what is no function, and
    when it is called, for one that does not return both or does not take its variables; ProgramError for gradients of
    other numbers or shapes.
    """
    if f is None:
        return custom_gradient
    checks.function("f", f, "a function that returns its result and its gradient function")
    name = getattr(f, "__name__", type(f).__name__)

    @wraps(f)
    def decorated(*args: Any, **kwargs: Any) -> Any:
        if not functions.inside():  # no gradient is taken there
            return _both(name, f(*args, **kwargs))[0]
        arguments = [tensor(argument) for argument in args]
        variables: dict[str, Any] = {}
        with functions.noting(variables.__setitem__):
            results, function = _both(name, f(*arguments, **kwargs))
        if variables and "variables" not in inspect.signature(function).parameters:
            raise ProgramTypeError(
                "If using @custom_gradient with a function that uses variables, then grad_fn must accept a 'variables' "
                "keyword argument."
            )
        sources = (*arguments, *variables.values())
        refuse_written("custom_gradient", sources, "write the function as stages of a pipeline")
        traces = [source._trace for source in sources if isbox(source)]
        if not traces:
            return results
        made = [_constant(tensor(leaf)) for leaf in leaves(results)]
        gradient = _Gradient(name, function, len(made), len(arguments), tuple(variables.values()), max(traces))
        outcome = _with_gradient(gradient, *made, *sources)
        indices = iter(range(len(made)))
        return mapped(lambda _: outcome[next(indices)], results)

    return decorated


def _both(name: str, returned: Any) -> tuple[Any, Callable[..., Any]]:
    if not (isinstance(returned, tuple | list) and len(returned) == 2 and callable(returned[1])):
        checks.wrong_type(f"custom_gradient of {name}", "its result and its gradient function", returned)
    return returned[0], returned[1]


def _listed(value: Any) -> Sequence[Any]:
    return value if isinstance(value, tuple | list) else (value,)
