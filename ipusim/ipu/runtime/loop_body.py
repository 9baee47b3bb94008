"""The body of a loop: its results, and the training and outfeeds that it requests while it runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from ipusim.api import functions, models
from ipusim.base.errors import ModelError, ProgramError, UnsupportedProgramError
from ipusim.ipu.runtime.context import Scoped
from ipusim.ipu.runtime.host import Operation
from ipusim.ipu.runtime.small_integers import as_tensorflow_divides
from ipusim.ipu.runtime.stage_outfeeds import current


@dataclass
class BodyRecord:
    """The effects that one run of a loop's body has recorded: training, results and shards.

    Attributes:
        queue, enqueued: where results go, and what they are; None for none.
        train: what ``minimize`` of an optimizer returned, None in inference.
        shards: the shards that it computes on.
        carried: the values of the next iteration's loop-carried tensors.
        variables: names and values of the variables that it has used so far, by the identity of the value.
        others: whether it sends to more queues.
        at_once: whether what trains does so where it is called, as in a ``tf.function``, and not where it is returned.
        updated: whether what runs now stands behind the training, by ``tf.control_dependencies``.
    """

    queue: Any = None
    enqueued: Any = None
    train: Any = None
    shards: set[int] = field(default_factory=set)
    carried: tuple[Any, ...] = ()
    variables: dict[int, tuple[str, Any]] = field(default_factory=dict)
    others: bool = False
    at_once: bool = False
    updated: bool = False

    def note(self, name: str, variable: Any) -> None:
        """Note what the body is given for a variable; raises as :meth:`check_read` does."""
        self.check_read(name)
        self.variables[id(variable)] = name, variable

    def check_read(self, name: str) -> None:
        """Refuse to read a trained variable behind the update; raises UnsupportedProgramError."""
        if self.updated or (self.at_once and self.train is not None):
            raise UnsupportedProgramError(
                f"variable {name!r}: expected to be read before the weight update, which is made at the end of the "
                "body, got a read behind it: read it before, or in the next iteration"
            )

    @contextmanager
    def behind(self, operations: Sequence[Any]) -> Iterator[None]:
        """Run the block behind operations, of which what trains does so; raises as :meth:`depend` does."""
        self.depend(operations)
        before = self.updated
        self.updated = before or any(map(is_training, operations))
        try:
            yield
        finally:
            self.updated = before

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


#: The record of the loop body that is running; None outside of one.
body_record: Final[Scoped[BodyRecord | None]] = Scoped("body_record", None)


def enqueue(queue: Any, tensors: Any) -> Operation:
    """Note that an element is sent to ``queue``, the first in a loop's body as its results, others from a stage.

    An optimizer's apply_gradients sends as a stage does.

    Raises ProgramError outside of both, and the second time.
    """
    record, stage = body_record(), current()
    if record is None and stage is None:
        raise ProgramError("enqueue: expected to be called in the body of a loop or in a stage of a pipeline")
    if record is not None and record.queue is queue:
        raise ProgramError("An outfeed can only be enqueued once.")
    if record is not None and record.queue is None:
        record.queue, record.enqueued = queue, tensors
    elif stage is not None:
        stage.enqueue(queue, tensors)
    elif record is not None:
        record.others = True
    return Operation("outfeed/enqueue")


def is_training(value: Any) -> bool:
    """Tell whether a value is what ``minimize`` of an optimizer returns."""
    return hasattr(value, "optimizer") and hasattr(value, "loss")


def is_operation(value: Any) -> bool:
    """Tell whether a value is an operation, and no tensor."""
    return value is None or isinstance(value, Operation) or is_training(value)


def run_body(body: Callable[..., Any], values: Sequence[Any], carried: int, at_once: bool = False) -> BodyRecord:
    """Run ``body`` once on its arguments, of which the first are ``carried`` on to the next iteration.

    With ``at_once`` it trains where it says so, whatever it returns. Raises ProgramError where it does not return as
    many tensors.
    """
    record = BodyRecord(at_once=at_once)
    with body_record.set_to(record), functions.noting(record.note):
        returned = models.as_results(body(*values))
    record.depend(returned)
    record.carried = tuple(item for item in returned if not is_operation(item))
    if len(record.carried) != carried:
        raise ProgramError(
            f"body: expected as many tensors as there are loop-carried inputs, {carried}, got {len(record.carried)}"
        )
    return record


def failed(what: str, error: BaseException) -> ModelError:
    """Return the ModelError of what a user's code has raised, with its line where there is one."""
    line = functions.line_of(error)
    return ModelError(f"{what} failed: {line + ': ' if line else ''}{functions.message_of(error)}")


def as_numbers(values: Sequence[Any]) -> list[Any]:
    """Return arrays without axes as numbers, to which `+=` gives a new value as in TensorFlow; others as it divides."""
    return [
        value[()] if isinstance(value, np.ndarray) and not value.ndim else as_tensorflow_divides(value)
        for value in values
    ]
