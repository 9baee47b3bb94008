"""Traced stages as a Request has them: what they cost and compute, on which system."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from ipusim.api import Array, System, Workload, analysis, models, pipelines, runs
from ipusim.base.errors import ProgramError, UnsupportedProgramError
from ipusim.ipu.runtime import checks
from ipusim.ipu.runtime.arguments import Arguments
from ipusim.ipu.runtime.gradients import Variable
from ipusim.ipu.runtime.narrowing import as_tensor
from ipusim.ipu.runtime.stage_call import Inputs
from ipusim.ipu.runtime.traced import Traced, TracedStage


@dataclass(frozen=True, eq=False)
class TracedFunctions:
    """Stages that are Python functions, tried on their first micro-batch.

    Attributes:
        arguments: what was asked for.
        traced: the stages.
        feed: their micro-batches, which go on from run to run.
    """

    arguments: Arguments
    traced: Traced
    feed: Feed

    @property
    def names(self) -> tuple[str, ...]:
        """The name of each computational stage; concurrent ones have one."""
        return tuple(f"{self.arguments.name}_stage_{position}" for position in range(len(self.arguments.stages)))

    @property
    def shown_names(self) -> tuple[str, ...]:
        """The name of each stage in pictures: that of its function, where no other stage has it.

        Of others, such as functions without a name or of Keras' models, it is Graphcore's.
        """
        values = [stage_name(function) for functions in self.arguments.stages for function in functions]
        return tuple(
            name if name and values.count(name) == 1 else stage.stage.name
            for name, stage in zip(values, self.traced.stages, strict=True)
        )

    @property
    def parts(self) -> tuple[int, ...]:
        """How many run in each computational stage: 1, or the number of concurrent ones."""
        return tuple(map(len, self.arguments.stages))

    @property
    def training(self) -> bool:
        """Whether they train."""
        return self.arguments.training

    def content(self, system: System, offload: pipelines.Offload) -> runs.Content:
        """Return the costs and the arithmetic of the functions on ``system``.

        Raises UnsupportedProgramError for replicas that learn by themselves, and for variables of several stages
        that replicas store parts of; ProgramError for types that do not go together, and for groups of replicas that
        are not whole.
        """
        arguments, traced = self.arguments, self.traced
        _refuse_shared_variables_in_parts(offload, traced)
        outfeed = self.outfeed
        first = traced.stages[0].inputs[len(arguments.inputs) :]
        profiles = self._profiles()
        for profile in profiles:
            check_groups(profile, system.replicas)
        if not traced.sums_gradients:
            _refuse_replicas_that_learn_by_themselves(profiles, system)
        return runs.Content(
            profiles,
            _bytes(first) if arguments.infeed else 0,
            outfeed,
            _samples(first or traced.stages[0].inputs),
            result_bytes=outfeed.element_bytes,
            sums_gradients=traced.sums_gradients,
            sums_over_hosts=arguments.host_gradients is None,
            workload=self._workload,
        )

    def _workload(self, _: int) -> Workload:
        """Return the arithmetic of a replica, whose last stage says what its optimizer is."""
        stages, optimizer = self.traced.replica()
        variables = self.traced.variables
        return Workload(
            stages=stages,
            feed=self.feed,
            optimizer=optimizer,
            reduction=self.arguments.reduction_method.value,
            accumulation_dtype=lambda name: self.accumulator_dtype(name, variables[name]),
        )

    def accumulator_dtype(self, name: str, variable: Array) -> np.dtype[Any]:
        """Return the dtype of a variable's gradient accumulator: as asked for, else the variable's own.

        Raises ProgramError for a function that fails, and ProgramTypeError for one that returns no dtype.
        """
        chosen: Any = self.arguments.gradient_accumulation_dtype
        if chosen is None:
            return variable.dtype
        if callable(chosen):
            try:
                chosen = chosen(Variable(name, variable, {}))
            except Exception as error:
                raise ProgramError(
                    f"gradient_accumulation_dtype: expected a dtype of the function for variable {name!r}, got "
                    f"{type(error).__name__}: {error}"
                ) from error
        return checks.dtype("gradient_accumulation_dtype", chosen)

    def _profiles(self) -> tuple[models.StageProfile, ...]:
        traced, outfeed = self.traced, self.outfeed
        last = len(traced.stages) - 1
        result = [
            models.profile_function(
                stage.stage,
                stage.inputs,
                stage.outputs,
                is_last=number == last,
                optimizer=traced.optimizer,
                owned=stage.owned,
                taught=stage.taught,
                accumulator=self.accumulator_dtype,
                summed=_summed(outfeed, stage.outputs) if number == last and outfeed.accumulate else None,
                reduction=self.arguments.reduction_method.value,
            )
            for number, stage in enumerate(traced.stages)
        ]
        return tuple(map(_with_untrained, result, traced.stages))

    @cached_property
    def outfeed(self) -> pipelines.Outfeed:
        """Which of the last stage's results are sent, and how."""
        arguments, outputs = self.arguments, self.traced.stages[-1].outputs
        results = (analysis.LOSS if at == self.traced.loss else f"output {at}" for at in range(len(outputs)))
        names = (analysis.LOSS,) if arguments.outfeed_loss else tuple(results)
        if arguments.outfeed is None:
            return pipelines.Outfeed(names=names, mask=(True,) * len(names))
        dtype = arguments.accumulate_outfeed_dtype if arguments.accumulate_outfeed else None
        result = pipelines.Outfeed(
            mode=arguments.outfeed.outfeed_mode.value,
            buffer_depth=arguments.outfeed.buffer_depth,
            accumulate=arguments.accumulate_outfeed,
            names=names,
            mask=arguments.outfeed_mask or (),
            accumulate_dtype="" if dtype is None else np.dtype(dtype).name,
        )
        sent = [outputs[position] for position in result.sent]
        for output in sent:
            if not np.can_cast(output.dtype, sent_dtype(result, output), "same_kind"):
                checks.wrong_value("accumulate_outfeed_dtype", f"one that {output.dtype} can be added to", dtype)
        return replace(result, element_bytes=sum(item.size * sent_dtype(result, item).itemsize for item in sent))


