"""The stages of a pipeline, tried once on its first micro-batch: shapes, variables, optimizer and outfeed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ipusim.errors import ProgramError, ProgramTypeError, UnsupportedProgramError
from ipusim.ipu.arguments import Arguments
from ipusim.ipu.optimizer_function_output import OptimizerFunctionOutput
from ipusim.ipu.optimizers import WeightUpdate
from ipusim.model.function_stage import Arrays, FunctionStage, as_results, check_same, try_stage
from ipusim.model.layer import Array


@dataclass(frozen=True, eq=False)
class TracedStage:
    """A stage with the arrays that came in and out; of the last stage in training those that may be sent.

    Attributes:
        stage: what runs.
        inputs, outputs: of the first micro-batch, the loss left out.
        owned: the variables that no earlier stage has.
    """

    stage: FunctionStage
    inputs: Arrays
    outputs: Arrays
    owned: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Traced:
    """All stages, and the optimizer; None in inference."""

    stages: tuple[TracedStage, ...]
    optimizer: WeightUpdate | None

    @property
    def variables(self) -> dict[str, Array]:
        """The initial value of each variable."""
        return {name: each.stage.variables[name] for each in self.stages for name in each.owned}


def as_tensor(value: Any) -> Array:
    """Return an array; Python's own numbers become float32 and int32, as in TensorFlow."""
    array = np.asarray(value)
    if isinstance(value, np.ndarray | np.generic):
        return array
    return array.astype({"f": np.float32, "i": np.int32}.get(array.dtype.kind, array.dtype))


def trace(arguments: Arguments) -> Traced:
    """Run every stage once, in order.

    Raises ProgramError in Graphcore's words where results, queue and optimizer do not fit together, and for
    a variable that stages on different IPUs use; ModelError for a stage that fails.
    """
    last = len(arguments.stages) - 1
    arrays = tuple(map(as_tensor, arguments.inputs))
    if arguments.infeed is not None:
        arrays += arguments.infeed.example()
    found: list[TracedStage] = []
    users: dict[str, int] = {}
    optimizer: WeightUpdate | None = None
    for number, given in enumerate(arguments.stages):
        name = f"{arguments.name}_stage_{number}"
        keywords = arguments.infeed.keywords if number == 0 and arguments.infeed is not None else ()
        function = _with_keywords(given, keywords)
        finish = _Finish(function, arguments) if number == last and arguments.optimizer_function is not None else None
        variables, results = try_stage(name, finish or function, arrays)
        if finish is not None and finish.found is not None:
            chosen = finish.found
            optimizer = WeightUpdate(chosen.opt, chosen.apply_gradients_args, chosen.apply_gradients_kwargs)
        stage = FunctionStage(name, finish or function, variables, number == 0, finish is not None)
        outputs = results[1:] if finish else results
        _check_users(arguments, found, users, stage, number)
        owned = tuple(name for name in variables if users[name] == number)
        found.append(TracedStage(stage, arrays, outputs, owned))
        arrays = outputs
    if arguments.optimizer_function is None:
        _check_has_queue(arguments, arrays)
    elif not users:
        raise ProgramError("No variables to optimize.")
    return Traced(tuple(found), optimizer)


class _Finish:
    """The last stage in training: its function, then the optimizer function; gives the loss, then what is sent.

    Attributes:
        found: what the optimizer function returned the first time.
    """

    def __init__(self, function: Callable[..., Any], arguments: Arguments) -> None:
        self._function = function
        self._arguments = arguments
        self.found: OptimizerFunctionOutput | None = None

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        arguments = self._arguments
        outputs = as_results(self._function(*inputs))
        assert arguments.optimizer_function is not None
        found = arguments.optimizer_function(*outputs)
        if not isinstance(found, OptimizerFunctionOutput):
            raise ProgramTypeError(f"optimizer_function: expected an OptimizerFunctionOutput from it, got {found!r}")
        if self.found is None:
            self._check(outputs)
            self.found = found
        return (found.loss, *((found.loss,) if arguments.outfeed_loss else outputs))

    def _check(self, outputs: tuple[Any, ...]) -> None:
        mask = self._arguments.outfeed_mask
        if self._arguments.outfeed_loss:
            if self._arguments.outfeed is None:
                raise ProgramError("An outfeed_queue must be provided when outfeed_loss is True")
            return
        if mask is not None and len(mask) != len(outputs):
            raise ProgramError(
                f"The last computational stage has {len(outputs)} outputs, but the `outfeed_mask` has elements "
                f"{len(mask)} - these need to match in size."
            )
        kept = [output for place, output in enumerate(outputs) if mask is None or not mask[place]]
        _check_has_queue(self._arguments, tuple(map(np.asarray, kept)))


def _with_keywords(function: Callable[..., Any], keywords: tuple[str, ...]) -> Callable[..., Any]:
    """Return a function that takes the last arguments by position, and hands them on by these names."""
    if not keywords:
        return function

    def call(*arrays: Any) -> Any:
        split = len(arrays) - len(keywords)
        named: Mapping[str, Any] = dict(zip(keywords, arrays[split:], strict=True))
        return function(*arrays[:split], **named)

    return call


def _check_has_queue(arguments: Arguments, outputs: Arrays) -> None:
    if outputs and arguments.outfeed is None:
        named = ", ".join(f"Tensor(shape={output.shape}, dtype={output.dtype})" for output in outputs)
        raise ProgramError(
            f"The last computational stage has tensor outputs: {named}, but no outfeed_queue has been provided."
        )


def _check_users(
    arguments: Arguments, earlier: list[TracedStage], users: dict[str, int], stage: FunctionStage, number: int
) -> None:
    """Note the first stage of each variable; refuse one that a stage on another IPU has."""
    for name, initial in stage.variables.items():
        first = users.setdefault(name, number)
        if first == number:
            continue
        check_same(name, earlier[first].stage.variables[name], initial)
        if arguments.mapping[first] != arguments.mapping[number]:
            raise UnsupportedProgramError(
                f"The PipelineStage with ID {number} is trying to use an input ({name}) which is already used by the "
                f"PipelineStage with ID {first}. This violates the dataflow constraints because an input can only be "
                "used by pipeline stages on the same IPU.\nIf the model requires for multiple pipeline stages to "
                "access the same `tf.Variable` then these pipeline stages need to placed onto the same IPU using the "
                "`device_mapping` argument to `tf.python.ipu.pipelining_ops.pipeline`."
            )
