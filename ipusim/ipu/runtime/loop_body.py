"""The body of a loop: what it computes, and what it asks for on the way, to train and to send results."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from ipusim.api import functions, models
from ipusim.base.errors import ProgramError, ProgramTypeError, UnsupportedProgramError
from ipusim.ipu.runtime import checks
from ipusim.ipu.runtime.context import setting
from ipusim.ipu.runtime.host import Operation
from ipusim.ipu.runtime.stage_outfeeds import current


@dataclass
class Asked:
    """What one run of a body has asked for.

    Attributes:
        queue, enqueued: where results go, and what they are; None for none.
        train: what ``minimize`` of an optimizer returned, None in inference.
        shards: the shards that it computes on.
        carried: the values of the next iteration's loop-carried tensors.
        variables: those that it has asked for so far, each name with what stands for it, by the identity of that.
        others: whether it sends to more queues.
        at_once: whether what trains does so where it is called, as in a ``tf.function``, and not where it is returned.
    """

    queue: Any = None
    enqueued: Any = None
    train: Any = None
    shards: set[int] = field(default_factory=set)
    carried: tuple[Any, ...] = ()
    variables: dict[int, tuple[str, Any]] = field(default_factory=dict)
    others: bool = False
    at_once: bool = False

    def note(self, name: str, variable: Any) -> None:
        """Note what the body has been given for a variable."""
        self.variables[id(variable)] = name, variable

    def name_of(self, variable: Any) -> str | None:
        """Return the name of a variable: of what the body was given for it, or of an object that has one; else None."""
        if id(variable) in self.variables:
            return self.variables[id(variable)][0]
        name = getattr(variable, "name", None)
        return name if isinstance(name, str) else None

    def depend(self, operations: Sequence[Any]) -> None:
        """Note the trainings among operations; raises UnsupportedProgramError for a second one."""
        for operation in operations:
            if not is_training(operation):
                continue
            if self.train is not None and self.train is not operation:
                raise UnsupportedProgramError("body: expected one optimizer's minimize in a loop, got two")
            self.train = operation


_ASKED: Final[ContextVar[Asked | None]] = ContextVar("asked", default=None)


def asking() -> Asked | None:
    """Return what the body that is running has asked for so far, None where none is."""
    return _ASKED.get()


@contextmanager
def _noting(at_once: bool) -> Iterator[Asked]:
    result = Asked(at_once=at_once)
    with setting(_ASKED, result), functions.noting(result.note):
        yield result


def enqueue(queue: Any, tensors: Any) -> Operation:
    """Note that an element is sent to ``queue``, the first in a loop's body as its results, others from a stage.

    An optimizer's apply_gradients sends as a stage does.

    Raises ProgramError outside of both, and the second time.
    """
    asked, stage = _ASKED.get(), current()
    if asked is None and stage is None:
        raise ProgramError("enqueue: expected to be called in the body of a loop or in a stage of a pipeline")
    if asked is not None and asked.queue is queue:
        raise ProgramError("An outfeed can only be enqueued once.")
    if asked is not None and asked.queue is None:
        asked.queue, asked.enqueued = queue, tensors
    elif stage is not None:
        stage.enqueue(queue, tensors)
    elif asked is not None:
        asked.others = True
    return Operation("outfeed/enqueue")


def is_training(value: Any) -> bool:
    """Tell whether a value is what ``minimize`` of an optimizer returns."""
    return hasattr(value, "optimizer") and hasattr(value, "loss")


def is_operation(value: Any) -> bool:
    """Tell whether a value is an operation, and no tensor."""
    return value is None or isinstance(value, Operation) or is_training(value)


def run_body(body: Callable[..., Any], values: Sequence[Any], carried: int, at_once: bool = False) -> Asked:
    """Run ``body`` once on its arguments, of which the first are ``carried`` on to the next iteration.

    With ``at_once`` it trains where it says so, whatever it returns. Raises ProgramError where it does not return as
    many tensors.
    """
    with _noting(at_once) as asked:
        returned = models.as_results(body(*values))
    asked.depend(returned)
    asked.carried = tuple(item for item in returned if not is_operation(item))
    if len(asked.carried) != carried:
        raise ProgramError(
            f"body: expected as many tensors as there are loop-carried inputs, {carried}, got {len(asked.carried)}"
        )
    return asked


def as_numbers(values: Sequence[Any]) -> list[Any]:
    """Return arrays without axes as numbers, to which `+=` gives a new value as in TensorFlow."""
    return [value[()] if isinstance(value, np.ndarray) and not value.ndim else value for value in values]


def check_takes(name: str, function: Callable[..., Any], args: Sequence[Any], named: Mapping[str, Any]) -> None:
    """Refuse a function that does not take these arguments; raises ProgramTypeError, as Graphcore's loops do."""
    try:
        inspect.signature(function).bind(*args, **named)
    except ValueError:  # one that is not written in Python, and says nothing
        return
    except TypeError as error:
        names = f" and {', '.join(named)}" if named else ""
        raise ProgramTypeError(f"{name}: expected a function of {len(args)} arguments{names}, got {error}") from None


def check_call(name: str, function: object, args: Sequence[Any], kwargs: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Return the arguments by name; raises ProgramTypeError for what is no function, and for args or kwargs of none."""
    if not callable(function):
        checks.wrong_type(name, "a function", function)
    if not isinstance(args, list | tuple):
        checks.wrong_type("args", "a tuple of the function's arguments", args)
    named: Mapping[str, Any] = {} if kwargs is None else kwargs
    if not isinstance(named, Mapping) or not all(isinstance(item, str) for item in named):
        checks.wrong_type("kwargs", "a dictionary of the function's arguments by name", kwargs)
    return named


def check_body(name: str, function: object) -> None:
    """Refuse what is no function; raises ProgramTypeError."""
    if not callable(function):
        checks.wrong_type(name, "a function of the loop-carried tensors and of an element of the infeed", function)