def stage_name(function: Callable[..., Any]) -> str:
    """Return the name of a stage's function; empty for one without a name, and for those of ipusim's own."""
    while isinstance(function, partial):
        function = function.func
    name = str(getattr(function, "__name__", ""))
    own = str(getattr(function, "__module__", "")).partition(".")[0] == __name__.partition(".")[0]
    return name if name.isidentifier() and not own else ""


def _refuse_replicas_that_learn_by_themselves(profiles: Sequence[models.StageProfile], system: System) -> None:
    """Refuse replicas whose stages do not exchange gradients, or cannot; raises UnsupportedProgramError."""
    exchanged = any(profile.backward_collectives for profile in profiles) and not any(
        profile.tables.gradients for profile in profiles
    )
    if system.replicas > 1 and not exchanged:
        raise UnsupportedProgramError(
            f"optimizer_function: replicas that learn by themselves are not simulated, and this device has "
            f"{system.replicas}: expected a CrossReplicaOptimizer around the optimizer, or a device of "
            f"{system.shards} IPUs"
        )


def _with_untrained(result: models.StageProfile, item: TracedStage) -> models.StageProfile:
    """Return a stage's profile with the variables that no optimizer trains."""
    arrays = item.stage.untrained
    return replace(
        result,
        untrained_bytes=_bytes(tuple(arrays[name] for name in item.owned_untrained)),
        changing_bytes=_bytes(tuple(arrays[name] for name in item.stage.changes)),
    )


def sent_dtype(outfeed: pipelines.Outfeed, output: Array) -> np.dtype[Any]:
    """Return the dtype in which an output is sent."""
    return np.dtype(outfeed.accumulate_dtype or output.dtype)


