"""Execute passes with real NumPy arithmetic on the tensors of simulated IPUs.

IPU processes call the executor at the simulated time of an event. A tensor is on a single IPU. Outputs of a pass wait
in the IPU's outbox until the copy at the end of the time-step; inputs must be on the IPU at the start of the pass. A
wrong order, or a stage on a wrong IPU, therefore stops the run with a missing tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any, Final

from ipusim.base.errors import IpusimError, MissingTensorError, ModelError, UntraceableError
from ipusim.machine.placed_variables import PlacedVariables
from ipusim.machine.stage_memory import StageMemory
from ipusim.machine.tensors import IpuMemory, Payload, Results, Transfers
from ipusim.model.collective_call import CollectiveCall
from ipusim.model.functions.replica import Replica
from ipusim.model.functions.surrounded import Surrounded
from ipusim.model.functions.untrained import Untrained
from ipusim.model.functions.users_code import line_of, message_of
from ipusim.model.layers.layer import Array, Key, Saved
from ipusim.model.stages.not_finite import is_finite, origin
from ipusim.model.stages.stage import LayerStage
from ipusim.model.workload import Workload
from ipusim.pipeline.feeds import Outfeed
from ipusim.pipeline.moves import Way
from ipusim.pipeline.ops import Op, Pass
from ipusim.pipeline.shape import PlanShape

#: Payload from the last forward pass to its backward pass: a token without a tensor.
_NO_PAYLOAD: Final = Payload(None)
_PLAIN_OUTFEED: Final = Outfeed()
_NO_CONTEXT: Final = nullcontext()


class NumpyExecutor(PlacedVariables):
    """Executes a workload's stages on the IPUs of a plan.

    Attributes:
        results: elements received on the host, in order: the results of the last stage that ``outfeed`` sends, such as
            the loss during training.
        not_finite: origin of the first non-finite value in forward passes of the first micro-batch; empty if every
            value is finite.
        executions: number of executions of earlier runs; the feed and random draws continue after them.
        replica_context: context manager in which a stage's function can ask for its replica; None for stages of layers,
            or for a single replica.
        copy: :meth:`ipusim.machine.tensors.Transfers.copy`.
        deliver: :meth:`ipusim.machine.tensors.Transfers.deliver`.
        outfeed_total: hands the sum of an execution's results to the host.
        joint_runs: function per (pass, stage) with collectives, which calls :meth:`run_alone` across replicas.
    """

    def __init__(
        self,
        shape: PlanShape,
        workload: Workload,
        replica: int = 0,
        replicas: int = 1,
        outfeed: Outfeed = _PLAIN_OUTFEED,
        prepare: Callable[[int], object] = lambda execution: None,  # noqa: ARG005
        note_result: Callable[[], object] = lambda: None,
    ) -> None:
        """Place the initial parameters on IPUs; replicas begin with equal parameters.

        Feed elements are dealt to the ``replicas`` in turn, from replica 0. ``prepare`` is called at the beginning of
        every execution, with its number, and ``note_result`` after every new entry of ``results``.

        Raises ModelError for variables without an optimizer under a schedule with two copies of every stage.
        """
        super().__init__(shape.copies, workload.optimizer)
        self._shape = shape
        self._last = shape.stages - 1
        self._recomputes = [
            shape.recomputes(stage) and not workload.stages[stage].recomputes_itself for stage in range(shape.stages)
        ]
        # Lists for quick look-ups in every pass. Steps of a stage: forward and backward.
        self._steps = [(shape.position_of[stage], shape.step_of(Pass.BACKWARD, stage)) for stage in range(shape.stages)]
        self._needs_input_gradient = [stage.needs_input_gradient for stage in workload.stages]
        self._stores = [stage.stores for stage in workload.stages]
        self._fetches = [stage.fetches for stage in workload.stages]
        self._passes: dict[int, Callable[[int, IpuMemory, int, int], None]] = {
            Pass.FORWARD: self._forward,
            Pass.BACKWARD: self._backward,
            Pass.RECOMPUTE: self._recompute,
            Pass.INPUT_GRADIENT: self._backward_input,
            Pass.WEIGHT_GRADIENT: self._backward_weights,
        }
        self._workload = workload
        self._transfers = Transfers(shape, self._memories)
        self.copy, self.deliver = self._transfers.copy, self._transfers.deliver
        self._execution = self.executions = 0
        self._prepare = prepare
        self._replica, self._replicas = replica, replicas
        self._outputs: dict[int, tuple[Array, ...]] = {}
        self._results = Results(outfeed, note_result, len(shape.copies) if outfeed.mode == "ALL" else 1)
        self.results, self.outfeed_total = self._results.elements, self._results.hand_over_total
        self.not_finite, self._is_watching = "", True
        may_ask_for_replica = replicas > 1 and not all(isinstance(stage, LayerStage) for stage in workload.stages)
        self.replica_context = (
            Surrounded(replica=Replica(replica, _refuse_collective, count=replicas)) if may_ask_for_replica else None
        )
        self.joint_runs: dict[tuple[int, int], Callable[[int, int, int, int, int], None]] = {}
        for stage, ipu in shape.homes:
            stages = self._memories[ipu].stages
            stages[stage] = StageMemory(workload, stage, shape.micro_batches, tuple(stages.values()), self.untrained)
        if shape.mirrored and self.untrained:
            raise ModelError(
                "expected only variables trained by an optimizer under a schedule with two copies of each stage, "
                f"because other variables would differ between the copies, got {', '.join(sorted(self.untrained))}"
            )

    def begin(self, execution: int) -> None:
        """Clear the tensors of the previous execution."""
        self._prepare(execution)
        self._execution = execution
        self._outputs.clear()
        for memory in self._memories.values():
            for stage in memory.stages.values():
                stage.clear()

    def infeed(self, ipu: int, micro_batch: int) -> None:
        """Copy the next element of the feed onto ``ipu``."""
        x, labels = self._workload.feed.element(self._element(micro_batch))
        self._memories[ipu].arrived[0, micro_batch] = Payload(x, labels)

    def run(self, ipu: int, kind: int, stage: int, micro_batch: int) -> None:
        """Run a pass on ``ipu``, or on every replica for a pass with collectives.

        Raises MissingTensorError for a missing input, ModelError if a layer fails.
        """
        run_in_replicas = self.joint_runs.get((kind, stage))
        if run_in_replicas is None:
            self.run_alone(ipu, kind, stage, micro_batch)
        else:
            run_in_replicas(self._replica, ipu, kind, stage, micro_batch)

    def run_alone(self, ipu: int, kind: int, stage: int, micro_batch: int) -> None:
        """Run a pass in this replica; raises MissingTensorError for a missing input, ModelError if a layer fails."""
        memory = self._memories[ipu]
        if stage not in memory.stages:
            raise MissingTensorError(
                f"IPU {ipu} cannot run {Op(Pass(kind), stage, micro_batch)}: the IPU does not hold the parameters of "
                f"stage {stage}, which are on IPU {self._shape.copies[micro_batch % len(self._shape.copies)][stage]}"
            )
        try:
            with self.replica_context or _NO_CONTEXT:
                self._passes[kind](ipu, memory, stage, micro_batch)
        except (MissingTensorError, UntraceableError, KeyboardInterrupt):
            raise
        except BaseException as error:  # a user's function may raise anything, even on the thousandth call
            raise self.failure(kind, stage, micro_batch, error) from error

    def failure(self, kind: int, stage: int, micro_batch: int, error: BaseException) -> ModelError:
        """Return the ModelError of a failed pass, with pass, stage and line."""
        op, name = Op(Pass(kind), stage, micro_batch), self._workload.stages[stage].name
        line = "" if isinstance(error, IpusimError) else f"{line_of(error)}: "
        return ModelError(f"{op} of stage {name!r} failed in execution {self._execution}: {line}{message_of(error)}")

    def outfeed(self, micro_batch: int) -> None:
        """Hand the last stage's results of ``micro_batch`` to the host, or accumulate the results."""
        self._results.add(self._outputs.pop(micro_batch), micro_batch)

    def move(self, ipu: int, target_ipu: int, stage: int, micro_batch: int, way: int) -> None:
        """Move a stage's saved activations of a micro-batch from ``ipu`` to ``target_ipu``, or back.

        Raises MissingTensorError if the source lacks the activations.
        """
        memory, index = self._memories[ipu], (stage, micro_batch)
        partner_stash = self._memories[target_ipu].partner_stashes
        stash: dict[Any, Any] = memory.inputs if self._recomputes[stage] else memory.saved_values
        try:
            if way == Way.OUT:
                partner_stash[ipu, stage, micro_batch] = stash.pop(index)
            else:
                stash[index] = partner_stash.pop((ipu, stage, micro_batch))
        except KeyError:
            tensor_name = "the moved stash of its forward pass"
            raise self._missing_error(
                ipu, Pass.FORWARD if way == Way.OUT else Pass.BACKWARD, index, tensor_name
            ) from None

    def _forward(self, ipu: int, memory: IpuMemory, stage: int, micro_batch: int) -> None:
        index = stage, micro_batch
        step, _ = self._steps[stage]
        payload = self._transfers.take(memory, step, micro_batch)
        if payload is None:
            raise self._missing_error(ipu, Pass.FORWARD, index, "its input")
        if self._fetches[stage]:
            tensor = self._with_fetched_values(ipu, Pass.FORWARD, index, payload.tensor, self._fetches[stage])
            payload = payload._replace(tensor=tensor)
        stage_memory = memory.stages[stage]
        untrained = stage_memory.untrained_copies()
        output, saved_values = stage_memory.forward(payload.tensor, payload.labels, self._key(micro_batch))
        if self._is_watching and not micro_batch:
            self._note_non_finite(stage_memory, stage, payload, output, untrained)
        if self._stores[stage]:
            output = memory.store(self._stores[stage], micro_batch, output)
        is_last = stage == self._last
        if is_last:
            self._outputs[micro_batch] = output if isinstance(output, tuple) else (output,)
        if self._shape.training:
            if self._recomputes[stage]:
                memory.inputs[index] = payload, untrained
            else:
                memory.saved_values[index] = saved_values
        memory.outbox[step, micro_batch] = _NO_PAYLOAD if is_last else Payload(output, payload.labels)

    def _note_non_finite(
        self, stage_memory: StageMemory, stage: int, payload: Payload, output: Any, untrained: Untrained | None
    ) -> None:
        """Note the layer that made the first non-finite value of the first micro-batch."""
        self._is_watching = stage != self._last
        if not is_finite(output):
            self._is_watching, model = False, self._workload.stages[stage]
            replica = Replica(self._replica, count=self._replicas)
            with Surrounded(replica=replica, untrained=untrained):  # the layers run a second time, outside lock step
                made_by = origin(model, stage_memory.parameters, payload.tensor, payload.labels, self._key(0))
            self.not_finite = f"{made_by} in {Op(Pass.FORWARD, stage, 0)} of stage {model.name!r}"

    def _recompute(self, ipu: int, memory: IpuMemory, stage: int, micro_batch: int) -> None:
        index = stage, micro_batch
        stashed = memory.inputs.pop(index, None)
        if stashed is None:
            raise self._missing_error(ipu, Pass.RECOMPUTE, index, "the kept input of its forward")
        payload, untrained = stashed
        _, memory.saved_values[index] = memory.stages[stage].recompute(
            payload.tensor, payload.labels, self._key(micro_batch), untrained
        )

    def _backward(self, ipu: int, memory: IpuMemory, stage: int, micro_batch: int) -> None:
        saved_values, output_gradient = self._backward_inputs(ipu, Pass.BACKWARD, memory, (stage, micro_batch))
        stage_memory = memory.stages[stage]
        stage_memory.micro_batch = micro_batch
        gradient = stage_memory.passes.backward(
            saved_values,
            output_gradient,
            self._needs_input_gradient[stage],
            stage_memory.accumulate,
            stage_memory.totals,
        )
        stage_memory.accumulated += 1
        self._put_input_gradient(memory, (stage, micro_batch), gradient)

    def _backward_input(self, ipu: int, memory: IpuMemory, stage: int, micro_batch: int) -> None:
        index = stage, micro_batch
        saved_values, output_gradient = self._backward_inputs(ipu, Pass.INPUT_GRADIENT, memory, index)
        passes = memory.stages[stage].passes
        gradient, memory.rest_values[index] = passes.backward_input(
            saved_values, output_gradient, self._needs_input_gradient[stage]
        )
        self._put_input_gradient(memory, index, gradient)

    def _backward_weights(self, ipu: int, memory: IpuMemory, stage: int, micro_batch: int) -> None:
        index, stage_memory = (stage, micro_batch), memory.stages[stage]
        if index not in memory.rest_values:
            raise self._missing_error(
                ipu, Pass.WEIGHT_GRADIENT, index, "the result of the other half of its backward pass"
            )
        stage_memory.micro_batch = micro_batch
        stage_memory.passes.backward_weights(
            memory.rest_values.pop(index), stage_memory.accumulate, stage_memory.totals
        )
        stage_memory.accumulated += 1

    def _backward_inputs(self, ipu: int, kind: Pass, memory: IpuMemory, index: tuple[int, int]) -> tuple[Saved, Any]:
        """Return saved values and output gradient for a backward pass, or for an input-gradient pass."""
        (stage, micro_batch), (_, step) = index, self._steps[index[0]]
        if self._shape.recompute_inline and self._recomputes[stage]:
            self._recompute(ipu, memory, stage, micro_batch)
        saved_values = memory.saved_values.pop(index, None)
        if saved_values is None:
            raise self._missing_error(ipu, kind, index, "the stash of its forward pass")
        payload = self._transfers.take(memory, step, micro_batch)
        if payload is None:
            raise self._missing_error(ipu, kind, index, "the gradient of its output")
        output_gradient = payload.tensor
        if self._stores[stage]:
            output_gradient = self._with_fetched_values(ipu, kind, index, output_gradient, self._stores[stage])
        return saved_values, output_gradient

    def _put_input_gradient(self, memory: IpuMemory, index: tuple[int, int], gradient: Any) -> None:
        """Put a stage's input gradient into the outbox.

        Gradients of fetched values wait on the IPU for the backward passes of the source stages.
        """
        (stage, micro_batch), (_, step) = index, self._steps[index[0]]
        if self._fetches[stage]:
            gradient = memory.store(self._fetches[stage], micro_batch, gradient, backward=True)
        memory.outbox[step, micro_batch] = Payload(gradient)

    def _with_fetched_values(
        self, ipu: int, kind: Pass, index: tuple[int, int], tensor: Any, names: Sequence[str]
    ) -> Any:
        """Return ``tensor`` with the values (backward: gradients) that wait on ``ipu`` for this pass."""
        try:
            return self._memories[ipu].take(names, index[1], tensor, kind != Pass.FORWARD)
        except KeyError as error:
            raise self._missing_error(
                ipu, kind, index, f"the data that another stage leaves on the IPU ({error})"
            ) from None

    def _key(self, micro_batch: int) -> Key | None:
        """Return the seed and feed position for random draws; None in inference."""
        return (self._workload.seed, self._element(micro_batch)) if self._shape.training else None

    def _element(self, micro_batch: int) -> int:
        """Return the position in the feed of a micro-batch of the current execution."""
        execution = self.executions + self._execution
        return (execution * self._shape.micro_batches + micro_batch) * self._replicas + self._replica

    def _missing_error(self, ipu: int, kind: Pass, index: tuple[int, int], tensor_name: str) -> MissingTensorError:
        """Return the error for a tensor missing from ``ipu``'s memory."""
        op = Op(kind, *index)
        return MissingTensorError(f"IPU {ipu} cannot run {op} in execution {self._execution}: {tensor_name} is missing")


def _refuse_collective(call: CollectiveCall, _: Array) -> Array:
    """Refuse a collective in a pass without collectives; raises ModelError."""
    raise ModelError(
        f"the stage calls {call}, but called no collective in its trial: call the same collectives in every call"
    )
