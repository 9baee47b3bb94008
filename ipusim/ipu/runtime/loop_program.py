"""From the body of a loop to the stages of a program: one on a single IPU, or the shards of a sharded one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

from ipusim.api import Array, functions, models
from ipusim.base.errors import IpusimError, ProgramError, UnsupportedProgramError
from ipusim.ipu.ipu_infeed_queue import IPUInfeedQueue
from ipusim.ipu.runtime import checks
from ipusim.ipu.runtime.arguments import Arguments
from ipusim.ipu.runtime.building import Captures, captures
from ipusim.ipu.runtime.call_checks import check_takes
from ipusim.ipu.runtime.function_body import LoopReached
from ipusim.ipu.runtime.host_gradients import HostGradients
from ipusim.ipu.runtime.loop_body import BodyRecord, as_numbers, failed, run_body
from ipusim.ipu.runtime.names import ProgramNames
from ipusim.ipu.runtime.narrowing import as_tensor
from ipusim.ipu.runtime.pipeline_options import GradientAccumulationReductionMethod, LoopSchedule, PipelineStageOptions
from ipusim.ipu.runtime.run import ProgramReached
from ipusim.ipu.runtime.shards import Shards
from ipusim.ipu.runtime.stage_call import Holder, Inputs
from ipusim.ipu.runtime.weight_update import OptimizerFunctionOutput, optimizer_of_body


@contextmanager
def trying() -> Iterator[None]:
    """Try a body in the block: on plain arrays, with the variables at their initial values."""
    untrained = functions.Untrained({}, takes_new=True)
    around = functions.Surrounded(lookup=lambda _, initial: np.array(initial), untrained=untrained)
    with around, ProgramNames().stage(0), np.errstate(all="ignore"):
        yield


class LoopProgram:
    """A loop's body as stages of a program.

    Attributes:
        inputs: the loop-carried tensors as they are now.
    """

    def __init__(
        self,
        body: Callable[..., Any],
        inputs: Any,
        infeed: IPUInfeedQueue | None,
        at_once: bool = False,
        captured: Mapping[Any, Array] | None = None,
    ) -> None:
        """Try the body once, on the first values of its tensors and the shapes of the infeed's elements.

        With ``at_once`` it trains where it says so, whatever it returns; ``captured`` are values of tensors of the host
        that it uses without being given them, by default of their examples' forms. Raises ProgramError and
        UnsupportedProgramError for a body that does not return tensors as it takes them.
        """
        values = models.as_results(inputs)
        for index, value in enumerate(values):
            checks.numbers(f"inputs[{index}]", value)
        self._body, self._infeed, self._at_once = body, infeed, at_once
        self._captures = Captures(captured)
        self.inputs = Inputs(tuple(map(as_tensor, values)))
        self._element: tuple[Array, ...] = () if infeed is None else infeed.example()
        self._first = self._tried(self.inputs.values)
        for new, old in zip(self._first.carried, self.inputs.values, strict=True):
            _as_before(new, old)
        if self._first.others and len(self._first.shards) > 1:
            raise UnsupportedProgramError("enqueue: expected one outfeed queue in a sharded loop, got several")
        if len(self._captures) and len(self._first.shards) > 1:
            raise UnsupportedProgramError(
                "body: expected the tensors of the host that it uses in `inputs`, as it is sharded"
            )
        self._record = self._first
        self._gradients = HostGradients.of(self._first, sharded=len(self._first.shards) > 1)
        self._shards: Shards | None = None
        if len(self._first.shards) > 1:
            self._shards = Shards(self._called, self.inputs, self._element)

    def sends_as_before(self) -> bool:
        """Tell whether the body, which may be another function of the same form now, sends to the queue that it did."""
        if self._shards is not None:
            self._shards.forget()
        return self._tried(self.inputs.values).queue is self._first.queue

    def iterations(self, condition: Callable[..., Any], most: int) -> int:
        """Return how often ``condition`` holds, up to ``most`` times, where each iteration has the same element."""
        count, values = 0, self.inputs.values
        while count < most and holds(condition, values):
            values = tuple(map(as_tensor, self._tried(values).carried))
            count += 1
        return count

    def arguments(self, n: int, name: str = "loop") -> Arguments:
        """Return the arguments of the program called ``name``, which runs the body ``n`` times.

        Raises ProgramError where that is no multiple of the mini-batches of a weight update.
        """
        record = self._first
        stages: Sequence[Callable[..., Any]] = [self._stage] if self._shards is None else self._shards.stages()
        accumulation = getattr(record.train.optimizer, "accumulation", None) if record.train is not None else None
        count = 1 if accumulation is None else accumulation.num_mini_batches
        if n % count:
            raise ProgramError(
                f"Detected a gradient accumulation operation with {count} number of mini batches inside a loop with "
                f"{n} iterations. It is required that the number of mini batches to accumulate evenly divides the "
                "number of loop iterations."
            )
        options: dict[str, Any] = {"repeat_count": n // count, "outfeed_loss": False, "accumulate_outfeed": False}
        if accumulation is not None:
            sharded = accumulation.replicated_optimizer_state_sharding
            options["offload_weight_update_variables"] = accumulation.offload_weight_update_variables
            options["replicated_optimizer_state_sharding"] = bool(sharded)
        trains = record.train is not None or self._gradients is not None
        if self._gradients is not None:
            options["variables_on_host"] = True
        none = tuple(PipelineStageOptions() for _ in stages)
        return Arguments(
            stages=tuple((stage,) for stage in stages),
            count=count,
            options=options,
            gradient_accumulation_dtype=None if accumulation is None else accumulation.dtype,
            inputs=self.inputs.values,
            infeed=self._infeed,
            outfeed=record.queue,
            optimizer_function=self._optimizer if trains else None,
            mapping=(0,) if self._shards is None or len(stages) == 1 else self._shards.mapping,
            schedule=LoopSchedule.Single if len(stages) == 1 else LoopSchedule.Sharded,
            reduction_method=(
                GradientAccumulationReductionMethod.SUM if accumulation is None else accumulation.reduction_method
            ),
            forward_options=none,
            backward_options=none,
            name=name,
            enqueued_in=Holder.of(self._sent(record)),
            host_gradients=self._gradients,
            captures=self._captures,
        )

    def _tried(self, values: Sequence[Array]) -> BodyRecord:
        """Run the body on plain arrays, with the variables at their initial values."""
        with trying():
            try:
                return self._called(*as_numbers((*values, *self._element)))
            except (IpusimError, KeyboardInterrupt, ProgramReached, LoopReached):
                raise
            except BaseException as error:  # a user's function may do anything
                raise failed("body", error) from error

    def _called(self, *values: Any) -> BodyRecord:
        keywords = () if self._infeed is None else self._infeed.keywords
        split = len(values) - len(keywords)
        named = dict(zip(keywords, values[split:], strict=True))
        check_takes("body", self._body, values[:split], named)
        return self._run(values[:split], named)

    def _run(self, values: Sequence[Any], named: Mapping[str, Any]) -> BodyRecord:
        body = partial(self._body, **named)
        with captures.set_to(self._captures):
            self._record = run_body(body, values, len(self.inputs.values), self._at_once)
        return self._record

    def _stage(self, *values: Any, **named: Any) -> Any:
        """Run the body as the one stage of a program; its tensors are those of the next iteration from then on."""
        from autograd.tracer import getval  # noqa: PLC0415 - autograd takes a while to import

        record = self._run(as_numbers(values), named)
        if self.inputs.running:
            after = tuple(
                _as_before(getval(new), old) for new, old in zip(record.carried, self.inputs.values, strict=True)
            )
            self.inputs.carry(after)
        return self._sent(record)

    def _sent(self, record: BodyRecord) -> Any:
        """Return the arrays that a run of the body sends over the outfeed."""
        return record.enqueued if self._gradients is None else self._gradients.beside(record.enqueued)

    def _optimizer(self, *_: Any) -> OptimizerFunctionOutput:
        if self._gradients is not None:
            return self._gradients.optimizer(self._record.enqueued)
        train = (self._record if self._shards is None else self._shards.record).train
        loss = train.loss if self._shards is None else self._shards.loss
        computed = None if train.var_list is None else {"var_list": train.var_list}
        applied = {"global_step": train.global_step, "name": train.name}
        arguments = {name: value for name, value in applied.items() if value is not None}
        return OptimizerFunctionOutput(
            optimizer_of_body(train.optimizer, train.update),
            loss,
            compute_gradients_kwargs=computed,
            apply_gradients_args=train.args,
            apply_gradients_kwargs=arguments | dict(train.kwargs),
        )


def holds(condition: Callable[..., Any], values: Sequence[Any]) -> bool:
    """Tell whether a loop goes on; raises ProgramTypeError for a condition that does not take or give what it should.

    Raises ModelError for one that fails.
    """
    check_takes("condition", condition, values, {})
    with functions.Failing("condition failed"):
        result = np.asarray(condition(*values))
    if result.size != 1 or result.dtype.kind not in "biuf":
        checks.wrong_type("condition", "True or False from it", result)
    return bool(result)


def _as_before(new: Any, old: Array) -> Array:
    """Return a loop-carried tensor in the form that it had; raises ProgramError for another shape."""
    result = as_tensor(new)
    if result.shape != old.shape:
        raise ProgramError(f"body: expected a loop-carried tensor of shape {old.shape} again, got {result.shape}")
    if not np.can_cast(result.dtype, old.dtype, "same_kind"):
        raise UnsupportedProgramError(f"body: expected a loop-carried tensor of {old.dtype} again, got {result.dtype}")
    return result.astype(old.dtype)
