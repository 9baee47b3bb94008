"""The executions of an epoch of a training, of an evaluation or a prediction: which program, on which batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from ipusim.base.errors import ProgramError, ProgramStateError
from ipusim.ipu.runtime.structures import leaves
from ipusim.ipu.tensorflow.keras.data import Batches, Element
from ipusim.ipu.tensorflow.keras.objective import Objective
from ipusim.ipu.tensorflow.keras.program import Program, Source, Task

#: Functions that Graphcore does not let a model override either, in a pipeline.
_NOT_OVERRIDDEN = (
    "train_step",
    "make_train_function",
    "test_step",
    "make_test_function",
    "predict_step",
    "make_predict_function",
)


class Execution:
    """The executions of an epoch, an evaluation or a prediction."""

    def __init__(
        self,
        model: Any,
        data: Batches,
        objective: Objective | None,
        steps: int | None,
        first_epoch: int,
        *,
        training: bool,
        samples: int = 1,
    ) -> None:
        """Find or build the program.

        ``steps`` are batches of an epoch and replica, where they are said; ``samples`` what each of them counts as,
        beside others of other sizes.
        """
        self._samples = samples if data.rest is None else data.samples
        self._model, self._data, self._objective, self._training = model, data, objective, training
        for name in _NOT_OVERRIDDEN:
            if hasattr(model, name):
                raise ProgramStateError(
                    f"The function `{name}` for the model {model.name} has been overridden. This is not supported: "
                    "write a loop with ipu.loops or a pipeline instead."
                )
        self._element = data.element if objective is not None else Element(data.element.x, None, None)
        #: Arrays of an element that the program takes: those of the inputs alone in a prediction, None for all.
        self._inputs = None if objective is not None else len(list(leaves(data.element.x)))
        self._epoch = data.epoch(first_epoch)
        self._first_epoch: int | None = first_epoch
        self._program = self._program_of(steps)
        self.steps = self._steps(steps, self._program.replicas)

    def _program_of(self, steps: int | None) -> Program:
        model, data, options = self._model, self._data, self._model.options
        x, _, _ = data.element.unpack(data.example)
        model._build_for(x)
        per_execution = model._steps_per_execution
        known = data.steps if steps is None else steps
        if known is not None and per_execution > known:
            per_execution = known  # as Graphcore's, which says so in a log
        if self._training:
            _check_minimize(model.optimizer)
            options.check_steps(per_execution)
        kind = "train" if self._training else "test" if self._objective is not None else "predict"
        forms = tuple((array.shape, array.dtype.str) for array in data.example[: self._inputs])
        key = kind, repr(self._element), forms, per_execution, options.version
        stored = model.__dict__.setdefault("_programs", {})
        program = stored.get(key)
        trained = model.__dict__.get("_trained")
        goes_on = self._training and (program is None or program is not trained)
        before = model.training_state if goes_on else None
        if program is None:
            task = Task(model, self._element, self._objective, self._training)
            source = Source()
            source.current = self._arrays(self._epoch)
            program = Program(task, options, per_execution, source, model.optimizer if self._training else None)
            for old in [item for item in stored if item[-1] != options.version]:
                del stored[old]
            stored[key] = program
        else:
            program.source.current = self._arrays(self._epoch)
            program.take_device()
        if before is not None:
            program.go_on_from(before)
        model.__dict__ |= {"_program": program, "_trained": program if self._training else trained}
        return program  # type: ignore[no-any-return]

    def _steps(self, steps: int | None, replicas: int) -> int:
        """Return the batches of an epoch and replica; raises ProgramError in Graphcore's words if they do not fit."""
        data, per_execution = self._data, self._program.steps
        to_this = " to this replica" if replicas > 1 else ""
        result = steps if steps is not None else (data.steps or 0) // replicas
        if result == 0:
            raise ProgramError(
                f"The provided dataset contains {data.steps} items, but all {replicas} replicas are requested to run "
                f"1 steps each. Make sure the dataset contains at least {replicas} items."
            )
        if result % per_execution:
            raise ProgramError(
                f"`steps_per_execution` must be a divisor of the number of batches in the dataset provided{to_this}."
            )
        if data.steps is not None and result * replicas > data.steps:
            raise ProgramError(
                f"Your input does not have enough data. Make sure that your dataset or generator can generate at least "
                f"{result * replicas} batches (currently it can only generate {data.steps} batches). You may need to "
                "use the repeat() function when building your dataset."
            )
        return result

    @property
    def batches(self) -> int:
        """The batches of an epoch and replica, the rest too."""
        return self.steps + (self._data.rest is not None)

    def _arrays(self, epoch: Iterator[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
        return (arrays[: self._inputs] for arrays in epoch)

    def run(self, epoch: int, begin: Callable[..., Any], end: Callable[..., Any]) -> None:
        """Run an epoch, with ``begin`` and ``end`` called around each execution, or around each step.

        A rest of fewer samples is a step of its own, of another program, to which training goes on from the others.
        """
        rest, model = self._data.rest, self._model
        if rest is None:
            self._run(epoch, begin, end)
            return
        if model.__dict__["_program"] is not self._program:  # behind the rest of the epoch before
            self._first_epoch, self._epoch = epoch, self._data.epoch(epoch)
            self._program = self._program_of(self.steps)
        self._run(epoch, begin, end)
        if model.stop_training and self._training:
            return
        seconds, ran = model.simulated_seconds, self._program
        of_rest = Execution(model, rest, self._objective, None, epoch, training=self._training, samples=rest.samples)
        of_rest._run(epoch, lambda _: begin(self.steps), lambda _, logs: end(self.steps, logs))
        model.simulated_seconds += seconds
        if not self._training:
            model.__dict__["_program"] = ran

    def _run(self, epoch: int, begin: Callable[..., Any], end: Callable[..., Any]) -> None:
        model, program = self._model, self._program
        if epoch != self._first_epoch:
            program.source.current = self._arrays(self._data.epoch(epoch))
        self._first_epoch = None
        model.simulated_seconds = 0.0
        item = model.options.asynchronous and program.summed == 1
        for first in range(0, self.steps, program.steps):
            if item:
                program.run_telling(partial(self._tell, first, begin, end))
            else:
                begin(first)
                result = program.run()
            model.simulated_seconds += program.seconds
            if not item:
                end(first + program.steps - 1, self._logs(result))
            if model.stop_training and self._training:
                break

    def _tell(
        self, first: int, begin: Callable[..., Any], end: Callable[..., Any], number: int, element: Sequence[Any]
    ) -> None:
        """Call callbacks with one step's results."""
        begin(first + number)
        end(first + number, self._logs([np.asarray(array)[None] for array in element]))

    def _logs(self, result: Sequence[Any]) -> dict[str, Any]:
        """Return a callback's logs of elements [elements, (replicas), ...]."""
        program = self._program
        if self._objective is None:
            axes = 2 if program.replicas > 1 else 1
            return {"outputs": [array.reshape(-1, *array.shape[axes + 1 :]) for array in result]}
        sums = [np.asarray(array, np.float64).sum() for array in result]
        self._objective.add(sums, int(np.prod(result[0].shape)) * program.summed, self._samples)
        return self._objective.logs()

    def packed(self, outputs: list[Any]) -> Any:
        """Return outputs in the model's structure."""
        graph = self._model.graph
        if graph is not None and isinstance(graph.outputs, dict):
            return dict(zip(graph.outputs, outputs, strict=True))
        return outputs[0] if len(outputs) == 1 else outputs


def _check_minimize(optimizer: Any) -> None:
    """Refuse an optimizer of the program's own that says how it minimizes, which nothing would call."""
    if not type(optimizer).minimize.__module__.startswith("ipusim."):
        raise ProgramError(
            f"The `minimize` function of the optimizer {type(optimizer).__name__} has been overridden. This is not "
            "supported, as it is not called when a model is trained: override `apply_gradients` instead."
        )
