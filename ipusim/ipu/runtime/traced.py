"""The stages of a pipeline, tried once on its first micro-batch: shapes, variables, optimizer and outfeed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from ipusim.api import Array, models, rules
from ipusim.api import functions as core_functions
from ipusim.base.errors import ModelError, ProgramError, ProgramTypeError, UnsupportedProgramError
from ipusim.ipu.runtime.arguments import Arguments
from ipusim.ipu.runtime.names import ProgramNames
from ipusim.ipu.runtime.narrowing import as_tensor
from ipusim.ipu.runtime.stage_call import Form, Holder, Inputs, StageCall, without_operations
from ipusim.ipu.runtime.stage_outfeeds import StageOutfeeds
from ipusim.ipu.runtime.variable import NamedVariable
from ipusim.ipu.runtime.weight_update import OptimizerFunctionOutput, WeightUpdate

#: Graphcore's text where no variable is trained.
_NOTHING_TO_TRAIN: Final = "No variables to optimize."


@dataclass(frozen=True, eq=False)
class TracedStage:
    """A stage with the arrays that came in and out; of the last stage in training those that may be sent.

    Attributes:
        stage: what runs.
        position: where it stands in the pipeline, which concurrent stages share.
        inputs, outputs: of the first micro-batch, the loss left out.
        owned, held: the variables, and those that no optimizer trains, that no earlier stage has.
        taught: whether each output depends on a variable; empty for the last stage, and in inference.
    """

    stage: models.FunctionStage
    position: int
    inputs: models.Arrays
    outputs: models.Arrays
    owned: tuple[str, ...]
    owned_untrained: tuple[str, ...]
    taught: tuple[bool, ...]


@dataclass(frozen=True, eq=False)
class Traced:
    """All stages, and what comes of them.

    Attributes:
        stages: in order.
        optimizer: None in inference.
        inputs: the pipeline's own, which its stages see.
        names: those that the stages give.
        sends: what the last stage sends, as a structure.
        holder: what holds the values of an element of the outfeed. As in Graphcore's, results of a pipeline are in a
            list however few they are; the loss is by itself, and so is a dictionary that the last stage of an
            inference returns.
        loss: which of the results of the last stage, as arrays, is the loss itself; None where none is, and in
            inference.
    """

    stages: tuple[TracedStage, ...]
    optimizer: WeightUpdate | None
    inputs: Inputs
    names: ProgramNames
    sends: Form
    holder: Holder
    loss: int | None = None

    @property
    def outfeeds(self) -> list[StageOutfeeds]:
        """The queues that each stage enqueues to, and those that the optimizer enqueues to."""
        calls = [stage.stage.function for stage in self.stages]
        of_update = [] if self.optimizer is None else [self.optimizer.outfeeds]
        return [call.outfeeds for call in calls if isinstance(call, StageCall)] + of_update

    @property
    def sums_gradients(self) -> bool:
        """Whether replicas sum up their gradients before a weight update, as the optimizer says."""
        return self.optimizer is None or self.optimizer.optimizer.cross_replica

    @property
    def variables(self) -> dict[str, Array]:
        """The initial value of each variable."""
        return {name: stage.stage.variables[name] for stage in self.stages for name in stage.owned}

    def replica(self) -> tuple[tuple[models.FunctionStage, ...], WeightUpdate | None]:
        """Return stages and optimizer for one replica alone, as its last stage says what the optimizer is."""
        stages = tuple(stage.stage for stage in self.stages)
        if self.optimizer is None:
            return stages, None
        call = stages[-1].function
        assert isinstance(call, StageCall)
        assert isinstance(call.function, _Finish)
        own = call.function.copy()
        return (*stages[:-1], replace(stages[-1], function=replace(call, function=own))), own.weight_update


def trace(arguments: Arguments, inputs: Inputs | None = None, group: int = 1) -> Traced:
    """Run every stage once, in order; ``inputs`` hold the program's own, by default those of ``arguments``.

    ``group`` are the replicas that batch normalisations take their statistics of, together.

    Raises ProgramError in Graphcore's words where results, queue and optimizer do not fit together, and for
    a variable that stages on different IPUs use; ModelError for a stage that fails.
    """
    tracer = _Tracer(arguments, inputs or Inputs(tuple(map(as_tensor, arguments.inputs))), group)
    for position in range(len(arguments.stages)):
        tracer.trace(position)
    return tracer.traced()


class _Tracer:
    """Traces stages in order, each with the outputs of the stage before."""

    def __init__(self, arguments: Arguments, inputs: Inputs, group: int) -> None:
        self._arguments, self._inputs = arguments, inputs
        infeed = arguments.infeed
        self._arrays: models.Arrays = (*self._inputs.values, *(() if infeed is None else infeed.example()))
        self._form = Form(tuple(range(len(self._arrays))), len(self._arrays))
        self._learned: tuple[bool, ...] = (False,) * len(self._arrays)
        self._names = ProgramNames(arguments.training, group)
        self._stages: list[TracedStage] = []
        self._users: dict[str, int] = {}
        self._finish: _Finish | None = None
        self._alone = False

    def trace(self, position: int) -> None:
        """Run the stages of one position, which all take the same."""
        arguments, functions = self._arguments, self._arguments.stages[position]
        inputs, before, form = self._arrays, self._learned, self._form
        self._arrays, self._learned, self._form = (), (), Form()
        is_last = position == len(arguments.stages) - 1
        keywords = arguments.infeed.keywords if position == 0 and arguments.infeed is not None else ()
        for part, value in enumerate(functions):
            name = f"{arguments.name}_stage_{position}" + (f"_{part}" if len(functions) > 1 else "")
            function = _with_keywords(value, keywords)
            if arguments.training and is_last:
                function = self._finish = _Finish(function, arguments)
            call = StageCall(name, function, len(self._stages), self._names, form, self._inputs, is_last)
            tried = models.try_stage(name, call, inputs)
            finish = self._finish is not None
            stage = models.FunctionStage(name, call, tried.variables, before, finish, tried.untrained, tried.changes)
            outputs = tried.outputs[1:] if finish else tried.outputs
            owned, stored = _check_users(arguments, self._stages, self._users, stage, position)
            taught = stage.teaches(inputs) if arguments.training and not is_last else ()
            self._stages.append(TracedStage(stage, position, inputs, outputs, owned, stored, taught))
            self._arrays += outputs
            self._learned += taught
            assert call.gives is not None
            self._form += call.gives
            self._alone = call.alone

    def traced(self) -> Traced:
        """Return all stages, when the last has run."""
        arguments, finish, sends = self._arguments, self._finish, self._form
        if finish is None:
            _check_has_queue(arguments, self._arrays)
            alone, update, loss = self._alone and sends.named and not arguments.accumulate_outfeed, None, None
        else:
            if not any(stage.stage.variables for stage in self._stages):
                raise ProgramError(_NOTHING_TO_TRAIN)
            alone, update, loss = arguments.outfeed_loss, finish.weight_update, finish.loss
            sends = sends.without_first()
        holder = arguments.enqueued_in or (Holder.ALONE if alone else Holder.LIST)
        result = Traced(tuple(self._stages), update, self._inputs, self._names, sends, holder, loss)
        if update is not None:
            update.find_outfeeds(result.variables)
        return result


class _Finish:
    """The last stage in training: its function, then the optimizer function; gives the loss, then what is sent.

    Attributes:
        weight_update: the optimizer that the latest call has returned, as the core applies it; None before the first.
        loss: which of the results is the loss, None for none of them.
    """

    def __init__(self, function: Callable[..., Any], arguments: Arguments) -> None:
        self._function = function
        self._arguments = arguments
        self.weight_update: WeightUpdate | None = None
        self.loss: int | None = None

    def copy(self) -> _Finish:
        """Return another of the same functions, which notes its optimizers for itself."""
        result = _Finish(self._function, self._arguments)
        result.weight_update = replace(self.weight_update) if self.weight_update else None
        return result

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        arguments = self._arguments
        outputs = models.as_results(without_operations(self._function(*inputs)))
        assert arguments.optimizer_function is not None
        result = arguments.optimizer_function(*outputs)
        if not isinstance(result, OptimizerFunctionOutput):
            raise ProgramTypeError(f"optimizer_function: expected an OptimizerFunctionOutput from it, got {result!r}")
        if arguments.enqueued_in is None and result.opt.accumulation is not None:
            raise ProgramError(
                "optimizer_function: expected no gradient accumulation optimizer in combination with pipelining, as a "
                f"pipeline always accumulates gradients: give it gradient_accumulation_count, got {result.opt.name}"
            )
        self._note(result, outputs)
        self._count(result)
        return (result.loss, *((result.loss,) if arguments.outfeed_loss else outputs))

    def _note(self, result: OptimizerFunctionOutput, outputs: tuple[Any, ...]) -> None:
        update = self.weight_update
        value = result.apply_gradients_args, result.apply_gradients_kwargs
        computed = result.compute_gradients_args, result.compute_gradients_kwargs
        if update is None:
            self._check(outputs)
            arguments = dict(zip(("var_list",), result.compute_gradients_args, strict=False))
            if (arguments | dict(result.compute_gradients_kwargs)).get("var_list") in ([], ()):
                raise ProgramError(_NOTHING_TO_TRAIN)
            same = [position for position, output in enumerate(outputs) if output is result.loss]
            # A dictionary among them counts as several arrays, by which places are told then.
            self.loss = same[0] if same and not any(isinstance(output, dict) for output in outputs) else None
            self.weight_update = WeightUpdate(result.opt, *value, *computed)
            return
        before, now = type(update.optimizer.rule).__name__, type(result.opt.rule).__name__
        if before != now:
            raise ModelError(
                f"optimizer_function: expected one kind of optimizer in all micro-batches, got {now} after {before}"
            )
        update.optimizer, (update.args, update.kwargs) = result.opt, value
        update.compute_args, update.compute_kwargs = computed

    @staticmethod
    def _count(result: OptimizerFunctionOutput) -> None:
        """Ask for the variable that counts updates, which is on the IPU of the last stage."""
        step = dict(zip(("global_step",), result.apply_gradients_args, strict=False)) | dict(
            result.apply_gradients_kwargs
        )
        if isinstance(counter := step.get("global_step"), NamedVariable):
            counter.read_value()

    def _check(self, outputs: tuple[Any, ...]) -> None:
        mask = self._arguments.outfeed_mask
        if self._arguments.outfeed_loss:
            if self._arguments.outfeed is None:
                raise ProgramError("An outfeed_queue must be provided when outfeed_loss is True")
            return
        if mask is not None:
            rules.check_outfeed_mask(mask, len(outputs))
        sent = [output for position, output in enumerate(outputs) if mask is None or not mask[position]]
        _check_has_queue(self._arguments, tuple(map(np.asarray, sent)))


def _with_keywords(function: Callable[..., Any], keywords: tuple[str, ...]) -> Callable[..., Any]:
    """Return a function that takes the last arguments by position, and hands them on by these names."""
    if not keywords:
        return function

    def call(*arrays: Any) -> Any:
        split = len(arrays) - len(keywords)
        named: Mapping[str, Any] = dict(zip(keywords, arrays[split:], strict=True))
        return function(*arrays[:split], **named)

    return call


def _check_has_queue(arguments: Arguments, outputs: models.Arrays) -> None:
    if outputs and arguments.outfeed is None:
        named = ", ".join(f"Tensor(shape={output.shape}, dtype={output.dtype})" for output in outputs)
        raise ProgramError(
            f"The last computational stage has tensor outputs: {named}, but no outfeed_queue has been provided."
        )


def _check_users(
    arguments: Arguments, earlier: list[TracedStage], users: dict[str, int], stage: models.FunctionStage, position: int
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Note the first user of each variable, and return those first used here: trained ones, and the others.

    Raises UnsupportedProgramError for one that a stage on another IPU has, ModelError for one that is trained in one
    stage alone.
    """
    number = len(earlier)
    for name, initial in (*stage.variables.items(), *stage.untrained.items()):
        first = users.setdefault(name, number)
        if first == number:
            continue
        before = earlier[first].stage
        if (name in before.variables) is not (name in stage.variables):
            raise ModelError(f"variable {name!r} was asked for with trainable=True and with trainable=False")
        core_functions.check_same(
            name, (before.variables if name in before.variables else before.untrained)[name], initial
        )
        if arguments.mapping[first] != arguments.mapping[number]:
            raise UnsupportedProgramError(
                f"The PipelineStage with ID {position} is trying to use an input ({name}) which is already used by the "
                f"PipelineStage with ID {earlier[first].position}. This violates the dataflow constraints because an "
                "input can only be used by pipeline stages on the same IPU.\nIf the model requires for multiple "
                "pipeline stages to access the same `tf.Variable` then these pipeline stages need to placed onto the "
                "same IPU using the `device_mapping` argument to `tf.python.ipu.pipelining_ops.pipeline`."
            )
    mine = [name for name, first in users.items() if first == number]
    return tuple(name for name in mine if name in stage.variables), tuple(
        name for name in mine if name in stage.untrained
    )