def _summed(outfeed: pipelines.Outfeed, outputs: tuple[Array, ...]) -> models.Summed:
    sent = [outputs[position] for position in outfeed.sent]
    width = max((sent_dtype(outfeed, output).itemsize for output in sent), default=1)
    return models.Summed(sum(output.size for output in sent), width)


def _refuse_shared_variables_in_parts(offload: pipelines.Offload, traced: Traced) -> None:
    """Refuse a variable of several stages whose parts replicas store; raises UnsupportedProgramError."""
    for stage in traced.stages:
        shared = [name for name in stage.stage.variables if name not in stage.owned]
        if offload.weights and shared:
            raise UnsupportedProgramError(
                f"replicated_weight_sharding: expected each variable in one stage, got {shared[0]!r} in several"
            )


def _samples(arrays: tuple[Array, ...]) -> int:
    """Return the samples of a micro-batch: by convention the length of the first array's first axis."""
    return arrays[0].shape[0] if arrays and arrays[0].ndim and arrays[0].shape[0] else 1


def _bytes(arrays: tuple[Array, ...]) -> int:
    return sum(array.nbytes for array in arrays)


class Feed:
    """Micro-batches of the pipeline's inputs and the infeed's elements, which go on from run to run.

    Attributes:
        start: place in the infeed of element 0; the elements of a session's runs are counted on.
    """

    def __init__(self, arguments: Arguments, inputs: Inputs) -> None:
        """Begin at the infeed's first element, with ``inputs`` as they are."""
        self._inputs = inputs
        self._queue = arguments.infeed
        self.start = 0

    def element(self, index: int) -> tuple[tuple[Array, ...], None]:
        """Return the first stage's inputs of micro-batch ``index`` of all runs."""
        self._inputs.running = True
        if self._queue is None:
            return self._inputs.values, None
        return (*self._inputs.values, *self._queue.take(self.start + index)), None

    def replace_inputs(self, inputs: Sequence[Any]) -> None:
        """Replace the values of the inputs.

        Raises ProgramError for another number or shape of them, ProgramTypeError where a value would have to be
        rounded to the input's dtype.
        """
        stored = self._inputs.values
        if len(inputs) != len(stored):
            raise ProgramError(f"inputs: expected {len(stored)} values as in the pipeline's own, got {len(inputs)}")
        result = []
        for position, (value, before) in enumerate(zip(inputs, stored, strict=True)):
            checks.numbers(f"inputs[{position}]", value)
            array = as_tensor(value)
            if array.shape != before.shape:
                raise ProgramError(
                    f"inputs[{position}]: expected shape {before.shape} as in the pipeline's own, got {array.shape}"
                )
            if not np.can_cast(array.dtype, before.dtype, "same_kind"):
                checks.wrong_type(f"inputs[{position}]", f"{before.dtype} as in the pipeline's own", value)
            result.append(array.astype(before.dtype))
        self._inputs.values = tuple(result)

    def go_on(self, first: int) -> None:
        """Begin a run where the queue is; its first micro-batch is number ``first`` of all runs."""
        self.start = self.consumed - first

    @property
    def consumed(self) -> int:
        """The elements of the infeed that have been read."""
        return 0 if self._queue is None else self._queue.consumed

    def go_to(self, index: int) -> None:
        """Go on with element ``index`` of the infeed; raises as IPUInfeedQueue.go_to does."""
        if self._queue is not None:
            self._queue.go_to(index)


def check_groups(profile: models.StageProfile, replicas: int) -> None:
    """Refuse groups of replicas that the device cannot be divided into; raises ProgramError."""
    for call in (*profile.forward_collectives, *profile.backward_collectives):
        size = call.size(replicas)
        if call.operation == "all_to_all" and size != replicas:
            expected = f"the number of replicas of the device, {replicas}"
        elif replicas % size:
            expected = f"a number by which that of the device's replicas, {replicas}, can be divided"
        else:
            continue
        name = "replica_group_size" if call.operation == "all_reduce" else "replication_factor"
        raise ProgramError(f"{name}: expected {expected}, got {size} in stage {profile.name!r}")
